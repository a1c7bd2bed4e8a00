// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server of calls without a runtime: it returns received calls to the application, which
//! answers them in its own threads.
//!
//! ```text
//!   CALL ─▶ ready ─ recv ─▶ Request ─▶ answered      beyond `waiting_max` ready calls: BUSY
//!             └─ CANCEL, or the deadline passed ─▶ removed
//! ```
//!
//! # Invariants
//!
//! - Every call is answered once, unless it is one-way or cancelled. The answer is that of the
//!   application, or an error, which any thread sends that receives or answers. If the stream has
//!   no room for the error, a receiving thread tries again every 5 ms (`SEND_SLICE`), or every
//!   second (`LOOK_AGAIN`) if the error was added after its wait began.
//! - While no thread receives, the receiving stream lies in the shared state, where the next thread
//!   takes it.

use super::super::frame::{CODES_RESERVED, Frame, HEADER_BYTES, left};
use super::super::serving::Serving;
use super::super::{ABORTED, BUSY, CallViolation, CallsConfig, DEADLINE, ServeError};
use super::turn::{Turn, wait_once};
use super::{BETWEEN_MAX, look_again, refuse, send_frame, send_until};
use bytes::Buf;
use partywall::blocking::{RecvStream, SendStream, Stream};
use partywall::{Message, StreamRecvError, StreamSendError};
use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// Receives the calls that arrive on a stream. Any number of threads may use the server, and clones
/// share the stream.
#[derive(Clone, Debug)]
pub struct Server {
    shared: Arc<Shared>,
}

/// A call that the application has to answer; it derefs to the call's payload. If the value is
/// dropped without an answer, the call fails with
/// [`CallError::Aborted`](super::super::CallError::Aborted).
#[derive(Debug)]
pub struct Request {
    shared: Arc<Shared>,
    call: Received,
    is_settled: bool,
}

#[derive(Debug)]
struct Received {
    id: u64,
    payload: Message,
    deadline: Option<Instant>,
    is_one_way: bool,
    is_cancelled: Arc<OnceLock<()>>,
}

#[derive(Debug)]
struct Shared {
    send: Turn<SendStream>,
    state: Mutex<State>,
    changed: Condvar,
    waiting_max: usize,
}

#[derive(Debug)]
struct State {
    /// The calls that the application has received or can receive, each with a flag that its
    /// cancellation sets.
    calls: Serving<(), Arc<OnceLock<()>>>,
    ready: VecDeque<Received>,
    /// The errors that the client must still be told, because the stream had no room. Each is the
    /// id of a call and the error code that answers the call.
    pending_errors: Vec<(u64, u32)>,
    /// The receiving stream; `None` while a thread receives from it.
    recv: Option<RecvStream>,
    is_finished: bool,
    over: Option<ServeError>,
}

impl Server {
    /// Makes a server for the calls of `stream`. Of `config` it uses only `waiting_max`, the number
    /// of calls that may wait until the application receives them by `recv`; further calls are
    /// refused.
    #[must_use]
    pub fn new(stream: Stream, config: CallsConfig) -> Self {
        let (send, recv) = stream.into_split();
        Self::over(send, recv, config)
    }

    /// Makes a server over the sending and the receiving direction of a stream.
    #[must_use]
    pub fn over(send: SendStream, recv: RecvStream, config: CallsConfig) -> Self {
        let state = State {
            calls: Serving::new(usize::MAX, 0),
            ready: VecDeque::new(),
            pending_errors: Vec::new(),
            recv: Some(recv),
            is_finished: false,
            over: None,
        };
        let (send, state, waiting_max) =
            (Turn::new(send), Mutex::new(state), config.waiting_max.max(1));
        Self { shared: Arc::new(Shared { send, state, changed: Condvar::new(), waiting_max }) }
    }

