// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is in a payload: bytes that the sender must write and the receiver can check, at the speed of memory.
//!
//! ```text
//! word i (8 bytes, little-endian) = mix(sequence) + i * STEP      the last word may be cut short
//!
//! headed payload:  | head: u64 | words of the pattern, counted from 1 |
//!                    a send time or a flag, written by the sender and handed to the receiver
//! ```
//! One routine serves every transport, so none has an advantage. Writing and checking are one addition per
//! word with no branch, which compilers turn into vector instructions; the place of a difference is looked
//! for only after one was found.
//!
//! It does *not* try to be random: it tells messages, positions and directions apart, and that is what a torn,
//! lost, repeated or stale payload gets wrong.

use std::fmt;

/// Whether payload bytes are written and verified (`--touch`).
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Touch {
    /// Every byte is written by the sender and verified by the receiver.
    All,
    /// Payload bytes are neither written nor read; the report says so.
    None,
}

/// A payload that is not the one that was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Corrupted {
    sequence: u64,
    offset: usize,
}

impl fmt::Display for Corrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sequence, offset } = self;
        write!(
            f,
            "payload of message {sequence:#x} differs from what was sent, from byte {offset} on"
        )
    }
}

impl std::error::Error for Corrupted {}

impl Touch {
    /// Writes the payload of message `sequence`.
    #[inline]
    pub fn fill(self, payload: &mut [u8], sequence: u64) {
        if self == Self::All {
            fill_words(payload, mix(sequence));
        }
    }

    /// Checks the payload of message `sequence`.
    #[inline]
    pub fn verify(self, payload: &[u8], sequence: u64) -> Result<(), Corrupted> {
        if self == Self::None || differences(payload, mix(sequence)) == 0 {
            return Ok(());
        }
        Err(Corrupted { sequence, offset: first_difference(payload, mix(sequence)) })
    }

    /// Writes `head`, then the rest of the payload of message `sequence`. Needs at least [`HEAD_SIZE`] bytes.
    #[inline]
    pub fn fill_headed(self, payload: &mut [u8], head: u64, sequence: u64) {
        let (first, rest) = payload.split_at_mut(HEAD_SIZE);
        first.copy_from_slice(&head.to_le_bytes());
        self.fill(rest, sequence);
    }

    /// Checks all but the head, and returns the head.
    #[inline]
    pub fn verify_headed(self, payload: &[u8], sequence: u64) -> Result<u64, Corrupted> {
        let Some((first, rest)) = payload.split_first_chunk::<HEAD_SIZE>() else {
            return Err(Corrupted { sequence, offset: payload.len() });
        };
        self.verify(rest, sequence)?;
        Ok(u64::from_le_bytes(*first))
    }
}

/// Spreads a sequence number over 64 bits (the finisher of splitmix64), so that neighbours share no words.
#[inline]
fn mix(sequence: u64) -> u64 {
    let mut z = sequence.wrapping_add(STEP);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[inline]
fn fill_words(payload: &mut [u8], seed: u64) {
    let mut word = seed;
    let (chunks, tail) = payload.as_chunks_mut::<8>();
    for chunk in chunks {
        *chunk = word.to_le_bytes();
        word = word.wrapping_add(STEP);
    }
    let size = tail.len();
    tail.copy_from_slice(&word.to_le_bytes()[..size]);
}

/// All differing bits, or-ed together: 0 iff every byte is right.
#[inline]
fn differences(payload: &[u8], seed: u64) -> u64 {
    let mut word = seed;
    let mut found = 0;
    let (chunks, tail) = payload.as_chunks::<8>();
    for chunk in chunks {
        found |= u64::from_le_bytes(*chunk) ^ word;
        word = word.wrapping_add(STEP);
    }
    for (byte, expected) in tail.iter().zip(word.to_le_bytes()) {
        found |= u64::from(byte ^ expected);
    }
    found
}

#[cold]
fn first_difference(payload: &[u8], seed: u64) -> usize {
    let mut expected = vec![0; payload.len()];
    fill_words(&mut expected, seed);
    payload.iter().zip(&expected).position(|(byte, right)| byte != right).unwrap_or(payload.len())
}

/// Bytes that a head takes.
pub const HEAD_SIZE: usize = 8;

/// Set in the sequence number of a reply, so that an echo of the request does not pass for one.
pub const REPLY: u64 = 1 << 63;

/// Odd, with well-spread bits (2^64 divided by the golden ratio).
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_filled_verifies_at_every_size() {
        for size in 0..200 {
            let mut payload = vec![0xee; size];
            Touch::All.fill(&mut payload, 7);
            assert_eq!(Touch::All.verify(&payload, 7), Ok(()));
        }
    }

    #[test]
    fn every_single_corrupted_byte_is_found_and_named() {
        let mut payload = vec![0; 77];
        Touch::All.fill(&mut payload, 3);
        for offset in 0..payload.len() {
            payload[offset] ^= 0x10;
            assert_eq!(Touch::All.verify(&payload, 3), Err(Corrupted { sequence: 3, offset }));
            payload[offset] ^= 0x10;
        }
    }

    #[test]
    fn stale_shifted_and_echoed_payloads_are_found() {
        let mut payload = vec![0; 128];
        Touch::All.fill(&mut payload, 41);
        assert!(Touch::All.verify(&payload, 42).is_err(), "the message before");
        assert!(
            Touch::All.verify(&payload, 41 | REPLY).is_err(),
            "the request instead of the reply"
        );
        payload.rotate_left(8);
        assert!(Touch::All.verify(&payload, 41).is_err(), "the right bytes in the wrong place");
        assert!(Touch::All.verify(&[0; 8], 0).is_err(), "memory nobody wrote");
    }

    #[test]
    fn a_head_travels_and_the_rest_is_still_checked() {
        let mut payload = vec![0; 24];
        Touch::All.fill_headed(&mut payload, 99, 5);
        assert_eq!(Touch::All.verify_headed(&payload, 5), Ok(99));
        payload[23] ^= 1;
        assert!(Touch::All.verify_headed(&payload, 5).is_err());
        assert!(Touch::All.verify_headed(&[0; 3], 5).is_err());
    }

    #[test]
    fn untouched_payloads_are_neither_written_nor_checked() {
        let mut payload = vec![0xee; 16];
        Touch::None.fill(&mut payload, 1);
        assert_eq!(payload, vec![0xee; 16]);
        assert_eq!(Touch::None.verify(&payload, 1), Ok(()));
    }
}
