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

/// So many sizes at a time.
const PLACES: usize = 8;
/// So many chunks of each.
const CHUNKS: usize = 32;

/// Chunks by size.
#[derive(Debug)]
pub(crate) struct Recent {
    places: [Place; PLACES],
    count: usize,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    units: u64,
    count: usize,
    chunks: [u32; CHUNKS],
}

impl Recent {
    pub(crate) const fn new() -> Self {
        let place = Place { units: 0, count: 0, chunks: [0; CHUNKS] };
        Self { places: [place; PLACES], count: 0 }
    }

    /// Whether there is a chunk of exactly this size.
    #[inline]
    pub(crate) const fn has(&self, units: u64) -> bool {
        let place = &self.places[index(units)];
        place.units == units && place.count > 0
    }

    /// The newest chunk of exactly this size.
    #[inline]
    pub(crate) const fn take(&mut self, units: u64) -> Option<u32> {
        if !self.has(units) {
            return None;
        }
        let place = &mut self.places[index(units)];
        place.count -= 1;
        self.count -= 1;
        Some(place.chunks[place.count])
    }

    /// Keeps a chunk; those that must go instead, or with it, are free.
    #[inline]
    pub(crate) const fn keep(&mut self, units: u64, chunk: u32) -> [Option<u32>; 2] {
        let place = &mut self.places[index(units)];
        let mut gone = None;
        if place.units != units && place.count > 0 {
            // Another size was there before. It goes chunk by chunk, as long as this one comes back.
            place.count -= 1;
            self.count -= 1;
            gone = Some(place.chunks[place.count]);
        }
        if place.count == 0 {
            place.units = units;
        }
        if place.units != units || place.count == CHUNKS {
            return [gone, Some(chunk)];
        }
        place.chunks[place.count] = chunk;
        place.count += 1;
        self.count += 1;
        [gone, None]
    }

    /// Any chunk.
    pub(crate) fn take_any(&mut self) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        let place = self.places.iter_mut().find(|place| place.count > 0)?;
        place.count -= 1;
        self.count -= 1;
        Some(place.chunks[place.count])
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
