// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exchange of records, acknowledgements and notifications between one end of a link and its peer,
//! over shared memory (SPEC 16) or a socket.
//!
//! ```text
//!                 over shared memory                          over a socket
//!   push          notify the peer if it sleeps                write what the kernel takes
//!   poll_…        read the peer's memory                      read the socket
//!   acknowledge   the peer reads our memory; a peer that      write a frame, unless a record
//!                 waits for acknowledgements is notified      carries the acknowledgement
//! ```

use std::sync::Weak;

use partywall_reconcile::Position;

use super::connections::Connections;
use super::{Endpoint, Locked, State};
use crate::drive::Source;
use crate::link_state::{End, LinkState, NotifyDue};

#[derive(Clone, Copy)]
pub(crate) struct Exchange<'a> {
    pub(super) end: &'a Endpoint,
}

impl Exchange<'_> {
    /// Makes new records visible to the peer: over shared memory it notifies a sleeping peer;
    /// otherwise it writes to the present connection as much as the kernel takes.
    #[inline]
    pub(super) fn push(&self, state: &mut Locked<'_>) {
        let Some(index) = state.active() else { return };
        if state.is_shared() && !state.connections.wires[index].conn.has_control() {
            return self.notify(state);
        }
        self.end.connections().write(state, index);
    }

    /// Sends the peer this end's acked offset, if an acknowledgement is due. `is_idle` says that
    /// the calling thread is about to block.
    #[inline]
    pub(super) fn acknowledge(&self, state: &mut Locked<'_>, is_idle: bool) {
        if state.is_shared() {
            // The peer reads this end's acknowledgements from shared memory, so nothing is sent.
            // But a sleeping peer needs a notification.
            let due = state.core.as_ref().map_or(NotifyDue::Never, |core| core.notify_due());
            if due == NotifyDue::Now || is_idle && due != NotifyDue::Never {
                self.notify(state);
            }
            return;
        }
        let Some(index) = state.active() else { return };
        let State { core: Some(core), connections: Connections { wires, .. }, stats, .. } =
            &mut **state
        else {
            return;
        };
        let wire = &mut wires[index];
        if core.is_ack_due(&wire.conn, is_idle) {
            stats.acknowledgements += 1;
            core.acknowledge(&mut wire.conn, is_idle);
            self.end.connections().write(state, index);
        }
    }

    /// Reports an acknowledgement to the peer: now if another thread already blocks on this link's
    /// group, else when a thread is about to block on it. Until then a record may carry the
    /// acknowledgement.
    #[inline(always)]
    pub(super) fn acknowledge_later(&self, state: &mut Locked<'_>) {
        if state.is_shared() { self.notify_later(state) } else { self.send_ack_later(state) }
    }

    #[inline(never)]
    fn send_ack_later(&self, state: &mut Locked<'_>) {
        self.acknowledge(state, false);
        if state.is_detached() {
            return;
        }
        let is_listed = std::mem::replace(&mut state.wakeups.is_unsettled, true);
        let me: Weak<dyn Source> = self.end.me.clone();
        let is_leader_asleep = self.end.group.reactor.settle_later((!is_listed).then_some(me));
        // It may take long until the calling thread uses the link again. The leader sleeps, and
        // wakes only for another event. So the acknowledgement is sent now, unless the thread has a
        // next message to receive.
        if is_leader_asleep && state.core.as_ref().is_some_and(|core| !core.has_next()) {
            self.acknowledge(state, true);
        }
    }

    /// Notifies a peer that waits for acknowledgements, at the latest when a thread of this end is
    /// about to block. If another thread blocks already, the peer is notified now, because it may
    /// take long until the calling thread uses the link again.
    #[inline(always)]
    pub(super) fn notify_later(&self, state: &mut Locked<'_>) {
        let due = state.core.as_ref().map_or(NotifyDue::Never, |core| core.notify_due());
        match due {
            NotifyDue::Never => {}
            NotifyDue::Idle if state.wakeups.is_settled_in_time() => {}
            due => self.notify_later_as(state, due),
        }
    }

    #[inline(never)]
    fn notify_later_as(&self, state: &mut Locked<'_>, due: NotifyDue) {
        // The closure `is_last` polls for the peer's next record. It is called only where its
        // result matters: a poll takes the record's cache line from the peer, which may be about to
        // write it.
        let is_last = |core: &LinkState| !core.has_next() && !core.is_pull_ready();
        match due {
            NotifyDue::Now => return self.notify(state),
            NotifyDue::Drained if state.core.as_deref().is_some_and(is_last) => {
                return self.notify(state);
            }
            _ => {}
        }
        if state.wakeups.is_settled_in_time() {
            return;
        }
        let me: Weak<dyn Source> = self.end.me.clone();
        let is_late =
            self.end.group.reactor.settle_later((!state.wakeups.is_unsettled).then_some(me));
        (state.wakeups.is_unsettled, state.wakeups.is_late) = (true, is_late);
        if is_late && state.core.as_deref().is_some_and(is_last) {
            self.notify(state);
        }
    }

    /// Notifies the peer through its doorbell if the peer sleeps and there is a new record or
    /// acknowledgement for it.
    #[inline]
    pub(super) fn notify(&self, state: &mut Locked<'_>) {
        let Some(core) = &mut state.core else { return };
        if core.is_doorbell_due() {
            notify_doorbell(state);
        }
        state.core.iter_mut().for_each(|core| core.prepare_ahead());
    }

    #[inline(always)]
    pub(super) fn poll_records(&self, state: &mut Locked<'_>) {
        if state.is_shared() {
            self.pull(state);
        } else if let Some(index) = state.active() {
            self.end.connections().read(state, index);
        }
    }

    /// Reads the peer's acked offset: from the peer's memory if it is shared, else from the socket.
    pub(super) fn poll_acks(&self, state: &mut Locked<'_>) {
        if !state.is_shared() {
            return state
                .active()
                .into_iter()
                .for_each(|index| self.end.connections().read(state, index));
        }
        let Some(core) = &mut state.core else { return };
        let (has_acks, has_fault) = (core.poll_acked(), core.has_fault());
        if has_acks {
            self.end.report_change(state);
        }
        if has_fault {
            self.pull(state);
        }
    }

    #[inline(always)]
    fn pull(&self, state: &mut Locked<'_>) {
        let Some(core) = &mut state.core else { return };
        let acked = Some(core.acked());
        let pulled = core.pull_present();
        if let Err(end) = pulled {
            return self.end_by_pull(state, acked, end);
        }
        // A record from the peer may carry an acknowledgement, which frees room in this end's ring.
        // So threads that wait for room are woken.
        self.end.report_acks(state, acked);
    }

    #[cold]
    fn end_by_pull(&self, state: &mut Locked<'_>, acked: Option<Position>, end: End) {
        // This end reads records from the peer's memory only over an attached connection with
        // shared memory, so there is an active connection.
        let Some(index) = state.active() else { return };
        let State { core: Some(core), connections: Connections { wires, .. }, .. } = &mut **state
        else {
            return;
        };
        let end = core.ended(&mut wires[index].conn, end);
        self.end.report_acks(state, acked);
        self.end.connections().end(state, index, end);
    }
}

#[cold]
pub(super) fn notify_doorbell(state: &State) {
    let wire = state.active().map(|index| &state.connections.wires[index]);
    let doorbell = wire.and_then(|wire| wire.doorbells.as_ref()?.peers.as_ref());
    // Notifying an intact eventfd does not fail. A peer that damages its own doorbell harms only
    // itself: it misses wake-ups.
    doorbell.into_iter().for_each(|doorbell| drop(doorbell.notify()));
}
