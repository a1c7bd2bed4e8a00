// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of incomplete messages: reserved by a sender, or assembled from fragments by a receiver.

use crate::protocol::SendBuffer;
use partywall_ring::Block;

/// The memory of a reservation, which the sender writes before the message is sent.
#[derive(Debug)]
pub(crate) enum Memory {
    /// Private memory of this process, which is copied into the ring or block on commit.
    Private(Vec<u8>),
    /// A block of shared memory, which the receiver reads without a copy.
    Slab(Block),
    /// Memory that the implementation of another protocol provides.
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

/// A message of which only some fragments have arrived (SPEC 5.5). Its private memory grows as
/// bytes arrive, so a peer that announces a long message does not make this side allocate all of
/// it.
#[derive(Debug)]
pub(crate) struct Assembly {
    total: u64,
    bytes: Vec<u8>,
}

impl Assembly {
    pub(crate) fn begin(total: u64) -> Self {
        Self { total, bytes: Vec::with_capacity(total.min(FIRST_BYTES_MAX) as usize) }
    }

    /// Returns the memory for the next `len` bytes of the message. Returns `None` if these bytes
    /// exceed the length that the sender announced.
    pub(crate) fn extend(&mut self, len: usize) -> Option<&mut [u8]> {
        let had = self.bytes.len();
        if (had + len) as u64 > self.total {
            return None;
        }
        self.bytes.resize(had + len, 0);
        Some(&mut self.bytes[had..])
    }

    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    /// Returns the whole message, or `None` if some of its bytes are missing.
    pub(crate) fn finish(self) -> Option<Vec<u8>> {
        (self.bytes.len() as u64 == self.total).then_some(self.bytes)
    }
}

/// Upper bound of the first allocation for a message in fragments, in bytes. A peer that announces
/// a longer message makes this side allocate no more before its bytes arrive.
const FIRST_BYTES_MAX: u64 = 1 << 20;
