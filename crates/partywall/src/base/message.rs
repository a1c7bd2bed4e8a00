// SPDX-License-Identifier: MIT OR Apache-2.0
//! A received message.
//!
//! ```text
//!   Short     up to 104 bytes, within the value itself   ┐ private memory
//!   Long      on the heap                                ┘
//!   View      a block of the peer's memory, freed when the message is dropped
//!   Buffer    memory that a protocol received into, in one piece or several
//! ```
//!
//! A message derefs to `[u8]`, is a [`bytes::Buf`], and becomes [`Bytes`] without a copy.
//! [`is_zero_copy`](Message::is_zero_copy) says whether the bytes lie in the peer's memory.

use bytes::{Buf, Bytes};
use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// A received message. Its bytes stay valid and unchanged by Partywall for as long as the value
/// lives.
///
/// A large message is a view of the sender's memory, which the sender does not allocate again while
/// the view lives. If the receiver holds many views, the sender allocates more memory up to its
/// limit, and then blocks.
pub struct Message {
    payload: Payload,
    /// Number of leading bytes of the message that `Buf::advance` has consumed.
    advanced: usize,
}

/// All fields are words, also those of short bytes. So no load of a move reads parts of two fields,
/// for which the processor would wait (decision 0058).
enum Payload {
    Short { len: usize, words: [u64; SHORT_MAX / 8] },
    Long(Vec<u8>),
    View(View),
    Buffer(Box<dyn RecvBuffer>),
}

impl Message {
    const EMPTY: Self =
        Self { payload: Payload::Short { len: 0, words: [0; SHORT_MAX / 8] }, advanced: 0 };

    #[inline]
    pub(crate) fn copied(bytes: &[u8]) -> Self {
        if bytes.len() > SHORT_MAX {
            return Self::from_vec(bytes.to_vec());
        }
        // The bytes are copied into the value that is returned, which saves a copy (decision 0058).
        let payload = Payload::Short { len: bytes.len(), words: [0; SHORT_MAX / 8] };
        let mut message = Self { payload, advanced: 0 };
        if let Payload::Short { words, .. } = &mut message.payload {
            words.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
        }
        message
    }

    /// Appends a message with a copy of `bytes` to `queue`. A short message is copied to its place
    /// in the queue at once.
    #[inline]
    pub(crate) fn push_copied(queue: &mut VecDeque<Self>, bytes: &[u8]) {
        if bytes.len() > SHORT_MAX {
            queue.push_back(Self::from_vec(bytes.to_vec()));
            return;
        }
        queue.push_back(Self::EMPTY);
        if let Some(Self { payload: Payload::Short { len, words }, .. }) = queue.back_mut() {
            *len = bytes.len();
            words.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
        }
    }

    pub(crate) const fn from_vec(bytes: Vec<u8>) -> Self {
        Self { payload: Payload::Long(bytes), advanced: 0 }
    }

    pub(crate) const fn from_view(view: View) -> Self {
        Self { payload: Payload::View(view), advanced: 0 }
    }

    /// For implementations of protocols: makes a message with a copy of the received bytes.
    #[must_use]
    pub fn from_protocol(bytes: &[u8]) -> Self {
        Self::copied(bytes)
    }

    /// For implementations of protocols: makes a message of received bytes that are on the heap.
    #[must_use]
    pub const fn from_protocol_vec(bytes: Vec<u8>) -> Self {
        Self::from_vec(bytes)
    }

    /// For implementations of protocols: makes a message of the memory that holds the received
    /// bytes.
    #[must_use]
    pub fn from_recv_buffer(buffer: Box<dyn RecvBuffer>) -> Self {
        Self { payload: Payload::Buffer(buffer), advanced: 0 }
    }

    /// Returns the bytes of the message that `Buf::advance` has not consumed.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        let all = match &self.payload {
            Payload::Short { len, words } => &words.as_bytes()[..*len],
            Payload::Long(bytes) => bytes,
            Payload::View(view) => view.as_slice(),
            Payload::Buffer(buffer) => buffer.as_slice(),
        };
        &all[self.advanced..]
    }

    /// Returns the number of bytes that `Buf::advance` has not consumed. Unlike
    /// [`as_slice`](Self::as_slice), this copies no message of several pieces.
    ///
    /// ```
    /// let message = partywall::Message::from_protocol(b"four");
    /// assert_eq!(message.len(), 4);
    /// assert!(!message.is_empty());
    /// ```
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        let all = match &self.payload {
            Payload::Short { len, .. } => *len,
            Payload::Long(bytes) => bytes.len(),
            Payload::View(view) => view.len,
            Payload::Buffer(buffer) => buffer.len(),
        };
        all - self.advanced
    }

    /// Whether all bytes of the message were consumed by `Buf::advance`, or the message has none.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the bytes lie in the memory into which the sender wrote them, and were never copied.
    #[must_use]
    pub fn is_zero_copy(&self) -> bool {
        match &self.payload {
            Payload::View(_) => true,
            Payload::Buffer(buffer) => buffer.is_zero_copy(),
            Payload::Short { .. } | Payload::Long(_) => false,
        }
    }

    /// Whether the bytes of the message keep their address when Rust moves the `Message` value.
    #[cfg(feature = "zerocopy")]
    pub(crate) const fn has_stable_address(&self) -> bool {
        !matches!(self.payload, Payload::Short { .. })
    }

    /// Returns the bytes as a vector. Bytes that are not yet in a vector on the heap are copied.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        match self.payload {
            Payload::Long(bytes) if self.advanced == 0 => bytes,
            _ => self.as_slice().to_vec(),
        }
    }
}

