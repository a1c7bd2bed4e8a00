// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages in fragments, under `BackPressure::Overflow`: without memory, a message goes through
//! the ring in pieces (SPEC 5.5).
//!
//! ```text
//!   FRAGMENT_FIRST  total length, bytes ─▶ FRAGMENT_MID bytes … ─▶ FRAGMENT_LAST bytes
//!   given up half-way: FRAGMENT_ABORT, before the next record
//! ```
//!
//! Order is kept, because the pieces are records like any others. The next message for which memory
//! is allocated is zero-copy again.

use super::blob_memory::BlobMemory;
use super::sender::ShmSender;
use crate::config::BackPressure;
use crate::error::{Limit, TooLarge};
use crate::transport::{NotSent, Progress, TransportSender};
use partywall_layout::record_ring::{FRAGMENT_PREFIX_BYTES, HEADER_BYTES, Kind, footprint};
use partywall_layout::stream::CreditBody;

impl ShmSender {
    /// Sends a message that does not go inline: in a block, or in as many pieces as there is space
    /// for.
    pub(super) fn send_long(
        &mut self,
        payload: &[u8],
        progress: &mut Progress,
    ) -> Result<(), NotSent> {
        self.check()?;
        if progress.started {
            return self.send_fragments(payload, progress);
        }
        if self.policy != BackPressure::Overflow {
            return self.try_send(payload);
        }
        match self.allocate(payload.len()) {
            Ok(mut block) => {
                block.as_mut_slice().copy_from_slice(payload);
                let sent = self.add_block(block).map_err(|(unsent, block)| {
                    self.memory.free(block);
                    unsent
                });
                self.finish(sent, payload.len())
            }
            Err(NotSent::Full) => self.send_fragments(payload, progress),
            Err(unsent) => Err(unsent),
        }
    }

    /// Sends as many pieces as there is space for.
    fn send_fragments(&mut self, payload: &[u8], progress: &mut Progress) -> Result<(), NotSent> {
        if !progress.started {
            self.memory.check_overflow(payload.len() as u64).map_err(NotSent::TooLarge)?;
        }
        while progress.sent < payload.len() {
            let pending = self.append_pending().and_then(|()| self.append_credit());
            let pieces = pending.and_then(|()| {
                let piece = self.piece(payload, progress.sent);
                self.append_piece(payload, progress.sent, piece).map(|()| piece)
            });
            let piece = match pieces {
                Ok(piece) => piece,
                Err(unsent) => return self.finish(Err(unsent), 0),
            };
            progress.started = true;
            progress.sent += piece;
            self.publish()?;
        }
        self.count_overflow();
        self.count(payload.len());
        self.store_totals();
        Ok(())
    }

    /// Adds all pieces of a message to the open batch.
    pub(super) fn add_fragments(&mut self, payload: &[u8]) -> Result<(), NotSent> {
        self.memory.check_overflow(payload.len() as u64).map_err(NotSent::TooLarge)?;
        let credit = if self.credit.is_some() { footprint(CREDIT_BYTES) } else { 0 };
        let pending = BlobMemory::PENDING_BYTES_MAX + credit;
        let per_piece = footprint(self.piece_max() as u64);
        let needed = self.fragments_footprint(payload.len()) + pending;
        // The end of the ring may come in between: its padding counts, and is less than a piece.
        // All of it is less than half the ring, so even then it fits an empty one. The rings of
        // models may be too small for any.
        let room = self.producer.size().batch_max().saturating_sub(pending + per_piece);
        if self.producer.open_bytes() + needed > room {
            return Err(self.too_long_for_a_batch(payload.len() as u64, needed <= room));
        }
        // All pieces or none: the pieces of an unfinished message cannot stay in a batch.
        #[expect(clippy::cast_possible_truncation, reason = "less than the ring")]
        let needed = needed as usize;
        match self.producer.has_room(needed) {
            Ok(true) => {}
            Ok(false) => return Err(self.no_space()),
            Err(violation) => return Err(self.violated(violation)),
        }
        self.append_pending()?;
        self.append_credit()?;
        let mut sent = 0;
        while sent < payload.len() {
            let piece = self.piece(payload, sent);
            self.append_piece(payload, sent, piece)?;
            sent += piece;
        }
        self.count_overflow();
        Ok(())
    }

    /// For a message that fits neither batch nor ring, memory may be returned. If no memory would
    /// ever do, waiting would never end.
    fn too_long_for_a_batch(&self, len: u64, fits_another: bool) -> NotSent {
        let (max, memory) = self.memory.largest();
        if len <= max {
            return NotSent::Full;
        }
        let limit = if fits_another { Limit::Batch } else { memory };
        NotSent::TooLarge(TooLarge { len, max, limit })
    }

    /// How many bytes of the ring all pieces of a message of `len` bytes take.
    fn fragments_footprint(&self, len: usize) -> u64 {
        let max = self.piece_max();
        let first = max.min(len - 1);
        let rest = len - first;
        let whole = (rest / max) as u64 * footprint(max as u64);
        let last = if rest % max == 0 { 0 } else { footprint((rest % max) as u64) };
        footprint(first as u64 + FRAGMENT_PREFIX_BYTES) + whole + last
    }

    /// Length in bytes of the longest piece: an eighth of the ring, so that sender and receiver
    /// work at the same time.
    #[expect(clippy::cast_possible_truncation, reason = "less than the ring")]
    const fn piece_max(&self) -> usize {
        (self.producer.size().bytes() / 8 - HEADER_BYTES - FRAGMENT_PREFIX_BYTES) as usize
    }

    /// Length in bytes of the next piece. The first piece is never also the last.
    fn piece(&self, payload: &[u8], sent: usize) -> usize {
        let left = payload.len() - sent;
        if sent == 0 { self.piece_max().min(left - 1) } else { self.piece_max().min(left) }
    }

    fn append_piece(&mut self, payload: &[u8], sent: usize, piece: usize) -> Result<(), NotSent> {
        let bytes = &payload[sent..sent + piece];
        if sent == 0 {
            let total = (payload.len() as u64).to_le_bytes();
            return self.append(Kind::FragmentFirst, &[&total, bytes]);
        }
        let is_last = sent + piece == payload.len();
        self.append(if is_last { Kind::FragmentLast } else { Kind::FragmentMid }, &[bytes])
    }
}

/// Length in bytes of the body of CREDIT.
const CREDIT_BYTES: u64 = size_of::<CreditBody>() as u64;
