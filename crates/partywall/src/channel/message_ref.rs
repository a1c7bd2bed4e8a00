// SPDX-License-Identifier: MIT OR Apache-2.0
//! A received message that stays where it lies, in the ring or in a block, while it is read.
//!
//! ```text
//!   recv_ref ─▶ MessageRef ─┬─ into_message ─▶ owned message
//!                           └─ drop ─────────▶ consumed: the sender may reuse its memory, that
//!                                              of a short message at the next receive call
//! ```

use super::receiver::Receiver;
use crate::message::Message;
use std::fmt;
use std::ops::Deref;

/// A received message, borrowed from the ring or block that contains it. Dropping the reference
/// consumes the message.
pub struct MessageRef<'a> {
    receiver: &'a mut Receiver,
}

impl<'a> MessageRef<'a> {
    #[inline]
    pub(crate) const fn new(receiver: &'a mut Receiver) -> Self {
        Self { receiver }
    }

    /// Converts the borrowed message into an owned message. A short message is copied out of the
    /// ring; a long one stays in its block of the sender's memory.
    #[must_use]
    pub fn into_message(self) -> Message {
        self.receiver.end.take()
    }
}

impl Deref for MessageRef<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.receiver.end.current()
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for MessageRef<'_> {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl Drop for MessageRef<'_> {
    #[inline]
    fn drop(&mut self) {
        self.receiver.end.done_for_now();
    }
}

impl fmt::Debug for MessageRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageRef").field("len", &self.len()).finish()
    }
}
