// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receive path of a link: it delivers messages to the application, and acknowledges them.
//!
//! ```text
//!   next message ─ there ─▶ delivered to the application
//!     └ none ─▶ poll the peer ─▶ next message
//!                └ none ─▶ acknowledge ─▶ spin, wait ─▶ next message …
//!   ack ─▶ reported to the peer after a quarter of its ring or slab, with the next record, or when
//!          a thread is about to block
//! ```

use std::mem::ManuallyDrop;
use std::time::Instant;

use bytes::Bytes;
use partywall_layout::seeded_fault;
use partywall_sys::biased::locking_nothing;

use super::waiter::Waits;
use super::{Endpoint, Locked, SlowRead};
use crate::config::Delivery;
use crate::drive::Before;
use crate::error::{AckError, RecvError, Refused, ReplyError, SendError, Stopped, TryRecvError};
use crate::link_state::Event;
use crate::link_state::{Delivered, DeliveryId, Payload, ReplyFault};

#[derive(Clone, Copy)]
pub(crate) struct ReceiveDriver<'a> {
    pub(super) end: &'a Endpoint,
}

impl ReceiveDriver<'_> {
    /// Passes the next message, if one has arrived, to `sink`, which reads or copies it, and
    /// returns the result of `sink`. Returns `None` if the peer has finished its stream.
    pub(crate) fn try_recv<T: Sink>(&self, mut sink: T) -> Result<Option<T::Output>, TryRecvError> {
        // If `sink`, which may hold the application's code, takes no message, it is dropped only
        // after the link's lock is released: its destructor may use the link.
        match self.next_now(self.end.lock()?, &mut sink, false) {
            Some(found) => Ok(Some(found)),
            None => self.found_none(),
        }
    }

    /// Passes the next message to the application's code `read`, if one has arrived, and
    /// acknowledges the message when `read` returns.
    pub(super) fn try_recv_with<R, F: FnOnce(&[u8], &MessageInfo) -> R>(
        &self,
        read: F,
    ) -> Result<Option<R>, TryRecvError> {
        if self.end.config.delivery == Delivery::AtMostOnce {
            let found = self.try_recv(OwnedSink)?;
            return Ok(found.map(|(bytes, info)| read(&bytes, &info)));
        }
        self.try_recv(ReadSink { read: Some(read) })
    }

    /// Returns the reason why there is no message now: the peer has finished (`None`), or an error.
    fn found_none<R>(&self) -> Result<Option<R>, TryRecvError> {
        let mut state = self.end.lock()?;
        self.end.exchange().acknowledge(&mut state, true);
        self.end.wakeups().arm_later(&mut state);
        if let Some(stopped) = state.stopped() {
            return Err(stopped.into());
        }
        if state.core()?.take_finished() {
            // The link reports only once that the peer has finished its stream. So this check comes
            // before the poll of the group's sockets: if the poll failed, its error would hide that
            // report.
            return Ok(None);
        }
        // If no thread blocks on the link's group, only this call can connect, or notice that the
        // connection broke. So it polls the group's sockets once.
        let must_turn = state.is_detached() || self.end.wakeups().is_poll_due(&mut state, false);
        drop(state);
        if must_turn {
            self.end.group.reactor.try_turn(Before::Polling).map_err(Stopped::from)?;
        }
        Err(TryRecvError::Empty)
    }

    /// Passes the next message to `sink`, which reads or copies it; waits for a message until
    /// `deadline`.
    pub(crate) fn recv<T: Sink>(
        &self,
        deadline: Option<Instant>,
        mut sink: T,
    ) -> Result<Option<T::Output>, RecvError> {
        match self.next_now(self.end.lock()?, &mut sink, true) {
            Some(found) => Ok(Some(found)),
            None => self.recv_next(deadline, sink),
        }
    }

    /// Waits for the next message until `deadline` and passes it to `read`, after the fast path
    /// found none.
    #[inline(never)]
    pub(super) fn recv_slow<R, F: FnOnce(&[u8], &MessageInfo) -> R>(
        &self,
        slow: SlowRead<'_, F>,
        deadline: Option<Instant>,
    ) -> Result<Option<R>, RecvError> {
        let SlowRead { state, read, was_polled } = slow;
        let state = state?;
        if self.end.config.delivery == Delivery::AtMostOnce {
            drop(state);
            // With at-most-once delivery the message is acknowledged before `read` runs, and the
            // link may reuse its memory. So the message is first copied into memory of its own.
            let found = self.recv(deadline, OwnedSink)?;
            return Ok(found.map(|(bytes, info)| read(&bytes, &info)));
        }
        let mut sink = ReadSink { read: Some(read) };
        match self.next_now(state, &mut sink, !was_polled) {
            Some(found) => Ok(Some(found)),
            None => self.recv_next(deadline, sink),
        }
    }

    #[inline(never)]
    fn recv_next<T: Sink>(
        &self,
        deadline: Option<Instant>,
        mut sink: T,
    ) -> Result<Option<T::Output>, RecvError> {
        let mut is_first = true;
        let found = self.end.waiter().wait_for(deadline, Waits::ForRecords, |state| {
            // The connection's socket was read just before this loop, so the loop's first check
            // need not read the socket. Bytes that arrive from now on wake a sleeping thread.
            let is_read = std::mem::take(&mut is_first) && !state.is_shared();
            let found = if is_read {
                self.take_here(state, &mut sink)
            } else {
                self.next(state, &mut sink)
            };
            match found {
                Some(found) => Some(Ok(Some(found))),
                None => match state.stopped() {
                    Some(stopped) => Some(Err(stopped)),
                    None => state.core.as_mut()?.take_finished().then_some(Ok(None)),
                },
            }
        })?;
        Ok(found.ok_or(RecvError::TimedOut)??)
    }

    /// Passes the next message, if there is one now, to `sink`, which reads or copies it. If
    /// `may_watch`, waits for one for a short time by polling.
    #[inline(always)]
    fn next_now<T: Sink>(
        &self,
        mut state: Locked<'_>,
        mut sink: T,
        mut may_watch: bool,
    ) -> Option<T::Output> {
        let found = loop {
            if let Some(found) = self.take_short(&mut state, &mut sink) {
                break Some(found);
            }
            if !std::mem::take(&mut may_watch) || !self.end.waiter().poll_briefly(&mut state) {
                break self.next_slow(&mut state, sink);
            }
        };
        if found.is_some() {
            if self.end.wakeups().is_poll_due(&mut state, true) {
                drop(state);
                // An error of handling the group's ready sockets is dropped, because returning it
                // would lose the message. The next thread that blocks on the group gets the same
                // error.
                let _ = self.end.group.reactor.try_turn(Before::Polling);
            } else if T::ACKS {
                state.open_fast_path(&self.end.config);
            }
        }
        found
    }

    /// Passes the next message to `sink`, which reads or copies it: one that has arrived before, or
    /// one read now from the peer's memory or the socket.
    #[inline(always)]
    fn next<T: Sink>(&self, state: &mut Locked<'_>, mut sink: T) -> Option<T::Output> {
        match self.take_short(state, &mut sink) {
            Some(found) => Some(found),
            None => self.next_slow(state, sink),
        }
    }

    /// Passes the next message to `sink`, which reads or copies it, by the shortest code path,
    /// which nearly all messages over shared memory take. Returns `None` if the next message cannot
    /// take that path.
    #[inline(always)]
    fn take_short<T: Sink>(&self, state: &mut Locked<'_>, mut sink: T) -> Option<T::Output> {
        if self.end.config.delivery == Delivery::AtMostOnce {
            return None;
        }
        let is_behind = state.pacing.pacer.is_behind();
        let mut taking = Taking { end: self.end, state, len: None };
        let Some(core) = &mut taking.state.core else {
            taking.finish();
            return None;
        };
        let Some(Delivered { bytes, token, attempt }) = core.offer_short(is_behind) else {
            taking.finish();
            return None;
        };
        taking.len = Some(bytes.len() as u64);
        let info = MessageInfo { token, attempt, is_acked: false };
        let taken = sink.take(Payload::Short(bytes), info);
        if T::ACKS {
            core.ack_in_flight();
        }
        taking.finish();
        if T::ACKS {
            self.report_ack(state);
        }
        Some(taken)
    }

    #[inline(never)]
    fn next_slow<T: Sink>(&self, state: &mut Locked<'_>, sink: T) -> Option<T::Output> {
        if !state.core.as_ref()?.has_next() {
            self.end.exchange().poll_records(state);
        }
        self.take_here(state, sink)
    }

    /// Passes the next message to `sink`, which reads or copies it, only if this end has already
    /// received it, without polling the peer.
    fn take_here<T: Sink>(&self, state: &mut Locked<'_>, mut sink: T) -> Option<T::Output> {
        let is_acked = self.end.config.delivery == Delivery::AtMostOnce;
        let mut taking = Taking { end: self.end, state, len: None };
        let Taking { state: from, len, .. } = &mut taking;
        let taken = from.core.as_mut().and_then(|core| {
            core.offer(|payload, token, attempt| {
                *len = Some(payload.len() as u64);
                sink.take(payload, MessageInfo { token, attempt, is_acked })
            })
        });
        taking.finish();
        let taken = taken?;
        if let (true, Some(core)) = (state.pacing.pacer.is_behind(), &state.core) {
            core.prefetch();
        }
        if is_acked || T::ACKS {
            state.core.as_mut()?.ack_last_delivered();
            self.report_ack(state);
        }
        Some(taken)
    }

    #[inline(always)]
    fn count_received(&self, state: &mut Locked<'_>, len: u64) {
        self.end.wakeups().arm_later(state);
        state.pacing.pacer.count_record();
        state.stats.messages_received += 1;
        state.stats.bytes_received += len;
    }

    #[inline]
    pub(crate) fn ack_to(&self, token: &DeliveryId) -> Result<(), AckError> {
        let mut state = self.end.lock()?;
        state.core()?.ack_to(token)?;
        self.report_ack(&mut state);
        Ok(())
    }

    #[inline(always)]
    fn report_ack(&self, state: &mut Locked<'_>) {
        self.end.exchange().acknowledge_later(state);
        notify_replying(state);
    }

    /// Sends a reply to a message and acknowledges that message: either both take effect, or
    /// neither. Waits until `deadline` for room for the reply.
    pub(crate) fn reply(
        &self,
        token: DeliveryId,
        parts: &[&[u8]],
        deadline: Option<Instant>,
    ) -> Result<(), ReplyError> {
        let len: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let attempt = |state: &mut Locked<'_>| {
            let Ok(core) = state.core() else {
                return Some(Err(SendError::from(Stopped::Closed).into()));
            };
            let acked = Some(core.acked());
            let replied = core.reply(token, parts);
            self.end.report_acks(state, acked);
            match replied {
                Ok(_) => {
                    state.stats.messages_sent += 1;
                    state.stats.bytes_sent += len;
                    self.end.exchange().push(state);
                    self.end.exchange().acknowledge_later(state);
                    notify_replying(state);
                    Some(Ok(()))
                }
                Err(ReplyFault::Ack(error)) => Some(Err(ReplyError::Ack(AckError::from(error)))),
                Err(ReplyFault::Send(fault)) => {
                    let stopped = || state.stopped().unwrap_or(Stopped::Closed);
                    match Refused::new(fault, len, stopped) {
                        Refused::Full => None,
                        Refused::Never(error) => Some(Err(error.into())),
                    }
                }
            }
        };
        let mut state = self.end.lock().map_err(SendError::from)?;
        if let Some(done) = attempt(&mut state) {
            return done;
        }
        state.wakeups.replying += 1;
        drop(state);
        let waited = self.end.waiter().wait_for(deadline, Waits::ForRoom, |state| {
            // The peer's acknowledgements free room for the reply, so they are read before each
            // attempt.
            self.end.exchange().poll_acks(state);
            attempt(state)
        });
        self.end.monitor.lock().wakeups.replying -= 1;
        waited.map_err(SendError::from)?.unwrap_or(Err(SendError::TimedOut.into()))
    }

    pub(crate) fn rewind(&self) -> Result<(), Stopped> {
        let mut state = self.end.lock()?;
        state.core()?.rewind();
        self.end.report_change(&mut state);
        Ok(())
    }

    pub(crate) fn try_event(&self) -> Option<Event> {
        self.end.lock().ok()?.core.as_mut()?.take_event()
    }
}

