// SPDX-License-Identifier: MIT OR Apache-2.0
//! A message that was received, and what becomes of it: as [`crate::Message`], but a reply waits as a future.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;

use super::notices::Notices;
use crate::{AckError, ReplyError, SendError, Token};

/// A message of a link. It is the application's own memory, however long it is kept.
///
/// Dropped, it is not consumed: it is received again after a restart, or after [`rewind`](super::Link::rewind).
pub struct Message {
    message: crate::Message,
    notices: Arc<Notices>,
}

impl Message {
    pub(super) const fn new(message: crate::Message, notices: Arc<Notices>) -> Self {
        Self { message, notices }
    }

    /// Where it begins in its stream. Positions rise, and each is of one message for ever; a new epoch is a new stream, whose positions begin anew.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.message.position()
    }

    /// 1, and one more for each earlier owner of this end that was handed the message and did not commit it.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.message.attempt()
    }

    /// Whether it is likely what its receivers died of: see [`is_poison`](crate::Message::is_poison) there.
    #[must_use]
    pub fn is_poison(&self) -> bool {
        self.message.is_poison()
    }

    /// Names the message, and all before it, to [`ack_to`](super::Link::ack_to) or to a restarted process.
    #[must_use]
    pub const fn token(&self) -> Token {
        self.message.token()
    }

    /// Its bytes, without a copy.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.message.bytes()
    }

    /// Consumes the message and all before it. With [`Delivery::AtMostOnce`](crate::Delivery) it is consumed already.
    ///
    /// The sender is told by the next message, or by the group's task.
    ///
    /// # Errors
    /// See [`AckError`].
    pub fn ack(self) -> Result<(), AckError> {
        let Self { message, notices } = self;
        notices.act_on_received(|| message.ack())
    }

    /// Sends `answer` over the same link and consumes the message and all before it: after a crash both have happened, or
    /// neither. Waits for room first.
    ///
    /// Cancel-safe: dropped before it is ready, nothing was sent and nothing committed.
    ///
    /// # Errors
    /// See [`ReplyError`]; with any of them nothing was sent, and nothing committed.
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
