// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes of the torture test's messages, which follow from the seed, the sender (client or
//! server) and the message's number. So the test can check each received message.
//!
//! ```text
//!   message of at least 16 bytes    its number, u64 │ 1 for an answer, else 0, u64 │ pattern
//!   shorter message                 pattern, from which the test finds out the number
//! ```

use partywall_testkit::pattern;

/// The indices of the two ends of a link, `CLIENT` and `SERVER`, in every array with one element
/// for each end.
pub const CLIENT: usize = 0;
pub const SERVER: usize = 1;
/// The value that [`name`] returns as the number of a message that is too short to contain its
/// number.
pub const UNNAMED: u64 = u64::MAX;
/// Length in bytes from which on messages contain their number: 8 bytes of number, and 8 bytes that
/// say whether the message is a reply to a request.
pub const NAMED_BYTES: usize = 16;

pub fn content(seed: u64, side: usize, number: u64, is_answer: bool, len: usize) -> Vec<u8> {
    let mut bytes =
        pattern(len, seed ^ (number * 2 + side as u64).wrapping_mul(0xd6e8_feb8_6659_fd93));
    if len >= NAMED_BYTES {
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes[8..16].copy_from_slice(&u64::from(is_answer).to_le_bytes());
    }
    bytes
}

/// The number that the message `bytes` contains (`UNNAMED` if it is too short), and whether the
/// message is a reply to a request.
pub fn name(bytes: &[u8]) -> (u64, bool) {
    if bytes.len() < NAMED_BYTES {
        return (UNNAMED, false);
    }
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    (word(0), word(8) == 1)
}

/// The digest of a message's bytes: a 64-bit hash, so that two different messages hardly ever have
/// the same digest.
pub fn digest(bytes: &[u8]) -> u64 {
    let mut digest = bytes.len() as u64;
    let mut take = |word: u64| {
        digest = (digest ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    };
    let words = bytes.chunks_exact(8);
    let rest = words.remainder().iter().fold(1, |rest, byte| rest << 8 | u64::from(*byte));
    words.for_each(|word| take(u64::from_le_bytes(word.try_into().unwrap())));
    take(rest);
    digest
}
