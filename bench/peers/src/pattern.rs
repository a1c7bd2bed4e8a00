// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is in a touched payload: a number that names the message, then words that only this message has.
//!
//! ```text
//! word 0      the sequence number: stream << 32 | operation, and REPLY on the way back
//! word i      mix(sequence) + i * STEP                     all little-endian, 8 bytes each
//! ```
//! One routine serves every transport, so none has an advantage: one addition per word and no branch, which
//! compilers turn into vector instructions. A transport that splits a message hands over the pieces in order;
//! one that wants whole words (`iceoryx2`) takes them from [`Pattern::word`].
//!
//! It does *not* try to be random: it tells messages, streams, positions and directions apart, and that is what a
//! torn, lost, repeated, stale or misrouted payload gets wrong.

use anyhow::{Result, ensure};

/// Whether payload bytes are written and verified (`--touch`).
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize, clap::ValueEnum,
)]
pub enum Touch {
    /// Every byte is written by the sender and verified by the receiver.
    All,
    /// Payload bytes are neither written nor read; the report says so.
    None,
}

/// The words of one message.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    sequence: u64,
    seed: u64,
}

/// A message on its way in, piece by piece.
#[derive(Clone, Copy, Debug)]
pub struct Inspection {
    pattern: Pattern,
    seen_bytes: usize,
    differences: u64,
}

impl Pattern {
    /// That of message `sequence`.
    #[inline]
    pub fn of(sequence: u64) -> Self {
        Self { sequence, seed: mix(sequence) }
    }

    /// Word number `index`.
    #[inline]
    pub fn word(self, index: usize) -> u64 {
        if index == 0 { self.sequence } else { self.later_word(index as u64) }
    }

    /// Writes the piece that begins `offset` bytes into the message; `offset` is a multiple of 8.
    #[inline]
    pub fn fill(self, piece: &mut [u8], offset: usize) {
        let (first, mut rest) = (offset / WORD, piece);
        let mut index = first as u64;
        if first == 0 {
            let (head, tail) = rest.split_at_mut(WORD.min(rest.len()));
            head.copy_from_slice(&self.sequence.to_le_bytes()[..head.len()]);
            (rest, index) = (tail, 1);
        }
        let mut word = self.later_word(index);
        let (chunks, tail) = rest.as_chunks_mut::<WORD>();
        for chunk in chunks {
            *chunk = word.to_le_bytes();
            word = word.wrapping_add(STEP);
        }
        let size = tail.len();
        tail.copy_from_slice(&word.to_le_bytes()[..size]);
    }

    #[inline]
    fn later_word(self, index: u64) -> u64 {
        self.seed.wrapping_add(index.wrapping_mul(STEP))
    }
}

impl Inspection {
    /// Nothing seen yet.
    #[inline]
    pub fn new() -> Self {
        Self { pattern: Pattern::of(0), seen_bytes: 0, differences: 0 }
    }

    /// Looks at the next piece; all but the last are multiples of 8 bytes long.
    #[inline]
    pub fn look(&mut self, piece: &[u8]) {
        let mut rest = piece;
        let mut index = (self.seen_bytes / WORD) as u64;
        if self.seen_bytes == 0 {
            let Some((head, tail)) = piece.split_first_chunk::<WORD>() else {
                self.differences = u64::MAX; // no room for a sequence number: never what was sent
                return;
            };
            self.pattern = Pattern::of(u64::from_le_bytes(*head));
            (rest, index) = (tail, 1);
        }
        let mut word = self.pattern.later_word(index);
        let (chunks, tail) = rest.as_chunks::<WORD>();
        for chunk in chunks {
            self.differences |= u64::from_le_bytes(*chunk) ^ word;
            word = word.wrapping_add(STEP);
        }
        for (byte, expected) in tail.iter().zip(word.to_le_bytes()) {
            self.differences |= u64::from(byte ^ expected);
        }
        self.seen_bytes += piece.len();
    }

