// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of a message that is written before it is sent: private, or the very bytes that the
//! receiver will look at.

use crate::protocol::SendBuffer;
use partywall_ring::Block;

/// Memory of a reservation.
#[derive(Debug)]
pub(crate) enum Memory {
    /// Private: copied when committed.
    Private(Vec<u8>),
    /// Shared: the receiver will look at these very bytes.
    Slab(Block),
    /// What a protocol lends.
    SendBuffer(Box<dyn SendBuffer>),
    /// What a twin lends.
    #[cfg(shuttle)]
    Twin(super::twin::Loan),
}

impl Memory {
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Private(bytes) => bytes,
            Self::Slab(block) => block.as_slice(),
            Self::SendBuffer(loan) => loan.as_slice(),
            #[cfg(shuttle)]
            Self::Twin(loan) => loan.as_slice(),
        }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        match self {
            Self::Private(bytes) => bytes,
            Self::Slab(block) => block.as_mut_slice(),
            Self::SendBuffer(loan) => loan.as_mut_slice(),
            #[cfg(shuttle)]
            Self::Twin(loan) => loan.as_mut_slice(),
        }
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        match self {
            Self::Private(bytes) => bytes.truncate(len),
            Self::Slab(block) => block.truncate(len),
            Self::SendBuffer(loan) => loan.truncate(len),
            #[cfg(shuttle)]
            Self::Twin(loan) => loan.truncate(len),
        }
    }
}