    /// Waits for the next call until `deadline`, and returns it. Returns `None` once the client has
    /// finished and every call is answered.
    ///
    /// # Errors
    /// [`ServeError::Recv`] with [`StreamRecvError::TimedOut`] if no call came in time; another
    /// [`ServeError`] if the stream ended early.
    pub fn recv(&self, deadline: Option<Instant>) -> Result<Option<Request>, ServeError> {
        let shared = &self.shared;
        let mut is_late = false;
        loop {
            shared.send_pending();
            let mut state = shared.lock();
            if let Some(call) = state.next() {
                let shared = Arc::clone(shared);
                return Ok(Some(Request { shared, call, is_settled: false }));
            }
            if let Some(error) = &state.over {
                return Err(error.clone());
            }
            if state.is_finished && state.calls.is_idle() && state.pending_errors.is_empty() {
                return Ok(None);
            }
            if is_late {
                return Err(StreamRecvError::TimedOut.into());
            }
            // If no call is left, or if more than `waiting_max` errors are unsent, this thread
            // waits for room to send an error before it receives another call. So a client that
            // reads no answers can make no more calls, and the list of errors stays bounded.
            let is_idle = state.is_finished && state.calls.is_idle();
            if is_idle || state.pending_errors.len() > shared.waiting_max {
                drop(state);
                is_late = !shared.send_one_pending(deadline);
                continue;
            }
            is_late = shared.advance(state, deadline);
        }
    }
}

impl Request {
    /// Returns the payload as it arrived. After this call, the payload of the request is empty.
    #[must_use]
    pub fn take_message(&mut self) -> Message {
        std::mem::replace(&mut self.call.payload, Message::from_protocol(&[]))
    }

    /// Returns the client's deadline, if the call has one.
    #[must_use]
    pub const fn deadline(&self) -> Option<Instant> {
        self.call.deadline
    }

    /// Whether the call is one-way, so that the client expects no answer.
    #[must_use]
    pub const fn is_one_way(&self) -> bool {
        self.call.is_one_way
    }

    /// Whether an answer is useless: the client has cancelled the call or is gone, or the deadline
    /// has passed. To find out, this method first receives the messages that have arrived.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.shared.receive_arrived();
        self.shared.send_pending();
        self.is_given_up() || self.shared.lock().over.is_some()
    }

    /// Sends the answer to the client. If the call is one-way or cancelled, nothing is sent.
    ///
    /// # Errors
    /// [`StreamSendError::TimedOut`] if there was no room before `deadline`: the call then fails
    /// with [`CallError::Aborted`](super::super::CallError::Aborted). Another [`StreamSendError`]
    /// if the stream has ended.
    pub fn answer(
        mut self,
        payload: &[u8],
        deadline: Option<Instant>,
    ) -> Result<(), StreamSendError> {
        let frame = Frame::Answer { id: self.call.id };
        self.settle(frame, payload, deadline)
    }

    /// Makes the call fail with an error code of the application, and sends the client the detail.
    ///
    /// # Errors
    /// Fails as [`answer`](Self::answer) does: [`StreamSendError::TimedOut`] if there was no room
    /// before `deadline`, or another [`StreamSendError`] if the stream has ended.
    ///
    /// # Panics
    /// Panics if the code is reserved for the protocol: [`CODES_RESERVED`] or greater.
    pub fn fail(
        mut self,
        code: u32,
        detail: &[u8],
        deadline: Option<Instant>,
    ) -> Result<(), StreamSendError> {
        assert!(code < CODES_RESERVED, "codes from {CODES_RESERVED:#x} on are reserved");
        let frame = Frame::Error { id: self.call.id, code };
        self.settle(frame, detail, deadline)
    }

    fn is_given_up(&self) -> bool {
        self.call.is_cancelled.get().is_some() || self.call.is_late()
    }

    fn settle(
        &mut self,
        frame: Frame,
        payload: &[u8],
        deadline: Option<Instant>,
    ) -> Result<(), StreamSendError> {
        if self.call.is_one_way || self.is_given_up() {
            return Ok(()); // the drop of this request marks the call as ended
        }
        let shared = &*self.shared;
        let mut send = shared.send.take(deadline).ok_or(StreamSendError::TimedOut)?;
        let mut sent = send_frame(&mut send, frame, payload, deadline, || shared.receive_arrived());
        if let Err(StreamSendError::TooLarge(limit)) = &sent {
            let (frame, why) =
                (Frame::Error { id: self.call.id, code: ABORTED }, limit.to_string());
            sent = send_frame(&mut send, frame, why.as_bytes(), deadline, || {
                shared.receive_arrived();
            });
        }
        self.is_settled = sent.is_ok();
        match sent {
            Err(StreamSendError::Stopped { .. }) => Ok(()),
            other => other,
        }
    }
}

