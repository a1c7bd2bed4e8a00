// SPDX-License-Identifier: MIT OR Apache-2.0
//! The send path of a link: it takes messages from the application, and waits until the peer has
//! acknowledged them.
//!
//! ```text
//!   put ─ fits ──▶ notify the peer, or write what the socket takes now ──▶ done
//!    └ full ─▶ poll acknowledgements ─▶ put ─ full ─▶ spin, wait ─▶ put …
//! ```

use partywall_layout::seeded_fault;
use std::time::Instant;

use partywall_reconcile::Position;

use super::connections::Connections;
use super::waiter::Waits;
use super::{Endpoint, Locked, SlowSend, State};
use crate::drive::Before;
use crate::error::{Awaited, Refused, SendError, Stopped, TrySendError, WaitError};
use crate::link_state::{LinkState, SendFault};
use crate::retained::len_of;

#[derive(Clone, Copy)]
pub(crate) struct SendDriver<'a> {
    pub(super) end: &'a Endpoint,
}

impl SendDriver<'_> {
    /// Sends the messages of `load` (one message, or a batch) if the link has room for them now.
    pub(crate) fn try_send(&self, load: Load<'_>) -> Result<(), TrySendError> {
        let state = self.end.lock().map_err(SendError::from)?;
        self.try_send_by(state, load.amount(), &mut { load })
    }

    /// Sends the messages of `load` (one message, or a batch). If the link has no room for them,
    /// waits for room until `deadline`.
    pub(crate) fn send(&self, load: Load<'_>, deadline: Option<Instant>) -> Result<(), SendError> {
        self.send_by(self.end.lock()?, load.amount(), deadline, load)
    }

    /// Sends a message of `len` bytes that the fast path could not send. If there is no room, waits
    /// for room until `deadline`.
    #[inline(never)]
    pub(super) fn send_slow<F: FnOnce(&mut [u8])>(
        &self,
        len: usize,
        slow: SlowSend<'_, F>,
        deadline: Option<Instant>,
    ) -> Result<(), SendError> {
        let SlowSend { state, fill } = slow;
        let message = Filled { len, fill: Some(fill) };
        self.send_by(state?, Amount::message(len), deadline, message)
    }

    /// Sends a message of `len` bytes that the fast path could not send, but only if there is room
    /// now.
    #[inline(never)]
    pub(super) fn try_send_slow<F: FnOnce(&mut [u8])>(
        &self,
        len: usize,
        slow: SlowSend<'_, F>,
    ) -> Result<(), TrySendError> {
        let SlowSend { state, fill } = slow;
        let state = state.map_err(SendError::from)?;
        self.try_send_by(state, Amount::message(len), &mut Filled { len, fill: Some(fill) })
    }

    #[inline(always)]
    fn send_by(
        &self,
        state: Locked<'_>,
        amount: Amount,
        deadline: Option<Instant>,
        mut message: impl Put,
    ) -> Result<(), SendError> {
        match self.try_send_by(state, amount, &mut message) {
            Ok(()) => Ok(()),
            Err(TrySendError::Never(error)) => Err(error),
            Err(TrySendError::Full) => self.wait_and_send(amount, deadline, message),
        }
    }

    #[inline(never)]
    fn wait_and_send(
        &self,
        amount: Amount,
        deadline: Option<Instant>,
        mut message: impl Put,
    ) -> Result<(), SendError> {
        self.end
            .waiter()
            .wait_for(deadline, Waits::ForRoom, |state| {
                match self.send_now(state, amount, &mut message) {
                    Err(Refused::Full) => None,
                    Ok(()) => Some(Ok(())),
                    Err(Refused::Never(error)) => Some(Err(error)),
                }
            })?
            .unwrap_or(Err(SendError::TimedOut))
    }

    #[inline(always)]
    fn try_send_by(
        &self,
        mut state: Locked<'_>,
        amount: Amount,
        message: &mut impl Put,
    ) -> Result<(), TrySendError> {
        if let Err(refused) = self.send_now(&mut state, amount, message) {
            return self.refused(state, refused);
        }
        // If no thread blocks on the link's group, only this call can connect, or notice that the
        // connection broke. So it polls the group's sockets once.
        if state.is_detached() || self.end.wakeups().is_poll_due(&mut state, true) {
            drop(state);
            // An error of polling is dropped, because the message is already sent. The next thread
            // that blocks on the group gets the same error.
            let _ = self.end.group.reactor.try_turn(Before::Polling);
        } else {
            state.open_fast_path(&self.end.config);
        }
        Ok(())
    }

    #[cold]
    fn refused(&self, mut state: Locked<'_>, refused: Refused) -> Result<(), TrySendError> {
        if matches!(refused, Refused::Full) {
            self.end.wakeups().await_room(&mut state);
        }
        let must_turn = state.is_detached() || self.end.wakeups().is_poll_due(&mut state, false);
        drop(state);
        if must_turn {
            let turned = self.end.group.reactor.try_turn(Before::Polling);
            turned.map_err(|e| SendError::from(Stopped::from(e)))?;
        }
        match refused {
            Refused::Full => Err(TrySendError::Full),
            Refused::Never(error) => Err(error.into()),
        }
    }

    pub(crate) fn wait_acked(&self, deadline: Option<Instant>) -> Result<(), WaitError> {
        let (epoch, tail) = self.end.with_core(|core| (core.epoch(), core.tail()))?;
        let found = self.end.waiter().wait_for(deadline, Waits::ForRoom, |state| {
            self.end.exchange().poll_acks(state);
            let core = match state.core() {
                Ok(core) => core,
                Err(stopped) => return Some(Err(stopped)),
            };
            // If a new epoch has begun, the messages of the old one are acknowledged or in the
            // reports, so the wait ends.
            if core.acked() >= tail || core.epoch() != epoch {
                return Some(Ok(()));
            }
            state.stopped().map(Err)
        })?;
        self.end.waiter().waited(found, Awaited::Acked)
    }

    /// Waits until all messages that were sent before this call are in the system's buffers, or in
    /// memory that the peer reads.
    pub(crate) fn wait_sent(&self, deadline: Option<Instant>) -> Result<(), WaitError> {
        let mut state = self.end.lock()?;
        let core = state.core()?;
        let (epoch, tail) = (core.epoch(), core.tail());
        state.wakeups.awaiting_writes += 1;
        drop(state);
        let found = self.end.waiter().wait_for(deadline, Waits::ForRoom, |state| {
            self.end.exchange().push(state);
            self.end.exchange().poll_acks(state);
            let wire = state.active();
            let State { core, connections: Connections { wires, .. }, .. } = &mut **state;
            let Some(core) = core else { return Some(Err(Stopped::Closed)) };
            // If a new epoch begins, the wait for unsent messages ends, because the epoch drops
            // them. If the link has no connection, the thread keeps waiting, because a connection
            // may still be made.
            let is_out = wire.is_some_and(|index| core.has_sent(&wires[index].conn, tail));
            if is_out || core.acked() >= tail || core.epoch() != epoch {
                return Some(Ok(()));
            }
            state.stopped().map(Err)
        });
        self.end.monitor.lock().wakeups.awaiting_writes -= 1;
        self.end.waiter().waited(found?, Awaited::Sent)
    }

    /// Number of bytes of the stream that were sent and, as far as this end knows, not acknowledged
    /// by the peer.
    pub(crate) fn unacked_bytes(&self) -> Result<u64, Stopped> {
        let mut state = self.end.lock()?;
        if state.is_shared() {
            self.end.exchange().poll_acks(&mut state);
        }
        let core = state.core()?;
        let bytes = core.tail().since(core.acked());
        if bytes > 0 {
            // The application waits for this number to fall, so the peer has to notify this end of
            // acknowledgements.
            self.end.wakeups().await_room(&mut state);
        }
        Ok(bytes)
    }

    #[inline(always)]
    fn send_now(
        &self,
        state: &mut Locked<'_>,
        amount: Amount,
        message: &mut impl Put,
    ) -> Result<(), Refused> {
        let acked = state.core.as_deref().map(LinkState::acked);
        let taken = {
            // While the link searches for room, it may find acknowledgements of the peer. The guard
            // `report` passes them on to waiting threads, even if the application's code panics.
            let report = AckReport { end: self.end, state, acked };
            put(report.state, message)
        };
        match taken {
            Ok(()) => {
                self.sent(state, amount);
                Ok(())
            }
            Err(fault) => self.send_again(state, amount, fault, message),
        }
    }

    #[inline(always)]
    fn sent(&self, state: &mut Locked<'_>, amount: Amount) {
        state.stats.messages_sent += amount.messages;
        state.stats.bytes_sent += amount.bytes;
        self.end.exchange().push(state);
    }

    /// Tries once more to send a message for which there was no room, after reading
    /// acknowledgements of the peer, which free room.
    #[cold]
    fn send_again(
        &self,
        state: &mut Locked<'_>,
        amount: Amount,
        fault: SendFault,
        message: &mut impl Put,
    ) -> Result<(), Refused> {
        let mut taken = Err(fault);
        if fault == SendFault::Full {
            self.end.exchange().poll_acks(state);
            let acked = state.core.as_deref().map(LinkState::acked);
            let report = AckReport { end: self.end, state, acked };
            taken = put(report.state, message);
        }
        match taken {
            Ok(()) => {
                self.sent(state, amount);
                Ok(())
            }
            Err(SendFault::Full) if amount.batches > 0 && state.is_all_acked() => {
                Err(Refused::Never(SendError::BatchTooLarge { len: amount.bytes }))
            }
            Err(fault) => Err(Refused::new(fault, amount.bytes, || {
                state.stopped().unwrap_or(Stopped::Closed)
            })),
        }
    }
}

