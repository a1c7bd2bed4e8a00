// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arithmetic of a record ring: positions, slots, footprints (SPEC 4).
//!
//! ```text
//!  position   0        64       128            192  ...            size          size+64
//!             |record A|record B             |record C| ... |PAD   |record D     |
//!  offset     0        64       128            192          ...    0
//! ```
//!
//! A position counts bytes since the ring was made and never wraps; its offset in the ring is
//! `position mod size`. Records start at multiples of [`SLOT_BYTES`] and never wrap around the end.
//! This file knows nothing of what a record holds.

use crate::record::HEADER_BYTES;

/// Records start at multiples of this many bytes: one cache line.
pub const SLOT_BYTES: u64 = 64;

/// The smallest ring that a half may announce.
pub const RING_BYTES_MIN: u64 = 4096;

/// The largest ring that a half may announce.
pub const RING_BYTES_MAX: u64 = 1 << 30;

/// An absolute position in a stream of records, in bytes of ring footprint since the start.
///
/// Positions are multiples of [`SLOT_BYTES`] and never repeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

impl Position {
    /// The position `bytes` further on.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }

    /// How many bytes `self` lies beyond `earlier`.
    ///
    /// `earlier` must not lie beyond `self`: the caller has checked that.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0 - earlier.0
    }
}

/// The size of a record ring in bytes: a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSize(u64);

impl RingSize {
    /// A ring of `bytes`, or `None` unless that is a power of two of at least four slots.
    ///
    /// Halves must announce at least [`RING_BYTES_MIN`]; smaller rings serve models and tests.
    #[must_use]
    pub const fn new(bytes: u64) -> Option<Self> {
        if bytes.is_power_of_two() && bytes >= 4 * SLOT_BYTES && bytes <= RING_BYTES_MAX {
            Some(Self(bytes))
        } else {
            None
        }
    }

    /// The size in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// Where in the ring `position` lies.
    #[must_use]
    pub const fn offset(self, position: Position) -> u64 {
        position.0 & (self.0 - 1)
    }

    /// How many bytes lie between `position` and the end of the ring; never 0.
    #[must_use]
    pub const fn until_end(self, position: Position) -> u64 {
        self.0 - self.offset(position)
    }

    /// The largest footprint one record may have (SPEC 4.4): a quarter of the ring.
    #[must_use]
    pub const fn record_max(self) -> u64 {
        self.0 / 4
    }

    /// The largest payload one inline record may carry, in bytes.
    #[must_use]
    pub const fn payload_max(self) -> u64 {
        self.record_max() - HEADER_BYTES
    }

    /// The largest footprint of all records of one batch together (SPEC 4.5): half the ring.
    #[must_use]
    pub const fn batch_max(self) -> u64 {
        self.0 / 2
    }

    /// A consumer publishes its progress at the latest every so many bytes (SPEC 4.6).
    #[must_use]
    pub const fn publish_every(self) -> u64 {
        self.0 / 8
    }
}

/// How many bytes of ring a record with a payload of `len` bytes takes: header and payload, rounded
/// up to whole slots.
#[must_use]
pub const fn footprint(len: u64) -> u64 {
    (HEADER_BYTES + len + SLOT_BYTES - 1) & !(SLOT_BYTES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn footprints_are_whole_slots() {
        assert_eq!(footprint(0), 64);
        assert_eq!(footprint(48), 64);
        assert_eq!(footprint(49), 128);
        assert_eq!(footprint(112), 128);
        assert_eq!(footprint(113), 192);
    }

    #[test]
    fn only_powers_of_two_are_ring_sizes() {
        assert!(RingSize::new(0).is_none());
        assert!(RingSize::new(128).is_none());
        assert!(RingSize::new(4097).is_none());
        assert!(RingSize::new(RING_BYTES_MAX * 2).is_none());
        let size = RingSize::new(4096).unwrap();
        assert_eq!(size.offset(Position(4096 + 64)), 64);
        assert_eq!(size.until_end(Position(8192)), 4096);
        assert_eq!(size.payload_max(), 1024 - 16);
    }
}
