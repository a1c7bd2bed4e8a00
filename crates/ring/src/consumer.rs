// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reading end of a record ring (SPEC 4).
//!
//! ```text
//!            reported         position
//!  ──────────┼────────────────┼──────────────────────────▶ position
//!   the producer may  at most an eighth   at `position`: 0 if no record is published yet,
//!   write before it   of the ring apart   otherwise a whole record
//! ```
//!
//! The ring lies in the peer's region, which this process never writes and does not trust. Each
//! header is loaded once and checked. The consumer reports its progress in the word `consumed` of
//! its own region.
//!
//! The consumer never waits, never notifies, and does not interpret payloads.

use crate::mem::{OwnMem, PeerMem};
use partywall_layout::record_ring::{HEADER_BYTES, Kind, Position, RingSize, SLOT_BYTES, word0};
use partywall_layout::{RecordHeader, Violation};

/// Distance in bytes, from the consumer's position, at which [`Consumer::prefetch`] fetches ahead.
const AHEAD_BYTES: u64 = 8 * SLOT_BYTES;

/// The only reader of a record ring, which lies in the peer's region.
#[derive(Debug)]
pub struct Consumer {
    ring: PeerMem,
    size: RingSize,
    /// The part of this process's control page that begins with the word `consumed`, in which the
    /// consumer reports its progress.
    consumed: OwnMem,
    /// Position in the ring of the next record that the consumer will return.
    position: Position,
    /// The position that the consumer last stored in the word `consumed`.
    reported: Position,
}

impl Consumer {
    /// A consumer of the peer's `ring`. `consumed` is the cache line of this process's control page
    /// that reports this consumer's progress to the peer.
    ///
    /// # Panics
    /// If the length of `ring` is not `size`.
    #[must_use]
    pub fn new(ring: PeerMem, size: RingSize, consumed: OwnMem) -> Self {
        assert!(ring.len() as u64 == size.bytes(), "the ring's memory has the ring's size");
        Self { ring, size, consumed, position: Position(0), reported: Position(0) }
    }

    /// A consumer of the peer's `ring` that continues at `position`, where a record begins or will
    /// begin. `position` is stored in `consumed`: all records before `position` are consumed.
    ///
    /// # Panics
    /// If the length of `ring` is not `size`, or no record can begin at `position`.
    #[must_use]
    pub fn at(ring: PeerMem, size: RingSize, mut consumed: OwnMem, position: Position) -> Self {
        assert!(position.0 % SLOT_BYTES == 0, "records begin with slots");
        // ORDER (in `OwnMem::publish`): Release: this process's reads of earlier records are over
        // before the producer sees the word `consumed`.
        consumed.publish(0, position.0);
        Self { position, reported: position, ..Self::new(ring, size, consumed) }
    }

    /// The position in the ring of the next record that the consumer will return.
    #[must_use]
    pub const fn position(&self) -> Position {
        self.position
    }

    /// The header of the next record, if that is published; skips a PAD before it.
    ///
    /// The record remains the next one until [`advance`](Self::advance). After `None`, the producer
    /// may publish a record at any moment.
    ///
    /// # Errors
    /// A [`Violation`] if the words at the next position are no record. The ring cannot be read any
    /// further.
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
                // A PAD is refused at offset 0 of the ring, so at most one precedes a record.
                Some(header) if header.kind == Kind::Pad => self.advance(&header),
                found => return Ok(found),
            }
        }
    }

    /// The header of the next record, if that is published and a valid DATA record. Otherwise
    /// [`peek`](Self::peek) says what is there.
    #[inline(always)]
    #[must_use]
    pub fn peek_data(&self) -> Option<RecordHeader> {
        let (position, kind) = (self.position, Kind::Data);
        let (first, second) = self.ring.load_two(self.offset());
        #[expect(clippy::cast_possible_truncation, reason = "the word holds two u32")]
        let (len, stream) = (second as u32, (second >> 32) as u32);
        let header = RecordHeader { position, kind, len, stream };
        let bytes_max = self.size.record_max().min(self.size.until_end(position));
        (first == word0(position, kind) && header.footprint() <= bytes_max).then_some(header)
    }

    /// Whether the ring holds a word other than 0 where the consumer's next record must begin. This
    /// is the cheap poll of a thread that waits.
    #[inline]
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ring.peek(self.offset()) != 0
    }

    /// Copies the payload of the record that [`peek`](Self::peek) returned, starting at byte `from`
    /// of the payload.
    ///
    /// # Panics
    /// If `from + into.len()` exceeds the payload's length.
    #[inline]
    pub fn copy(&self, header: &RecordHeader, from: usize, into: &mut [u8]) {
        assert!(from + into.len() <= header.len as usize, "beyond the record");
        self.ring.copy(self.payload_offset(header) + from, into);
    }

    /// The payload of the record that [`peek`](Self::peek) returned, in place.
    ///
    /// Call it only for a peer that is trusted not to change published bytes; see
    /// [`PeerMem::slice`].
    #[cfg(not(loom))]
    #[inline]
    #[must_use]
    pub fn payload(&self, header: &RecordHeader) -> &[u8] {
        self.ring.slice(self.payload_offset(header), header.len as usize)
    }

    /// Goes on to the record after the one that [`peek`](Self::peek) returned.
    ///
    /// The producer reuses the record's slots only after [`report`](Self::report); see also
    /// [`is_report_due`](Self::is_report_due).
    ///
    /// # Panics
    /// If `header` is not the next record.
    #[inline]
    pub fn advance(&mut self, header: &RecordHeader) {
        assert!(header.position == self.position, "records are consumed in order");
        self.position = self.position.plus(header.footprint());
    }

    /// Prefetches the first two cache lines of the next record, which the caller will read soon.
    #[inline]
    pub fn prefetch_next(&self) {
        let offset = self.offset();
        self.ring.prefetch(offset);
        #[expect(clippy::cast_possible_truncation, reason = "64")]
        self.ring.prefetch(offset + SLOT_BYTES as usize);
    }

    /// Prefetches `bytes` bytes that lie a few records ahead. It serves a consumer that lags
    /// behind. A consumer in step with the producer would take away the cache lines that the
    /// producer is writing.
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

    /// Whether an eighth of the ring is consumed and not reported, so that the consumer must report
    /// its progress now (SPEC 4.6).
    #[inline]
    #[must_use]
    pub const fn is_report_due(&self) -> bool {
        self.position.since(self.reported) >= self.size.publish_every()
    }

    /// Whether a report will be due once `header`, the next record, is consumed.
    #[inline]
    #[must_use]
    pub const fn is_report_due_after(&self, header: &RecordHeader) -> bool {
        let unreported = self.position.since(self.reported) + header.footprint();
        unreported >= self.size.publish_every()
    }

    /// Reports the progress to the producer. Returns `true` if the reported position changed. If
    /// so, the caller asks its `Waker` whether to notify the producer.
    #[inline]
    pub fn report(&mut self) -> bool {
        if self.reported == self.position {
            return false;
        }
        // ORDER (in `OwnMem::publish`): Release, so this process's reads of the records are over
        // before the producer sees the word `consumed` and overwrites the slots.
        self.consumed.publish(0, self.position.0);
        self.reported = self.position;
        true
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "an offset in mapped memory")]
    const fn offset(&self) -> usize {
        // Positions are multiples of a slot. The mask tells the compiler so.
        (self.size.offset(self.position) & !(SLOT_BYTES - 1)) as usize
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "an offset in mapped memory")]
    const fn payload_offset(&self, header: &RecordHeader) -> usize {
        (self.size.offset(header.position) + HEADER_BYTES) as usize
    }
}
