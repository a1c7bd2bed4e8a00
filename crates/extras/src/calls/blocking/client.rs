// SPDX-License-Identifier: MIT OR Apache-2.0
//! The client of calls without a runtime. Of the threads that wait for answers, one at a time
//! receives messages, and it receives them for all waiting threads.
//!
//! # Invariants
//!
//! - Each call occupies one of `in_flight_max` slots, from the choice of its id until its answer
//!   arrives or its CANCEL (the message that tells the server of a cancelled call) is sent.
//! - While no thread receives, the receiving stream lies in the shared state. A thread that puts
//!   the stream back notifies all waiting threads, and each then looks for its own answer.
//! - A CANCEL for which the stream has no room is sent later by the thread that used the sending
//!   stream, or by a waiting thread. A waiting thread tries again every 5 ms (`SEND_SLICE`), or
//!   every second (`LOOK_AGAIN`) if the CANCEL was added after its wait began. If no thread makes a
//!   call or waits for one, the CANCEL is sent during the next call.

use super::super::frame::{Frame, HEADER_BYTES, left_us};
use super::super::pending::{Left, Pending};
use super::super::{ABORTED, BUSY, CallError, CallViolation, CallsConfig, DEADLINE, Lost};
use super::turn::{Turn, wait_once};
use super::{BETWEEN_MAX, look_again, refuse, send_frame, send_until};
use bytes::Buf;
use partywall::blocking::{RecvStream, SendStream, Stream};
use partywall::{Message, StreamRecvError, StreamSendError};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Makes calls over a stream, from any number of threads. Clones share the stream.
///
/// Dropping the last clone of the client and the last of its [`Call`]s ends the direction to the
/// server.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

/// A call that was sent and whose answer [`wait`](Self::wait) returns. Dropping the value before
/// the answer cancels the call.
#[derive(Debug)]
pub struct Call {
    shared: Arc<Shared>,
    id: u64,
    deadline: Option<Instant>,
    is_answered: bool,
}

#[derive(Debug)]
struct Shared {
    send: Turn<SendStream>,
    state: Mutex<State>,
    changed: Condvar,
    in_flight_max: usize,
}

#[derive(Debug)]
struct State {
    pending: Pending<()>,
    answers: HashMap<u64, Result<Message, CallError>>,
    /// Number of calls in flight, at most `in_flight_max` of the settings.
    in_flight: usize,
    /// Ids of the cancelled calls of which the server must still be told by a CANCEL message. Only
    /// the thread that has taken the sending stream removes ids.
    cancels: VecDeque<u64>,
    /// The receiving stream; `None` while a thread receives from it.
    recv: Option<RecvStream>,
    over: Option<Lost>,
}

impl Client {
    /// Makes a client over `stream`, with the limits of `config`.
    #[must_use]
    pub fn new(stream: Stream, config: CallsConfig) -> Self {
        let (send, recv) = stream.into_split();
        Self::over(send, recv, config)
    }

    /// Makes a client over the sending and the receiving direction of a stream, with the limits of
    /// `config`.
    #[must_use]
    pub fn over(send: SendStream, recv: RecvStream, config: CallsConfig) -> Self {
        let state = State {
            pending: Pending::new(),
            answers: HashMap::new(),
            in_flight: 0,
            cancels: VecDeque::new(),
            recv: Some(recv),
            over: None,
        };
        let in_flight_max = config.in_flight_max.max(1);
        let (send, state) = (Turn::new(send), Mutex::new(state));
        Self { shared: Arc::new(Shared { send, state, changed: Condvar::new(), in_flight_max }) }
    }

    /// Makes a call and waits for the answer until `deadline`. The server gets the deadline as
    /// well.
    ///
    /// # Errors
    /// [`CallError::DeadlineExceeded`] if the deadline passed; another [`CallError`] if the call
    /// was not answered.
    pub fn call(&self, payload: &[u8], deadline: Option<Instant>) -> Result<Message, CallError> {
        self.begin(payload, deadline)?.wait(deadline)
    }

    /// Sends a call. This method waits until fewer than `in_flight_max` calls are in flight, and
    /// until the stream has room. It also gives the server the `deadline` of the call.
    ///
    /// # Errors
    /// [`CallError::DeadlineExceeded`] if the call could not be sent in time; another [`CallError`]
    /// if it was not sent.
    pub fn begin(&self, payload: &[u8], deadline: Option<Instant>) -> Result<Call, CallError> {
        let shared = &self.shared;
        shared.take_slot(deadline)?;
        let sent = shared.with_send(deadline, |send| {
            let id = shared.lock().pending.begin(());
            let left = deadline.map(|it| it.saturating_duration_since(Instant::now()));
            let frame = Frame::Call { id, one_way: false, left_us: left_us(left) };
            let sent = send_frame(send, frame, payload, deadline, || shared.receive_arrived());
            let mut state = shared.lock();
            if let Err(error) = sent {
                state.pending.leave(id);
                return Err(error.into());
            }
            state.pending.sent(id);
            Ok(id)
        });
        match sent {
            Ok(id) => Ok(Call { shared: Arc::clone(shared), id, deadline, is_answered: false }),
            Err(error) => Err(shared.leave_slot(error)),
        }
    }