    /// The sequence number, if every one of `size` bytes was right.
    #[inline]
    pub fn finish(self, size: usize) -> Result<u64> {
        ensure!(self.seen_bytes == size, "received {} bytes instead of {size}", self.seen_bytes);
        let sequence = self.pattern.sequence;
        ensure!(self.differences == 0, "the payload of message {sequence:#x} is not what was sent");
        Ok(sequence)
    }
}

/// The sequence number of a whole message of words, if every one is right.
#[inline]
pub fn inspect_words(words: &[u64], size: usize) -> Result<u64> {
    ensure!(size_of_val(words) == size, "received {} bytes instead of {size}", size_of_val(words));
    let Some((&sequence, rest)) = words.split_first() else { return Ok(0) };
    let pattern = Pattern::of(sequence);
    let mut word = pattern.later_word(1);
    let mut differences = 0;
    for found in rest {
        differences |= found ^ word;
        word = word.wrapping_add(STEP);
    }
    ensure!(differences == 0, "the payload of message {sequence:#x} is not what was sent");
    Ok(sequence)
}

/// Spreads a sequence number over 64 bits (the finisher of splitmix64), so that neighbours share no words.
#[inline]
fn mix(sequence: u64) -> u64 {
    let mut z = sequence.wrapping_add(STEP);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Bytes per word; sizes of messages are multiples of it.
pub const WORD: usize = 8;

/// Set in the sequence number of a reply, so that an echo of the request does not pass for one.
pub const REPLY: u64 = 1 << 63;

/// Odd, with well-spread bits (2^64 divided by the golden ratio).
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    fn inspect(pieces: &[&[u8]], size: usize) -> Result<u64> {
        let mut inspection = Inspection::new();
        for piece in pieces {
            inspection.look(piece);
        }
        inspection.finish(size)
    }

    #[test]
    fn what_was_filled_is_found_again_however_it_is_cut() {
        let mut whole = vec![0xee; 96];
        Pattern::of(7).fill(&mut whole, 0);
        for cut in (8..96).step_by(8) {
            let mut pieces = vec![0xee; 96];
            let (front, back) = pieces.split_at_mut(cut);
            Pattern::of(7).fill(front, 0);
            Pattern::of(7).fill(back, cut);
            assert_eq!(pieces, whole);
            assert_eq!(inspect(&[&whole[..cut], &whole[cut..]], 96).unwrap(), 7);
        }
        assert_eq!(inspect(&[&whole], 96).unwrap(), 7);
    }

    #[test]
    fn words_and_bytes_are_the_same_message() {
        let words: Vec<u64> = (0..6).map(|index| Pattern::of(3 | REPLY).word(index)).collect();
        let mut bytes = vec![0; 48];
        Pattern::of(3 | REPLY).fill(&mut bytes, 0);
        let expected: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(bytes, expected);
        assert_eq!(inspect_words(&words, 48).unwrap(), 3 | REPLY);
    }

    #[test]
    fn every_single_corrupted_byte_is_found() {
        let mut payload = vec![0; 72];
        Pattern::of(5).fill(&mut payload, 0);
        for offset in 0..payload.len() {
            payload[offset] ^= 0x10;
            assert!(inspect(&[&payload], 72).is_err(), "byte {offset}");
            payload[offset] ^= 0x10;
        }
        assert!(inspect(&[&payload], 80).is_err(), "too short");
        assert!(inspect(&[&payload[..4]], 4).is_err(), "shorter than a word");
    }

    #[test]
    fn every_single_corrupted_word_is_found() {
        let mut words: Vec<u64> = (0..6).map(|index| Pattern::of(5).word(index)).collect();
        for index in 0..words.len() {
            words[index] ^= 1 << 40;
            assert!(inspect_words(&words, 48).is_err(), "word {index}");
            words[index] ^= 1 << 40;
        }
        assert!(inspect_words(&words, 40).is_err(), "too long");
    }
}
