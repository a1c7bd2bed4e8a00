// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two directions of a stream as their users hold them. Fronts wrap these.
//!
//! ```text
//!   SendHalf  charge credit ─▶ outbox ─▶ wire             dropped: CLOSE_WRITE (RESET while panicking)
//!   RecvHalf  queue ─▶ message ─▶ credit                  dropped: RESET {receiving}
//! ```
//!
//! Every `poll_` may be called again after it said `Pending`, or not: what an operation holds lies in
//! its state, [`Outgoing`], and is given back when that is dropped.

use super::DROPPED;
use super::core::Core;
use super::credit::cost;
use super::error::{StreamRecvError, StreamSendError};
use super::lifecycle;
use super::stream::{StreamCore, StreamState};
use crate::config::BackPressure;
use crate::message::Message;
use crate::transport::{Memory, Progress, SendWire, Unsent};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Both directions of a stream, as users hold them.
pub(super) fn halves(core: &Arc<Core>, stream: &Arc<StreamCore>) -> (SendHalf, RecvHalf) {
    core.join(false);
    core.join(false);
    let (core, stream) = (Arc::clone(core), Arc::clone(stream));
    let spare = Vec::new();
    let send = SendHalf { core: Arc::clone(&core), stream: Arc::clone(&stream), spare };
    (send, RecvHalf { core, stream })
}

/// The sending direction of a stream.
#[derive(Debug)]
pub(crate) struct SendHalf {
    pub(crate) core: Arc<Core>,
    pub(crate) stream: Arc<StreamCore>,
    /// The memory of the last short reservation.
    spare: Vec<u8>,
}

/// A message on its way out. Whoever drops it before it went gives back what it holds:
/// [`SendHalf::give_back`].
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    /// The cost that was charged.
    charged: Option<u64>,
    progress: Progress,
    ticket: Option<u64>,
    memory: Option<Memory>,
}

impl SendHalf {
    /// No more messages.
    pub(crate) fn close(&self) {
        self.stream.lock().lifecycle.close();
        self.core.owe(&self.stream);
    }

    /// Gives up sending.
    pub(crate) fn reset(&self, code: u32) {
        self.stream.lock().lifecycle.reset(code);
        self.core.owe(&self.stream);
    }

    /// Ready when the other side receives no more, we send no more, or the session is over.
    pub(crate) fn poll_stopped(&self, context: &Context<'_>) -> Poll<StreamSendError> {
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
        if std::thread::panicking() {
            self.reset(DROPPED);
        } else {
            self.close();
        }
        self.core.depart(false);
    }
}

impl Outgoing {
    /// The reserved memory.
    pub(crate) fn memory(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], Memory::as_slice)
    }

    /// The reserved memory, to be filled.
    pub(crate) fn memory_mut(&mut self) -> &mut [u8] {
        self.memory.as_mut().map_or(&mut [], Memory::as_mut_slice)
    }

    /// Shortens what was reserved.
    pub(crate) fn truncate(&mut self, len: usize) {
        if let Some(memory) = &mut self.memory {
            memory.truncate(len);
        }
    }
}

impl SendHalf {
    /// Sends a copy of `payload`.
    pub(crate) fn poll_send(
        &self,
        context: &Context<'_>,
        outgoing: &mut Outgoing,
        payload: &[u8],
    ) -> Poll<Result<(), StreamSendError>> {
        ready!(self.poll_charge(context, outgoing, payload.len()))?;
        let sent =
            ready!(self.poll_wire(context, outgoing, |wire, _, progress| {
                wire.send_on(payload, progress)
            }));
        outgoing.done(sent)
    }

    /// Sends a copy of `payload` whole, or nothing of it: after `Pending` it may be another one.
    pub(crate) fn poll_send_whole(
        &self,
        context: &Context<'_>,
        outgoing: &mut Outgoing,
        payload: &[u8],
    ) -> Poll<Result<(), StreamSendError>> {
        ready!(self.poll_charge(context, outgoing, payload.len()))?;
        let polled = self.poll_wire(context, outgoing, |wire, _, _| wire.try_send(payload));
        if let Poll::Ready(sent) = polled {
            return outgoing.done(sent);
        }
        if let Some(cost) = outgoing.charged.take() {
            self.stream.lock().send_credit.refund(cost);
        }
        Poll::Pending
    }

