// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables by a protocol's names for streams. The other side chooses the names, so they are mixed with a secret; and they
//! are looked up with every message, so that must not take long.
//!
//! ```text
//!   name ─ xor a secret ─ times another ─▶ 128 bits ─ both halves together ─▶ 64     and all of it once more
//! ```
//!
//! Twice, because one secret in a hundred has too few bits in some place: after the first time, names at equal distances
//! may be found in few places of a table. After the second that takes a secret that nobody meets.
//!
//! Who does not know the secrets cannot choose names that fall together. It is *not* for anything but names.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// A table by name.
pub type StreamIdMap<V> = HashMap<u32, V, StreamIdSecrets>;

/// The secrets of one table.
#[derive(Clone, Debug)]
pub struct StreamIdSecrets {
    added: u64,
    factor: u64,
}

impl Default for StreamIdSecrets {
    fn default() -> Self {
        let random = RandomState::new();
        // Odd, so that nothing is lost.
        Self { added: random.hash_one(0), factor: random.hash_one(1) | 1 }
    }
}

impl BuildHasher for StreamIdSecrets {
    type Hasher = StreamIdHasher;

    fn build_hasher(&self) -> StreamIdHasher {
        StreamIdHasher { secrets: self.clone(), mixed: 0 }
    }
}

/// Mixes one name.
#[derive(Clone, Debug)]
pub struct StreamIdHasher {
    secrets: StreamIdSecrets,
    mixed: u64,
}

impl Hasher for StreamIdHasher {
    fn finish(&self) -> u64 {
        self.mixed_with(0)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.mixed = self.mixed_with(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, name: u32) {
        self.mixed = self.mixed_with(u64::from(name));
    }
}

impl StreamIdHasher {
    fn mixed_with(&self, value: u64) -> u64 {
        let product =
            u128::from(self.mixed ^ value ^ self.secrets.added) * u128::from(self.secrets.factor);
        #[expect(clippy::cast_possible_truncation, reason = "the low half; the high one is added")]
        let low = product as u64;
        low ^ (product >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_follow_one_another_or_differ_in_high_bits_do_not_fall_together() {
        // One in a hundred that falls short would be among so many.
        for _ in 0..1000 {
            let secrets = StreamIdSecrets::default();
            for step in [1_u32, 1 << 8, 1 << 16] {
                let places = places(&secrets, step);
                assert!(places > 112, "{places} of 128 with steps of {step}: {secrets:?}");
            }
        }
    }

    /// Those at which a table of 256 places and a tag of 7 bits would see 128 names.
    fn places(secrets: &StreamIdSecrets, step: u32) -> usize {
        let mixed = |index: u32| secrets.hash_one(index.wrapping_mul(step));
        let places = (0..128).map(|index| (mixed(index) & 0xff, mixed(index) >> 57));
        places.collect::<std::collections::HashSet<_>>().len()
    }

    #[test]
    fn tables_have_secrets_of_their_own() {
        let (secrets, other) = (StreamIdSecrets::default(), StreamIdSecrets::default());
        assert!((0..64_u32).any(|name| secrets.hash_one(name) != other.hash_one(name)));
    }
}
