// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where in a stream: positions, ranges of them, and what proves that two sides mean the same bytes.
//!
//! ```text
//!  position  0          64         128        192
//!            |record A  |record B  |record C  |
//!  proof     0          crc of A   crc of B   crc of C
//! ```
//!
//! A position never repeats within a stream. Nothing here knows how long a record may be.

use crate::identity::StreamId;

/// An absolute position in one stream, in bytes of footprint since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

impl Position {
    /// Where every stream begins.
    pub const START: Self = Self(0);

    /// The position `bytes` further on, or `None` beyond the last one there is.
    ///
    /// ```
    /// use partywall_reconcile::Position;
    /// assert_eq!(Position(64).plus(64), Some(Position(128)));
    /// assert_eq!(Position(u64::MAX).plus(1), None);
    /// ```
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Option<Self> {
        match self.0.checked_add(bytes) {
            Some(position) => Some(Self(position)),
            None => None,
        }
    }

    /// How many bytes `self` lies beyond `earlier`; 0 if it does not.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The bytes from one position up to, and without, another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    from: Position,
    to: Position,
}

impl Range {
    /// The bytes `from..to`, or `None` if they run backwards.
    ///
    /// ```
    /// use partywall_reconcile::{Position, Range};
    /// assert!(Range::new(Position(64), Position(64)).is_some_and(|range| range.is_empty()));
    /// assert!(Range::new(Position(64), Position(0)).is_none());
    /// ```
    #[must_use]
    pub const fn new(from: Position, to: Position) -> Option<Self> {
        if from.0 <= to.0 { Some(Self { from, to }) } else { None }
    }

    /// The bytes `from..to`, none at `from` if they would run backwards.
    #[must_use]
    pub const fn clamped(from: Position, to: Position) -> Self {
        Self { from, to: if from.0 <= to.0 { to } else { from } }
    }

    /// The first position.
    #[must_use]
    pub const fn from(&self) -> Position {
        self.from
    }

    /// The position after the last byte.
    #[must_use]
    pub const fn to(&self) -> Position {
        self.to
    }

    /// How many bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.to.since(self.from)
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.from.0 == self.to.0
    }
}

/// What identifies the record that ends at a position: its crc32c; 0 at the start of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RecordDigest(pub u32);

impl RecordDigest {
    /// The proof at the start of every stream, where no record ends.
    pub const START: Self = Self(0);
}

/// A position of a named stream, with its proof: how far somebody has consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AckedOffset {
    /// The stream.
    pub stream: StreamId,
    /// Everything below was consumed.
    pub position: Position,
    /// The record that ends there.
    pub digest: RecordDigest,
}
