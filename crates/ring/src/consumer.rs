// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reading end of a record ring (SPEC 4).
//!
//! ```text
//!            reported         position
//!  ──────────┼────────────────┼──────────────────────────▶ position
//!   the producer may reuse    │ 0, or a whole record
//!            └ own `consumed` ┘ at most ring/8 apart
//! ```
//!
//! The ring lies in the neighbour's half: it is never written, and nothing in it is believed. Each
//! header is loaded once and checked; progress is told through `consumed` in our own half.
//!
//! What this does *not* do: it never waits, wakes nobody, and does not interpret payloads.

use crate::mem::{OwnMem, PeerMem};
use partywall_layout::record_ring::{HEADER_BYTES, Kind, Position, RingSize, SLOT_BYTES};
use partywall_layout::{RecordHeader, Violation};

/// How far ahead [`Consumer::prefetch`] fetches.
const AHEAD_BYTES: u64 = 8 * SLOT_BYTES;

/// The one reader of a record ring.
#[derive(Debug)]
pub struct Consumer {
    ring: PeerMem,
    size: RingSize,
    /// The own control word `consumed`, at offset 0 of this memory.
    consumed: OwnMem,
    /// Where the next record begins.
    position: Position,
    /// What `consumed` says.
    reported: Position,
}

impl Consumer {
    /// Reads the neighbour's `ring`; `consumed` is the line of our own control page that tells the
    /// neighbour how far we are.
    ///
    /// # Panics
    /// If `ring` is not as long as `size` says.
    #[must_use]
    pub fn new(ring: PeerMem, size: RingSize, consumed: OwnMem) -> Self {
        assert!(ring.len() as u64 == size.bytes(), "the ring's memory has the ring's size");
        Self { ring, size, consumed, position: Position(0), reported: Position(0) }
    }

    /// As [`new`](Self::new), but goes on at `position`, where a record begins or will begin, and says so in
    /// `consumed`: everything before it was finished with.
    ///
    /// # Panics
    /// If `ring` is not as long as `size` says, or no record can begin at `position`.
    #[must_use]
    pub fn at(ring: PeerMem, size: RingSize, mut consumed: OwnMem, position: Position) -> Self {
        assert!(position.0 % SLOT_BYTES == 0, "records begin with slots");
        // ORDER (in `OwnMem::publish`): as in `report`.
        consumed.publish(0, position.0);
        Self { position, reported: position, ..Self::new(ring, size, consumed) }
    }

    /// The position of the next record.
    #[must_use]
    pub const fn position(&self) -> Position {
        self.position
    }

    /// The next record, if it was published; skips padding.
    ///
    /// The record stays until [`advance`](Self::advance). If this returns `None`, a producer may
    /// publish one at any moment.
    ///
    /// # Errors
    /// A [`Violation`] if what lies there can be no record. The ring cannot be read any further.
    #[inline]
    pub fn peek(&mut self) -> Result<Option<RecordHeader>, Violation> {
        loop {
            let offset = self.offset();
            let first = self.ring.load(offset);
            if first == 0 {
                return Ok(None);
            }
            let second = self.ring.peek(offset + 8);
            match RecordHeader::check(self.position, self.size, first, second)? {
                // A PAD ends at the ring's end and is refused at its start: one at most, then a
                // record at offset 0.
                Some(header) if header.kind == Kind::Pad => self.advance(&header),
                found => return Ok(found),
            }
        }
    }

    /// Whether something lies where the next record must begin: the cheap question of a waiter.
    #[inline]
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ring.peek(self.offset()) != 0
    }

    /// Copies the payload of the record that [`peek`](Self::peek) returned, from byte `from` on.
    ///
    /// # Panics
    /// If the record's payload ends before `from + into.len()`.
    #[inline]
    pub fn copy(&self, header: &RecordHeader, from: usize, into: &mut [u8]) {
        assert!(from + into.len() <= header.len as usize, "beyond the record");
        self.ring.copy(self.payload_offset(header) + from, into);
    }

    /// The payload of the record that [`peek`](Self::peek) returned, in place.
    ///
    /// For neighbours whose promise not to change committed bytes is believed; see
    /// [`PeerMem::slice`].
    #[cfg(not(loom))]
    #[inline]
    #[must_use]
    pub fn payload(&self, header: &RecordHeader) -> &[u8] {
        self.ring.slice(self.payload_offset(header), header.len as usize)
    }

    /// Goes on behind the record that [`peek`](Self::peek) returned.
    ///
    /// Its place still belongs to it until progress is reported: see
    /// [`is_report_due`](Self::is_report_due).
    ///
    /// # Panics
    /// If `header` is not the next record.
    #[inline]
    pub fn advance(&mut self, header: &RecordHeader) {
        assert!(header.position == self.position, "records are consumed in order");
        self.position = self.position.plus(header.footprint());
    }

    /// Lets the processor fetch the first two lines of the next record.
    #[inline]
    pub fn prefetch_next(&self) {
        let offset = self.offset();
        self.ring.prefetch(offset);
        #[expect(clippy::cast_possible_truncation, reason = "64")]
        self.ring.prefetch(offset + SLOT_BYTES as usize);
    }

    /// Lets the processor fetch what lies a few records ahead. Only for a reader that is behind: in
    /// step with the producer it would take away the lines that are being written.
    #[inline]
    pub fn prefetch(&self, bytes: u64) {
        let ahead = self.position.plus(AHEAD_BYTES);
        let mut fetched = 0;
        while fetched < bytes {
            #[expect(clippy::cast_possible_truncation, reason = "an offset in mapped memory")]
            self.ring.prefetch(self.size.offset(ahead.plus(fetched)) as usize);
            fetched += SLOT_BYTES;
        }
    }

    /// Whether enough was consumed that the producer must be told now (SPEC 4.6).
    #[inline]
    #[must_use]
    pub const fn is_report_due(&self) -> bool {
        self.position.since(self.reported) >= self.size.publish_every()
    }

    /// Tells the producer how far we are; `true` if that was news, and the caller then asks its
    /// `Waker` whether to ring.
    #[inline]
    pub fn report(&mut self) -> bool {
        if self.reported == self.position {
            return false;
        }
        // ORDER (in `OwnMem::publish`): Release, so the producer that sees it may overwrite what we
        // have read.
        self.consumed.publish(0, self.position.0);
        self.reported = self.position;
        true
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "an offset in mapped memory")]
    const fn offset(&self) -> usize {
        self.size.offset(self.position) as usize
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "an offset in mapped memory")]
    const fn payload_offset(&self, header: &RecordHeader) -> usize {
        (self.size.offset(header.position) + HEADER_BYTES) as usize
    }
}
