// SPDX-License-Identifier: MIT OR Apache-2.0
//! A message that was received: the slices it lies in, checked once and ours until dropped.
//!
//! ```text
//!   element ──offset──▶ [slice│size,start]──next──▶ [slice]──next──▶ [slice]      bit 0 clear: the last
//!                          part 0                    part 1           part 2
//! ```
//!
//! # Invariants
//!
//! - Each part is a slice of the region, claimed by nobody else in this process, and lies within its slice. These are
//!   private numbers: what is written to the headers later changes nothing.
//! - A chain has at most as many parts as the region has slices: claiming ends every circle.

use super::{BufferRegion, Damage};
use partywall_sys::Piece;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// A received message. Dropped, its slices go back to their lists.
pub struct Chain {
    region: Arc<BufferRegion>,
    /// Most messages have one part, which then needs no memory of its own.
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
    /// Claims and checks what begins at `offset`.
    pub(super) fn take_over(region: &Arc<BufferRegion>, offset: u32) -> Result<Self, Damage> {
        let region = Arc::clone(region);
        let mut chain =
            Self { region, first: None, rest: Vec::new(), len: 0, gathered: OnceLock::new() };
        let mut at = Some(offset);
        // Each turn claims a slice that was not claimed, so it ends by itself; the bound is a second look.
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

    /// Claims the slice at `offset`; where the next one is.
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
            // Some peers send them, where they reserved in vain.
            self.region.give(number, piece);
            return Ok(words.next);
        }
        // The sum stays below the size of the region, since no slice comes twice.
        self.len += words.size as usize;
        let part =
            Part { list: number, piece, start: words.start as usize, len: words.size as usize };
        match self.first {
            None => self.first = Some(part),
            Some(_) => self.rest.push(part),
        }
        Ok(words.next)
    }

    /// Lets go of what was claimed without giving it back: it may never have been a message.
    fn abandon(mut self) {
        for part in self.first.take().into_iter().chain(self.rest.drain(..)) {
            self.region.list(part.list).pieces().release(part.piece);
        }
    }

    /// How many bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none: there were only empty slices.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// In how many pieces it lies.
    pub fn pieces(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    /// The piece in which byte `from` lies, from there on; empty at the end.
    ///
    /// Like all bytes that lie in shared memory they stay as they are as far as the other side keeps its word.
    pub fn chunk(&self, mut from: usize) -> &[u8] {
        for part in self.parts() {
            if from < part.len {
                return &self.bytes(part)[from..];
            }
            from -= part.len;
        }
        &[]
    }

    /// All bytes in one piece: what lies in several is copied together, once.
    pub fn as_slice(&self) -> &[u8] {
        match &self.first {
            Some(part) if self.rest.is_empty() => self.bytes(part),
            _ => self.gathered.get_or_init(|| self.to_vec()),
        }
    }

    /// A copy: what a peer writes that does not keep its word no longer shows.
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