/// The messages that one call of a send operation sends.
#[derive(Clone, Copy)]
pub(crate) enum Load<'a> {
    /// The operation sends one message, which is the concatenation of these parts.
    Message(&'a [&'a [u8]]),
    /// The operation sends several messages: the fields are their lengths, and their bytes one
    /// after the other. After a restart the receiver finds either all of these messages or none.
    Batch(&'a [usize], &'a [u8]),
}

/// The size of one send operation, which is added to the counters of the link.
#[derive(Clone, Copy)]
struct Amount {
    messages: u64,
    bytes: u64,
    /// Number of batches: 1 if the operation sends a batch, else 0. The three fields of this struct
    /// are whole words: copying a struct with a single byte among them would have to wait for the
    /// store of that byte.
    batches: u64,
}

impl Load<'_> {
    fn amount(&self) -> Amount {
        match self {
            Self::Message(parts) => Amount::message(len_of(parts)),
            Self::Batch(lens, bytes) => {
                let (messages, bytes) = (lens.len() as u64, bytes.len() as u64);
                Amount { messages, bytes, batches: 1 }
            }
        }
    }
}

/// The messages of one send operation, which `put` writes into the link. `put` is called again if
/// the link had no room. This is a trait instead of a closure, because a method can be marked to be
/// inlined.
trait Put {
    fn put(&mut self, core: &mut LinkState) -> Result<(), SendFault>;
}

