// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams whose end came through the ring, and is believed once nothing of them can be left on the socket.
//!
//! Whoever keeps ends from being believed, by a message that it never finishes, makes none pile up: those of streams
//! that we have closed meanwhile are let go of.

use std::collections::BTreeSet;

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct PendingCloses {
    streams: BTreeSet<u32>,
}

impl PendingCloses {
    pub(super) fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// The end of `stream` came. Of those that are open, there are `count`.
    pub(super) fn note(&mut self, stream: u32, count: usize, is_open: impl Fn(u32) -> bool) {
        // One that is not open, or is said to close twice, is nothing to remember.
        if is_open(stream) {
            self.streams.insert(stream);
        }
        if self.streams.len() > 2 * count + SPARE {
            self.streams.retain(|stream| is_open(*stream));
        }
    }

    /// All of them, which are believed.
    pub(super) fn take(&mut self) -> impl Iterator<Item = u32> + use<> {
        std::mem::take(&mut self.streams).into_iter()
    }
}

/// So many may wait beside twice as many as are open: it is not looked through for each.
const SPARE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_that_are_gone_do_not_pile_up() {
        let mut closing = PendingCloses::default();
        for stream in 0..100_000 {
            // Two are open, of which one stays.
            closing.note(stream, 2, |asked| asked == 0 || asked == stream);
            assert!(closing.streams.len() <= 2 * 2 + SPARE + 1);
        }
        assert!(closing.take().any(|stream| stream == 0), "one that is open is forgotten");
        assert!(closing.is_empty());
    }

    #[test]
    fn an_end_counts_once_and_only_of_what_is_open() {
        let mut closing = PendingCloses::default();
        for stream in [7, 8, 7] {
            closing.note(stream, 1, |asked| asked == 7);
        }
        assert_eq!(closing.take().collect::<Vec<_>>(), [7]);
    }
}
