// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of messages that are not whole yet: reserved by a sender, or assembled by a receiver.

use crate::protocol::SendBuffer;
use partywall_ring::Block;

/// Memory of a reservation, to be written before the message is sent.
#[derive(Debug)]
pub(crate) enum Memory {
    /// Private memory: copied when committed.
    Private(Vec<u8>),
    /// A block of shared memory: the receiver sees these very bytes.
    Slab(Block),
    /// Memory that a protocol lends.
    SendBuffer(Box<dyn SendBuffer>),
}

impl Memory {
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Private(bytes) => bytes,
            Self::Slab(block) => block.as_slice(),
            Self::SendBuffer(buffer) => buffer.as_slice(),
        }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        match self {
            Self::Private(bytes) => bytes,
            Self::Slab(block) => block.as_mut_slice(),
            Self::SendBuffer(buffer) => buffer.as_mut_slice(),
        }
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        match self {
            Self::Private(bytes) => bytes.truncate(len),
            Self::Slab(block) => block.truncate(len),
            Self::SendBuffer(buffer) => buffer.truncate(len),
        }
    }
}

/// A message of which fragments came (SPEC 5.5), in private memory that grows as bytes arrive: an
/// announced length is not allocated at once.
#[derive(Debug)]
pub(crate) struct Assembly {
    total: u64,
    bytes: Vec<u8>,
}

impl Assembly {
    /// Begins a message of `total` bytes.
    pub(crate) fn begin(total: u64) -> Self {
        Self { total, bytes: Vec::with_capacity(total.min(FIRST_BYTES_MAX) as usize) }
    }

    /// The memory for the next `len` bytes, or `None` beyond the announced length.
    pub(crate) fn extend(&mut self, len: usize) -> Option<&mut [u8]> {
        let had = self.bytes.len();
        if (had + len) as u64 > self.total {
            return None;
        }
        self.bytes.resize(had + len, 0);
        Some(&mut self.bytes[had..])
    }

    /// Announced length of the message, in bytes.
    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    /// The message, or `None` if bytes are missing.
    pub(crate) fn finish(self) -> Option<Vec<u8>> {
        (self.bytes.len() as u64 == self.total).then_some(self.bytes)
    }
}

/// The first allocation for a message in fragments, in bytes at most.
const FIRST_BYTES_MAX: u64 = 1 << 20;