impl Put for Load<'_> {
    fn put(&mut self, core: &mut LinkState) -> Result<(), SendFault> {
        match *self {
            Self::Message(parts) => core.send(parts).map(drop),
            Self::Batch(lens, bytes) => put_batch(core, lens, bytes),
        }
    }
}

/// A message of `len` bytes that the application's code `fill` writes. `fill` is called once, when
/// there is room.
struct Filled<F> {
    len: usize,
    fill: Option<F>,
}

impl<F: FnOnce(&mut [u8])> Put for Filled<F> {
    #[inline(always)]
    fn put(&mut self, core: &mut LinkState) -> Result<(), SendFault> {
        let Self { len, fill } = self;
        core.send_with(*len, |room| fill.take().into_iter().for_each(|fill| fill(room))).map(drop)
    }
}

impl Amount {
    #[inline]
    const fn message(len: usize) -> Self {
        Self { messages: 1, bytes: len as u64, batches: 0 }
    }
}

impl<'a> From<&'a [&'a [u8]]> for Load<'a> {
    fn from(parts: &'a [&'a [u8]]) -> Self {
        Self::Message(parts)
    }
}

/// Guard that exists while the link searches for room. When dropped, it reports the
/// acknowledgements that the search found to waiting threads.
struct AckReport<'a, 'b> {
    end: &'a Endpoint,
    state: &'a mut Locked<'b>,
    acked: Option<Position>,
}

impl Drop for AckReport<'_, '_> {
    #[inline]
    fn drop(&mut self) {
        self.end.report_acks(self.state, self.acked);
    }
}

#[inline(always)]
fn put(state: &mut State, message: &mut impl Put) -> Result<(), SendFault> {
    let core = state.core.as_deref_mut().ok_or(SendFault::Stopped)?;
    message.put(core)
}

#[inline(never)]
fn put_batch(core: &mut LinkState, lens: &[usize], mut bytes: &[u8]) -> Result<(), SendFault> {
    for len in lens {
        // The caller has checked that the lengths add up to the length of `bytes`, so this split
        // does not panic.
        let (message, rest) = bytes.split_at(*len);
        bytes = rest;
        if let Err(fault) = core.append_to_batch(&[message]) {
            core.abort();
            return Err(fault);
        }
        if seeded_fault("link_batch_one_by_one") {
            core.publish();
        }
    }
    core.publish();
    Ok(())
}
