// SPDX-License-Identifier: MIT OR Apache-2.0
//! A message that the application reads in the link's own memory, without a copy. The link
//! acknowledges the message when the application's closure returns.
//!
//! ```text
//!   recv_with ─▶ noted as delivered ─▶ MessageView ─▶ read() ─ returns ─▶ acked   under the lock
//!                                                       └ panics ─▶ received next again
//!   with AtMostOnce: acked, and copied ─▶ lock released ─▶ MessageView ─▶ read()
//! ```

use std::fmt;
use std::ops::Deref;

use crate::end::{Endpoint, MessageInfo};
use crate::handle::message::Token;

/// A message in the link's memory, which the closure given to [`recv_with`](crate::Link::recv_with)
/// reads.
pub struct MessageView<'a> {
    bytes: &'a [u8],
    info: &'a MessageInfo,
    link: &'a Endpoint,
}

impl<'a> MessageView<'a> {
    pub(crate) const fn new(bytes: &'a [u8], info: &'a MessageInfo, link: &'a Endpoint) -> Self {
        Self { bytes, info, link }
    }

    /// Returns the bytes of the message. The caller may use them until the closure that was given
    /// to `recv_with` returns.
    #[must_use]
    #[inline]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Position at which the message begins in its stream; see
    /// [`Message::position`](crate::Message::position).
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.info.token.start.0
    }

    /// A token that names the message, and that the application can store; see
    /// [`Message::token`](crate::Message::token).
    #[must_use]
    pub const fn token(&self) -> Token {
        Token(self.info.token)
    }

    /// Delivery count of the message, from 1; see [`Message::attempt`](crate::Message::attempt).
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.info.attempt
    }

    /// Whether the delivery count exceeds its limit, so that the message may be crashing its
    /// consumers; see [`Message::is_poison`](crate::Message::is_poison).
    #[must_use]
    pub fn is_poison(&self) -> bool {
        self.info.is_poison(self.link)
    }
}

impl Deref for MessageView<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl AsRef<[u8]> for MessageView<'_> {
    fn as_ref(&self) -> &[u8] {
        self.bytes
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for MessageView<'_> {
    fn eq(&self, other: &T) -> bool {
        self.bytes == other.as_ref()
    }
}

impl fmt::Debug for MessageView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageView")
            .field("position", &self.position())
            .field("len", &self.len())
            .field("attempt", &self.attempt())
            .finish_non_exhaustive()
    }
}
