// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes of one request, which client and server compute independently: a sequence of 8-byte
//! words that does not repeat within a request.
//!
//! ```text
//! state₀ = seed + request · 0x9e3779b97f4a7c15
//! stateₙ = stateₙ₋₁ · 6364136223846793005 + 1442695040888963407
//! wordₙ  = stateₙ xor (stateₙ >> 32)                      little-endian, 8 bytes
//! ```
//!
//! Because no word repeats, a reader detects a byte that was shifted, repeated or taken from
//! another request.

/// Makes or checks the bytes of one request, in pieces of any size.
#[derive(Debug)]
pub struct Pattern {
    state: u64,
    word: [u8; 8],
    used: usize,
}

impl Pattern {
    /// Returns the pattern of the request with number `request`, before its first byte. `seed` is
    /// that of the plan.
    pub fn new(seed: u64, request: u64) -> Self {
        let state = seed.wrapping_add(request.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Self { state, word: [0; 8], used: 8 }
    }

    /// Writes the next bytes of the request's pattern into `out`.
    pub fn fill(&mut self, mut out: &mut [u8]) {
        while !out.is_empty() {
            self.refill();
            let count = out.len().min(8 - self.used);
            let (now, rest) = out.split_at_mut(count);
            now.copy_from_slice(&self.word[self.used..self.used + count]);
            self.used += count;
            out = rest;
        }
    }

    /// Compares `got` with the next bytes of the request; returns the index of the first wrong
    /// byte.
    pub fn check(&mut self, got: &[u8]) -> Option<usize> {
        let mut done = 0;
        while done < got.len() {
            self.refill();
            let count = (got.len() - done).min(8 - self.used);
            let expected = &self.word[self.used..self.used + count];
            let found = &got[done..done + count];
            if expected != found {
                let same = expected.iter().zip(found).take_while(|(a, b)| a == b).count();
                return Some(done + same);
            }
            self.used += count;
            done += count;
        }
        None
    }

    fn refill(&mut self) {
        if self.used == 8 {
            self.state = self
                .state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            self.word = (self.state ^ (self.state >> 32)).to_le_bytes();
            self.used = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_size_make_the_same_bytes() {
        let mut whole = [0; 100];
        Pattern::new(7, 3).fill(&mut whole);
        let mut pattern = Pattern::new(7, 3);
        let mut pieces = [0; 100];
        for piece in pieces.chunks_mut(7) {
            pattern.fill(piece);
        }
        assert_eq!(whole, pieces);
        assert_eq!(Pattern::new(7, 3).check(&whole), None);
    }

    #[test]
    fn the_first_wrong_byte_is_named() {
        let mut bytes = [0; 100];
        Pattern::new(7, 3).fill(&mut bytes);
        bytes[61] ^= 1;
        let mut pattern = Pattern::new(7, 3);
        assert_eq!(pattern.check(&bytes[..13]), None);
        assert_eq!(pattern.check(&bytes[13..]), Some(48));
    }
}
