// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers for the streams that this side opens. The lowest free number is used each time, so a
//! table of streams never exceeds the largest number of streams open at once (SPEC 11.1).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The indices of the streams that this side opens: each is in use or free, and below the limit
/// that the peer allows.
#[derive(Debug)]
pub(crate) struct Numbers {
    /// The lowest stream index that was never used.
    fresh: u32,
    freed: BinaryHeap<Reverse<u32>>,
    max: u32,
}

impl Numbers {
    /// Makes the set of stream indices, all of them free. `max` is the number of streams that the
    /// peer allows at a time.
    pub(crate) const fn new(max: u32) -> Self {
        Self { fresh: 0, freed: BinaryHeap::new(), max }
    }

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

    pub(crate) fn free(&mut self, index: u32) {
        self.freed.push(Reverse(index));
    }

    /// Whether the limit of streams is 0, so that this side can never open a stream.
    pub(crate) const fn is_nothing(&self) -> bool {
        self.max == 0
    }

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
