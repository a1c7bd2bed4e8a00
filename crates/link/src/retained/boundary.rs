// SPDX-License-Identifier: MIT OR Apache-2.0
//! Places where a record ends, with what proves it: all that are needed, and no more.
//!
//! ```text
//!  base       mark            mark   mark (BLOB)        tail      open
//!  ┼──────────┼───────────────┼──────┼──────────────────┼─────────┼──▶ position
//!             └ ring/16 apart at least, and at each BLOB           └ end of the open batch
//! ```
//!
//! An acknowledgement frees up to the last of them that it reaches: at once up to the tail if all is
//! acknowledged, and up to the end of each BLOB. A message in between costs a comparison and no store.
//!
//! # Invariants
//!
//! - `base ≤ marks, rising ≤ open`, and at each of them a DATA, BLOB or BARE record ends, never a PAD.

use partywall_layout::RingSize;
use partywall_reconcile::{Position, RecordDigest};
use std::collections::VecDeque;

/// Where a record ends, or a stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// The place.
    pub position: Position,
    /// What proves it.
    pub digest: RecordDigest,
}

impl Boundary {
    /// Where each stream begins.
    pub const START: Self = Self { position: Position::START, digest: RecordDigest::START };
}

#[derive(Debug)]
pub(super) struct Boundaries {
    base: Boundary,
    tail: Boundary,
    open: Boundary,
    marks: VecDeque<Boundary>,
    /// The next mark is at least so many bytes behind the last.
    apart: u64,
}

impl Boundaries {
    pub(super) const fn new(base: Boundary, size: RingSize) -> Self {
        let apart = size.bytes() / APART;
        Self { base, tail: base, open: base, marks: VecDeque::new(), apart }
    }

    #[inline]
    pub(super) const fn base(&self) -> Boundary {
        self.base
    }

    #[inline]
    pub(super) const fn tail(&self) -> Boundary {
        self.tail
    }

    /// A record was appended that ends at `end`.
    #[inline]
    pub(super) fn append(&mut self, end: Boundary, is_blob: bool) {
        self.open = end;
        let last = self.marks.back().unwrap_or(&self.base).position;
        if is_blob || end.position.since(last) >= self.apart {
            self.marks.push_back(end);
        }
    }

    #[inline]
    pub(super) const fn publish(&mut self) {
        self.tail = self.open;
    }

    /// What was appended since the last publish never was.
    pub(super) fn abort(&mut self) {
        self.open = self.tail;
        while self
            .marks
            .back()
            .is_some_and(|acked_offset| acked_offset.position > self.tail.position)
        {
            self.marks.pop_back();
        }
    }

    /// Up to where the base may rise when everything below `acked` was consumed.
    pub(super) fn trim_to(&mut self, acked: Position) -> Option<Boundary> {
        if acked == self.tail.position {
            return (self.tail.position > self.base.position).then_some(self.tail);
        }
        while self.marks.get(1).is_some_and(|next| next.position <= acked) {
            self.marks.pop_front();
        }
        self.marks.front().copied().filter(|first| first.position <= acked)
    }

    pub(super) fn trim(&mut self, base: Boundary) {
        self.base = base;
        while self.marks.front().is_some_and(|acked_offset| acked_offset.position <= base.position)
        {
            self.marks.pop_front();
        }
    }

    /// The last that is known at `position` or before it; `None` before the base and beyond the tail.
    pub(super) fn before(&self, position: Position) -> Option<Boundary> {
        if position < self.base.position || position > self.tail.position {
            return None;
        }
        if position == self.tail.position {
            return Some(self.tail);
        }
        let count = self.marks.partition_point(|acked_offset| acked_offset.position <= position);
        let acked_offset = count.checked_sub(1).and_then(|last| self.marks.get(last));
        Some(acked_offset.copied().unwrap_or(self.base))
    }
}

/// So many marks in a ring of messages without BLOBs.
const APART: u64 = 16;
