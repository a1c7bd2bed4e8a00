// SPDX-License-Identifier: MIT OR Apache-2.0
//! A message that comes in fragments (SPEC 5.5), put together in private memory that grows as bytes
//! arrive: what is announced is not believed at once.

/// A message of which fragments came.
#[derive(Debug)]
pub(crate) struct Assembly {
    total: u64,
    bytes: Vec<u8>,
}

/// The first allocation for a message in fragments.
const BYTES_FIRST: u64 = 1 << 20;

impl Assembly {
    /// A message of `total` bytes begins.
    pub(crate) fn begin(total: u64) -> Self {
        Self { total, bytes: Vec::with_capacity(total.min(BYTES_FIRST) as usize) }
    }

    /// The place for the next `len` bytes, if the message was announced to have them.
    pub(crate) fn room(&mut self, len: usize) -> Option<&mut [u8]> {
        let had = self.bytes.len();
        if (had + len) as u64 > self.total {
            return None;
        }
        self.bytes.resize(had + len, 0);
        Some(&mut self.bytes[had..])
    }

    /// How long the message was announced to be, in bytes.
    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    /// The whole message, if it is whole.
    pub(crate) fn finish(self) -> Option<Vec<u8>> {
        (self.bytes.len() as u64 == self.total).then_some(self.bytes)
    }
}
