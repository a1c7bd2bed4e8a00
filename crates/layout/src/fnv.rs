// SPDX-License-Identifier: MIT OR Apache-2.0
//! FNV-1a, a hash of 64 bits (SPEC 3.2): it identifies layouts, and names the files of links.
//!
//! FNV-1a is no secure checksum: collisions are easy to construct.

/// The hash value with which FNV-1a begins, before any byte.
pub(crate) const BASIS: u64 = 0xcbf2_9ce4_8422_2325;

/// Continues the FNV-1a hash `hash` with the bytes `bytes`, and returns the new hash.
pub(crate) const fn of_bytes(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut index = 0;
    while index < bytes.len() {
        hash = (hash ^ bytes[index] as u64).wrapping_mul(PRIME);
        index += 1;
    }
    hash
}

/// Returns the FNV-1a hash of `numbers`, each taken as eight little-endian bytes.
pub(crate) const fn of_numbers(numbers: &[u64]) -> u64 {
    let (mut hash, mut index) = (BASIS, 0);
    while index < numbers.len() {
        hash = of_bytes(hash, &numbers[index].to_le_bytes());
        index += 1;
    }
    hash
}

const PRIME: u64 = 0x0000_0100_0000_01b3;