    /// Memory for a message of `len` bytes, to be filled before `poll_commit`.
    pub(crate) fn poll_reserve(
        &mut self,
        context: &Context<'_>,
        outgoing: &mut Outgoing,
        len: usize,
    ) -> Poll<Result<(), StreamSendError>> {
        check_sending(&self.stream.lock())?;
        if outgoing.memory.is_some() {
            return Poll::Ready(Ok(()));
        }
        if len <= self.core.inline_max {
            // Short: it will be copied, and needs nothing of what all share.
            let mut bytes = std::mem::take(&mut self.spare);
            bytes.resize(len, 0);
            outgoing.memory = Some(Memory::Private(bytes));
            return Poll::Ready(Ok(()));
        }
        self.poll_wire(context, outgoing, |wire, memory, _| {
            *memory = Some(wire.reserve(len)?);
            Ok(())
        })
    }

    /// Sends what was reserved.
    pub(crate) fn poll_commit(
        &self,
        context: &Context<'_>,
        outgoing: &mut Outgoing,
    ) -> Poll<Result<(), StreamSendError>> {
        ready!(self.poll_charge(context, outgoing, outgoing.memory().len()))?;
        let sent = ready!(self.poll_wire(context, outgoing, |wire, memory, progress| {
            match memory {
                // It stays ours, for the next one.
                Some(Memory::Private(bytes)) => wire.send_on(bytes, progress),
                _ => wire.commit(memory, progress),
            }
        }));
        outgoing.done(sent)
    }

    /// Gives back what a message holds that went, or will not.
    pub(crate) fn give_back(&mut self, outgoing: &mut Outgoing) {
        if let Some(Memory::Private(bytes)) = &mut outgoing.memory {
            if bytes.capacity() <= 2 * self.core.inline_max {
                self.spare = std::mem::take(bytes);
            }
            outgoing.memory = None;
        }
        if outgoing.ticket.is_none() && outgoing.charged.is_none() && outgoing.memory.is_none() {
            return;
        }
        if outgoing.progress.started {
            self.stream.lock().lifecycle.abort();
            self.core.owe(&self.stream);
        } else if let Some(cost) = outgoing.charged {
            self.stream.lock().send_credit.refund(cost);
        }
        let mut outbox = self.core.outbox();
        if let Some(ticket) = outgoing.ticket {
            outbox.leave(ticket);
        }
        let wakers = outgoing.memory.take().map(|memory| outbox.release(memory));
        self.core.leave_outbox(outbox);
        super::waiting::wake(wakers.unwrap_or_default());
        *outgoing = Outgoing::default();
    }

    /// Charges the message's cost, once.
    #[inline]
    fn poll_charge(
        &self,
        context: &Context<'_>,
        outgoing: &mut Outgoing,
        len: usize,
    ) -> Poll<Result<(), StreamSendError>> {
        let mut state = self.stream.lock();
        check_sending(&state)?;
        if outgoing.charged.is_some() {
            return Poll::Ready(Ok(()));
        }
        let cost = cost(len);
        if state.send_credit.charge(cost) {
            outgoing.charged = Some(cost);
            return Poll::Ready(Ok(()));
        }
        if self.core.policy == BackPressure::Error {
            return Poll::Ready(Err(StreamSendError::Full));
        }
        state.await_credit(context);
        Poll::Pending
    }

