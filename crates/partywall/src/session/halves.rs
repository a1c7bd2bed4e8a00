// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two directions of a stream, as users hold them. The fronts wrap these.
//!
//! ```text
//!   SendHalf  charge credit ─▶ outbox ─▶ wire       dropped: CLOSE_WRITE (RESET while panicking)
//!   RecvHalf  queue ─▶ message ─▶ credit            dropped: RESET {receiving}
//! ```
//!
//! Every `poll_` may be called again after `Pending`, or not. A message on its way out keeps what
//! it holds in its half, and [`SendHalf::give_back`] returns it.

use super::DROPPED;
use super::credit::cost;
use super::error::{StreamRecvError, StreamSendError};
use super::lifecycle;
use super::outbox::Outbox;
use super::shared::SessionShared;
use super::stream::{StreamShared, StreamState};
use super::sync::MutexGuard;
use crate::channel::AnySender;
use crate::config::BackPressure;
use crate::message::Message;
use crate::transport::{Memory, NotSent, Progress};
use partywall_layout::seeded_fault;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Makes both directions of a stream.
pub(super) fn halves(
    shared: &Arc<SessionShared>,
    stream: &Arc<StreamShared>,
) -> (SendHalf, RecvHalf) {
    shared.add_user(false);
    shared.add_user(false);
    let (shared, stream) = (Arc::clone(shared), Arc::clone(stream));
    let send = SendHalf {
        shared: Arc::clone(&shared),
        stream: Arc::clone(&stream),
        outgoing: Outgoing::default(),
        spare: Vec::new(),
    };
    (send, RecvHalf { shared, stream })
}

/// The sending direction of a stream.
#[derive(Debug)]
pub(crate) struct SendHalf {
    pub(crate) shared: Arc<SessionShared>,
    pub(crate) stream: Arc<StreamShared>,
    /// The message on its way out; there is at most one.
    outgoing: Outgoing,
    /// The buffer of the last short reservation, for the next one.
    spare: Vec<u8>,
}

/// Resources of a message on its way out. It is never moved: that would cost more than the rest of
/// a reservation.
#[derive(Debug, Default)]
struct Outgoing {
    /// The cost that was charged.
    charged: Option<u64>,
    progress: Progress,
    ticket: Option<u64>,
    memory: Option<Memory>,
}

impl SendHalf {
    /// Ends the direction in good order: no more messages will come.
    pub(crate) fn finish(&self) {
        self.stream.note_sending_over();
        self.stream.lock().lifecycle.finish();
        self.shared.send_pending(&self.stream);
    }

    /// Resets the direction: the peer gets `code`.
    pub(crate) fn reset(&self, code: u32) {
        self.stream.note_sending_over();
        self.stream.lock().lifecycle.reset(code);
        self.shared.send_pending(&self.stream);
    }

    /// Ready when the peer receives no more, this side sends no more, or the session is over.
    pub(crate) fn poll_stopped(&self, context: &Context<'_>) -> Poll<StreamSendError> {
        if let Err(error) = self.shared.check_process() {
            return Poll::Ready(error.into());
        }
        let mut state = self.stream.lock();
        if let Err(error) = check_sending(&state) {
            return Poll::Ready(error);
        }
        state.await_credit(context);
        Poll::Pending
    }
}

impl Drop for SendHalf {
    fn drop(&mut self) {
        self.give_back();
        if std::thread::panicking() {
            self.reset(DROPPED);
        } else {
            self.finish();
        }
        self.shared.remove_user(false);
    }
}

impl SendHalf {
    /// The reserved memory.
    pub(crate) fn memory(&self) -> &[u8] {
        self.outgoing.memory.as_ref().map_or(&[], Memory::as_slice)
    }

    /// The reserved memory, to be filled.
    pub(crate) fn memory_mut(&mut self) -> &mut [u8] {
        self.outgoing.memory.as_mut().map_or(&mut [], Memory::as_mut_slice)
    }