impl Deref for Request {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.call.payload
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let code = if self.call.is_late() { DEADLINE } else { ABORTED };
        let mut state = self.shared.lock();
        state.calls.finished(self.call.id);
        let is_cancelled = self.call.is_cancelled.get().is_some();
        if !self.is_settled && !self.call.is_one_way && !is_cancelled && state.over.is_none() {
            state.pending_errors.push((self.call.id, code));
        }
        drop(state);
        self.shared.send_pending();
        self.shared.changed.notify_all();
    }
}

impl Received {
    fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Receives one message. If another thread is receiving, waits until that thread has received a
    /// message, until a call is answered, or until it is time to send unsent errors again. Returns
    /// whether the deadline has passed.
    fn advance(&self, mut state: MutexGuard<'_, State>, deadline: Option<Instant>) -> bool {
        let until = look_again(deadline, !state.pending_errors.is_empty());
        if !state.is_finished
            && let Some(recv) = state.recv.take()
        {
            drop(state);
            let is_empty = self.receive(recv, |recv| recv.recv_deadline(until));
            return is_empty && deadline == Some(until);
        }
        drop(wait_once(&self.changed, state, until));
        deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Receives up to 64 messages (`BETWEEN_MAX`) that have already arrived on the stream; does
    /// nothing if another thread is receiving.
    fn receive_arrived(&self) {
        for _ in 0..BETWEEN_MAX {
            let mut state = self.lock();
            if state.is_finished || state.pending_errors.len() > self.waiting_max {
                return;
            }
            let Some(recv) = state.recv.take() else { return };
            drop(state);
            if self.receive(recv, RecvStream::try_recv) {
                return;
            }
        }
    }

    /// Receives at most one message by the function `recv`, and then puts the receiving stream back
    /// for other threads. Returns true if no message arrived.
    fn receive(
        &self,
        mut stream: RecvStream,
        recv: impl FnOnce(&mut RecvStream) -> Result<Option<Message>, StreamRecvError>,
    ) -> bool {
        let received = recv(&mut stream);
        let mut state = self.lock();
        let result = match received {
            Err(StreamRecvError::Empty | StreamRecvError::TimedOut) => Ok(true),
            Err(error) => Err(ServeError::Recv(error)),
            Ok(None) => {
                state.is_finished = true;
                Ok(false)
            }
            Ok(Some(message)) => {
                let received = state.receive(message, self.waiting_max);
                received.map(|()| false).map_err(ServeError::Violation)
            }
        };
        if let Err(error) = &result {
            if matches!(error, ServeError::Violation(_)) {
                refuse(&self.send, &mut stream);
            }
            state.end(error.clone());
        }
        state.recv = Some(stream);
        drop(state);
        self.changed.notify_all();
        result.unwrap_or(false)
    }

    /// Sends, as far as the stream has room now, the unsent errors of calls that were refused, late
    /// or aborted.
    fn send_pending(&self) {
        while !self.lock().pending_errors.is_empty() {
            let Some(mut send) = self.send.try_take() else { return };
            if !self.send_last_pending(&mut send, Some(Instant::now())) {
                return;
            }
        }
    }

    /// Sends one unsent error of a call that was refused, late or aborted. Waits for room until
    /// `deadline`; returns false if there was none in time.
    fn send_one_pending(&self, deadline: Option<Instant>) -> bool {
        let send = self.send.take(deadline);
        send.is_some_and(|mut send| self.send_last_pending(&mut send, deadline))
    }

    fn send_last_pending(&self, send: &mut SendStream, deadline: Option<Instant>) -> bool {
        let Some((id, code)) = self.lock().pending_errors.pop() else { return true };
        let frame = Frame::Error { id, code };
        let sent = match deadline {
            Some(deadline) => send_until(send, frame, &[], deadline),
            None => send_frame(send, frame, &[], None, || {}),
        };
        match sent {
            Err(StreamSendError::TimedOut | StreamSendError::Full) => {
                self.lock().pending_errors.push((id, code));
                false
            }
            Err(StreamSendError::Stopped { .. }) | Ok(()) => true,
            Err(error) => {
                self.lock().end(ServeError::Send(error));
                true
            }
        }
    }
}

impl State {
    /// Takes the next received call that the application can handle. A call whose deadline has
    /// passed is answered with the error DEADLINE instead.
    fn next(&mut self) -> Option<Received> {
        while let Some(call) = self.ready.pop_front() {
            if !call.is_late() {
                return Some(call);
            }
            self.calls.finished(call.id);
            if !call.is_one_way {
                self.pending_errors.push((call.id, DEADLINE));
            }
        }
        None
    }

