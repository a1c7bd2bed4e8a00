// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chunks that were given back a moment ago, by size: who sends one message after the other of the same
//! size gets the same memory again, without cutting and joining, and while it is still in the cache.
//!
//! ```text
//!   place = a function of the size       64 KiB │ chunk, chunk, chunk          last in, first out
//!                                         4 KiB │ chunk
//! ```
//!
//! What is in here is neither used nor free: its neighbours do not join with it. Whoever finds no free
//! chunk takes everything out first.

use alloc::vec::Vec;

/// So many sizes at a time.
const PLACES: usize = 8;
/// So many chunks of each: as many streams may have a message of one size under way.
const CHUNKS: usize = 256;

/// Chunks by size.
#[derive(Debug)]
pub(crate) struct Recent {
    places: [Place; PLACES],
    count: usize,
}

#[derive(Debug, Default)]
struct Place {
    units: u64,
    chunks: Vec<u32>,
}

impl Recent {
    pub(crate) fn new() -> Self {
        Self { places: Default::default(), count: 0 }
    }

    /// Whether there is a chunk of exactly this size.
    #[inline]
    pub(crate) fn has(&self, units: u64) -> bool {
        let place = &self.places[index(units)];
        place.units == units && !place.chunks.is_empty()
    }

    /// The newest chunk of exactly this size.
    #[inline]
    pub(crate) fn take(&mut self, units: u64) -> Option<u32> {
        let place = &mut self.places[index(units)];
        if place.units != units {
            return None;
        }
        let chunk = place.chunks.pop()?;
        self.count -= 1;
        Some(chunk)
    }

    /// Keeps a chunk; those that must go instead, or with it, are free.
    #[inline]
    pub(crate) fn keep(&mut self, units: u64, chunk: u32) -> [Option<u32>; 2] {
        let place = &mut self.places[index(units)];
        let mut gone = None;
        if place.units != units {
            // Another size was there before. It goes chunk by chunk, as long as this one comes back.
            gone = place.chunks.pop();
            self.count -= usize::from(gone.is_some());
        }
        if place.chunks.is_empty() {
            place.units = units;
        }
        if place.units != units || place.chunks.len() == CHUNKS {
            return [gone, Some(chunk)];
        }
        place.chunks.push(chunk);
        self.count += 1;
        [gone, None]
    }

    /// Any chunk.
    pub(crate) fn take_any(&mut self) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        self.count -= 1;
        self.places.iter_mut().find_map(|place| place.chunks.pop())
    }
}

/// Where a size has its place: powers of two and their multiples apart.
#[expect(clippy::cast_possible_truncation, reason = "less than PLACES")]
const fn index(units: u64) -> usize {
    ((units ^ units >> 3 ^ units >> 6 ^ units >> 10) % PLACES as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_of_a_size_comes_first() {
        let mut recent = Recent::new();
        assert_eq!(recent.keep(5, 1), [None, None]);
        assert_eq!(recent.keep(5, 2), [None, None]);
        assert!(recent.has(5) && !recent.has(13));
        assert_eq!([recent.take(5), recent.take(5), recent.take(5)], [Some(2), Some(1), None]);
    }

    #[test]
    fn another_size_takes_over_step_by_step() {
        let other = (6..).find(|units| index(*units) == index(5)).unwrap();
        let mut recent = Recent::new();
        let _ = (recent.keep(5, 1), recent.keep(5, 2));
        assert_eq!(recent.keep(other, 3), [Some(2), Some(3)]);
        assert_eq!(recent.keep(other, 4), [Some(1), None]);
        assert_eq!((recent.take(5), recent.take(other)), (None, Some(4)));
        assert_eq!(recent.take_any(), None);
    }

    #[test]
    fn no_more_than_there_is_room_for() {
        let mut recent = Recent::new();
        for chunk in 0..CHUNKS as u32 {
            assert_eq!(recent.keep(7, chunk), [None, None]);
        }
        assert_eq!(recent.keep(7, 99), [None, Some(99)]);
        assert_eq!(std::iter::from_fn(|| recent.take_any()).count(), CHUNKS);
    }
}
