// SPDX-License-Identifier: MIT OR Apache-2.0
//! A random number generator that repeats the same sequence in every run.

use partywall::Wait;
use std::time::Duration;

/// A generator (SplitMix64), whose seed determines the sequence.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Makes a generator of the sequence of random numbers that belongs to `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next random number of the sequence.
    #[allow(clippy::should_implement_trait, reason = "it never ends")]
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// Returns a random number less than `bound`.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Returns a random number from 0 to `max`; every order of magnitude is equally likely.
    pub fn size(&mut self, max: u64) -> usize {
        let exponent = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        let size = ((max + 2) as f64).powf(exponent) as u64;
        usize::try_from(size.min(max + 1) - 1).unwrap()
    }

    /// Returns a random wait strategy; half of the results are adaptive.
    pub const fn wait(&mut self) -> Wait {
        match self.below(8) {
            0 => Wait::Spin,
            1 => Wait::Park,
            2 => Wait::Poll(Duration::from_micros(200)),
            _ => Wait::Adaptive,
        }
    }
}

/// The finalizer of SplitMix64: a change of any bit of `word` changes half of the bits of the
/// result on average.
pub const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// An odd number near 2^64 divided by the golden ratio. Its multiples, modulo 2^64, take every
/// 64-bit value.
pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
