// SPDX-License-Identifier: MIT OR Apache-2.0
//! The slab's cache of recently returned chunks, by size. A sender of many messages of one size
//! gets the same memory again, without a split or a join. That memory is still in the processor's
//! cache.
//!
//! ```text
//!   bucket = a function of the size       64 KiB │ chunk, chunk, chunk          last in, first out
//!                                          4 KiB │ chunk
//! ```
//!
//! A chunk in this cache is neither used nor free: adjacent chunks do not join with it. If the slab
//! finds no free chunk, it empties the cache first.

use alloc::vec::Vec;

/// Number of buckets of the cache of returned chunks. Each bucket holds chunks of one size, so the
/// cache has chunks of at most this many sizes.
const BUCKETS: usize = 8;
/// Maximum number of returned chunks of one size in the cache. Up to this many streams can each
/// have a message of the same size in flight.
const CHUNKS: usize = 256;

/// The slab's recently returned chunks, in a bucket for each size.
#[derive(Debug)]
pub(crate) struct Recent {
    buckets: [Bucket; BUCKETS],
    count: usize,
}

#[derive(Debug, Default)]
struct Bucket {
    units: u64,
    chunks: Vec<u32>,
}

impl Recent {
    pub(crate) fn new() -> Self {
        Self { buckets: Default::default(), count: 0 }
    }

    /// Whether the cache of returned chunks has one of exactly `units` units of 64 bytes.
    #[inline]
    pub(crate) fn has(&self, units: u64) -> bool {
        let bucket = &self.buckets[index(units)];
        bucket.units == units && !bucket.chunks.is_empty()
    }

    /// Takes the newest chunk of exactly `units` units of 64 bytes out of the cache of returned
    /// chunks.
    #[inline]
    pub(crate) fn take(&mut self, units: u64) -> Option<u32> {
        let bucket = &mut self.buckets[index(units)];
        if bucket.units != units {
            return None;
        }
        let chunk = bucket.chunks.pop()?;
        self.count -= 1;
        Some(chunk)
    }

    /// Adds `chunk`, a returned chunk of `units` units of 64 bytes, to the cache. Returns the
    /// chunks that the caller must free: an evicted one, and `chunk` itself if the bucket has no
    /// place for it.
    #[inline]
    pub(crate) fn insert(&mut self, units: u64, chunk: u32) -> [Option<u32>; 2] {
        let bucket = &mut self.buckets[index(units)];
        let mut evicted = None;
        if bucket.units != units {
            // The bucket holds chunks of another size. Each inserted chunk of the new size evicts
            // one of them.
            evicted = bucket.chunks.pop();
            self.count -= usize::from(evicted.is_some());
        }
        if bucket.chunks.is_empty() {
            bucket.units = units;
        }
        if bucket.units != units || bucket.chunks.len() == CHUNKS {
            return [evicted, Some(chunk)];
        }
        bucket.chunks.push(chunk);
        self.count += 1;
        [evicted, None]
    }

    /// Takes any chunk, whatever its size, out of the cache of returned chunks, if the cache has
    /// one.
    pub(crate) fn take_any(&mut self) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        self.count -= 1;
        self.buckets.iter_mut().find_map(|bucket| bucket.chunks.pop())
    }
}

/// Returns the index of the bucket for chunks of `units` units. Mixing the bits of the size spreads
/// powers of two and their multiples over the buckets.
#[expect(clippy::cast_possible_truncation, reason = "less than BUCKETS")]
const fn index(units: u64) -> usize {
    ((units ^ units >> 3 ^ units >> 6 ^ units >> 10) % BUCKETS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_chunk_of_a_size_is_taken_first() {
        let mut recent = Recent::new();
        assert_eq!(recent.insert(5, 1), [None, None]);
        assert_eq!(recent.insert(5, 2), [None, None]);
        assert!(recent.has(5) && !recent.has(13));
        assert_eq!([recent.take(5), recent.take(5), recent.take(5)], [Some(2), Some(1), None]);
    }

    #[test]
    fn other_size_in_bucket_is_evicted_chunk_by_chunk() {
        let other = (6..).find(|units| index(*units) == index(5)).unwrap();
        let mut recent = Recent::new();
        let _ = (recent.insert(5, 1), recent.insert(5, 2));
        assert_eq!(recent.insert(other, 3), [Some(2), Some(3)]);
        assert_eq!(recent.insert(other, 4), [Some(1), None]);
        assert_eq!((recent.take(5), recent.take(other)), (None, Some(4)));
        assert_eq!(recent.take_any(), None);
    }

    #[test]
    fn chunk_beyond_limit_is_returned() {
        let mut recent = Recent::new();
        for chunk in 0..CHUNKS as u32 {
            assert_eq!(recent.insert(7, chunk), [None, None]);
        }
        assert_eq!(recent.insert(7, 99), [None, Some(99)]);
        assert_eq!(std::iter::from_fn(|| recent.take_any()).count(), CHUNKS);
    }
}
