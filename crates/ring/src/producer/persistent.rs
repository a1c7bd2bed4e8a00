// SPDX-License-Identifier: MIT OR Apache-2.0
//! A producer whose ring outlives its process: it continues where another process stopped, and
//! reads the records that it retains. Only links have such rings.

use super::Producer;
use crate::mem::OwnMem;
use alloc::vec::Vec;
#[cfg(not(loom))]
use partywall_layout::RecordHeader;
#[cfg(not(loom))]
use partywall_layout::record_ring::HEADER_BYTES;
use partywall_layout::record_ring::{Position, RingSize, SLOT_BYTES};

impl Producer {
    /// Continues in a ring that holds the records from `base` to `tail`. Slots before `base` may be
    /// overwritten; [`set_consumed`](Self::set_consumed) raises that bound later.
    ///
    /// The rest of the ring may hold any bytes: `resume` zeroes the slot at `tail`.
    ///
    /// # Panics
    /// If the length of `ring` is not `size`, or the records from `base` to `tail` and one further
    /// slot exceed the ring.
    #[must_use]
    pub fn resume(ring: OwnMem, size: RingSize, base: Position, tail: Position) -> Self {
        assert!(ring.len() as u64 == size.bytes(), "the ring's memory has the ring's size");
        assert!((base.0 | tail.0) % SLOT_BYTES == 0, "records begin with slots");
        assert!(base <= tail && tail.since(base) + SLOT_BYTES <= size.bytes(), "more than a ring");
        // Orders the caller's stores of the positions `base` and `tail`, which say where the kept
        // records lie, before every store to the slots before `base`, which may be overwritten. A
        // process killed in between leaves a valid ring.
        ring.order_stores();
        let mut producer = Self {
            ring,
            size,
            peer: None,
            consumed: base,
            published: tail,
            tail,
            first_word: 0,
            held_words: Vec::new(),
            fetched: tail,
            clean: tail.plus(SLOT_BYTES),
            answers: 0,
        };
        producer.zero_slot(tail);
        producer
    }

    /// Starts again at position 0 of the same ring, whose bytes may be old records, and drops the
    /// open batch.
    pub fn restart(&mut self) {
        self.consumed = Position(0);
        self.published = Position(0);
        self.tail = Position(0);
        self.first_word = 0;
        self.held_words.clear();
        self.fetched = Position(0);
        self.clean = Position(0);
        self.clear_first_slot();
    }

    /// Zeroes the first word of the slot at position 0, so that the ring does not begin with a
    /// record.
    pub fn clear_first_slot(&mut self) {
        self.ring.store(0, 0);
    }

    /// The published record at position `at`, if the record is not consumed: its header, and its
    /// bytes, header included.
    #[cfg(not(loom))]
    #[must_use]
    pub fn retained(&self, at: Position) -> Option<(RecordHeader, &[u8])> {
        if at < self.consumed || at >= self.published || at.0 % SLOT_BYTES != 0 {
            return None;
        }
        let offset = self.slot(at);
        let (first, second) = (self.ring.load(offset), self.ring.load(offset + 8));
        let header = RecordHeader::check_of_link(at, self.size, first, second).ok()??;
        #[expect(clippy::cast_possible_truncation, reason = "it lies within the ring")]
        let bytes = HEADER_BYTES as usize + header.len as usize;
        Some((header, self.ring.slice(offset, bytes)))
    }
}