    fn receive(&mut self, mut message: Message, waiting_max: usize) -> Result<(), CallViolation> {
        match Frame::decode(&message)? {
            Frame::Call { id, one_way, left_us } => {
                message.advance(HEADER_BYTES);
                self.calls.arrive(id, ())?;
                if self.ready.len() >= waiting_max {
                    self.calls.finished(id);
                    if !one_way {
                        self.pending_errors.push((id, BUSY));
                    }
                    return Ok(());
                }
                let is_cancelled = Arc::new(OnceLock::new());
                self.calls.started(id, Arc::clone(&is_cancelled));
                let deadline = left(left_us).map(|left| Instant::now() + left);
                let (payload, is_one_way) = (message, one_way);
                self.ready.push_back(Received { id, payload, deadline, is_one_way, is_cancelled });
            }
            Frame::Cancel { id } => {
                if let Some(flag) = self.calls.cancel(id) {
                    flag.get_or_init(|| ());
                }
                let before = self.ready.len();
                self.ready.retain(|call| call.id != id);
                if self.ready.len() < before {
                    self.calls.finished(id);
                }
            }
            Frame::Answer { id } | Frame::Error { id, .. } => {
                return Err(CallViolation::Role { id });
            }
        }
        Ok(())
    }

    /// Records the error with which the stream ended. Calls that the application has not received
    /// yet are dropped, and so are the unsent errors.
    fn end(&mut self, error: ServeError) {
        self.over.get_or_insert(error);
        self.ready.clear();
        self.pending_errors.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::CallError;
    use super::super::ends::Ends;
    use super::*;
    use partywall_testkit::{soon, until};
    use std::thread;

    #[test]
    fn error_without_room_is_sent_while_the_server_waits_for_a_call() {
        let ends = Ends::new();
        let mut calls = Vec::new();
        loop {
            let (call, request) = ends.begin();
            calls.push(call);
            if request.answer(b"", Some(Instant::now())).is_err() {
                break;
            }
        }
        let server = ends.server.clone();
        let receiving = thread::spawn(move || server.recv(None).unwrap().is_none());
        until("a thread receives", || ends.server.shared.lock().recv.is_none());
        assert_eq!(ends.server.shared.lock().pending_errors.len(), 1);
        let aborted = calls.pop().unwrap().wait(Some(soon()));
        assert!(matches!(aborted, Err(CallError::Aborted)), "{aborted:?}");
        ends.client.call_one_way(b"the last", None).unwrap();
        assert!(!receiving.join().unwrap());
    }
}
