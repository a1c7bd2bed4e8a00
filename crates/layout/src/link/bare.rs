// SPDX-License-Identifier: MIT OR Apache-2.0
//! A record of a link without a prefix: a message of 48 bytes takes one slot (SPEC 14.2).
//!
//! ```text
//!  byte 0        8      12     16
//!       | word0  | len  | crc  | the message
//!
//!       | word0  | len  | tag  | the message        the crc is of these bytes
//! ```
//!
//! It says of which stream it is, though the tag is not in it: the crc of a record of another tag is another, always. It says
//! nothing of the other direction; when that may be is not this file's business.
//!
//! # Invariants
//!
//! - Records that differ in nothing but their tags differ in their crc: a crc of 32 bits tells every change within 32 bits.

use super::checksum::{crc32c, crc32c_of};
use super::record::may_be_bare;
use crate::record::{HEADER_BYTES, Kind, word0, word1};
use crate::ring::{Position, RingSize, footprint};

/// The header of the record at `position` as it is sealed: with the tag where the crc will stand.
#[inline]
#[must_use]
pub fn sealed_header(position: Position, tag: u32, len: u32) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..HEADER / 2].copy_from_slice(&word0(position, Kind::Bare).to_le_bytes());
    header[HEADER / 2..].copy_from_slice(&word1(len, tag).to_le_bytes());
    header
}

/// The length and the crc of the record at `position`, if its header is one of a BARE record that may lie there and has no more than
/// `len_max` bytes. `None` says nothing about any other: [`LinkRecord::check_header`](super::LinkRecord::check_header) does.
#[inline]
#[must_use]
pub fn short_header(
    position: Position,
    size: RingSize,
    (first, second): (u64, u64),
    len_max: u32,
) -> Option<(u32, u32)> {
    #[expect(clippy::cast_possible_truncation, reason = "the two halves of the word")]
    let (len, crc) = (second as u32, (second >> 32) as u32);
    let taken = footprint(u64::from(len));
    let is_bare = first == word0(position, Kind::Bare) && may_be_bare(position, size);
    let fits = taken <= size.record_max() && taken <= size.until_end(position);
    (is_bare && len <= len_max && fits).then_some((len, crc))
}

/// The crc of a record of which a [`sealed_header`] and the message lie one behind the other.
#[inline]
#[must_use]
pub fn crc_of(sealed: &[u8]) -> u32 {
    crc32c(sealed)
}

/// What is sealed of a BARE record. A short message is copied, so that it is there for who writes it, in one piece.
#[derive(Debug)]
pub struct BareRecord {
    gathered: Gathered,
    /// Bytes of the message that are there.
    len: usize,
    crc: u32,
}

impl BareRecord {
    /// Messages up to so many bytes are copied.
    pub const SHORT_MAX: usize = GATHERED_BYTES - HEADER;

    /// The record at `position` of a stream with this tag, whose message these parts make.
    ///
    /// # Panics
    ///
    /// If the message is longer than a header can say.
    #[must_use]
    pub fn new(position: Position, tag: u32, parts: &[&[u8]]) -> Self {
        let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let len = u32::try_from(bytes).unwrap_or(u32::MAX);
        assert!(len < u32::MAX, "a record is at most a quarter of a ring");
        let mut gathered = Gathered([0; GATHERED_BYTES]);
        let (header, mut free) = gathered.0.split_at_mut(HEADER);
        header.copy_from_slice(&sealed_header(position, tag, len));
        // In one go, and aligned: a call costs more than the bytes of a short message.
        let (mut parts, mut len) = (parts, 0);
        while let [part, others @ ..] = parts {
            if part.len() > free.len() {
                break;
            }
            let (here, rest) = free.split_at_mut(part.len());
            here.copy_from_slice(part);
            (free, parts, len) = (rest, others, len + part.len());
        }
        let crc = crc32c_of(&gathered.0[..HEADER + len], parts);
        Self { gathered, len, crc }
    }

    /// What the header has in the place of a tag; the proof at the position where the record ends.
    #[must_use]
    pub const fn crc(&self) -> u32 {
        self.crc
    }

    /// The message, if it has at most [`SHORT_MAX`](Self::SHORT_MAX) bytes; else its first parts at most.
    #[must_use]
    pub fn message(&self) -> &[u8] {
        &self.gathered.0[HEADER..HEADER + self.len]
    }
}

#[derive(Debug)]
#[repr(align(8))]
struct Gathered([u8; GATHERED_BYTES]);

/// A header, and a message that fits the second line with it.
const GATHERED_BYTES: usize = 128;

#[expect(clippy::cast_possible_truncation, reason = "16")]
const HEADER: usize = HEADER_BYTES as usize;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_make_the_record_of_the_whole() {
        let bytes: [u8; 300] = core::array::from_fn(|n| u8::try_from(n * 7 % 251).unwrap());
        for len in [0, 1, 48, 112, 113, 300] {
            let whole = BareRecord::new(Position(64), 5, &[&bytes[..len]]);
            for cut in [0, len / 3, len] {
                let (left, right) = bytes[..len].split_at(cut);
                let record = BareRecord::new(Position(64), 5, &[left, &[], right]);
                assert_eq!(record.crc(), whole.crc(), "{len} bytes, cut at {cut}");
                if len <= BareRecord::SHORT_MAX {
                    assert_eq!(record.message(), &bytes[..len]);
                }
            }
        }
    }

    #[test]
    fn everything_is_covered() {
        let crc = |position, tag, message| BareRecord::new(Position(position), tag, message).crc();
        let this = crc(64, 5, &[b"hello"]);
        assert_ne!(this, crc(128, 5, &[b"hello"]));
        assert_ne!(this, crc(64, 6, &[b"hello"]));
        assert_ne!(this, crc(64, 5, &[b"hellp"]));
        assert_ne!(this, crc(64, 5, &[b"hello\0"]));
    }

    #[test]
    fn no_other_tag_has_its_crc() {
        let this = BareRecord::new(Position(64), 0, &[b"hello"]).crc();
        let mut other = 1_u32;
        for _ in 0..100_000 {
            // xorshift32: never 0
            other ^= other << 13;
            other ^= other >> 17;
            other ^= other << 5;
            assert_ne!(BareRecord::new(Position(64), other, &[b"hello"]).crc(), this);
        }
    }
}