/// Facts that the closure with which the application reads a message gets with a message's bytes:
/// position, delivery count, and whether the message is acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageInfo {
    pub(crate) token: DeliveryId,
    /// How often the message has been delivered, this delivery included.
    pub(crate) attempt: u32,
    /// Whether the message was acknowledged before it was delivered.
    pub(crate) is_acked: bool,
}

/// Object that takes one delivered message. It is a trait instead of a closure, because a method
/// can be marked to be inlined. Without inlining, the facts about the message (its `MessageInfo`)
/// would be stored and loaded again, which costs time.
pub(crate) trait Sink {
    type Output;

    /// Whether a delivered message counts as acknowledged once [`take`](Self::take) has returned.
    const ACKS: bool = false;

    fn take(&mut self, payload: Payload<'_>, info: MessageInfo) -> Self::Output;
}

pub(crate) struct OwnedSink;

impl Sink for OwnedSink {
    type Output = (Bytes, MessageInfo);

    #[inline]
    fn take(&mut self, payload: Payload<'_>, info: MessageInfo) -> (Bytes, MessageInfo) {
        (payload.to_bytes(), info)
    }
}

/// A sink that passes a message to the application's code `read`. The message is acknowledged when
/// that code returns.
struct ReadSink<F> {
    read: Option<F>,
}

impl<R, F: FnOnce(&[u8], &MessageInfo) -> R> Sink for ReadSink<F> {
    type Output = R;

