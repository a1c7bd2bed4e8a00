// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of the application into a link, and waiting until they are consumed.
//!
//! ```text
//!   take ─ fits ──▶ write to the socket what it takes now ──▶ done
//!     └ full ─▶ read acknowledgements ─▶ take ─ full ─▶ spin, wait ─▶ take …
//! ```

use partywall_layout::seeded_fault;
use std::time::Instant;

use partywall_reconcile::Position;

use super::waiting::Waits;
use super::{Endpoint, Locked, State};
use crate::link::core::{Core, End, SendFault};
use crate::link::drive::Before;
use crate::link::fault::{LinkSendError, LinkStopped, LinkTrySendError, LinkWaitError, Refused};

/// What is to be sent, as one.
#[derive(Clone, Copy)]
pub(in crate::link) enum Load<'a> {
    /// One message, of parts that lie one behind the other.
    Message(&'a [&'a [u8]]),
    /// Messages of these lengths, one behind the other; they appear at once.
    Batch(&'a [usize], &'a [u8]),
}

impl Load<'_> {
    #[inline]
    fn len(&self) -> u64 {
        match self {
            Self::Message(parts) => parts.iter().map(|part| part.len() as u64).sum(),
            Self::Batch(_, bytes) => bytes.len() as u64,
        }
    }

    #[inline]
    const fn messages(&self) -> u64 {
        match self {
            Self::Message(_) => 1,
            Self::Batch(lens, _) => lens.len() as u64,
        }
    }
}

impl Endpoint {
    /// Sends if there is room now.
    #[inline]
    pub(in crate::link) fn try_send(&self, load: Load<'_>) -> Result<(), LinkTrySendError> {
        let mut state = self.lock().map_err(LinkSendError::from)?;
        let sent = self.send_now(&mut state, load);
        if matches!(sent, Err(Refused::Full)) {
            self.want_room(&mut state);
        }
        // Nobody may be waiting, and so nobody connecting, or hearing that the connection broke.
        let must_turn = state.is_detached() || self.is_time_to_look(&mut state, sent.is_ok());
        drop(state);
        if must_turn {
            let turned = self.group.hub.try_turn(Before::Looking);
            if sent.is_err() {
                turned.map_err(|e| LinkSendError::from(LinkStopped::from(e)))?;
            }
        }
        match sent {
            Ok(()) => Ok(()),
            Err(Refused::Full) => Err(LinkTrySendError::Full),
            Err(Refused::Never(error)) => Err(error.into()),
        }
    }

    /// Sends, and waits for room until `deadline`.
    pub(in crate::link) fn send(
        &self,
        load: Load<'_>,
        deadline: Option<Instant>,
    ) -> Result<(), LinkSendError> {
        match self.try_send(load) {
            Ok(()) => return Ok(()),
            Err(LinkTrySendError::Never(error)) => return Err(error),
            Err(LinkTrySendError::Full) => {}
        }
        self.wait_for(deadline, Waits::ForRoom, |state| match self.send_now(state, load) {
            Err(Refused::Full) => None,
            Ok(()) => Some(Ok(())),
            Err(Refused::Never(error)) => Some(Err(error)),
        })?
        .unwrap_or(Err(LinkSendError::TimedOut))
    }

    /// Waits until all that was sent before is consumed.
    pub(in crate::link) fn flush(&self, deadline: Option<Instant>) -> Result<(), LinkWaitError> {
        let (epoch, tail) = self.with_core(|core| (core.epoch(), core.tail()))?;
        let found = self.wait_for(deadline, Waits::ForRoom, |state| {
            self.hear(state);
            let core = match state.core() {
                Ok(core) => core,
                Err(stopped) => return Some(Err(stopped)),
            };
            // What was sent in an epoch that is over is consumed, or in the reports.
            if core.acked() >= tail || core.epoch() != epoch {
                return Some(Ok(()));
            }
            state.stopped().map(Err)
        })?;
        self.waited(found)
    }

