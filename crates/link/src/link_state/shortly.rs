// SPDX-License-Identifier: MIT OR Apache-2.0
//! The short way of nearly all messages: from the neighbour's memory to the application, in one step.
//!
//! ```text
//!   nothing is here ─ a short BARE record is there ─ copied ─ its crc ─ still that stream? ─▶ in hand, and handed out
//!          └ no             └ no                               └ no        └ no
//!                             the long way: pull_present, offer
//! ```
//!
//! It does what the long way would do, and where it does not suit it leaves everything as it was, so that the long way finds, and tells,
//! what there is. Two processes in step receive each message by it.
//!
//! # Invariants
//!
//! - It hands out nothing that the long way would not.

use super::LinkState;
use super::consuming::{DeliveryId, attempt};
use super::copying::ShortCompact;
use super::pulling::present;

/// A message that was handed out.
pub(crate) struct Handed<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) token: DeliveryId,
    /// As [`offer`](LinkState::offer) says.
    pub(crate) attempt: u32,
}

impl LinkState {
    /// The next message, by this way.
    #[cfg(all(test, not(shuttle)))]
    pub(super) fn next_shortly(&mut self) -> Option<super::consuming::Delivery> {
        let Handed { bytes, token, attempt } = self.offer_shortly(false)?;
        let bytes = bytes::Bytes::copy_from_slice(bytes);
        Some(super::consuming::Delivery { bytes, token, attempt })
    }

    /// As [`pull_present`](Self::pull_present) and [`offer`](Self::offer). `None` says nothing: it may be that they find something.
    /// `is_behind`: more is likely to lie there, as for [`prefetch`](Self::prefetch).
    #[inline(always)]
    pub(crate) fn offer_shortly(&mut self, is_behind: bool) -> Option<Handed<'_>> {
        let stream = self.inbox.stream()?;
        let shm = present(&mut self.shm, self.life.active)?;
        let may_read = self.life.acks_from.is_some() && shm.fault.is_none();
        if !may_read || !self.inbox.is_empty() {
            return None;
        }
        let start = self.inbox.received();
        let compact = shm.take_short_compact(start, stream, shm.words(start)?, self.inbox.log())?;
        if self.inbox.arrive(start, compact.footprint).is_err() {
            self.inbox.log().clear();
            return None;
        }
        let ShortCompact { end, digest, entry, .. } = compact;
        if is_behind {
            shm.prefetch(end);
        }
        self.memory.note_delivered(stream, end);
        let attempt = attempt(&self.durable, start);
        let bytes = self.inbox.hand_out(start, end, digest, entry);
        Some(Handed { bytes, token: DeliveryId { start, stream, end }, attempt })
    }
}
