// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sending and the receiving direction of a stream, without a runtime. The modules `tokio`,
//! `blocking` and `event` wrap both directions for applications.
//!
//! ```text
//!   SendHalf  charge credit ─▶ outbox ─▶ transport  dropped: CLOSE_WRITE (RESET while panicking)
//!   RecvHalf  queue ─▶ message ─▶ credit            dropped: RESET of the receiving direction
//! ```
//!
//! After `Pending`, the caller of a `poll_` method may call it again or give up. The direction
//! keeps the resources of an unsent message until [`SendHalf::give_back`] frees them.

use super::DROPPED;
use super::credit::cost;
use super::error::{SessionError, StreamRecvError, StreamSendError};
use super::lifecycle;
use super::outbox::Outbox;
use super::shared::SessionShared;
use super::stream::{StreamShared, StreamState, WaiterIdentity};
use super::sync::AsymmetricMutexGuard;
use crate::channel::AnySender;
use crate::config::BackPressure;
use crate::message::Message;
#[cfg(feature = "tokio")]
use crate::transport::Transport;
use crate::transport::{Home, Memory, NotSent, OwnedReservation, Progress, SessionHome};
use partywall_layout::seeded_fault;
#[cfg(feature = "tokio")]
use std::io::IoSlice;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

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
        awaits_answers: false,
        spare: Vec::new(),
    };
    (send, RecvHalf { shared, stream, waiter: WaiterIdentity::default() })
}

/// The sending direction of a stream, with at most one message that is being sent.
#[derive(Debug)]
pub(crate) struct SendHalf {
    pub(crate) shared: Arc<SessionShared>,
    pub(crate) stream: Arc<StreamShared>,
    /// The message that is being sent; a direction sends one message at a time.
    outgoing: Outgoing,
    /// Whether a task that sends begins to wait for the answer if it has waited before.
    awaits_answers: bool,
    /// The empty buffer of the last short reservation, which the next short reservation uses again.
    spare: Vec<u8>,
}

/// The resources of a message that is being sent. An `Outgoing` stays in its `SendHalf`: moving it
/// would cost more time than everything else that a reservation does.
#[derive(Debug, Default)]
struct Outgoing {
    /// The cost that was charged against credit for the message; `None` before it was charged.
    charged: Option<u64>,
    progress: Progress,
    ticket: Option<u64>,
    memory: Option<Memory>,
}

impl SendHalf {
    /// Sets whether each task that sends on this stream begins to wait for the answer, if it has
    /// waited for a message of the stream before. Only for runtimes that mostly wake a task without
    /// a system call, because a message may wake the task needlessly (decision 0067).
    #[cfg(any(feature = "tokio", all(test, shuttle)))]
    pub(crate) const fn await_answers(&mut self, awaits_answers: bool) {
        self.awaits_answers = awaits_answers;
    }

    pub(crate) fn finish(&self) {
        self.stream.note_sending_over();
        self.stream.lock().lifecycle.finish();
        self.shared.send_pending(&self.stream);
    }

    pub(crate) fn reset(&self, code: u32) {
        self.stream.note_sending_over();
        self.stream.lock().lifecycle.reset(code);
        self.shared.send_pending(&self.stream);
    }

    /// Completes when the peer stops receiving, this side ends the sending direction, or the
    /// session is over.
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
    pub(crate) fn memory(&self) -> &[u8] {
        self.outgoing.memory.as_ref().map_or(&[], Memory::as_slice)
    }

    pub(crate) fn memory_mut(&mut self) -> &mut [u8] {
        self.outgoing.memory.as_mut().map_or(&mut [], Memory::as_mut_slice)
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        if let Some(memory) = &mut self.outgoing.memory {
            memory.truncate(len);
        }
    }

    /// Sends a copy of `payload`, which must be the same in each call until the result is ready.
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

