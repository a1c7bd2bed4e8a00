// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checksum crc32c, which protects all that a link stores or sends (SPEC 13, 14).

use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};

#[inline]
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    crc32_iscsi(bytes)
}

/// The crc32c of `first` and each part of `rest`, as if they were contiguous.
#[inline]
pub(super) fn crc32c_of(first: &[u8], rest: &[&[u8]]) -> u32 {
    // Short parts are copied into one aligned buffer and checksummed in one call, because a call
    // for each part costs more than the copy.
    let mut gathered = Gathered([0; GATHERED_BYTES]);
    if first.len() > GATHERED_BYTES {
        return crc32c_in_turns(first, rest);
    }
    let (mut len, mut rest) = (first.len(), rest);
    gathered.0[..len].copy_from_slice(first);
    while let [part, others @ ..] = rest {
        let Some(free) = gathered.0[len..].get_mut(..part.len()) else {
            return crc32c_in_turns(&gathered.0[..len], rest);
        };
        free.copy_from_slice(part);
        (len, rest) = (len + part.len(), others);
    }
    crc32c(&gathered.0[..len])
}

fn crc32c_in_turns(first: &[u8], rest: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(first);
    rest.iter().for_each(|part| digest.update(part));
    #[expect(clippy::cast_possible_truncation, reason = "a checksum of 32 bits in 64")]
    let crc = digest.finalize() as u32;
    crc
}

/// An aligned buffer into which the short parts of a record are copied, so that one call computes
/// their checksum.
#[repr(align(8))]
struct Gathered([u8; GATHERED_BYTES]);

/// Size in bytes of the buffer that gathers short parts for one checksum: room for the checksummed
/// header of any record and a short message.
const GATHERED_BYTES: usize = 160;

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected result: RFC 3720 and every catalogue of checksums state this check value for
    /// crc32c.
    #[test]
    fn checksum_is_crc32c() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(b""), 0);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn checksum_of_parts_equals_whole() {
        let bytes: [u8; 700] = core::array::from_fn(|n| u8::try_from(n * 7 % 251).unwrap());
        for cut in [0, 1, 8, 36, 37, 64, 159, 160, 161, 255, 256, 699, 700] {
            let (first, rest) = bytes.split_at(cut);
            assert_eq!(crc32c_of(first, &[rest]), crc32c(&bytes), "cut at {cut}");
            let (second, third) = rest.split_at(rest.len() / 3);
            assert_eq!(crc32c_of(first, &[second, third]), crc32c(&bytes), "cut at {cut}");
            assert_eq!(crc32c_of(&bytes, &[]), crc32c(&bytes));
            let (here, _) = second.split_at(second.len().min(20));
            let short = [&first[..cut.min(100)], here].concat();
            let parts: [&[u8]; 3] = [&[], here, &[]];
            assert_eq!(crc32c_of(&first[..cut.min(100)], &parts), crc32c(&short));
        }
    }
}
