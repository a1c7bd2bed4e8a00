// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages for the application, and that it has consumed them.
//!
//! ```text
//!   offer ──▶ bytes, token, attempt ─────▶ commit(token)          one commit: consumed up to here
//!                                      └─▶ reply(token, bytes)    one store: consumed, and sent (SPEC 12.5)
//! ```

use partywall_layout::seeded_fault;
use partywall_reconcile::{AckedOffset, Position, StreamId, ack};

use super::conn::Conn;
use super::inbox::{Next, Payload};
use super::sending::{Saying, SendFault};
use super::{LinkState, Provenance};
use crate::retained::{join, len_of};
use crate::store::DurableState;

/// A message, and what it takes to commit it.
#[cfg(all(test, not(shuttle)))]
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    pub(crate) bytes: bytes::Bytes,
    pub(crate) token: DeliveryId,
    /// 1 the first time, one more for each owner before that had it and did not commit.
    pub(crate) attempt: u32,
}

/// Names the end of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeliveryId {
    pub(crate) start: Position,
    pub(crate) stream: StreamId,
    pub(crate) end: Position,
}

/// A message was not committed, and will be handed out again if the link still has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// A later message was committed, and this one with it.
    #[error("the message is consumed already: a later one was committed")]
    Consumed,
    /// Its epoch is over, or the streams were joined anew and it will be handed out again.
    #[error(
        "the message is of a stream, or a joining of streams, that is over: it may be handed out again"
    )]
    Stale,
}

impl LinkState {
    /// The next message, if there is one.
    #[cfg(all(test, not(shuttle)))]
    pub(crate) fn next(&mut self) -> Option<Delivery> {
        self.offer(|payload, token, attempt| Delivery { bytes: payload.to_bytes(), token, attempt })
    }

    /// Hands out the next message, if there is one: what `take` makes of its bytes, what it takes to commit it, and whether it was handed
    /// out before: 1 the first time, one more for each owner before that had it and did not commit.
    #[inline(always)]
    pub(crate) fn offer<B>(
        &mut self,
        take: impl FnOnce(Payload<'_>, DeliveryId, u32) -> B,
    ) -> Option<B> {
        let stream = self.inbox.stream()?;
        let Next { start, end, payload } = self.inbox.next()?;
        // Before: it may be what its receiver dies of.
        let is_late = seeded_fault("link_read_before_noted");
        if !is_late {
            self.memory.note_delivered(stream, end);
        }
        let taken = take(payload, DeliveryId { start, stream, end }, attempt(&self.durable, start));
        if is_late {
            self.memory.note_delivered(stream, end);
        }
        Some(taken)
    }

    /// What was handed out and not committed is handed out again.
    pub(crate) fn rewind(&mut self) {
        self.inbox.rewind();
    }

    /// What was handed out last is handed out again, and comes next.
    pub(crate) fn take_back(&mut self) {
        self.inbox.take_back();
    }

    /// Commits a message and all before it.
    #[inline(always)]
    pub(crate) fn ack_to(&mut self, token: &DeliveryId) -> Result<(), CommitError> {
        // Taken apart, and so never put together on the way.
        let Some(digest) = self.inbox.digest_at(token.stream, token.end) else {
            return Err(self.not_committed(token));
        };
        self.store_acked(AckedOffset { stream: token.stream, position: token.end, digest });
        Ok(())
    }

    /// Commits what was handed out last, and all before it.
    pub(crate) fn commit_handed_out(&mut self) {
        if let Some(acked_offset) = self.inbox.last_handed_out() {
            self.store_acked(acked_offset);
        }
    }

    /// The same, of a message that was offered [shortly](Self::offer_shortly), just now.
    #[inline(always)]
    pub(crate) fn commit_in_hand(&mut self) {
        if let Some(acked_offset) = self.inbox.in_hand() {
            self.store_acked(acked_offset);
        }
    }

    #[inline(always)]
    fn store_acked(&mut self, acked_offset: AckedOffset) {
        if !seeded_fault("link_consumed_now_and_then") || acked_offset.position.0 % 128 == 0 {
            self.memory.consume(acked_offset);
        }
        self.consumed(acked_offset);
    }

    /// Sends a reply and commits what it answers, by one store.
    pub(crate) fn reply(
        &mut self,
        token: DeliveryId,
        parts: &[&[u8]],
    ) -> Result<Position, ReplyFault> {
        let Some(digest) = self.inbox.digest_at(token.stream, token.end) else {
            return Err(ReplyFault::Commit(self.not_committed(&token)));
        };
        let acked_offset = AckedOffset { stream: token.stream, position: token.end, digest };
        if seeded_fault("link_reply_in_two_steps") {
            self.memory.consume(acked_offset);
        }
        // Never BARE: this very record commits the mark.
        let saying = match seeded_fault("link_compact_of_reply") {
            true => Saying::Elsewhere,
            false => Saying::Here(Some(acked_offset)),
        };
        let end = self
            .send_saying(len_of(parts), |room| join(parts, room), saying)
            .map_err(ReplyFault::Send)?;
        self.consumed(acked_offset);
        if self.shm.is_some() {
            // The neighbour may wait for room and not read the reply.
            self.memory.consume(acked_offset);
        }
        Ok(end)
    }

    /// Why a message cannot be committed that is not here.
    #[cold]
    fn not_committed(&self, token: &DeliveryId) -> CommitError {
        let is_consumed =
            self.inbox.stream() == Some(token.stream) && token.end <= self.inbox.consumed();
        if is_consumed { CommitError::Consumed } else { CommitError::Stale }
    }

    #[inline(always)]
    fn consumed(&mut self, acked_offset: AckedOffset) {
        self.durable.acked_offset = Some(acked_offset);
        self.inbox.consume(acked_offset);
    }

    /// Whether the neighbour should hear how far was consumed. `idle`: the application is about to wait.
    pub(crate) fn is_ack_due(&self, conn: &Conn, idle: bool) -> bool {
        if self.life.active != Some(conn.id())
            || self.durable.acked_offset.is_none()
            || conn.is_shared
        {
            // In shared memory the neighbour reads it itself.
            return false;
        }
        let Some(window) = conn.window else { return false };
        let drained = (idle || conn.is_ack_due) && !seeded_fault("link_ack_waits");
        // A large message takes one slot of the ring: what it takes of the slab counts as well.
        let slab =
            self.inbox.slab_unreported() > window.slab_bytes / 4 && !seeded_fault("link_ack_waits");
        ack::is_due(window.ring_bytes, self.life.told, self.inbox.consumed(), drained || slab)
    }

    /// Where both sides are, or will be.
    pub(crate) fn epoch(&self) -> u64 {
        self.durable.epoch.0
    }

    /// Whether records flow.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.life.active.is_some()
    }

    /// Which memory this is.
    pub(crate) fn provenance(&self) -> Provenance {
        self.memory.provenance()
    }
}

/// The how many-th attempt it is with the message that begins at `start`.
#[inline(always)]
pub(super) fn attempt(durable: &DurableState, start: Position) -> u32 {
    let before = durable.delivered().iter().filter(|handed| **handed > start).count();
    u32::try_from(1 + before).unwrap_or(u32::MAX)
}

/// A reply was not sent, and nothing was committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyFault {
    Commit(CommitError),
    Send(SendFault),
}