/// A view of one block of the peer's memory. Dropping the view returns the block to the peer.
pub(crate) struct View {
    pub memory: Arc<dyn BlockMemory>,
    pub offset: usize,
    pub len: usize,
    pub block: u64,
}

impl View {
    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.memory.slice(self.offset, self.len)
    }
}

impl Drop for View {
    #[inline]
    fn drop(&mut self) {
        self.memory.release(self.block);
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("block", &self.block).field("len", &self.len).finish()
    }
}

/// Mapped memory of the peer that holds blocks. The memory stays mapped while any view of it lives.
pub(crate) trait BlockMemory: Send + Sync {
    /// Returns the bytes of a block. The caller must have checked that the block lies within the
    /// mapped memory.
    fn slice(&self, offset: usize, len: usize) -> &[u8];

    /// Returns a block to the peer, which may then use its memory again.
    fn release(&self, block: u64);
}

/// Memory into which a protocol received a message, in one piece or several. Dropping the buffer
/// frees the memory.
pub trait RecvBuffer: Send + Sync {
    /// Length of the message in bytes: the length of `as_slice()`, the same in every call.
    fn len(&self) -> usize;

    /// Whether the message has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes from index `from` to the end of the piece that contains it. If `from` is
    /// the length of the message, the result is empty.
    fn chunk(&self, from: usize) -> &[u8];

    /// Returns all bytes of the message in one piece. The first call copies a message of several
    /// pieces together.
    fn as_slice(&self) -> &[u8];

    /// Whether the bytes of the message lie in the memory into which the peer wrote them.
    fn is_zero_copy(&self) -> bool;
}

/// Longest message in bytes that is stored within the `Message` value. Longer private messages take
/// an allocation on the heap.
const SHORT_MAX: usize = 104;
const _: () = assert!(SHORT_MAX % size_of::<u64>() == 0);

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
        self.len()
    }

    fn chunk(&self) -> &[u8] {
        match &self.payload {
            Payload::Buffer(buffer) => buffer.chunk(self.advanced),
            _ => self.as_slice(),
        }
    }

    fn advance(&mut self, count: usize) {
        assert!(count <= self.remaining(), "cannot advance past the end of the message");
        self.advanced += count;
    }
}

impl From<Message> for Bytes {
    /// Converts the message to `Bytes` without a copy. The message, and with it the sender's
    /// memory, lives until the last clone or part of the `Bytes` is dropped.
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
    fn message_of_any_length_keeps_its_bytes() {
        for len in [0, 1, SHORT_MAX, SHORT_MAX + 1, 5000] {
            let bytes: Vec<u8> = (0..len).map(|index| index as u8).collect();
            assert_eq!(Message::copied(&bytes), bytes);
            assert_eq!(Message::copied(&bytes).into_vec(), bytes);
            assert_eq!(Bytes::from(Message::copied(&bytes)), bytes);
            let mut queue = VecDeque::from([Message::copied(b"first")]);
            Message::push_copied(&mut queue, &bytes);
            assert_eq!(
                (&queue[0], &queue[1]),
                (&Message::copied(b"first"), &Message::copied(&bytes))
            );
        }
    }

    struct Block(Vec<u8>);

    impl BlockMemory for Block {
        fn slice(&self, offset: usize, len: usize) -> &[u8] {
            &self.0[offset..offset + len]
        }

        fn release(&self, _: u64) {}
    }

    /// A message in several pieces, which the test must not join.
    struct Pieces;

    impl RecvBuffer for Pieces {
        fn len(&self) -> usize {
            500
        }

        fn chunk(&self, _: usize) -> &[u8] {
            panic!("no piece is asked for")
        }

        fn as_slice(&self) -> &[u8] {
            panic!("the pieces are joined")
        }

        fn is_zero_copy(&self) -> bool {
            false
        }
    }

    #[test]
    fn length_counts_what_is_not_consumed() {
        let view = View { memory: Arc::new(Block(vec![7; 900])), offset: 100, len: 500, block: 1 };
        let whole = [
            Message::copied(&[7; SHORT_MAX]),
            Message::copied(&[7; 500]),
            Message::from_view(view),
            Message::from_recv_buffer(Box::new(Pieces)),
        ];
        for (kind, mut message) in whole.into_iter().enumerate() {
            let all = if kind == 0 { SHORT_MAX } else { 500 };
            for consumed in [0, 1, all - 1, all] {
                message.advance(consumed - (all - message.len()));
                assert_eq!(message.len(), all - consumed, "payload {kind}");
                assert_eq!(message.is_empty(), consumed == all, "payload {kind}");
                if kind < 3 {
                    assert_eq!(message.as_slice().len(), message.len(), "payload {kind}");
                }
            }
        }
    }

    #[test]
    fn message_advanced_as_buffer_keeps_its_rest() {
        let mut message = Message::copied(&[1, 0, 0, 0, 9]);
        assert_eq!(message.get_u32_le(), 1);
        assert_eq!(message.remaining(), 1);
        assert_eq!(message, [9]);
        assert_eq!(message.into_vec(), [9]);
    }
}
