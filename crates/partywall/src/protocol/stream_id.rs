// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hash tables whose keys are the stream ids of another protocol.
//!
//! The peer chooses the ids, so the hash mixes each id with a secret of the table. Each message
//! looks up one id, so the hash must be cheap.
//!
//! ```text
//!   id ─ xor secret ─ times secret ─▶ 128 bits ─ xor of its 64-bit halves ─▶ 64 bits; two rounds
//! ```
//!
//! The hash has two such rounds. After one round, a secret in a hundred is weak: ids at equal
//! distances may share few buckets. After two rounds no weak secret is known.
//!
//! A peer that does not know the secrets cannot choose ids that collide. The hash is *not* meant
//! for other keys.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// A hash table whose keys are stream ids.
pub type StreamIdMap<V> = HashMap<u32, V, StreamIdSecrets>;

/// The random secrets with which one hash table mixes its stream ids.
#[derive(Clone, Debug)]
pub struct StreamIdSecrets {
    added: u64,
    factor: u64,
}

impl Default for StreamIdSecrets {
    fn default() -> Self {
        let random = RandomState::new();
        // Multiplication by an odd factor is a bijection modulo 2^64, so it maps no two ids to one
        // value.
        Self { added: random.hash_one(0), factor: random.hash_one(1) | 1 }
    }
}

impl BuildHasher for StreamIdSecrets {
    type Hasher = StreamIdHasher;

    fn build_hasher(&self) -> StreamIdHasher {
        StreamIdHasher { secrets: self.clone(), mixed: 0 }
    }
}

/// The hasher that mixes one stream id with the secrets of its table.
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

    fn write_u32(&mut self, id: u32) {
        self.mixed = self.mixed_with(u64::from(id));
    }
}

impl StreamIdHasher {
    fn mixed_with(&self, value: u64) -> u64 {
        let product =
            u128::from(self.mixed ^ value ^ self.secrets.added) * u128::from(self.secrets.factor);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the low 64 bits; the high ones are added"
        )]
        let low = product as u64;
        low ^ (product >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequential_ids_and_ids_that_differ_in_high_bits_do_not_collide() {
        // The test uses 1,000 random secrets. If the hash had one round only, about one secret in a
        // hundred would be weak, and the test would fail.
        for _ in 0..1000 {
            let secrets = StreamIdSecrets::default();
            for step in [1_u32, 1 << 8, 1 << 16] {
                let places = places(&secrets, step);
                assert!(places > 112, "{places} of 128 with steps of {step}: {secrets:?}");
            }
        }
    }

    /// Hashes 128 ids at distances of `step`, and counts their distinct places in a table of 256
    /// buckets. Two ids in one bucket still have distinct places if the 7 further bits of their
    /// hashes that the table keeps differ.
    fn places(secrets: &StreamIdSecrets, step: u32) -> usize {
        let mixed = |index: u32| secrets.hash_one(index.wrapping_mul(step));
        let places = (0..128).map(|index| (mixed(index) & 0xff, mixed(index) >> 57));
        places.collect::<std::collections::HashSet<_>>().len()
    }

    #[test]
    fn each_table_has_its_own_secrets() {
        let (secrets, other) = (StreamIdSecrets::default(), StreamIdSecrets::default());
        assert!((0..64_u32).any(|id| secrets.hash_one(id) != other.hash_one(id)));
    }
}
