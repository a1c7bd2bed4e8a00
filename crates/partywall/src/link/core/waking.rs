// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sleeping and being woken over shared memory: the two columns of SPEC 6 without the bell (SPEC 16.6).
//!
//! ```text
//!   drain the bell ─▶ prepare_sleep ─ true ─▶ wait for the bell and the socket ─▶ cancel_sleep ─▶ look
//!                                   └ false ─▶ look
//!   send, publish, commit_to, reply ─▶ is_bell_due ─ true ─▶ ring the neighbour's bell
//! ```
//!
//! Bells and sockets are those of whoever drives this.

use super::Core;
use super::pulling::present;

impl Core {
    /// Declares that this side is about to sleep until there is something to read, `for_room` also until there is room, and looks
    /// once more. `false`: there is something, so it does not sleep.
    pub(crate) fn prepare_sleep(&mut self, for_room: bool) -> bool {
        if self.wall.is_none() {
            return true;
        }
        self.memory.arm(for_room);
        let is_ready = self.is_pull_ready() || for_room && self.hear_consumed();
        // Heard of a fault just now, perhaps.
        if is_ready || self.is_pull_ready() {
            self.cancel_sleep();
            return false;
        }
        true
    }

    /// Declares that it is awake.
    pub(crate) fn cancel_sleep(&mut self) {
        if self.wall.is_some() {
            self.memory.disarm();
        }
    }

    /// Whether [`pull`](Self::pull) will find something: a message, or an end. A look at one word, for who spins.
    pub(crate) fn is_pull_ready(&self) -> bool {
        self.next_pulled().is_some_and(|(wall, at)| wall.is_ready(at))
    }

    /// Whether [`hear_consumed`](Self::hear_consumed) may find something. As cheap.
    pub(crate) fn is_room_ready(&self) -> bool {
        self.next_pulled().is_some_and(|(wall, _)| wall.has_news())
    }

    /// Whether the neighbour sleeps and is to be rung, for what was published or consumed here since this was last asked. If it is
    /// true, it MUST be rung: it is said once for each sleep.
    pub(crate) fn is_bell_due(&mut self) -> bool {
        let (tail, consumed) = (self.retained.tail(), self.inbox.consumed());
        let Some(wall) = present(&mut self.wall, self.life.active) else { return false };
        let for_records = wall.rings_for_records(tail);
        wall.rings_for_room(consumed) || for_records
    }
}
