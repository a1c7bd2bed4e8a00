// SPDX-License-Identifier: MIT OR Apache-2.0
//! The slab's index of free chunks by size: a two-level segregated fit, which finds a chunk in
//! constant time.
//!
//! ```text
//!  size in units   0 .. 15 | 16 .. 31 | 32 .. 63 | 64 .. 127 | ...   first level: powers of two
//!                  one list per size  | 16 lists, each for a 16th    second level
//!                                     | of the first level's sizes
//!  first ──▶ one bit per first level, set if one of its lists is not empty
//!  second[f] ──▶ one bit per list
//! ```
//!
//! After M. Masmano, I. Ripoll, A. Crespo, J. Real: "TLSF: a New Dynamic Memory Allocator for
//! Real-Time Systems", ECRTS 2004. This file knows sizes and chunk
//! numbers, but no memory.

use alloc::vec::Vec;

/// The chunk number that means "no chunk".
pub const NONE: u32 = u32::MAX;

const SECOND_BITS: u32 = 4;
const SECOND: usize = 1 << SECOND_BITS;
/// Number of entries of the first level of the index of free chunks, one for each power of two:
/// enough for chunks below 2^36 units of 64 bytes, far more than any memory.
const FIRST: usize = 36 - SECOND_BITS as usize + 1;
/// Maximum number of free chunks that `find` tries in the one list whose chunks may be too small.
/// The bound keeps the time of `find` constant.
const TRIES_MAX: usize = 16;

/// The slab's index of free chunks by size; finds a chunk of a wanted size in constant time.
#[derive(Debug)]
pub struct Bins {
    first: u64,
    second: [u16; FIRST],
    heads: [[u32; SECOND]; FIRST],
    /// The size of each chunk, and the previous and the next chunk in the same list. The index is
    /// the chunk number.
    links: Vec<Link>,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    units: u64,
    previous: u32,
    next: u32,
}

impl Bins {
    /// An empty index of free chunks. Inserting a chunk whose number is below `chunks` allocates no
    /// memory.
    pub fn new(chunks: usize) -> Self {
        Self {
            first: 0,
            second: [0; FIRST],
            heads: [[NONE; SECOND]; FIRST],
            links: Vec::with_capacity(chunks),
        }
    }

    /// Adds the free `chunk` of `units` units of 64 bytes to the index, which must not contain it
    /// yet.
    pub fn insert(&mut self, chunk: u32, units: u64) {
        let (first, second) = bin_of(units);
        let next = self.heads[first][second];
        if self.links.len() <= chunk as usize {
            self.links.resize(chunk as usize + 1, Link { units: 0, previous: NONE, next: NONE });
        }
        self.links[chunk as usize] = Link { units, previous: NONE, next };
        if next != NONE {
            self.links[next as usize].previous = chunk;
        }
        self.heads[first][second] = chunk;
        self.second[first] |= 1 << second;
        self.first |= 1 << first;
    }

    /// Removes `chunk` from the index of free chunks, which must contain it.
    pub fn remove(&mut self, chunk: u32) {
        let Link { units, previous, next } = self.links[chunk as usize];
        let (first, second) = bin_of(units);
        if previous == NONE {
            self.heads[first][second] = next;
            if next == NONE {
                self.second[first] &= !(1 << second);
                if self.second[first] == 0 {
                    self.first &= !(1 << first);
                }
            }
        } else {
            self.links[previous as usize].next = next;
        }
        if next != NONE {
            self.links[next as usize].previous = previous;
        }
    }

    /// A free chunk of at least `units` units of 64 bytes, if one is found in constant time. The
    /// chunk stays in the index.
    ///
    /// Every chunk of a list above that of `units` fits. In the list of `units` itself the first
    /// [`TRIES_MAX`] chunks are tried, so that an exact fit is usually found.
    pub fn find(&self, units: u64) -> Option<u32> {
        let (first, second) = bin_of(units);
        let mut chunk = self.heads[first][second];
        for _ in 0..TRIES_MAX {
            if chunk == NONE {
                break;
            }
            if self.links[chunk as usize].units >= units {
                return Some(chunk);
            }
            chunk = self.links[chunk as usize].next;
        }
        self.find_above(first, second)
    }

    fn find_above(&self, first: usize, second: usize) -> Option<u32> {
        // The index has one list of free chunks for each 16th of the sizes from one power of two to
        // the next. `same` has one bit for each non-empty list of the same power of two as `units`
        // whose chunks are larger than those of the list for `units`.
        let same = u32::from(self.second[first]) & (u32::MAX << (second + 1));
        if same != 0 {
            return Some(self.heads[first][same.trailing_zeros() as usize]);
        }
        let higher = self.first & (u64::MAX << (first + 1));
        if higher == 0 {
            return None;
        }
        let first = higher.trailing_zeros() as usize;
        let second = self.second[first].trailing_zeros() as usize;
        Some(self.heads[first][second])
    }
}

/// Returns the place in the two-level index of the list that holds free chunks of `units` units of
/// 64 bytes: its power of two, and which 16th of that power's sizes it holds.
const fn bin_of(units: u64) -> (usize, usize) {
    if units < SECOND as u64 {
        #[expect(clippy::cast_possible_truncation, reason = "less than 16")]
        return (0, units as usize);
    }
    let power = units.ilog2();
    let first = (power - SECOND_BITS + 1) as usize;
    assert!(first < FIRST, "no memory is that large");
    #[expect(clippy::cast_possible_truncation, reason = "four bits")]
    let second = (units >> (power - SECOND_BITS)) as usize & (SECOND - 1);
    (first, second)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn list_index_grows_with_size() {
        let mut last = (0, 0);
        for units in 1..100_000 {
            let bin = bin_of(units);
            assert!(bin >= last, "{units}");
            last = bin;
        }
    }

    #[test]
    fn found_chunk_is_at_least_as_large() {
        let mut bins = Bins::new(8);
        bins.insert(0, 100);
        bins.insert(1, 17);
        assert_eq!(bins.find(101), None);
        assert_eq!(bins.find(100), Some(0));
        assert_eq!(bins.find(18), Some(0));
        assert_eq!(bins.find(17), Some(1));
        bins.remove(0);
        assert_eq!(bins.find(18), None);
        bins.remove(1);
        assert_eq!(bins.find(1), None);
        assert_eq!(bins.first, 0);
    }
}