    const ACKS: bool = true;

    #[inline(always)]
    fn take(&mut self, payload: Payload<'_>, info: MessageInfo) -> R {
        let bytes = match payload {
            Payload::Short(bytes) => bytes,
            Payload::Own(bytes) => bytes,
        };
        let Some(read) = self.read.take() else { unreachable!("one message is taken") };
        // The calling thread holds the lock of the link, so the application's code `read` must not
        // use the link: it would wait for the lock endlessly.
        locking_nothing(|| read(bytes, &info))
    }
}

impl<T: Sink> Sink for &mut T {
    type Output = T::Output;

    const ACKS: bool = T::ACKS;

    #[inline(always)]
    fn take(&mut self, payload: Payload<'_>, info: MessageInfo) -> T::Output {
        (**self).take(payload, info)
    }
}

/// Guard that exists while the application's code reads a message. If that code panics, dropping
/// the guard counts the message as delivered, and the next receive gets it again.
struct Taking<'a, 'b> {
    end: &'a Endpoint,
    state: &'a mut Locked<'b>,
    /// The length of the message in bytes; `None` if no message has been found yet.
    len: Option<u64>,
}

impl Taking<'_, '_> {
    #[inline(always)]
    fn finish(self) {
        let mut taking = ManuallyDrop::new(self);
        taking.note();
    }

    #[inline(always)]
    fn note(&mut self) {
        if let Some(len) = self.len {
            self.end.receive_driver().count_received(self.state, len);
        }
    }
}

impl Drop for Taking<'_, '_> {
    #[cold]
    fn drop(&mut self) {
        self.note();
        let (Some(_), Some(core)) = (self.len, &mut self.state.core) else { return };
        if seeded_fault("link_panic_consumes") {
            return core.ack_last_delivered();
        }
        core.undeliver();
        self.end.report_change(self.state);
    }
}

/// Wakes threads that wait for room for a reply. Another thread may just have acknowledged the
/// request that such a reply answers: the reply then fails.
#[inline]
fn notify_replying(state: &Locked<'_>) {
    if state.wakeups.replying > 0 {
        state.changed();
    }
}
