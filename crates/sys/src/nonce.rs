// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random bytes by which connections and files are identified.

use std::fs::File;
use std::io::Read;

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Sixteen bytes from the kernel's cryptographic random source (SPEC 2.4): different for every
/// connection and every file, and impossible to guess.
///
/// # Panics
/// Panics if neither `getrandom` nor `/dev/urandom` is available: identities would repeat without
/// a random source.
#[must_use]
pub fn nonce() -> [u8; 16] {
    let mut bytes = [0; 16];
    for _ in 0..ATTEMPTS_MAX {
        match getrandom(&mut bytes[..], GetRandomFlags::empty()) {
            // For 256 bytes or less, `getrandom` never returns only a part of the bytes.
            Ok(count) if count == bytes.len() => return bytes,
            Err(Errno::INTR) => {}
            Ok(_) | Err(_) => break,
        }
    }
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    assert!(read.is_ok(), "no random source: neither getrandom nor /dev/urandom ({read:?})");
    bytes
}

/// Upper bound of the calls of `getrandom` that a signal may interrupt. The kernel blocks such a
/// call only early in boot.
const ATTEMPTS_MAX: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn nonces_differ_in_both_words() {
        let nonces: Vec<[u8; 16]> = (0..1000).map(|_| nonce()).collect();
        let words: HashSet<&[u8]> = nonces.iter().flat_map(|nonce| nonce.chunks(8)).collect();
        assert_eq!(words.len(), 2000);
    }
}
