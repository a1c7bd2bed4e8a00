// SPDX-License-Identifier: MIT OR Apache-2.0
//! A received message, like [`crate::Message`], but with a reply that is a future.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;

use super::notices::Notices;
use crate::{AckError, ReplyError, SendError, Token};

/// A message of a link, in memory of its own, so the application may keep it as long as it likes.
///
/// A dropped message is not acknowledged: the link delivers it again after a restart, or after
/// [`rewind`](super::Link::rewind).
pub struct Message {
    message: crate::Message,
    notices: Arc<Notices>,
}

impl Message {
    pub(super) const fn new(message: crate::Message, notices: Arc<Notices>) -> Self {
        Self { message, notices }
    }

    /// Position at which the message begins in its stream. Positions rise, and no two messages of a
    /// stream share one. A new epoch is a new stream, with positions of its own.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.message.position()
    }

    /// Delivery count: 1, plus one for each earlier owner of this end that received the message and
    /// did not acknowledge it.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.message.attempt()
    }

    /// Whether the message may be crashing its consumers; see [`crate::Message::is_poison`].
    #[must_use]
    pub fn is_poison(&self) -> bool {
        self.message.is_poison()
    }

    /// A token for this message and all before it, to be given to [`ack_to`](super::Link::ack_to),
    /// even after a restart.
    #[must_use]
    pub const fn token(&self) -> Token {
        self.message.token()
    }

    /// Returns the bytes of the message without a copy.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.message.bytes()
    }

    /// Acknowledges this message and all before it. With [`Delivery::AtMostOnce`](crate::Delivery)
    /// the message was already acknowledged when it was received.
    ///
    /// The peer receives the acknowledgement with the next message, or from the group's task.
    ///
    /// # Errors
    /// [`AckError`] lists the reasons.
    pub fn ack(self) -> Result<(), AckError> {
        let Self { message, notices } = self;
        notices.act_on_received(|| message.ack())
    }

    /// Sends `answer` over the same link, and acknowledges this message and all before it. After a
    /// crash both have happened, or neither. Waits for room first.
    ///
    /// Cancel-safe: if the future is dropped before it is ready, nothing was sent and nothing
    /// acknowledged.
    ///
    /// # Errors
    /// [`ReplyError`] lists the reasons; then nothing was sent and nothing acknowledged.
    pub async fn reply(self, answer: &[u8]) -> Result<(), ReplyError> {
        let reply = || match self.message.try_reply(answer) {
            Err(ReplyError::Send(SendError::TimedOut)) => None,
            done => Some(done),
        };
        self.notices.until_replied(reply).await.map_err(SendError::from)?
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.message
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        &self.message
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Message {
    fn eq(&self, other: &T) -> bool {
        &self[..] == other.as_ref()
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.message.fmt(f)
    }
}
