// SPDX-License-Identifier: MIT OR Apache-2.0
//! A received message.
//!
//! ```text
//!   Short   up to 104 bytes, within the value itself      ┐ private memory
//!   Long    on the heap                                   ┘
//!   View    in the neighbour's memory; dropping it gives the block back
//!   RecvBuffer    what a protocol received, in one piece or several; dropping it gives it back
//! ```
//!
//! It derefs to `[u8]`, is a [`bytes::Buf`] and becomes [`Bytes`] without a copy. Where the bytes lie
//! is nobody's business but [`is_zero_copy`](Message::is_zero_copy)'s.

use crate::transport::shm::View;
use bytes::{Buf, Bytes};
use std::fmt;
use std::ops::Deref;

/// A message up to this long is kept within the value.
const SHORT_MAX: usize = 104;

/// A received message; it is the receiver's for as long as it lives.
///
/// A large message is a view of the sender's memory. Holding many for long keeps that memory from
/// being used again: the sender then takes more, up to its limit, and in the end waits.
pub struct Message {
    kept: Kept,
    /// How many bytes `Buf::advance` has passed.
    passed: usize,
}

/// The memory of a received message, in one piece or several. Dropping it frees the memory.
pub trait RecvBuffer: Send + Sync {
    /// Number of bytes.
    fn len(&self) -> usize;

    /// Whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes from `from` to the end of the piece that holds it; empty at the end.
    fn chunk(&self, from: usize) -> &[u8];

    /// All bytes in one piece. If they lie in several, they are copied together, once.
    fn as_slice(&self) -> &[u8];

    /// Whether the bytes lie in memory that the peer wrote.
    fn is_zero_copy(&self) -> bool;
}

enum Kept {
    Short {
        len: u8,
        bytes: [u8; SHORT_MAX],
    },
    Long(Vec<u8>),
    View(View),
    RecvBuffer(Box<dyn RecvBuffer>),
    #[cfg(shuttle)]
    Twin(crate::transport::twin::View),
}

impl Message {
    /// A message with a copy of `bytes`.
    #[inline]
    pub(crate) fn copied(bytes: &[u8]) -> Self {
        let kept = if bytes.len() <= SHORT_MAX {
            let mut short = [0; SHORT_MAX];
            short[..bytes.len()].copy_from_slice(bytes);
            #[expect(clippy::cast_possible_truncation, reason = "at most 104")]
            let len = bytes.len() as u8;
            Kept::Short { len, bytes: short }
        } else {
            Kept::Long(bytes.to_vec())
        };
        Self { kept, passed: 0 }
    }

    pub(crate) const fn from_vec(bytes: Vec<u8>) -> Self {
        Self { kept: Kept::Long(bytes), passed: 0 }
    }

    pub(crate) const fn from_view(view: View) -> Self {
        Self { kept: Kept::View(view), passed: 0 }
    }

    /// A message with a copy of bytes that another protocol received.
    #[must_use]
    pub fn from_protocol(bytes: &[u8]) -> Self {
        Self::copied(bytes)
    }

    /// A message of bytes that another protocol received on our heap.
    #[must_use]
    pub const fn from_protocol_vec(bytes: Vec<u8>) -> Self {
        Self::from_vec(bytes)
    }

    /// A message that another protocol received, where it lies.
    #[must_use]
    pub fn from_recv_buffer(buffer: Box<dyn RecvBuffer>) -> Self {
        Self { kept: Kept::RecvBuffer(buffer), passed: 0 }
    }

    #[cfg(shuttle)]
    pub(crate) const fn from_twin(view: crate::transport::twin::View) -> Self {
        Self { kept: Kept::Twin(view), passed: 0 }
    }

    /// The bytes.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        let all = match &self.kept {
            Kept::Short { len, bytes } => &bytes[..usize::from(*len)],
            Kept::Long(bytes) => bytes,
            Kept::View(view) => view.as_slice(),
            Kept::RecvBuffer(buffer) => buffer.as_slice(),
            #[cfg(shuttle)]
            Kept::Twin(view) => view.as_slice(),
        };
        &all[self.passed..]
    }

    /// Whether the bytes lie in the sender's memory, without ever having been copied.
    #[must_use]
    pub fn is_zero_copy(&self) -> bool {
        match &self.kept {
            Kept::View(_) => true,
            Kept::RecvBuffer(buffer) => buffer.is_zero_copy(),
            _ => false,
        }
    }

    /// Whether the bytes keep their address when the value moves.
    #[cfg(feature = "zerocopy")]
    pub(crate) const fn stays_where_it_is(&self) -> bool {
        !matches!(self.kept, Kept::Short { .. })
    }

    /// The bytes as a vector of our own; copies unless they are on our heap already.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        match self.kept {
            Kept::Long(bytes) if self.passed == 0 => bytes,
            _ => self.as_slice().to_vec(),
        }
    }
}

impl Deref for Message {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl Buf for Message {
    fn remaining(&self) -> usize {
        match &self.kept {
            // Not put together for this.
            Kept::RecvBuffer(buffer) => buffer.len() - self.passed,
            _ => self.as_slice().len(),
        }
    }

    fn chunk(&self) -> &[u8] {
        match &self.kept {
            Kept::RecvBuffer(buffer) => buffer.chunk(self.passed),
            _ => self.as_slice(),
        }
    }

    fn advance(&mut self, count: usize) {
        assert!(count <= self.remaining(), "cannot advance past the end of the message");
        self.passed += count;
    }
}

impl From<Message> for Bytes {
    /// Without a copy: the `Bytes` keep the message, and with it the sender's memory, until the last of
    /// them is dropped.
    fn from(message: Message) -> Self {
        Self::from_owner(message)
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Message {
    fn eq(&self, other: &T) -> bool {
        self.as_slice() == other.as_ref()
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("len", &self.remaining())
            .field("zero_copy", &self.is_zero_copy())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_kept_whole() {
        for len in [0, 1, SHORT_MAX, SHORT_MAX + 1, 5000] {
            let bytes: Vec<u8> = (0..len).map(|index| index as u8).collect();
            assert_eq!(Message::copied(&bytes), bytes);
            assert_eq!(Message::copied(&bytes).into_vec(), bytes);
            assert_eq!(Bytes::from(Message::copied(&bytes)), bytes);
        }
    }

    #[test]
    fn a_message_is_a_buffer() {
        let mut message = Message::copied(&[1, 0, 0, 0, 9]);
        assert_eq!(message.get_u32_le(), 1);
        assert_eq!(message.remaining(), 1);
        assert_eq!(message, [9]);
        assert_eq!(message.into_vec(), [9]);
    }
}
