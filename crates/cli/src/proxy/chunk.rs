// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much to read at a time: what came last time tells what to expect.
//!
//! ```text
//!            filled                filled              filled
//!   short ───────────▶ 4 KiB ───────────▶ 16 KiB ───────────▶ 64 KiB
//!   ◀─────────────────────────────────────────────────────────  less than a quarter: one step down
//! ```
//! Short reads are copied into the ring: they cost no block, and hold none while nothing comes. Long ones are
//! read straight into the memory that the other side will look at.

/// What to expect of the next read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    step: usize,
}

impl Chunk {
    /// How many bytes to make room for; `None` if [`SHORT_BYTES`] are enough.
    pub fn long(self) -> Option<usize> {
        self.step.checked_sub(1).map(|index| LONG_BYTES[index])
    }

    /// So many came.
    pub fn came(&mut self, count: usize) {
        let room = self.long().unwrap_or(SHORT_BYTES);
        if count >= room {
            self.step = (self.step + 1).min(LONG_BYTES.len());
        } else if count < room / 4 {
            self.step = self.step.saturating_sub(1);
        }
    }
}

/// What goes through the ring: `Config::inline_max`.
pub const SHORT_BYTES: usize = 1024;

const LONG_BYTES: [usize; 3] = [4 << 10, 16 << 10, 64 << 10];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_while_reads_fill_it_and_shrinks_when_little_comes() {
        let mut chunk = Chunk::default();
        chunk.came(100);
        assert_eq!(chunk.long(), None);
        for room in [SHORT_BYTES, 4 << 10, 16 << 10, 64 << 10, 64 << 10] {
            chunk.came(room);
        }
        assert_eq!(chunk.long(), Some(64 << 10));
        chunk.came(20 << 10);
        assert_eq!(chunk.long(), Some(64 << 10));
        for _ in 0..3 {
            chunk.came(1);
        }
        assert_eq!(chunk.long(), None);
    }
}