    /// Shortens the reservation.
    pub(crate) fn truncate(&mut self, len: usize) {
        if let Some(memory) = &mut self.outgoing.memory {
            memory.truncate(len);
        }
    }

    /// Sends a copy of `payload`.
    pub(crate) fn poll_send(
        &mut self,
        context: &Context<'_>,
        payload: &[u8],
    ) -> Poll<Result<(), StreamSendError>> {
        let sent = ready!(self.poll_wire(context, Some(cost(payload.len())), |wire, outgoing| {
            wire.send_on(payload, &mut outgoing.progress)
        }));
        self.outgoing.done(sent)
    }

    /// Sends a copy of `payload` whole, or nothing of it. After `Pending`, the payload may change.
    pub(crate) fn poll_send_whole(
        &mut self,
        context: &Context<'_>,
        payload: &[u8],
    ) -> Poll<Result<(), StreamSendError>> {
        let cost = cost(payload.len());
        let polled = self.poll_wire(context, Some(cost), |wire, _| wire.try_send(payload));
        if let Poll::Ready(sent) = polled {
            return self.outgoing.done(sent);
        }
        if let Some(cost) = self.outgoing.charged.take() {
            self.stream.lock().send_credit.refund(cost);
        }
        Poll::Pending
    }

    /// Reserves memory for a message of `len` bytes, to be filled before `poll_commit`.
    pub(crate) fn poll_reserve(
        &mut self,
        context: &Context<'_>,
        len: usize,
    ) -> Poll<Result<(), StreamSendError>> {
        self.shared.check_process()?;
        if !self.stream.may_send() {
            check_sending(&self.stream.lock())?;
        }
        if self.outgoing.memory.is_some() {
            return Poll::Ready(Ok(()));
        }
        if len <= self.shared.inline_max {
            // A short message is copied on commit, so its buffer is private.
            let mut bytes = std::mem::take(&mut self.spare);
            bytes.resize(len, 0);
            self.outgoing.memory = Some(Memory::Private(bytes));
            return Poll::Ready(Ok(()));
        }
        self.poll_wire(context, None, |wire, outgoing| wire.reserve_into(&mut outgoing.memory, len))
    }

    /// Sends the reserved message.
    pub(crate) fn poll_commit(
        &mut self,
        context: &Context<'_>,
    ) -> Poll<Result<(), StreamSendError>> {
        let cost = cost(self.memory().len());
        let sent = ready!(self.poll_wire(context, Some(cost), |wire, outgoing| {
            let Outgoing { memory, progress, .. } = outgoing;
            match memory {
                // The buffer stays here for the next message.
                Some(Memory::Private(bytes)) => wire.send_on(bytes, progress),
                _ => wire.commit(memory, progress),
            }
        }));
        self.outgoing.done(sent)
    }

    /// Returns what a message held that was sent, or will not be.
    #[inline]
    pub(crate) fn give_back(&mut self) {
        if let Some(Memory::Private(bytes)) = &mut self.outgoing.memory {
            if bytes.capacity() <= 2 * self.shared.inline_max {
                self.spare = std::mem::take(bytes);
            }
            self.outgoing.memory = None;
        }
        let Outgoing { charged, ticket, memory, .. } = &self.outgoing;
        if ticket.is_some() || charged.is_some() || memory.is_some() {
            self.give_up();
        }
    }

    /// Gives up a message of which nothing, or only fragments, were sent.
    #[cold]
    fn give_up(&mut self) {
        let outgoing = std::mem::take(&mut self.outgoing);
        if outgoing.progress.started {
            self.stream.lock().lifecycle.abort();
            self.shared.send_pending(&self.stream);
        } else if let Some(cost) = outgoing.charged {
            self.stream.lock().send_credit.refund(cost);
        }
        let mut outbox = self.shared.outbox();
        if let Some(ticket) = outgoing.ticket {
            outbox.leave(ticket);
        }
        let wakers = outgoing.memory.map(|memory| outbox.release(memory));
        self.shared.leave_outbox(outbox);
        super::state::wake(wakers.unwrap_or_default());
    }

