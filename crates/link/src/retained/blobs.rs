// SPDX-License-Identifier: MIT OR Apache-2.0
//! The places in the slab of a stream's BLOBs, the messages too long for the ring: allocated one
//! after the other, and freed in the same order.
//!
//! ```text
//!   0                 first.offset              last.end        size
//!   |      free       | BLOB | BLOB |    BLOB   |     free      |
//!   | BLOB | BLOB |       free      | BLOB      |-- too short --|   after a BLOB wrapped around
//!          └ last.end               └ first.offset
//! ```
//!
//! Each BLOB begins at a multiple of 64 and is contiguous. The place of the next BLOB follows from
//! the places of the kept BLOBs. So a new owner that reads the records finds the same places again
//! ([`put`](Blobs::put)).
//!
//! # Invariants
//!
//! - No two kept BLOBs overlap.
//! - There are at most as many BLOBs as slots in the ring, because each BLOB has a record in the
//!   ring.

use partywall_layout::SLOT_BYTES;
use partywall_reconcile::Position;
use std::collections::VecDeque;

/// The places in the slab of the BLOBs (messages too long for the ring) that are not freed yet.
#[derive(Debug)]
pub(super) struct Blobs {
    size: u64,
    kept: VecDeque<PlacedBlob>,
}

#[derive(Debug)]
struct PlacedBlob {
    /// The position in the stream where the record of the BLOB (a message in the slab) ends.
    record_end: Position,
    offset: u64,
    /// The offset in the slab after this BLOB (a message in the slab), where the next BLOB may
    /// begin.
    end: u64,
}

impl Blobs {
    pub(super) const fn new(size: u64) -> Self {
        Self { size, kept: VecDeque::new() }
    }

    /// The length in bytes of the longest BLOB (message in the slab) that the slab takes when it is
    /// empty.
    pub(super) const fn length_max(&self) -> u64 {
        self.size
    }

    /// The offset in the slab for a new BLOB (a message in the slab) of `length` bytes; `None` if
    /// the slab has no room.
    pub(super) fn place(&self, length: u64) -> Option<u64> {
        let taken = length.checked_next_multiple_of(SLOT_BYTES)?;
        let (Some(first), Some(last)) = (self.kept.front(), self.kept.back()) else {
            return (taken <= self.size).then_some(0);
        };
        let behind = last.end.checked_add(taken)?;
        if last.offset < first.offset {
            return (behind <= first.offset).then_some(last.end);
        }
        if behind <= self.size {
            return Some(last.end);
        }
        (taken <= first.offset).then_some(0)
    }

    /// Records that a BLOB (a message in the slab) lies at `offset`. Returns `false`, and changes
    /// nothing, if no BLOB can begin at `offset`.
    ///
    /// The first BLOB may begin anywhere, because the BLOBs before it were freed.
    #[must_use]
    pub(super) fn put(&mut self, record_end: Position, offset: u64, length: u64) -> bool {
        let place = if self.kept.is_empty() { Some(offset) } else { self.place(length) };
        let taken = length.checked_next_multiple_of(SLOT_BYTES);
        let Some(end) = taken.and_then(|taken| offset.checked_add(taken)) else { return false };
        let is_right = place == Some(offset) && end <= self.size && offset % SLOT_BYTES == 0;
        if is_right {
            self.kept.push_back(PlacedBlob { record_end, offset, end });
        }
        is_right
    }

    /// Drops the BLOBs (messages in the slab) whose records begin at `tail` or later, because their
    /// batch was discarded.
    pub(super) fn cut(&mut self, tail: Position) {
        while self.kept.back().is_some_and(|kept| kept.record_end > tail) {
            self.kept.pop_back();
        }
    }

    /// Frees the BLOBs (messages in the slab) whose records end at `base` or before.
    pub(super) fn trim(&mut self, base: Position) {
        while self.kept.front().is_some_and(|kept| kept.record_end <= base) {
            self.kept.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(blobs: &mut Blobs, end: u64, length: u64) -> Option<u64> {
        let place = blobs.place(length)?;
        assert!(blobs.put(Position(end), place, length));
        Some(place)
    }

    #[test]
    fn one_behind_the_other_and_around() {
        let mut blobs = Blobs::new(512);
        assert_eq!(put(&mut blobs, 64, 100), Some(0));
        assert_eq!(put(&mut blobs, 128, 200), Some(128));
        assert_eq!(put(&mut blobs, 192, 129), None);
        assert_eq!(put(&mut blobs, 192, 64), Some(384));
        blobs.trim(Position(64));
        assert_eq!(put(&mut blobs, 256, 128), Some(0), "64 bytes before the end are too few");
        assert_eq!(put(&mut blobs, 320, 1), None, "full");
        blobs.trim(Position(128));
        assert_eq!(put(&mut blobs, 320, 256), Some(128));
        blobs.trim(Position(320));
        assert_eq!(put(&mut blobs, 384, 512), Some(0), "an empty slab begins at its start");
    }

    #[test]
    fn a_batch_that_is_dropped_gives_its_places_back() {
        let mut blobs = Blobs::new(512);
        assert_eq!(put(&mut blobs, 64, 64), Some(0));
        assert_eq!(put(&mut blobs, 128, 448), Some(64));
        blobs.cut(Position(64));
        assert_eq!(put(&mut blobs, 128, 448), Some(64));
    }

    #[test]
    fn what_does_not_follow_is_not_put() {
        let mut blobs = Blobs::new(512);
        assert!(!blobs.put(Position(64), 448, 65), "beyond the slab");
        assert!(!blobs.put(Position(64), u64::MAX - 63, 64));
        assert!(!blobs.put(Position(64), 0, u64::MAX));
        assert!(blobs.put(Position(64), 128, 64), "the first may lie anywhere");
        assert!(!blobs.put(Position(128), 128, 64), "on another");
        assert!(!blobs.put(Position(128), 256, 64), "with a hole");
        assert!(blobs.put(Position(128), 192, 64));
    }
}