    /// Makes a one-way call, which has no answer. `Ok` means that the call is committed to the
    /// stream, not that the server has handled it.
    ///
    /// # Errors
    /// Returns [`CallError`] if the call was not committed before `deadline`.
    pub fn call_one_way(&self, payload: &[u8], deadline: Option<Instant>) -> Result<(), CallError> {
        let shared = &self.shared;
        shared.with_send(deadline, |send| {
            let id = {
                let mut state = shared.lock();
                state.check()?;
                state.pending.one_way()
            };
            let frame = Frame::Call { id, one_way: true, left_us: 0 };
            Ok(send_frame(send, frame, payload, deadline, || shared.receive_arrived())?)
        })
    }

    /// Returns the reason why no more calls can be made, or `None` as long as calls can be made.
    #[must_use]
    pub fn lost(&self) -> Option<Lost> {
        self.shared.lock().over.clone()
    }
}

impl Call {
    /// Whether an earlier [`wait`](Self::wait) has returned the answer of this call.
    #[must_use]
    pub const fn is_answered(&self) -> bool {
        self.is_answered
    }

    /// Waits for the answer until `deadline`, or until the deadline of the call if that is earlier.
    /// After a time-out the call is still in flight: the caller may wait again, or drop it.
    ///
    /// # Errors
    /// [`CallError::DeadlineExceeded`] if no answer came in time; another [`CallError`] if the call
    /// was not answered.
    ///
    /// # Panics
    /// Panics if an earlier `wait` has returned the answer of this call.
    pub fn wait(&mut self, deadline: Option<Instant>) -> Result<Message, CallError> {
        assert!(!self.is_answered, "the call was answered before");
        let until = [deadline, self.deadline].into_iter().flatten().min();
        let shared = Arc::clone(&self.shared);
        let answered = shared.drive(until, |state| state.answers.remove(&self.id));
        self.is_answered = answered.is_ok();
        answered
            .unwrap_or_else(|lost| Err(lost.map_or(CallError::DeadlineExceeded, CallError::Lost)))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        match state.pending.leave(self.id) {
            Left::Cancel(()) => state.cancels.push_back(self.id),
            Left::Nothing => {
                state.answers.remove(&self.id);
            }
        }
        drop(state);
        self.shared.send_cancels();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until fewer calls are in flight than the setting `in_flight_max` allows, and then
    /// counts one more: the caller's, which is about to be sent.
    fn take_slot(&self, deadline: Option<Instant>) -> Result<(), CallError> {
        self.send_cancels();
        let taken = self.drive(deadline, |state| {
            let is_free = state.over.is_none() && state.in_flight < self.in_flight_max;
            is_free.then(|| state.in_flight += 1)
        });
        taken.map_err(|lost| lost.map_or(CallError::DeadlineExceeded, CallError::Lost))
    }

    /// Counts one call in flight less, because it could not be sent for the reason `error`. Returns
    /// that reason.
    fn leave_slot(&self, error: CallError) -> CallError {
        self.lock().in_flight -= 1;
        self.changed.notify_all();
        error
    }

    /// Receives messages for all waiting threads until `look` finds the value for which this thread
    /// waits. While another thread receives, only waits for its notifications. Returns the end of
    /// the stream as `Err(Some(_))`, and a passed deadline as `Err(None)`.
    fn drive<T>(
        &self,
        deadline: Option<Instant>,
        mut look: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, Option<Lost>> {
        let mut state = self.lock();
        let mut is_late = false;
        loop {
            if let Some(found) = look(&mut state) {
                return Ok(found);
            }
            if let Some(lost) = &state.over {
                return Err(Some(lost.clone()));
            }
            if is_late {
                return Err(None);
            }
            let until = look_again(deadline, !state.cancels.is_empty());
            if let Some(recv) = state.recv.take() {
                drop(state);
                let is_empty = self.receive(recv, |recv| recv.recv_deadline(until));
                is_late = is_empty && deadline == Some(until);
            } else {
                // Another thread receives, and notifies the others after each message. It may begin
                // to receive again before this thread runs. So this thread waits for one
                // notification, not until nobody receives.
                drop(wait_once(&self.changed, state, until));
                is_late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            }
            self.send_cancels();
            state = self.lock();
        }
    }

    /// Receives up to 64 messages (`BETWEEN_MAX`) that have already arrived on the stream; does
    /// nothing if another thread is receiving.
    fn receive_arrived(&self) {
        for _ in 0..BETWEEN_MAX {
            let Some(recv) = self.lock().recv.take() else { return };
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
            Err(error) => Err(Lost::Recv(error)),
            Ok(None) => Err(Lost::Finished),
            Ok(Some(message)) => state.receive(message).map(|()| false).map_err(Lost::Violation),
        };
        if let Err(lost) = &result {
            if matches!(lost, Lost::Violation(_)) {
                refuse(&self.send, &mut stream);
            }
            state.end(lost.clone());
        }
        state.recv = Some(stream);
        drop(state);
        self.changed.notify_all();
        result.unwrap_or(false)
    }

    /// Calls `act` with the sending stream, which no other thread can use meanwhile. Then sends the
    /// CANCEL messages that other threads could not send in that time.
    fn with_send<T>(
        &self,
        deadline: Option<Instant>,
        act: impl FnOnce(&mut SendStream) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let mut send = self.send.take(deadline).ok_or(CallError::DeadlineExceeded)?;
        let acted = act(&mut send);
        drop(send);
        self.send_cancels();
        acted
    }

    /// Sends the message CANCEL for each cancelled call, as far as the stream has room now. If
    /// another thread has taken the sending stream, this method does nothing: that thread sends the
    /// messages before it returns the stream.
    fn send_cancels(&self) {
        while !self.lock().cancels.is_empty() {
            let Some(mut send) = self.send.try_take() else { return };
            if !self.send_cancel(&mut send) {
                return;
            }
        }
    }

    /// Sends the message CANCEL for the first cancelled call in `cancels`. Returns false if the
    /// stream has no room now.
    fn send_cancel(&self, send: &mut SendStream) -> bool {
        let Some(id) = self.lock().cancels.front().copied() else { return true };
        let sent = send_until(send, Frame::Cancel { id }, &[], Instant::now());
        if let Err(StreamSendError::TimedOut | StreamSendError::Full) = sent {
            return false;
        }
        // An error other than a lack of room means that the stream has ended. All calls end with
        // it, which waiting threads learn by receiving. So the error of sending CANCEL is ignored.
        let mut state = self.lock();
        state.cancels.pop_front();
        state.in_flight -= 1;
        drop(state);
        self.changed.notify_all();
        true
    }
}

impl State {
    fn check(&self) -> Result<(), Lost> {
        self.over.clone().map_or(Ok(()), Err)
    }

    /// Stores the answer in `message` for the thread that waits for it.
    fn receive(&mut self, mut message: Message) -> Result<(), CallViolation> {
        let frame = Frame::decode(&message)?;
        message.advance(HEADER_BYTES);
        let (id, answer) = match frame {
            Frame::Answer { id } => (id, Ok(message)),
            Frame::Error { id, code } => (id, Err(failure(code, message))),
            Frame::Call { id, .. } | Frame::Cancel { id } => {
                return Err(CallViolation::Role { id });
            }
        };
        if self.pending.answered(id)?.is_some() {
            self.in_flight -= 1;
            self.answers.insert(id, answer);
        }
        Ok(())
    }

    /// Records the end of the stream, with which every unanswered call fails.
    fn end(&mut self, lost: Lost) {
        self.pending.end();
        self.over.get_or_insert(lost);
    }
}

fn failure(code: u32, detail: Message) -> CallError {
    match code {
        BUSY => CallError::Busy,
        DEADLINE => CallError::DeadlineExceeded,
        ABORTED => CallError::Aborted,
        code => CallError::Failed { code, detail: detail.into() },
    }
}

#[cfg(test)]
mod tests {
    use super::super::ends::Ends;
    use partywall_testkit::until;
    use std::thread;

    #[test]
    fn cancel_without_room_is_sent_while_another_call_waits() {
        for is_waiting_first in [false, true] {
            let ends = Ends::new();
            let (given_up, request) = ends.begin();
            let (mut other, held) = ends.begin();
            ends.fill();
            let wait = move || thread::spawn(move || other.wait(None));
            let waiting = if is_waiting_first {
                let waiting = wait();
                until("a thread receives", || ends.client.shared.lock().recv.is_none());
                drop(given_up);
                waiting
            } else {
                drop(given_up);
                wait()
            };
            assert!(!ends.client.shared.lock().cancels.is_empty());
            until("the call is cancelled", || request.is_cancelled());
            held.answer(b"late", None).unwrap();
            assert_eq!(waiting.join().unwrap().unwrap(), b"late");
        }
    }

    #[test]
    fn cancel_of_a_call_given_up_while_another_is_sent_is_sent_after_it() {
        let ends = Ends::new();
        let (given_up, request) = ends.begin();
        ends.fill();
        let client = ends.client.clone();
        let beginning = thread::spawn(move || client.begin(b"", None).unwrap());
        until("a thread sends", || ends.client.shared.send.try_take().is_none());
        drop(given_up);
        until("the call is cancelled", || request.is_cancelled());
        drop(beginning.join().unwrap());
    }

    #[test]
    fn cancel_of_a_call_given_up_during_a_one_way_call_is_sent_after_it() {
        let ends = Ends::new();
        let (given_up, request) = ends.begin();
        let send = ends.client.shared.send.try_take().unwrap();
        drop(given_up);
        drop(send);
        assert!(!request.is_cancelled());
        ends.client.call_one_way(b"", None).unwrap();
        until("the call is cancelled", || request.is_cancelled());
    }
}