    /// Attempts an operation of the wire until there is room. The `cost` of a message is charged
    /// before, once; without credit the message waits.
    #[inline]
    fn poll_wire(
        &mut self,
        context: &Context<'_>,
        cost: Option<u64>,
        mut attempt: impl FnMut(&mut AnySender, &mut Outgoing) -> Result<(), NotSent>,
    ) -> Poll<Result<(), StreamSendError>> {
        let Self { shared, stream, outgoing, .. } = self;
        if let Err(end) = shared.check() {
            shared.check_process()?;
            // The end of the stream says more than the end of the session.
            check_sending(&stream.lock())?;
            return Poll::Ready(Err(end.into()));
        }
        let is_early = seeded_fault("credit_before_lock");
        let early = if is_early { stream.lock().take_credit() } else { None };
        let mut outbox = shared.outbox();
        // First, because a pending record may be of this stream: newer credit, or its end.
        let flushed = outbox.flush();
        let mut credit = early;
        if let Some(cost) = cost {
            // CREDIT and END are written under this lock: an older value must not follow a newer
            // one, and after END the number may belong to another stream. From here on no other
            // record is pending.
            let mut state = stream.lock();
            if let Some(unready) = charge(&mut state, shared, context, outgoing, cost) {
                drop(state);
                // While blocked on send, this stream returns no credit, and the peer may be blocked
                // on exactly that credit: send it now.
                outbox.list(stream);
                let flushed = flushed.and_then(|()| outbox.flush());
                shared.leave_outbox(outbox);
                shared.settle(flushed);
                return unready;
            }
            if flushed.is_ok() {
                credit = early.or_else(|| state.take_credit());
            }
        }
        let mut attempted = flushed
            .and_then(|()| outbox.send(stream.number, credit, |wire| attempt(wire, outgoing)));
        if credit.is_some() && attempted.is_err() {
            // The peer's credit must not wait for our message.
            stream.lock().credit_pending = true;
            outbox.list(stream);
            if matches!(attempted, Err(NotSent::TooLarge(_))) {
                // Waiting would not help: the credit goes alone, and takes no more of the message's
                // room.
                attempted = outbox.send(stream.number, None, |wire| attempt(wire, outgoing));
            }
        }
        match attempted {
            Ok(()) => {
                shared.leave_outbox(outbox);
                Poll::Ready(Ok(()))
            }
            Err(error) => unsent((shared, stream), outgoing, context, outbox, error),
        }
    }
}

/// Handles an attempt that failed: waits for room, unless that would not help or the policy forbids
/// it.
#[cold]
fn unsent(
    (shared, stream): (&SessionShared, &Arc<StreamShared>),
    outgoing: &mut Outgoing,
    context: &Context<'_>,
    mut outbox: MutexGuard<'_, Outbox>,
    error: NotSent,
) -> Poll<Result<(), StreamSendError>> {
    let is_full = matches!(error, NotSent::Full);
    let must_wait = is_full && (outgoing.progress.started || shared.policy != BackPressure::Error);
    if must_wait {
        // First: another attempt would take a new snapshot, and miss the room that came before
        // ours.
        outbox.await_room(&mut outgoing.ticket, context);
        outbox.list(stream);
        let _ = outbox.flush();
    }
    shared.leave_outbox(outbox);
    if is_full {
        shared.wake_driver();
    }
    if must_wait {
        if !seeded_fault("no_look_while_waiting") {
            shared.check()?;
        }
        return Poll::Pending;
    }
    Poll::Ready(Err(match error {
        NotSent::TooLarge(limit) => StreamSendError::TooLarge(limit),
        NotSent::Full => StreamSendError::Full,
        error => shared.failed(error).into(),
    }))
}