    /// Sends a copy of `payload` as a whole, never in fragments. After `Pending`, the next call may
    /// pass another payload.
    pub(crate) fn poll_send_whole(
        &mut self,
        context: &Context<'_>,
        payload: &[u8],
    ) -> Poll<Result<(), StreamSendError>> {
        let cost = cost(payload.len());
        let polled = self.poll_wire(context, Some(cost), |wire, _| wire.try_send(payload));
        self.uncharge(polled)
    }

    /// Sends the first `len` bytes of `slices`, buffers of the caller, as one whole message, never
    /// in fragments. After `Pending`, the next call may pass other bytes. A long message is copied
    /// once, from the buffers into shared memory.
    #[cfg(feature = "tokio")]
    pub(crate) fn poll_send_slices(
        &mut self,
        context: &Context<'_>,
        slices: &[IoSlice<'_>],
        len: usize,
    ) -> Poll<Result<(), StreamSendError>> {
        let first = slices.iter().find(|slice| !slice.is_empty());
        if let Some(bytes) = first.and_then(|first| first.get(..len)) {
            return self.poll_send_whole(context, bytes);
        }
        let is_shared = matches!(self.shared.transport.get(), Transport::SharedMemory);
        if len <= self.shared.inline_max || !is_shared {
            let mut gathered = std::mem::take(&mut self.spare);
            gathered.resize(len, 0);
            gather(slices, &mut gathered);
            let polled = self.poll_send_whole(context, &gathered);
            self.spare = gathered;
            return polled;
        }
        let polled = self.poll_wire(context, Some(cost(len)), |wire, _| {
            let mut memory = None;
            wire.reserve_into(&mut memory, len)?;
            if let Some(memory) = &mut memory {
                gather(slices, memory.as_mut_slice());
            }
            let sent = match &memory {
                // The message lies in private memory, because no block of shared memory was free.
                // The transport sends it in fragments, but all of them at once.
                Some(Memory::Private(bytes)) => wire.try_send(bytes),
                _ => wire.commit(&mut memory, &mut Progress::default()),
            };
            if let Some(memory) = memory {
                // The reserved memory is not kept for the next attempt, which may send other bytes.
                wire.release(memory);
            }
            sent
        });
        self.uncharge(polled)
    }

    /// Takes the records that have arrived for any stream of the session, unless another thread
    /// does so. Returns whether the stream may have credit now.
    #[cfg(feature = "tokio")]
    pub(crate) fn receive(&self) -> bool {
        self.shared.receive()
    }

    /// Whether the pending operation waits for room in the connection, and not only for credit.
    #[cfg(feature = "tokio")]
    pub(crate) const fn awaits_room(&self) -> bool {
        self.outgoing.ticket.is_some()
    }

    /// Reserves memory for a message of `len` bytes. The caller fills it before `poll_commit`.
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
            // A short message is copied into the ring on commit, so it is written to a private
            // buffer first.
            let mut bytes = std::mem::take(&mut self.spare);
            bytes.resize(len, 0);
            self.outgoing.memory = Some(Memory::Private(bytes));
            return Poll::Ready(Ok(()));
        }
        let (number, place) = (self.stream.number, &mut self.outgoing.memory);
        if !self.shared.is_over() && self.shared.outbox().reserve_plainly(number, place, len) {
            return Poll::Ready(Ok(()));
        }
        let attempted = self.poll_wire(context, None, |wire, outgoing| {
            wire.reserve_into(&mut outgoing.memory, len)
        });
        attempted.map_err(StreamSendError::from)
    }

    pub(crate) fn poll_commit(
        &mut self,
        context: &Context<'_>,
    ) -> Poll<Result<(), StreamSendError>> {
        let cost = cost(self.memory().len());
        let sent = ready!(self.poll_wire(context, Some(cost), |wire, outgoing| {
            let Outgoing { memory, progress, .. } = outgoing;
            match memory {
                // A message in private memory is sent without giving its buffer away, so that the
                // buffer can serve the next message.
                Some(Memory::Private(bytes)) => wire.send_on(bytes, progress),
                _ => wire.commit(memory, progress),
            }
        }));
        self.outgoing.done(sent)
    }

    /// Sends the message in the reserved memory as a whole, never in fragments. After `Pending`,
    /// the message holds no credit, and the next call may send another message.
    pub(crate) fn poll_commit_whole(
        &mut self,
        context: &Context<'_>,
    ) -> Poll<Result<(), StreamSendError>> {
        let cost = cost(self.memory().len());
        let polled = self.poll_wire(context, Some(cost), |wire, outgoing| match &outgoing.memory {
            Some(Memory::Private(bytes)) => wire.try_send(bytes),
            _ => wire.commit(&mut outgoing.memory, &mut Progress::default()),
        });
        self.uncharge(polled)
    }

    pub(crate) fn poll_reserve_owned(
        &mut self,
        context: &Context<'_>,
        len: usize,
    ) -> Poll<Result<OwnedReservation, StreamSendError>> {
        ready!(self.poll_reserve(context, len))?;
        Poll::Ready(Ok(self.take_reserved()))
    }

    /// Returns the result of an attempt to send a reservation without waiting. `attempted` is
    /// `None` if credit or room was lacking. A reservation that was not sent is returned with the
    /// error.
    pub(crate) fn settle_owned(
        &mut self,
        attempted: Option<Result<(), StreamSendError>>,
    ) -> Result<(), (OwnedReservation, StreamSendError)> {
        let sent = attempted.unwrap_or(Err(StreamSendError::Full));
        sent.map_err(|error| (self.take_reserved(), error))
    }

    fn take_reserved(&mut self) -> OwnedReservation {
        let home = Home::Session(Arc::clone(&self.shared) as Arc<dyn SessionHome>);
        OwnedReservation::new(self.outgoing.memory.take(), home)
    }

    /// Makes the memory of `reservation` the reserved memory of this direction, which must have no
    /// reserved memory. A reservation of another session is returned to the caller.
    pub(crate) fn put_reserved(
        &mut self,
        mut reservation: OwnedReservation,
    ) -> Result<(), OwnedReservation> {
        if !reservation.home().is_session(Arc::as_ptr(&self.shared).cast()) {
            return Err(reservation);
        }
        self.outgoing.memory = reservation.memory_mut().take();
        Ok(())
    }

    /// Returns the result of an attempt to send a message. If the attempt has to wait, returns the
    /// message's credit to the stream, because the next call may send another message instead.
    fn uncharge(&mut self, polled: Attempted) -> Poll<Result<(), StreamSendError>> {
        if let Poll::Ready(sent) = polled {
            return self.outgoing.done(sent);
        }
        if let Some(cost) = self.outgoing.charged.take() {
            self.stream.lock().send_credit.refund(cost);
        }
        Poll::Pending
    }

    /// Frees the resources of a message that was sent or that will not be sent.
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

    /// Frees the resources of a message that will not be sent completely: no byte or only some
    /// fragments of the message were sent.
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

    /// Attempts an operation of the transport once. Without credit or room the result is `Pending`,
    /// and the caller is woken to try again; under the policy `Error` it is `Full`. The `cost` of a
    /// message is charged once, before the first attempt.
    #[inline]
    fn poll_wire(
        &mut self,
        context: &Context<'_>,
        cost: Option<u64>,
        mut attempt: impl FnMut(&mut AnySender, &mut Outgoing) -> Result<(), NotSent>,
    ) -> Attempted {
        let Self { shared, stream, outgoing, awaits_answers, .. } = self;
        if let Err(end) = shared.check() {
            return Poll::Ready(Err(reason_not_to_send(shared, stream, end)));
        }
        let is_early = seeded_fault("credit_before_lock");
        let early = if is_early { stream.lock().take_credit() } else { None };
        let mut outbox = shared.outbox();
        // Pending records are flushed first: one of them may be a newer CREDIT of this stream, or
        // the record that ends its direction.
        let flushed = outbox.flush();
        let mut credit = early;
        if let Some(cost) = cost {
            // The thread that holds the stream's lock writes the records CREDIT and END of the
            // stream. So an older CREDIT cannot follow a newer CREDIT. No record of the stream may
            // follow END, after which a new stream may have the same number. After `flush`, the
            // stream has no other pending record.
            let mut state = stream.lock();
            if let Err(unready) = charge(&mut state, shared, context, outgoing, cost) {
                drop(state);
                // While this side waits to send, the stream returns no credit, and the peer may be
                // waiting for exactly that credit. So the credit is sent now.
                outbox.list(stream);
                let flushed = flushed.and_then(|()| outbox.flush());
                shared.leave_outbox(outbox);
                shared.settle(flushed);
                return unready.map(Err);
            }
            state.has_answered = true;
            if flushed.is_ok() {
                credit = early.or_else(|| state.take_credit());
            }
            if *awaits_answers {
                stream.await_answer(&state, context);
            }
        }
        let mut attempted = flushed.and_then(|()| {
            outbox.send_flushed(stream.number, credit, |wire| attempt(wire, outgoing))
        });
        if credit.is_some() && attempted.is_err() {
            // The credit for the peer must not wait until the message can be sent, so a record of
            // its own will carry the credit.
            stream.lock().credit_pending = true;
            outbox.list(stream);
            if matches!(attempted, Err(NotSent::TooLarge(_))) {
                // The message never fits together with its credit, even if more room becomes free.
                // So the credit is sent in a separate record, where it takes none of the message's
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

/// The result of an attempt to send on a stream: two words, which stay in registers (decision
/// 0058).
type Attempted = Poll<Result<(), Failed>>;

const _: () = assert!(size_of::<Attempted>() == 16);

/// The reason why an attempt to send on a stream has failed: a [`StreamSendError`] of one word.
enum Failed {
    /// Credit or room is lacking, and the policy forbids waiting. A caller may try again and again,
    /// so this error needs no allocation.
    Full,
    Other(Box<StreamSendError>),
}

impl From<StreamSendError> for Failed {
    #[cold]
    fn from(error: StreamSendError) -> Self {
        match error {
            StreamSendError::Full => Self::Full,
            error => Self::Other(Box::new(error)),
        }
    }
}

impl From<SessionError> for Failed {
    #[cold]
    fn from(end: SessionError) -> Self {
        StreamSendError::from(end).into()
    }
}

impl From<Failed> for StreamSendError {
    #[cold]
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Full => Self::Full,
            Failed::Other(error) => *error,
        }
    }
}

/// Returns the reason why nothing can be sent on a stream of a session that is over, as `end` says.
#[cold]
fn reason_not_to_send(shared: &SessionShared, stream: &StreamShared, end: SessionError) -> Failed {
    if let Err(forked) = shared.check_process() {
        return forked.into();
    }
    // The reason for the end of the stream is reported first, because it is more specific than the
    // reason for the end of the session.
    check_sending(&stream.lock()).err().map_or_else(|| end.into(), Failed::from)
}

/// Handles a failed attempt to send. Waits for room, unless room would not help or the policy
/// forbids waiting.
#[cold]
fn unsent(
    (shared, stream): (&SessionShared, &Arc<StreamShared>),
    outgoing: &mut Outgoing,
    context: &Context<'_>,
    mut outbox: AsymmetricMutexGuard<'_, Outbox>,
    error: NotSent,
) -> Attempted {
    let is_full = matches!(error, NotSent::Full);
    // A message that was not sent carries no credit.
    stream.lock().has_answered = false;
    let must_wait = is_full && (outgoing.progress.started || shared.policy != BackPressure::Error);
    if must_wait {
        // The user that sends is registered as waiting before pending records are flushed.
        // Otherwise the flush would take a new snapshot of the peer's progress, which hides room
        // that was freed since this message's attempt.
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
        NotSent::TooLarge(limit) => StreamSendError::TooLarge(*limit).into(),
        NotSent::Full => Failed::Full,
        error => shared.failed(error).into(),
    }))
}

