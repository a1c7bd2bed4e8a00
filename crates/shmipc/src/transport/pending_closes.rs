// SPDX-License-Identifier: MIT OR Apache-2.0
//! The set of streams whose close came through the ring and was not reported to the session yet.
//! The receiver reports a close once no data of the stream can remain on the socket.
//!
//! A peer may delay the report of a close with a message on the socket that the peer never
//! finishes. The set stays bounded all the same: streams that this side has closed meanwhile are
//! removed.

use std::collections::BTreeSet;

#[derive(Debug, Default)]
pub(super) struct PendingCloses {
    streams: BTreeSet<u32>,
}

impl PendingCloses {
    pub(super) fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Adds `stream`, whose close by the peer arrived through the ring while `count` streams were
    /// open.
    pub(super) fn note(&mut self, stream: u32, count: usize, is_open: impl Fn(u32) -> bool) {
        // The close of a stream that is not open, or was closed before, is ignored.
        if is_open(stream) {
            self.streams.insert(stream);
        }
        if self.streams.len() > 2 * count + SPARE {
            self.streams.retain(|stream| is_open(*stream));
        }
    }

    pub(super) fn take(&mut self) -> impl Iterator<Item = u32> + use<> {
        std::mem::take(&mut self.streams).into_iter()
    }
}

/// Streams that this side has closed are removed from the set when it holds more than twice the
/// number of open streams plus this number. The margin keeps the searches for them rare.
const SPARE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_that_are_gone_do_not_pile_up() {
        let mut closing = PendingCloses::default();
        for stream in 0..100_000 {
            // The peer closes `stream` while only this stream and stream 0 are open. Stream 0 stays
            // open in all rounds of the loop.
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
