// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sleeping and being woken over shared memory: the two columns of SPEC 6 without the bell (SPEC 16.6).
//!
//! ```text
//!   prepare_sleep ─ true ─▶ wait for the bell and the socket ─▶ rung: drain it, cancel_sleep ─▶ look
//!                 └ false ─▶ look
//!   send, publish, ack_to, reply ─▶ is_bell_due ─ true ─▶ ring the neighbour's bell
//! ```
//!
//! Bells and sockets are those of whoever drives this.

use partywall_reconcile::ack;

use super::LinkState;
use super::pulling::present;

impl LinkState {
    /// Declares that this side is about to sleep until there is something to read, until there is room, or either, and looks
    /// once more. `false`: there is something, so it is awake for both. `true`: it will be rung once for each of these.
    pub(crate) fn prepare_sleep(&mut self, for_records: bool, for_room: bool) -> bool {
        if self.shm.is_none() {
            return true;
        }
        self.memory.arm(for_records, for_room);
        let has_record = for_records && self.is_pull_ready();
        let is_ready = has_record || for_room && self.hear_consumed();
        if is_ready || self.has_fault() {
            self.cancel_sleep();
            return false;
        }
        true
    }

    /// Whether records of the present connection are read from memory.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.shm.as_ref().is_some_and(|shm| self.life.active == Some(shm.conn))
    }

    /// Whether [`pull_present`](Self::pull_present) is to tell of a violation.
    #[inline]
    pub(crate) fn has_fault(&self) -> bool {
        self.shm.as_ref().is_some_and(|shm| shm.fault.is_some())
    }

    /// Declares that it is awake.
    pub(crate) fn cancel_sleep(&mut self) {
        if self.shm.is_some() {
            self.memory.disarm();
        }
    }

    /// Whether [`pull_present`](Self::pull_present) will find something: a message, or an end. A look at one word, for who spins.
    #[inline]
    pub(crate) fn is_pull_ready(&self) -> bool {
        self.next_pulled().is_some_and(|(shm, at)| shm.is_ready(at))
    }

    /// Looks at that word as long as `goes_on` says; whether there is something.
    #[inline]
    pub(crate) fn watch(&self, mut goes_on: impl FnMut() -> bool) -> bool {
        let Some((shm, at)) = self.next_pulled() else { return false };
        while goes_on() {
            if shm.is_ready(at) {
                return true;
            }
        }
        false
    }

    /// Whether the neighbour sleeps and is to be rung, for what was published or consumed here since this was last asked. If it is
    /// true, it MUST be rung: it is said once for each sleep.
    #[inline]
    pub(crate) fn is_doorbell_due(&mut self) -> bool {
        let (tail, consumed) = (self.retained.tail(), self.inbox.consumed());
        let Some(shm) = present(&mut self.shm, self.life.active) else { return false };
        self.inbox.slab_told();
        shm.rings(tail, consumed)
    }

    /// Whether records are read from memory, none is there, and the neighbour has heard how far was consumed: all that is left is to look for the
    /// next.
    #[inline]
    pub(crate) fn is_caught_up(&self) -> bool {
        let Some((shm, at)) = self.next_pulled() else { return false };
        !self.has_next() && shm.notified_consumed >= self.inbox.consumed() && !shm.is_ready(at)
    }

    /// When the neighbour is to hear how far was consumed, and so [`is_doorbell_due`](Self::is_doorbell_due) to be asked: as acknowledgements are due
    /// over a socket.
    #[inline]
    pub(crate) fn look_due(&self) -> LookDue {
        let Some((shm, _)) = self.next_pulled() else { return LookDue::Never };
        let (ring, told) = (shm.window.ring_bytes, shm.notified_consumed);
        let consumed = self.inbox.consumed();
        if !ack::is_due(ring, told, consumed, true) {
            return LookDue::Never;
        }
        let slab = self.inbox.slab_unreported() > shm.window.slab_bytes / 4;
        if ack::is_due(ring, told, consumed, slab) {
            return LookDue::Now;
        }
        if shm.is_room_awaited() { LookDue::Drained } else { LookDue::Idle }
    }
}

/// When to look whether the neighbour sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookDue {
    /// It has heard all there is.
    Never,
    /// When the application is about to wait.
    Idle,
    /// When nothing more is there to take: it was seen to wait for room, or for what is consumed.
    Drained,
    Now,
}