/// Charges the cost of a message against credit, once. Without credit, or if the sending direction
/// has ended, returns as `Err` what the caller must return instead of sending.
#[inline]
fn charge(
    state: &mut StreamState,
    shared: &SessionShared,
    context: &Context<'_>,
    outgoing: &mut Outgoing,
    cost: u64,
) -> Result<(), Poll<Failed>> {
    let is_open = if seeded_fault("no_check_behind_end") { Ok(()) } else { check_sending(state) };
    if let Err(error) = is_open {
        return Err(Poll::Ready(error.into()));
    }
    if outgoing.charged.is_none() {
        if !state.send_credit.charge(cost) {
            if shared.policy == BackPressure::Error {
                return Err(Poll::Ready(Failed::Full));
            }
            state.await_credit(context);
            return Err(Poll::Pending);
        }
        outgoing.charged = Some(cost);
    }
    Ok(())
}

fn check_sending(state: &StreamState) -> Result<(), StreamSendError> {
    match (state.lifecycle.sending(), &state.end) {
        (lifecycle::Sending::Open, None) => Ok(()),
        (lifecycle::Sending::Open, Some(end)) => Err(end.clone().into()),
        (lifecycle::Sending::Stopped(code), _) => Err(StreamSendError::Stopped { code }),
        _ => Err(StreamSendError::ClosedHere),
    }
}

