// SPDX-License-Identifier: MIT OR Apache-2.0
//! A message that the application has received from a link, and the operations on the message.
//!
//! ```text
//!   recv ─▶ Message ─┬─ ack ─────▶ this message and all before it are acknowledged
//!                    ├─ reply ───▶ acknowledged, and another message sent: both or neither
//!                    ├─ token ───▶ stored elsewhere, and passed to `ack_to` later
//!                    └─ dropped ─▶ not acknowledged: received again after a restart or `rewind`
//! ```

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use partywall_reconcile::{Position, StreamId};

use crate::end::{Endpoint, MessageInfo};
use crate::error::{AckError, ReplyError};
use crate::link_state::DeliveryId;

/// A message of a link, in memory of its own, so the application may keep it as long as it likes.
///
/// Dropping a message does not acknowledge it. The link delivers it again after
/// [`rewind`](crate::Link::rewind) or a restart of this process. With
/// [`Delivery::AtMostOnce`](crate::Delivery::AtMostOnce), a received message is acknowledged
/// already.
pub struct Message {
    bytes: Bytes,
    info: MessageInfo,
    link: Arc<Endpoint>,
}

impl MessageInfo {
    pub(crate) fn is_poison(&self, link: &Endpoint) -> bool {
        self.attempt > link.config().attempts_max
    }

    #[inline]
    pub(crate) fn ack(&self, link: &Endpoint) -> Result<(), AckError> {
        if self.is_acked {
            return Ok(());
        }
        link.receive_driver().ack_to(&self.token)
    }

    pub(crate) fn reply(
        &self,
        link: &Endpoint,
        answer: &[u8],
        deadline: Option<Instant>,
    ) -> Result<(), ReplyError> {
        if self.is_acked {
            return Ok(link.send_driver().send(crate::end::Load::Message(&[answer]), deadline)?);
        }
        link.receive_driver().reply(self.token, &[answer], deadline)
    }
}

impl Message {
    pub(crate) fn new((bytes, info): (Bytes, MessageInfo), link: Arc<Endpoint>) -> Self {
        Self { bytes, info, link }
    }

    /// Position at which the message begins in its stream. Positions rise, and no two messages of a
    /// stream share one. A new epoch is a new stream, with positions of its own; a
    /// [`token`](Self::token) identifies the stream, too.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.info.token.start.0
    }

    /// Delivery count: 1, plus one for each earlier owner of this end that received the message and
    /// did not acknowledge it.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.info.attempt
    }

    /// Whether the delivery count exceeds [`attempts_max`](crate::Config::attempts_max), so that
    /// the message may be crashing its consumers. The message is delivered all the same:
    /// acknowledge it to remove it, perhaps with a [`reply`](Self::reply) that reports the failure.
    #[must_use]
    pub fn is_poison(&self) -> bool {
        self.info.is_poison(&self.link)
    }

    /// A token for this message and all messages before it. The application may pass it to
    /// [`ack_to`](crate::Link::ack_to) later, even after a restart.
    #[must_use]
    pub const fn token(&self) -> Token {
        Token(self.info.token)
    }

    /// Returns the bytes of the message without a copy.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    /// Acknowledges this message and all messages that were received before it. With
    /// [`Delivery::AtMostOnce`](crate::Delivery) the message was already acknowledged when it was
    /// received.
    ///
    /// The peer receives the acknowledgement with the next message, or when any thread waits for a
    /// link of the group; without delay if a thread already waits for one.
    ///
    /// # Errors
    /// [`AckError`] lists the reasons.
    #[inline]
    pub fn ack(self) -> Result<(), AckError> {
        self.info.ack(&self.link)
    }

    /// Sends `answer` over the same link, and acknowledges this message and all before it. After a
    /// crash both have happened, or neither. If the link has no room for `answer`, waits for room.
    ///
    /// # Errors
    /// [`ReplyError`] lists the reasons; then nothing was sent and nothing acknowledged.
    pub fn reply(self, answer: &[u8]) -> Result<(), ReplyError> {
        self.info.reply(&self.link, answer, None)
    }

    /// Sends `answer` and acknowledges this message and all before it: both or neither. Waits for
    /// room only until `deadline`.
    ///
    /// # Errors
    /// [`ReplyError`] lists the reasons.
    pub fn reply_deadline(self, answer: &[u8], deadline: Instant) -> Result<(), ReplyError> {
        self.info.reply(&self.link, answer, Some(deadline))
    }

    /// Sends `answer` and acknowledges this message, without waiting: returns
    /// [`SendError::TimedOut`](crate::SendError::TimedOut) if the link has no room for `answer`
    /// now. The message then stays unacknowledged, and the caller may try again.
    #[cfg(feature = "tokio")]
    pub(crate) fn try_reply(&self, answer: &[u8]) -> Result<(), ReplyError> {
        self.info.reply(&self.link, answer, Some(Instant::now()))
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Message {
    fn eq(&self, other: &T) -> bool {
        &self[..] == other.as_ref()
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("position", &self.position())
            .field("len", &self.len())
            .field("attempt", &self.attempt())
            .finish_non_exhaustive()
    }
}

/// A token that names one message of one stream: acknowledging it acknowledges all messages before
/// it, too.
///
/// An application with its own database stores the token in the transaction that stores the result
/// of a message. After a restart the application acknowledges the messages that the stored token
/// [`covers`](Self::covers), without handling them again.
///
/// ```
/// use partywall_link::Token;
///
/// let stored = [7; Token::BYTES];
/// let token = Token::from_bytes(stored).ok_or("no token")?;
/// assert!(token.covers(&token) && token.to_bytes() == stored);
/// # Ok::<(), &str>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token(pub(crate) DeliveryId);

impl Token {
    /// Length in bytes of a token as [`to_bytes`](Self::to_bytes) returns it, for storage.
    pub const BYTES: usize = 24;

    /// Returns the token as bytes, which the application can store.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let words = [self.0.stream.0.get(), self.0.start.0, self.0.end.0];
        let mut bytes = [0; Self::BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Restores a token from the bytes that [`to_bytes`](Self::to_bytes) returned; `None` if the
    /// bytes are no token.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Option<Self> {
        let mut words = [0; 3];
        for (word, place) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            let mut array = [0; 8];
            array.copy_from_slice(place);
            *word = u64::from_le_bytes(array);
        }
        let stream = StreamId::new(words[0])?;
        Some(Self(DeliveryId { stream, start: Position(words[1]), end: Position(words[2]) }))
    }

    /// Whether acknowledging this token also acknowledges the message of `other`: it is the same
    /// message, or an earlier one of the same stream.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.0.stream == other.0.stream && other.0.end <= self.0.end
    }
}