    /// Waits until all that was sent before is with the system, or where the peer reads it.
    pub(in crate::link) fn wait_sent(
        &self,
        deadline: Option<Instant>,
    ) -> Result<(), LinkWaitError> {
        let mut state = self.lock()?;
        let core = state.core()?;
        let (epoch, tail) = (core.epoch(), core.tail());
        state.awaiting_writes += 1;
        drop(state);
        let found = self.wait_for(deadline, Waits::ForRoom, |state| {
            self.push(state);
            self.hear(state);
            let wire = state.active();
            let State { core, wires, .. } = &mut **state;
            let Some(core) = core else { return Some(Err(LinkStopped::Closed)) };
            // As for `flush`; without a connection there may still come one.
            let is_out = wire.is_some_and(|index| core.has_sent(&wires[index].conn, tail));
            if is_out || core.acked() >= tail || core.epoch() != epoch {
                return Some(Ok(()));
            }
            state.stopped().map(Err)
        });
        self.spot.lock().awaiting_writes -= 1;
        self.waited(found?)
    }

    /// Waits until records flow.
    pub(in crate::link) fn wait_attached(
        &self,
        deadline: Option<Instant>,
    ) -> Result<(), LinkWaitError> {
        let found = self.wait_for(deadline, Waits::ForRecords, |state| {
            if let Some(stopped) = state.stopped() {
                return Some(Err(stopped));
            }
            state.active().map(|_| Ok(()))
        })?;
        self.waited(found)
    }

    #[inline(always)]
    fn send_now(&self, state: &mut Locked<'_>, load: Load<'_>) -> Result<(), Refused> {
        let acked = state.core.as_ref().map(Core::acked);
        let mut taken = take(state, load);
        if matches!(taken, Err(SendFault::Full)) {
            // There may be room that nobody has heard of.
            self.hear(state);
            taken = take(state, load);
        }
        self.tell_if_heard(state, acked);
        match taken {
            Ok(()) => {
                state.stats.messages_sent += load.messages();
                state.stats.bytes_sent += load.len();
                self.push(state);
                Ok(())
            }
            Err(SendFault::Full) if matches!(load, Load::Batch(..)) && state.is_empty() => {
                Err(Refused::Never(LinkSendError::BatchTooLarge { len: load.len() }))
            }
            Err(fault) => Err(Refused::new(fault, load.len(), || {
                state.stopped().unwrap_or(LinkStopped::Closed)
            })),
        }
    }

    /// Tells, if more was found to be consumed than before: as room was looked for, perhaps.
    #[inline(always)]
    pub(super) fn tell_if_heard(&self, state: &mut Locked<'_>, acked: Option<Position>) {
        if state.core.as_ref().map(Core::acked) != acked {
            self.tell(state);
        }
    }

    /// Begins an epoch; every connection is over.
    pub(in crate::link) fn begin_epoch(
        &self,
        epoch: u64,
    ) -> Result<Result<(), crate::link::core::EpochError>, LinkStopped> {
        let mut state = self.lock()?;
        let begun = state.core()?.begin_epoch(partywall_reconcile::Epoch(epoch));
        if begun.is_ok() {
            while !state.wires.is_empty() {
                self.end(&mut state, 0, End::EpochAdopted);
            }
            self.tell(&mut state);
        }
        Ok(begun)
    }
}

impl State {
    /// Whether nothing is kept, so that there will never be more room than now.
    pub(super) fn is_empty(&self) -> bool {
        self.core.as_ref().is_some_and(|core| core.acked() >= core.tail())
    }
}

#[inline(always)]
fn take(state: &mut State, load: Load<'_>) -> Result<(), SendFault> {
    let Some(core) = &mut state.core else { return Err(SendFault::Stopped) };
    match load {
        Load::Message(parts) => core.send(parts).map(drop),
        Load::Batch(lens, mut bytes) => {
            for len in lens {
                // The lengths are of pieces of `bytes`.
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
    }
}