/// Copies the bytes of `slices`, buffers of the caller, in order to the memory `place`, until that
/// memory is full.
#[cfg(feature = "tokio")]
fn gather(slices: &[IoSlice<'_>], mut place: &mut [u8]) {
    for slice in slices {
        let count = slice.len().min(place.len());
        let (filled, rest) = std::mem::take(&mut place).split_at_mut(count);
        filled.copy_from_slice(&slice[..count]);
        place = rest;
    }
}

impl Outgoing {
    #[inline]
    fn done(&mut self, sent: Result<(), Failed>) -> Poll<Result<(), StreamSendError>> {
        if let Err(failed) = sent {
            return Poll::Ready(Err(failed.into()));
        }
        (self.charged, self.progress) = (None, Progress::default());
        Poll::Ready(Ok(()))
    }
}

/// The receiving direction of a stream, from which the application takes messages.
#[derive(Debug)]
pub(crate) struct RecvHalf {
    pub(crate) shared: Arc<SessionShared>,
    pub(crate) stream: Arc<StreamShared>,
    /// The user that began to wait last.
    waiter: WaiterIdentity,
}

impl RecvHalf {
    /// Returns the next message, or `None` once the peer has finished and every message was
    /// received.
    #[inline]
    pub(crate) fn poll_recv(
        &mut self,
        context: &Context<'_>,
    ) -> Poll<Result<Option<Message>, StreamRecvError>> {
        self.shared.check_process()?;
        if self.stream.is_awaited() && self.waiter.is(context) {
            // The wait of this task goes on, or began when the task sent a message.
            return Poll::Pending;
        }
        let mut state = self.stream.lock();
        if !state.queue.is_empty() {
            return Poll::Ready(Ok(self.take(state)));
        }
        Poll::Ready(Err(match state.lifecycle.receiving() {
            lifecycle::Receiving::Finished => return Poll::Ready(Ok(None)),
            lifecycle::Receiving::Reset(code) => StreamRecvError::Reset { code },
            lifecycle::Receiving::Stopped { .. } => StreamRecvError::StoppedHere,
            lifecycle::Receiving::Open => match &state.end {
                Some(end) => end.clone().into(),
                None => {
                    let waiter = &mut self.waiter;
                    let replaced = self.stream.begin_wait(&mut state, waiter, context);
                    let must_report = state.credit_pending;
                    drop(state);
                    if must_report {
                        self.shared.send_pending(&self.stream);
                    }
                    drop(replaced);
                    return Poll::Pending;
                }
            },
        }))
    }

    /// Returns the next message if one has arrived. Otherwise neither registers a waker nor reports
    /// credit, so a caller that is about to wait calls [`poll_recv`](Self::poll_recv).
    #[cfg(feature = "tokio")]
    #[inline]
    pub(crate) fn take_arrived(&self) -> Option<Message> {
        self.shared.check_process().ok()?;
        self.take(self.stream.lock())
    }

    /// Takes the records that have arrived for any stream of the session, unless another thread
    /// does so. Returns whether the stream may have a message now.
    #[cfg(feature = "tokio")]
    pub(crate) fn receive(&self) -> bool {
        self.shared.receive()
    }

    /// Takes the next message from the queue of messages that have arrived on the stream, if there
    /// is one.
    #[inline]
    fn take(&self, mut state: AsymmetricMutexGuard<'_, StreamState>) -> Option<Message> {
        let len = state.queue.front()?.len();
        // Taking the message frees credit for the peer. This side's next message of the stream
        // carries that credit, or a record does before this side waits. If this side's sender
        // already waits for credit itself, it sends no message, and the peer may wait for exactly
        // this credit: then the record is sent now. It is also sent if the credit is overdue,
        // unless a message is likely to follow soon, because this side has answered the last one,
        // and the driver is awake.
        state.credit_pending |= state.recv_credit.took(cost(len));
        let awaits_credit = state.sender.is_some() && !seeded_fault("no_credit_for_a_waiter");
        let is_overdue = state.credit_pending && (awaits_credit || state.recv_credit.is_overdue());
        // Once the application has taken the last message, the pending END of the stream may be
        // written, so the pending records are sent now.
        let has_ended = state.queue.len() == 1 && state.lifecycle.pending().is_some();
        let may_defer = std::mem::take(&mut state.has_answered)
            && !awaits_credit
            && !has_ended
            && self.shared.deferred_credit.0.is_driver_awake();
        let must_list = is_overdue && may_defer && !std::mem::replace(&mut state.is_deferred, true);
        let message = state.queue.pop_front();
        drop(state);
        if must_list {
            if !self.shared.deferred_credit.0.add(&self.stream) {
                self.shared.report_deferred_credit();
            }
        } else if has_ended || (is_overdue && !may_defer) {
            self.shared.send_pending(&self.stream);
        }
        message
    }

    /// Completes if the stream has a message to receive, or its receiving direction has ended.
    /// Otherwise registers the waker of the user, which waits for one of the two.
    pub(crate) fn poll_arrived(&mut self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.stream.lock();
        let is_open = matches!(state.lifecycle.receiving(), lifecycle::Receiving::Open);
        if !state.queue.is_empty() || !is_open || state.end.is_some() {
            return Poll::Ready(());
        }
        let replaced = self.stream.begin_wait(&mut state, &mut self.waiter, context);
        drop(state);
        drop(replaced);
        Poll::Pending
    }

    pub(crate) fn ends(&self) -> StreamEnds {
        StreamEnds(Arc::downgrade(&self.stream))
    }

    /// Stops receiving on the stream: the peer's sends fail with `code`. This side drops unread
    /// messages, which returns their memory to the peer.
    pub(crate) fn stop(&self, code: u32) {
        let mut state = self.stream.lock();
        state.lifecycle.stop(code);
        state.assembly = None;
        let unread = std::mem::take(&mut state.queue);
        let waker = self.stream.give_up_wait(&mut state);
        drop(state);
        drop((unread, waker));
        self.shared.send_pending(&self.stream);
    }
}

impl Drop for RecvHalf {
    fn drop(&mut self) {
        self.stop(DROPPED);
        self.shared.remove_user(false);
    }
}

/// Says whether the directions of a stream have ended. It keeps no stream alive.
#[derive(Debug)]
pub(crate) struct StreamEnds(Weak<StreamShared>);

impl StreamEnds {
    /// Whether every message of the receiving direction has arrived, so that none follows.
    pub(crate) fn has_receiving_ended(&self) -> bool {
        let Some(stream) = self.0.upgrade() else { return true };
        let state = stream.lock();
        let is_open = matches!(state.lifecycle.receiving(), lifecycle::Receiving::Open);
        !is_open || state.end.is_some()
    }

    /// Whether the sending direction has ended, so that this side can send no message on the
    /// stream.
    pub(crate) fn has_sending_ended(&self) -> bool {
        self.0.upgrade().is_none_or(|stream| check_sending(&stream.lock()).is_err())
    }
}
