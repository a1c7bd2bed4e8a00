// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random bytes that identify connections and files.

use std::hash::{BuildHasher, RandomState};

/// Sixteen random bytes, different for every connection and every file. They may be predictable, so
/// they must not serve as a secret.
#[must_use]
pub fn nonce() -> [u8; 16] {
    let word = |salt: u64| RandomState::new().hash_one((salt, std::process::id()));
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&word(1).to_le_bytes());
    bytes[8..].copy_from_slice(&word(2).to_le_bytes());
    bytes
}