    /// Attempts something at the wire until there is room.
    #[inline]
    fn poll_wire(
        &self,
        context: &Context<'_>,
        outgoing: &mut Outgoing,
        mut attempt: impl FnMut(&mut SendWire, &mut Option<Memory>, &mut Progress) -> Result<(), Unsent>,
    ) -> Poll<Result<(), StreamSendError>> {
        let core = &*self.core;
        core.check()?;
        #[cfg(partywall_fault = "credit_before_lock")]
        let early = self.stream.lock().take_credit();
        let mut outbox = core.outbox();
        // First, because it may be of this stream: newer credit, or its end.
        let flushed = outbox.flush();
        let mut credit = None;
        if outgoing.charged.is_some() {
            // CREDIT and END are written under this lock: an older value may not follow a newer one, and behind
            // END the number may be another stream's. From here on nothing else is owed.
            let mut state = self.stream.lock();
            #[cfg(not(partywall_fault = "no_check_behind_end"))]
            if let Err(error) = check_sending(&state) {
                drop(state);
                core.leave_outbox(outbox);
                return Poll::Ready(Err(error));
            }
            if flushed.is_ok() {
                credit = state.take_credit();
            }
        }
        #[cfg(partywall_fault = "credit_before_lock")]
        let credit = early.or(credit);
        let (memory, progress) = (&mut outgoing.memory, &mut outgoing.progress);
        let number = self.stream.number;
        let mut attempted = flushed
            .and_then(|()| outbox.send(number, credit, |wire| attempt(wire, memory, progress)));
        if credit.is_some() && attempted.is_err() {
            // What the other side may send must not wait for what we send.
            self.stream.lock().owes_credit = true;
            outbox.list(&self.stream);
            if matches!(attempted, Err(Unsent::TooLarge(_))) {
                // Nobody may try again: the credit goes alone, and no longer takes of what the message needs.
                attempted = outbox.send(number, None, |wire| attempt(wire, memory, progress));
            }
        }
        let must_wait = matches!(attempted, Err(Unsent::Full))
            && (outgoing.progress.started || core.policy != BackPressure::Error);
        if must_wait {
            outbox.await_room(&mut outgoing.ticket, context);
        }
        core.leave_outbox(outbox);
        if matches!(attempted, Err(Unsent::Full)) {
            core.call_driver();
        }
        if must_wait {
            #[cfg(not(partywall_fault = "no_look_while_waiting"))]
            core.check()?;
            return Poll::Pending;
        }
        Poll::Ready(attempted.map_err(|unsent| match unsent {
            Unsent::TooLarge(limit) => StreamSendError::TooLarge(limit),
            Unsent::Full => StreamSendError::Full,
            unsent => core.failed(unsent).into(),
        }))
    }
}

/// Whether messages may be sent on a stream.
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
    pub(crate) core: Arc<Core>,
    pub(crate) stream: Arc<StreamCore>,
}

impl RecvHalf {
    /// The next message.
    #[inline]
    pub(crate) fn poll_recv(
        &self,
        context: &Context<'_>,
    ) -> Poll<Result<Message, StreamRecvError>> {
        let mut state = self.stream.lock();
        if let Some(message) = state.queue.pop_front() {
            // Told along with the next message that goes the other way, or when we wait for more.
            state.owes_credit |= state.recv_credit.took(cost(message.len()));
            let is_overdue = state.owes_credit && state.recv_credit.is_overdue();
            // END waits for the last message to be taken.
            let must_tell =
                is_overdue || (state.queue.is_empty() && state.lifecycle.owed().is_some());
            drop(state);
            if must_tell {
                self.core.owe(&self.stream);
            }
            return Poll::Ready(Ok(message));
        }
        Poll::Ready(Err(match state.lifecycle.receiving() {
            lifecycle::Receiving::Finished => StreamRecvError::Finished,
            lifecycle::Receiving::Reset(code) => StreamRecvError::Reset { code },
            lifecycle::Receiving::Stopped { .. } => StreamRecvError::StoppedHere,
            lifecycle::Receiving::Open => match &state.end {
                Some(end) => end.clone().into(),
                None => {
                    state.await_message(context);
                    let must_tell = state.owes_credit;
                    drop(state);
                    if must_tell {
                        self.core.owe(&self.stream);
                    }
                    return Poll::Pending;
                }
            },
        }))
    }

    /// Receives no more; what is unread goes back.
    pub(crate) fn stop(&self, code: u32) {
        let mut state = self.stream.lock();
        state.lifecycle.stop(code);
        state.assembly = None;
        let unread = std::mem::take(&mut state.queue);
        drop(state);
        drop(unread);
        self.core.owe(&self.stream);
    }
}

impl Drop for RecvHalf {
    fn drop(&mut self) {
        self.stop(DROPPED);
        self.core.depart(false);
    }
}