/// Charges a message its cost, once. Returns the result for the caller if the message may not go
/// now.
#[inline]
fn charge(
    state: &mut StreamState,
    shared: &SessionShared,
    context: &Context<'_>,
    outgoing: &mut Outgoing,
    cost: u64,
) -> Option<Poll<Result<(), StreamSendError>>> {
    let is_open = if seeded_fault("no_check_behind_end") { Ok(()) } else { check_sending(state) };
    if let Err(error) = is_open {
        return Some(Poll::Ready(Err(error)));
    }
    if outgoing.charged.is_none() {
        if !state.send_credit.charge(cost) {
            if shared.policy == BackPressure::Error {
                return Some(Poll::Ready(Err(StreamSendError::Full)));
            }
            state.await_credit(context);
            return Some(Poll::Pending);
        }
        outgoing.charged = Some(cost);
    }
    None
}

/// Checks that messages may be sent on a stream.
fn check_sending(state: &StreamState) -> Result<(), StreamSendError> {
    match (state.lifecycle.sending(), &state.end) {
        (lifecycle::Sending::Open, None) => Ok(()),
        (lifecycle::Sending::Open, Some(end)) => Err(end.clone().into()),
        (lifecycle::Sending::Stopped(code), _) => Err(StreamSendError::Stopped { code }),
        _ => Err(StreamSendError::ClosedHere),
    }
}

impl Outgoing {
    fn done(&mut self, sent: Result<(), StreamSendError>) -> Poll<Result<(), StreamSendError>> {
        if sent.is_ok() {
            (self.charged, self.progress) = (None, Progress::default());
        }
        Poll::Ready(sent)
    }
}

/// The receiving direction of a stream.
#[derive(Debug)]
pub(crate) struct RecvHalf {
    pub(crate) shared: Arc<SessionShared>,
    pub(crate) stream: Arc<StreamShared>,
}

impl RecvHalf {
    /// The next message; `None` once the peer has finished and everything was received.
    #[inline]
    pub(crate) fn poll_recv(
        &self,
        context: &Context<'_>,
    ) -> Poll<Result<Option<Message>, StreamRecvError>> {
        self.shared.check_process()?;
        let mut state = self.stream.lock();
        if let Some(message) = state.queue.pop_front() {
            // Reported along with the next message of the other direction, or before this side
            // waits.
            state.credit_pending |= state.recv_credit.took(cost(message.len()));
            let is_overdue = state.credit_pending && state.recv_credit.is_overdue();
            // END waits until the last message is taken.
            let must_report =
                is_overdue || (state.queue.is_empty() && state.lifecycle.pending().is_some());
            drop(state);
            if must_report {
                self.shared.send_pending(&self.stream);
            }
            return Poll::Ready(Ok(Some(message)));
        }
        Poll::Ready(Err(match state.lifecycle.receiving() {
            lifecycle::Receiving::Finished => return Poll::Ready(Ok(None)),
            lifecycle::Receiving::Reset(code) => StreamRecvError::Reset { code },
            lifecycle::Receiving::Stopped { .. } => StreamRecvError::StoppedHere,
            lifecycle::Receiving::Open => match &state.end {
                Some(end) => end.clone().into(),
                None => {
                    state.await_message(context);
                    let must_report = state.credit_pending;
                    drop(state);
                    if must_report {
                        self.shared.send_pending(&self.stream);
                    }
                    return Poll::Pending;
                }
            },
        }))
    }

    /// Stops receiving. Unread messages are dropped, and their memory returns to the peer.
    pub(crate) fn stop(&self, code: u32) {
        let mut state = self.stream.lock();
        state.lifecycle.stop(code);
        state.assembly = None;
        let unread = std::mem::take(&mut state.queue);
        drop(state);
        drop(unread);
        self.shared.send_pending(&self.stream);
    }
}

impl Drop for RecvHalf {
    fn drop(&mut self) {
        self.stop(DROPPED);
        self.shared.remove_user(false);
    }
}
