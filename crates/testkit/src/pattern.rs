// SPDX-License-Identifier: MIT OR Apache-2.0
//! Payloads whose every byte follows from a seed.
//!
//! ```text
//! pattern(len, seed)      mix(seed), mix(seed) + STEP, mix(seed) + 2 STEP, …
//! payload(number, len)    number, then pattern(len - 8, number)
//! ```
//!
//! No two words of a pattern are equal, nor are words at the same offset in two patterns.

use crate::random::{STEP, mix};

/// Fills `bytes` with the pattern of `seed`, at the speed of memory.
pub fn fill(bytes: &mut [u8], seed: u64) {
    let mut word = mix(seed);
    let mut words = bytes.chunks_exact_mut(8);
    for place in &mut words {
        place.copy_from_slice(&word.to_le_bytes());
        word = word.wrapping_add(STEP);
    }
    let rest = words.into_remainder();
    let len = rest.len();
    rest.copy_from_slice(&word.to_le_bytes()[..len]);
}

/// Whether every byte of `bytes` equals that of the pattern of `seed`.
pub fn is_pattern(bytes: &[u8], seed: u64) -> bool {
    let mut word = mix(seed);
    let mut difference = 0;
    let words = bytes.chunks_exact(8);
    let rest = words.remainder();
    for place in words {
        let mut found = [0; 8];
        found.copy_from_slice(place);
        difference |= u64::from_le_bytes(found) ^ word;
        word = word.wrapping_add(STEP);
    }
    difference == 0 && rest == &word.to_le_bytes()[..rest.len()]
}

/// The first `len` bytes of the pattern of `seed`.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill(&mut bytes, seed);
    bytes
}

/// The payload of message `number`, of at least 8 bytes: the number, then a pattern.
pub fn payload(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend(pattern(len.saturating_sub(8), number));
    bytes
}

/// Returns the number of the message whose [`payload`] `bytes` is; panics if any byte is wrong.
pub fn number_of(bytes: &[u8]) -> u64 {
    let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert!(is_pattern(&bytes[8..], number), "message {number} is torn");
    number
}
