// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes of a payload: the sender writes them and the receiver verifies them at memory speed.
//!
//! ```text
//! word i (8 bytes, little-endian) = mix(sequence) + i * STEP      the last word may be cut short
//!
//! headed payload:  | head: u64 | words of the pattern, counted from 1 |
//!                    a send time or a flag, written by the sender and returned to the receiver
//! ```
//! `sequence` is the number of the message. All transports share this routine, so none has an
//! advantage. Writing and verifying take one addition per word and no branch, so compilers
//! vectorise them. The offset of a difference is searched only after a difference was found.
//!
//! The pattern is *not* random. It differs between messages, offsets and directions, so the
//! receiver detects torn, lost, repeated and stale payloads.

use std::fmt;

/// The values of `--touch`: whether the sender writes payload bytes and the receiver verifies them.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Touch {
    /// The sender writes each byte and the receiver verifies it
    All,
    /// Payload bytes are neither written nor read; the report says so
    None,
}

/// A received payload that differs from the sent one.
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
    /// Writes into `payload` the bytes that belong to message number `sequence`, for the receiver
    /// to verify.
    #[inline]
    pub fn fill(self, payload: &mut [u8], sequence: u64) {
        if self == Self::All {
            fill_words(payload, mix(sequence));
        }
    }

    /// Checks that `payload` has the bytes that belong to message number `sequence`.
    #[inline]
    pub fn verify(self, payload: &[u8], sequence: u64) -> Result<(), Corrupted> {
        if self == Self::None || differences(payload, mix(sequence)) == 0 {
            return Ok(());
        }
        Err(Corrupted { sequence, offset: first_difference(payload, mix(sequence)) })
    }

    /// Writes a piece of the payload of message `sequence`: the bytes from `offset` on, which is a
    /// multiple of 8.
    #[inline]
    pub fn fill_piece(self, piece: &mut [u8], sequence: u64, offset: usize) {
        if self == Self::All {
            fill_words(piece, seed_at(sequence, offset));
        }
    }

    /// Checks a piece of the payload of message `sequence`: the bytes from `offset` on, which is a
    /// multiple of 8.
    #[inline]
    pub fn verify_piece(self, piece: &[u8], sequence: u64, offset: usize) -> Result<(), Corrupted> {
        let seed = seed_at(sequence, offset);
        if self == Self::None || differences(piece, seed) == 0 {
            return Ok(());
        }
        Err(Corrupted { sequence, offset: offset + first_difference(piece, seed) })
    }

    /// Writes `head`, a word that the sender chooses, and then the rest of the payload of message
    /// `sequence`.
    ///
    /// # Panics
    /// If the payload is shorter than the head ([`HEAD_SIZE`]).
    #[inline]
    pub fn fill_headed(self, payload: &mut [u8], head: u64, sequence: u64) {
        let (first, rest) = payload.split_at_mut(HEAD_SIZE);
        first.copy_from_slice(&head.to_le_bytes());
        self.fill(rest, sequence);
    }

    /// Checks the payload of message `sequence` after its head, and returns the head, its first
    /// word.
    #[inline]
    pub fn verify_headed(self, payload: &[u8], sequence: u64) -> Result<u64, Corrupted> {
        let Some((first, rest)) = payload.split_first_chunk::<HEAD_SIZE>() else {
            return Err(Corrupted { sequence, offset: payload.len() });
        };
        self.verify(rest, sequence)?;
        Ok(u64::from_le_bytes(*first))
    }
}

/// The pattern word of message `sequence` at byte `offset` of the payload, to which a constant
/// ([`STEP`]) is added for each following word.
#[inline]
fn seed_at(sequence: u64, offset: usize) -> u64 {
    mix(sequence).wrapping_add((offset as u64 / 8).wrapping_mul(STEP))
}

/// Spreads a sequence number over 64 bits (the finisher of splitmix64), so that consecutive
/// messages have no words in common.
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
    // Most payloads are whole words. A copy of no bytes would still be a call.
    if !tail.is_empty() {
        let size = tail.len();
        tail.copy_from_slice(&word.to_le_bytes()[..size]);
    }
}

/// Compares `payload` with the expected pattern. Returns the bitwise or of all differences, which
/// is 0 if and only if each byte is correct.
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

/// Length in bytes of the head of a payload: a word that the sender chooses, such as a send time.
pub const HEAD_SIZE: usize = 8;

/// Bit that is set in the sequence number of a reply, so that a reply differs from an echo of the
/// request.
pub const REPLY: u64 = 1 << 63;

/// The difference between two consecutive words of a payload: odd, with well-spread bits (2^64
/// divided by the golden ratio), so that no two words are equal.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_of_any_size_filled_is_verified() {
        for size in 0..200 {
            let mut payload = vec![0xee; size];
            Touch::All.fill(&mut payload, 7);
            assert_eq!(Touch::All.verify(&payload, 7), Ok(()));
        }
    }

    #[test]
    fn corrupted_byte_verified_is_found_at_its_offset() {
        let mut payload = vec![0; 77];
        Touch::All.fill(&mut payload, 3);
        for offset in 0..payload.len() {
            payload[offset] ^= 0x10;
            assert_eq!(Touch::All.verify(&payload, 3), Err(Corrupted { sequence: 3, offset }));
            payload[offset] ^= 0x10;
        }
    }

    #[test]
    fn stale_shifted_or_echoed_payload_verified_is_rejected() {
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
    fn pieces_filled_separately_equal_the_whole_payload() {
        let mut whole = vec![0; 93];
        Touch::All.fill(&mut whole, 7);
        for cut in (0..93).step_by(8) {
            let mut pieces = vec![0xee; 93];
            let (front, back) = pieces.split_at_mut(cut);
            Touch::All.fill_piece(front, 7, 0);
            Touch::All.fill_piece(back, 7, cut);
            assert_eq!(pieces, whole);
            assert_eq!(Touch::All.verify_piece(&whole[..cut], 7, 0), Ok(()));
            assert_eq!(Touch::All.verify_piece(&whole[cut..], 7, cut), Ok(()));
            pieces[92] ^= 1;
            let corrupted = Corrupted { sequence: 7, offset: 92 };
            assert_eq!(Touch::All.verify_piece(&pieces[cut..], 7, cut), Err(corrupted));
        }
    }

    #[test]
    fn headed_payload_verified_returns_head_and_checks_rest() {
        let mut payload = vec![0; 24];
        Touch::All.fill_headed(&mut payload, 99, 5);
        assert_eq!(Touch::All.verify_headed(&payload, 5), Ok(99));
        payload[23] ^= 1;
        assert!(Touch::All.verify_headed(&payload, 5).is_err());
        assert!(Touch::All.verify_headed(&[0; 3], 5).is_err());
    }

    #[test]
    fn untouched_payload_is_neither_written_nor_verified() {
        let mut payload = vec![0xee; 16];
        Touch::None.fill(&mut payload, 1);
        assert_eq!(payload, vec![0xee; 16]);
        assert_eq!(Touch::None.verify(&payload, 1), Ok(()));
    }
}
