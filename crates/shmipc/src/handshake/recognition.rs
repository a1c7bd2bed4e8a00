// SPDX-License-Identifier: MIT OR Apache-2.0
//! Telling a client of shmipc by its first bytes.
//!
//! ```text
//!   00 00 .. .. 77 58 .. 00 | 04 | 0a      a length of two bytes, the magic, any version, and what a client begins with
//! ```
//!
//! A preamble of partywall begins with a letter, so one byte tells them apart. Invariant: 8 bytes decide, and fewer
//! decide against as soon as one of them is wrong.

use super::{NAMES_LENGTH_MAX, NAMES_LENGTH_MIN};
use crate::frame::{Kind, MAGIC};
use partywall::protocol::Recognition;

/// Whether a connection that begins with these bytes is a client's of shmipc, of any version.
///
/// A client begins with `ShmByPath`, `ExchangeVersion` or `Negotiation`, in lengths they can have. What is wrong with
/// it beyond that, its version for example, is for [`Server`](super::Server) to say.
#[must_use]
pub fn recognises(first: &[u8]) -> Recognition {
    if let Some((header, _)) = first.split_first_chunk::<8>() {
        let [l0, l1, l2, l3, m0, m1, _, kind] = *header;
        let length = u32::from_be_bytes([l0, l1, l2, l3]);
        let is_plausible = match Kind::from_number(kind) {
            Some(Kind::ShmByPath) => (NAMES_LENGTH_MIN..=NAMES_LENGTH_MAX).contains(&length),
            Some(Kind::ExchangeVersion) => length == 8,
            Some(Kind::Negotiation) => (8..=NEGOTIATION_LENGTH_MAX).contains(&length),
            _ => false,
        };
        let is_ours = [m0, m1] == MAGIC && is_plausible;
        return if is_ours { Recognition::Yes } else { Recognition::No };
    }
    // All plausible lengths have two bytes.
    let expected = [Some(0), Some(0), None, None, Some(MAGIC[0]), Some(MAGIC[1]), None];
    let agrees = expected
        .iter()
        .zip(first)
        .all(|(expected, found)| expected.is_none_or(|byte| byte == *found));
    if agrees { Recognition::Incomplete } else { Recognition::No }
}

/// A negotiation is recognised up to this length. It is refused unread, so this only tells it from noise.
const NEGOTIATION_LENGTH_MAX: u32 = 0xffff;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::encode;

    #[test]
    fn clients_of_all_versions_are_recognised() {
        for first in [
            encode::by_path(2, "/dev/shm/q", "/dev/shm/b"),
            encode::exchange(3).to_vec(),
            encode::exchange(9).to_vec(),
            b"\0\0\x01\x20\x77\x58\x00\x0a{".to_vec(),
        ] {
            for count in 0..8 {
                assert_eq!(recognises(&first[..count]), Recognition::Incomplete);
            }
            assert_eq!(recognises(&first[..8]), Recognition::Yes);
            assert_eq!(recognises(&first), Recognition::Yes);
        }
    }

    #[test]
    fn nothing_else_is_recognised() {
        for first in [
            b"PARTYWAL\x10\0\0\0\xa0\0\0\0".as_slice(),
            b"GET / HTTP/1.1",
            b"\0\0\0\x08\x77\x58\x03\x01", // established traffic
            b"\0\0\0\x09\x77\x58\x03\x04",
            b"\0\0\0\x0d\x77\x58\x02\x00",
            b"\0\0\x20\x0d\x77\x58\x02\x00",
            b"\0\0\0\x08\x77\x59\x03\x04",
        ] {
            assert_eq!(recognises(first), Recognition::No, "{first:x?}");
        }
        assert_eq!(recognises(b"P"), Recognition::No);
        assert_eq!(recognises(b"\0\0\0\x08\x76"), Recognition::No);
    }
}
