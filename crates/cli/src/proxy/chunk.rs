// SPDX-License-Identifier: MIT OR Apache-2.0
//! The size of the proxy's next read from a plain socket (`Chunk`), derived from how much the last
//! read filled.
//!
//! ```text
//!            filled                filled              filled
//!   1 KiB ───────────▶ 4 KiB ───────────▶ 16 KiB ───────────▶ 64 KiB
//!   ◀──────── one step, if a read fills less than a quarter
//! ```
//! A read that fills its chunk makes the next chunk larger. Short reads are copied into the ring,
//! so no block stays reserved while no bytes arrive. Long reads go directly into shared memory,
//! from which the peer reads them.

/// The size of the next read, as an index into the list of sizes: 1, 4, 16 and 64 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    step: usize,
}

impl Chunk {
    /// The number of bytes of shared memory to reserve for the next read. `None` if the next read
    /// takes so few bytes that no memory is reserved for them ([`SHORT_BYTES`]).
    pub fn long(self) -> Option<usize> {
        self.step.checked_sub(1).map(|index| LONG_BYTES[index])
    }

    /// Sets the size of the next read after a read that returned `count` bytes.
    pub fn record(&mut self, count: usize) {
        let room = self.long().unwrap_or(SHORT_BYTES);
        if count >= room {
            self.step = (self.step + 1).min(LONG_BYTES.len());
        } else if count < room / 4 {
            self.step = self.step.saturating_sub(1);
        }
    }
}

/// Number of bytes up to which the bytes of a read are copied into the ring instead of a block of
/// shared memory. The longest message that the session sends in the ring, `Config::inline_max`, has
/// the same length.
pub const SHORT_BYTES: usize = 1024;

const LONG_BYTES: [usize; 3] = [4 << 10, 16 << 10, 64 << 10];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_grows_after_full_reads_and_shrinks_after_short_ones() {
        let mut chunk = Chunk::default();
        chunk.record(100);
        assert_eq!(chunk.long(), None);
        for room in [SHORT_BYTES, 4 << 10, 16 << 10, 64 << 10, 64 << 10] {
            chunk.record(room);
        }
        assert_eq!(chunk.long(), Some(64 << 10));
        chunk.record(20 << 10);
        assert_eq!(chunk.long(), Some(64 << 10));
        for _ in 0..3 {
            chunk.record(1);
        }
        assert_eq!(chunk.long(), None);
    }
}
