// SPDX-License-Identifier: MIT OR Apache-2.0
//! The numbers of the streams that this side opens: the lowest free one each time, so that the
//! tables stay as small as the largest number of streams open at once (SPEC 11.1).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Indices in use and free, below a limit.
#[derive(Debug)]
pub(crate) struct Numbers {
    /// The lowest index that was never used.
    fresh: u32,
    freed: BinaryHeap<Reverse<u32>>,
    max: u32,
}

impl Numbers {
    /// `max` is the number of streams that the peer allows at a time.
    pub(crate) const fn new(max: u32) -> Self {
        Self { fresh: 0, freed: BinaryHeap::new(), max }
    }

    /// Takes the lowest free index, if there is one.
    pub(crate) fn take(&mut self) -> Option<u32> {
        if let Some(Reverse(index)) = self.freed.pop() {
            return Some(index);
        }
        if self.fresh == self.max {
            return None;
        }
        self.fresh += 1;
        Some(self.fresh - 1)
    }

    /// Frees an index.
    pub(crate) fn free(&mut self, index: u32) {
        self.freed.push(Reverse(index));
    }

    /// Whether there can never be any.
    pub(crate) const fn is_nothing(&self) -> bool {
        self.max == 0
    }

    /// How many are in use.
    #[cfg(test)]
    pub(crate) fn in_use(&self) -> usize {
        self.fresh as usize - self.freed.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_one_each_time() {
        let mut numbers = Numbers::new(3);
        assert_eq!([numbers.take(), numbers.take(), numbers.take()], [Some(0), Some(1), Some(2)]);
        assert_eq!(numbers.take(), None);
        numbers.free(2);
        numbers.free(0);
        assert_eq!(numbers.in_use(), 1);
        assert_eq!([numbers.take(), numbers.take(), numbers.take()], [Some(0), Some(2), None]);
    }
}
