// SPDX-License-Identifier: MIT OR Apache-2.0
//! A received message: its slices, checked once, and owned by this process until dropped.
//!
//! ```text
//!   element ──offset──▶ [slice│size,start]──next──▶ [slice]──next──▶ [slice]  bit 0 clear: last
//!                          part 0                    part 1           part 2
//! ```
//!
//! # Invariants
//!
//! - Each part is a slice that only this chain has claimed, which means that no other value of this
//!   process may use or free the slice. Offset and size are private numbers: later writes of the
//!   peer to the slices' headers change nothing.
//! - A chain has at most as many parts as the region has slices, because no slice can be claimed
//!   twice, even if the peer links slices in a cycle.

use super::{BufferRegion, Damage};
use partywall_sys::Piece;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// A received message. Dropping the value frees the message's slices.
pub struct Chain {
    region: Arc<BufferRegion>,
    /// The first part of the message. Most messages have only one part, which is stored without an
    /// allocation.
    first: Option<Part>,
    rest: Vec<Part>,
    len: usize,
    gathered: OnceLock<Vec<u8>>,
}

#[derive(Debug)]
struct Part {
    list: usize,
    piece: Piece,
    start: usize,
    len: usize,
}

impl Chain {
    /// Checks the slices of the message that begins at `offset`, and claims each: no other value of
    /// this process may use it.
    pub(super) fn take_over(region: &Arc<BufferRegion>, offset: u32) -> Result<Self, Damage> {
        let region = Arc::clone(region);
        let mut chain =
            Self { region, first: None, rest: Vec::new(), len: 0, gathered: OnceLock::new() };
        let mut at = Some(offset);
        // Each iteration claims a slice for this message, and a slice that is already claimed ends
        // the loop. So it ends even if the peer linked the slices in a cycle. The bound `turns_max`
        // is a second check.
        let turns_max = chain.region.geometry().slices();
        let mut turns = 0;
        while let Some(offset) = at {
            turns += 1;
            let step = if turns <= turns_max {
                chain.step(offset)
            } else {
                Err(Damage::new("a message has more slices than the region", offset))
            };
            match step {
                Ok(next) => at = next,
                Err(damage) => {
                    chain.abandon();
                    return Err(damage);
                }
            }
        }
        Ok(chain)
    }

    /// Claims the slice at `offset` for this message, and adds the slice to the chain. Returns the
    /// offset of the message's next slice; `None` after the last one.
    fn step(&mut self, offset: u32) -> Result<Option<u32>, Damage> {
        let Some((number, index)) = self.region.geometry().locate(offset) else {
            return Err(Damage::new("no slice begins where a message is said to", offset));
        };
        let list = self.region.list(number);
        let Some(piece) = list.pieces().claim(index) else {
            return Err(Damage::new("a message has a slice that is in use on this side", offset));
        };
        let words = list.read(index);
        let capacity = list.geometry().capacity;
        let ends = words.start.checked_add(words.size);
        let damage = if words.capacity != capacity {
            Some(Damage::new("a slice says another capacity than its list", words.capacity))
        } else if ends.is_none_or(|end| end > capacity) {
            Some(Damage::new("a message is longer than the slice it lies in", words.size))
        } else {
            None
        };
        if let Some(damage) = damage {
            list.pieces().release(piece);
            return Err(damage);
        }
        if words.size == 0 {
            // The slice is empty, so it is freed and not made a part of the message. Some
            // implementations send such slices after a reservation that they did not use.
            self.region.give(number, piece);
            return Ok(words.next);
        }
        // The sum cannot overflow: no slice is claimed twice, so the message is shorter than the
        // region.
        self.len += words.size as usize;
        let part =
            Part { list: number, piece, start: words.start as usize, len: words.size as usize };
        match self.first {
            None => self.first = Some(part),
            Some(_) => self.rest.push(part),
        }
        Ok(words.next)
    }

    /// Drops the chain without freeing its slices, which this process only marks as no longer used:
    /// they may never have been part of a message, and another process may own them.
    fn abandon(mut self) {
        for part in self.first.take().into_iter().chain(self.rest.drain(..)) {
            self.region.list(part.list).pieces().release(part.piece);
        }
    }

    /// Length of the message in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the message has no bytes, because all its slices were empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of pieces in which the message lies; each piece is in another slice.
    pub fn pieces(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    /// The bytes from byte `from` of the message to the end of the contiguous piece that holds this
    /// byte; empty at the end of the message.
    ///
    /// Like all bytes in shared memory, these stay unchanged only if the peer follows the rules.
    pub fn chunk(&self, mut from: usize) -> &[u8] {
        for part in self.parts() {
            if from < part.len {
                return &self.bytes(part)[from..];
            }
            from -= part.len;
        }
        &[]
    }

    /// All bytes of the message in one piece. If the message lies in several pieces, they are
    /// copied together, once.
    pub fn as_slice(&self) -> &[u8] {
        match &self.first {
            Some(part) if self.rest.is_empty() => self.bytes(part),
            _ => self.gathered.get_or_init(|| self.to_vec()),
        }
    }

    /// A private copy of the message, which the peer cannot change.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut copy = vec![0; self.len];
        let mut at = 0;
        for part in self.parts() {
            let into = &mut copy[at..at + part.len];
            self.region.list(part.list).pieces().copy(&part.piece, part.start, into);
            at += part.len;
        }
        copy
    }

    fn parts(&self) -> impl Iterator<Item = &Part> {
        self.first.iter().chain(&self.rest)
    }

    fn bytes<'a>(&'a self, part: &'a Part) -> &'a [u8] {
        self.region.list(part.list).pieces().bytes(&part.piece, part.start, part.len)
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        for part in self.first.take().into_iter().chain(self.rest.drain(..)) {
            self.region.give(part.list, part.piece);
        }
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chain").field("len", &self.len).field("pieces", &self.pieces()).finish()
    }
}

impl partywall::protocol::RecvBuffer for Chain {
    fn len(&self) -> usize {
        self.len()
    }

    fn chunk(&self, from: usize) -> &[u8] {
        self.chunk(from)
    }

    fn as_slice(&self) -> &[u8] {
        self.as_slice()
    }

    fn is_zero_copy(&self) -> bool {
        true
    }
}
