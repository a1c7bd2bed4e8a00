// SPDX-License-Identifier: MIT OR Apache-2.0
//! The compact form of a link's record. It lacks the prefix of 24 bytes with which the payload of
//! other records begins. So a message of 48 bytes takes one slot of the ring (SPEC 14.2).
//!
//! ```text
//!  byte 0        8      12     16
//!       | word0  | len  | crc  | the message        the bytes in a ring and on a socket
//!
//!       | word0  | len  | tag  | the message        the bytes that the crc covers
//! ```
//!
//! A compact record identifies its stream although it does not contain the stream's tag: with
//! another tag the crc always differs. A compact record carries no acknowledgement of the other
//! direction. This file does not decide when an acknowledgement may be left out.
//!
//! # Invariants
//!
//! - Records that differ only in their tags differ in their crc, because a 32-bit crc detects every
//!   change within 32 bits. A tag is 32 bits made from the id of the record's stream.

use super::checksum::{crc32c, crc32c_of};
use super::record::may_be_compact;
use crate::record_ring::{HEADER_BYTES, Kind, Position, RingSize, footprint, word0, word1};

/// The header of the compact record at `position`, in the form that its crc covers: with `tag` in
/// the place of the crc.
#[inline]
#[must_use]
pub fn sealed_header(position: Position, tag: u32, len: u32) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    let (first, second) = header.split_at_mut(HEADER / 2);
    let words = sealed_words(position, tag, len);
    first.copy_from_slice(&words[0].to_le_bytes());
    second.copy_from_slice(&words[1].to_le_bytes());
    header
}

/// Returns the header of a compact record as two words, with the tag of the record's stream in
/// place of the crc. The function is for callers that store the header word by word.
#[inline]
#[must_use]
pub const fn sealed_words(position: Position, tag: u32, len: u32) -> [u64; 2] {
    [word0(position, Kind::CompactRecord), word1(len, tag)]
}

/// Returns the length and the crc of the record at `position`, if its header is that of a compact
/// record. A compact record must be allowed at `position`, and have at most `len_max` bytes. If the
/// result is `None`, the record may be of another kind, which
/// [`LinkRecord::check_header`](super::LinkRecord::check_header) checks.
#[inline]
#[must_use]
pub fn short_header(
    position: Position,
    size: RingSize,
    (first, second): (u64, u64),
    len_max: u32,
) -> Option<(u32, u32)> {
    #[expect(clippy::cast_possible_truncation, reason = "the word holds two u32")]
    let (len, crc) = (second as u32, (second >> 32) as u32);
    let taken = footprint(u64::from(len));
    let is_compact =
        first == word0(position, Kind::CompactRecord) && may_be_compact(position, size);
    let fits = taken <= size.record_max() && taken <= size.until_end(position);
    (is_compact && len <= len_max && fits).then_some((len, crc))
}

/// Returns the crc of a compact record. `sealed` holds the record's header, with the stream's tag
/// in place of the crc ([`sealed_header`]), and then the message.
#[inline]
#[must_use]
pub fn crc_of(sealed: &[u8]) -> u32 {
    crc32c(sealed)
}

/// The crc of the compact record at `position` of the stream with this `tag`; `parts` are the
/// message. The stored header has this crc in place of the tag. The crc is also the record digest
/// at the position where the record ends.
///
/// # Panics
///
/// If the message exceeds the length field of the header.
#[must_use]
pub fn crc(position: Position, tag: u32, parts: &[&[u8]]) -> u32 {
    let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
    let len = u32::try_from(bytes).unwrap_or(u32::MAX);
    assert!(len < u32::MAX, "a record is at most a quarter of a ring");
    crc32c_of(&sealed_header(position, tag, len), parts)
}

#[expect(clippy::cast_possible_truncation, reason = "16")]
const HEADER: usize = HEADER_BYTES as usize;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::LinkRecord;
    use crate::record_ring::RecordHeader;

    #[test]
    fn record_of_parts_equals_record_of_whole() {
        let bytes: [u8; 300] = core::array::from_fn(|n| u8::try_from(n * 7 % 251).unwrap());
        for len in [0, 1, 48, 112, 144, 145, 300] {
            let whole = crc(Position(64), 5, &[&bytes[..len]]);
            for cut in [0, len / 3, len] {
                let (left, right) = bytes[..len].split_at(cut);
                let parts = crc(Position(64), 5, &[left, &[], right]);
                assert_eq!(parts, whole, "{len} bytes, cut at {cut}");
            }
            let mut sealed = [0; 316];
            let len_said = u32::try_from(len).unwrap();
            sealed[..HEADER].copy_from_slice(&sealed_header(Position(64), 5, len_said));
            sealed[HEADER..HEADER + len].copy_from_slice(&bytes[..len]);
            assert_eq!(crc_of(&sealed[..HEADER + len]), whole, "{len} bytes in one piece");
        }
    }

    #[test]
    fn crc_covers_every_byte() {
        let crc = |position, tag, message| crc(Position(position), tag, &[message]);
        let this = crc(64, 5, b"hello");
        assert_ne!(this, crc(128, 5, b"hello"));
        assert_ne!(this, crc(64, 6, b"hello"));
        assert_ne!(this, crc(64, 5, b"hellp"));
        assert_ne!(this, crc(64, 5, b"hello\0"));
    }

    #[test]
    fn other_tag_has_other_crc() {
        let this = crc(Position(64), 0, &[b"hello"]);
        let mut other = 1_u32;
        for _ in 0..100_000 {
            // A step of the generator xorshift32, which never yields 0. So the tag `other` always
            // differs from tag 0, with which the crc `this` was computed.
            other ^= other << 13;
            other ^= other >> 17;
            other ^= other << 5;
            assert_ne!(crc(Position(64), other, &[b"hello"]), this);
        }
    }

    /// Rule: for any header from a peer, the fast check `short_header` and the full check of
    /// `LinkRecord` have the same result.
    #[test]
    fn short_header_check_agrees_with_full_check() {
        let size = RingSize::new(4096).unwrap();
        let kinds = (0..32).map(|kind| kind << 1);
        let (mut short, mut refused) = (0, 0);
        for (position, low) in [0_u64, 64, 3968, 4032, 4096, 4160, 1 << 40, (1 << 40) + 64]
            .iter()
            .flat_map(|at| kinds.clone().flat_map(move |kind| [(*at, kind), (*at, kind | 1)]))
        {
            for len in [0, 1, 47, 48, 49, 112, 113, 1007, 1008, 1009, 1024, 4096, u32::MAX] {
                for first in [position | low, (position + 64) | low, 0] {
                    let (at, second) = (Position(position), word1(len, 7));
                    let found = short_header(at, size, (first, second), 1000);
                    let judged = LinkRecord::check_header(at, 9, size, first, second);
                    let is_compact = |header: &RecordHeader| header.kind == Kind::CompactRecord;
                    let compact =
                        judged.ok().flatten().filter(is_compact).filter(|it| it.len <= 1000);
                    assert_eq!(found, compact.map(|it| (it.len, it.stream)), "{first:#x}, {len}");
                    short += u32::from(found.is_some());
                    refused += u32::from(found.is_none());
                }
            }
        }
        assert!(short > 20 && refused > 1000, "{short} short, {refused} refused");
    }
}
