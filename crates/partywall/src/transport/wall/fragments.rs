// SPDX-License-Identifier: MIT OR Apache-2.0
//! `BackPressure::Overflow`: a message for which there is no memory goes through the ring in pieces
//! (SPEC 5.5).
//!
//! ```text
//!   FRAGMENT_FIRST  total length, bytes ─▶ FRAGMENT_MID bytes … ─▶ FRAGMENT_LAST bytes
//!   given up half-way: FRAGMENT_ABORT, before the next record
//! ```
//!
//! Order is kept, because the pieces are records like any others; the very next message that finds
//! memory is zero-copy again.

use super::sender::WallSender;
use crate::transport::{Progress, Unsent};
use partywall_layout::record::{FRAGMENT_PREFIX_BYTES, HEADER_BYTES, Kind};
use partywall_layout::ring::footprint;
use partywall_layout::segment::sending;

impl WallSender {
    /// Sends as many pieces as there is room for.
    pub(super) fn send_fragments(
        &mut self,
        payload: &[u8],
        progress: &mut Progress,
    ) -> Result<(), Unsent> {
        if !progress.started {
            self.check_overflow(payload.len())?;
        }
        while progress.sent < payload.len() {
            let pieces = self.append_owed().and_then(|()| {
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
        self.counters.add(sending::OVERFLOWS, 1);
        self.count(payload.len());
        Ok(())
    }

    /// Adds all pieces of a message to the open batch.
    pub(super) fn add_fragments(&mut self, payload: &[u8]) -> Result<(), Unsent> {
        self.check_overflow(payload.len())?;
        let per_piece = footprint(self.piece_max() as u64);
        let pieces = (payload.len() / self.piece_max() + 2) as u64;
        let size = self.producer.size();
        // The ring's end may come in between, and padding counts.
        let room = size.batch_max() - self.growth.owed_bytes_max() - size.record_max();
        if self.producer.open_bytes() + pieces * per_piece > room {
            return Err(Unsent::Full);
        }
        self.append_owed()?;
        let mut sent = 0;
        while sent < payload.len() {
            let piece = self.piece(payload, sent);
            self.append_piece(payload, sent, piece)?;
            sent += piece;
        }
        self.counters.add(sending::OVERFLOWS, 1);
        Ok(())
    }

    /// The longest piece: an eighth of the ring, so that sender and receiver work at the same time.
    #[expect(clippy::cast_possible_truncation, reason = "less than the ring")]
    const fn piece_max(&self) -> usize {
        (self.producer.size().bytes() / 8 - HEADER_BYTES - FRAGMENT_PREFIX_BYTES) as usize
    }

    /// How many bytes the next piece takes; the first is never also the last.
    fn piece(&self, payload: &[u8], sent: usize) -> usize {
        let left = payload.len() - sent;
        if sent == 0 { self.piece_max().min(left - 1) } else { self.piece_max().min(left) }
    }

    fn append_piece(&mut self, payload: &[u8], sent: usize, piece: usize) -> Result<(), Unsent> {
        let bytes = &payload[sent..sent + piece];
        if sent == 0 {
            let total = (payload.len() as u64).to_le_bytes();
            return self.append(Kind::FragmentFirst, &[&total, bytes]);
        }
        let is_last = sent + piece == payload.len();
        self.append(if is_last { Kind::FragmentLast } else { Kind::FragmentMid }, &[bytes])
    }
}
