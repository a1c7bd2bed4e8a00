// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistics in our half: one line of words that only one end writes and anybody may read
//! (SPEC 3.3). Nobody acts on them.

use partywall_ring::OwnMem;

/// One end's counters.
#[derive(Debug)]
pub(crate) struct Counters {
    line: OwnMem,
}

impl Counters {
    pub(crate) const fn new(line: OwnMem) -> Self {
        Self { line }
    }

    #[inline]
    pub(crate) fn add(&mut self, counter: u64, amount: u64) {
        let value = self.get(counter).wrapping_add(amount);
        self.set(counter, value);
    }

    #[inline]
    pub(crate) fn set(&mut self, counter: u64, value: u64) {
        self.line.store(offset(counter), value);
    }

    #[inline]
    pub(crate) fn get(&self, counter: u64) -> u64 {
        self.line.load(offset(counter))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "within a line")]
const fn offset(counter: u64) -> usize {
    counter as usize * 8
}
