// SPDX-License-Identifier: MIT OR Apache-2.0
//! A message that was received, and what becomes of it.
//!
//! ```text
//!   recv ─▶ Message ─┬─ commit ──▶ consumed: it and all before it
//!                        ├─ reply ───▶ consumed, and another sent: both or none
//!                        ├─ token ───▶ kept elsewhere, given back to `ack_to`
//!                        └─ dropped ─▶ not consumed: received again after a restart, or after `rewind`
//! ```

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use partywall_reconcile::{Position, StreamId};

use crate::end::{Endpoint, MessageInfo, Sink};
use crate::error::{AckError, ReplyError};
use crate::link_state::{DeliveryId, Payload};

/// A message of a link. It is the application's own memory, however long it is kept.
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

/// Has a message taken along, in memory of its own.
pub(crate) struct OwnedSink;

impl Sink for OwnedSink {
    type Output = (Bytes, MessageInfo);

    #[inline]
    fn take(&mut self, payload: Payload<'_>, info: MessageInfo) -> (Bytes, MessageInfo) {
        (payload.to_bytes(), info)
    }
}

impl Message {
    pub(crate) fn new((bytes, info): (Bytes, MessageInfo), link: Arc<Endpoint>) -> Self {
        Self { bytes, info, link }
    }

    /// Where it begins in its stream. Positions rise, and each is of one message for ever; a new epoch is a new stream, whose positions begin anew. A
    /// [`token`](Self::token) names the stream as well.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.info.token.start.0
    }

    /// 1, and one more for each earlier owner of this end that was handed the message and did not commit it.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.info.attempt
    }

    /// Whether it was handed out more often than [`attempts_max`](crate::Config::attempts_max) allows, and so is likely what its
    /// receivers died of. It stays what it is: commit it to have it gone, perhaps with a [`reply`](Self::reply) that says so.
    #[must_use]
    pub fn is_poison(&self) -> bool {
        self.info.is_poison(&self.link)
    }

    /// Names the message, and all before it, to [`ack_to`](crate::Link::ack_to) or to a restarted process.
    #[must_use]
    pub const fn token(&self) -> Token {
        Token(self.info.token)
    }

    /// Its bytes, without a copy.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    /// Consumes the message and all before it. With [`Delivery::AtMostOnce`](crate::Delivery) it is consumed already.
    ///
    /// The sender is told by the next message, or when any thread waits for a link of the group; at once if one does already.
    ///
    /// # Errors
    /// See [`AckError`].
    #[inline]
    pub fn ack(self) -> Result<(), AckError> {
        self.info.ack(&self.link)
    }

    /// Sends `answer` over the same link and consumes the message and all before it: after a crash both have happened, or
    /// neither. Waits for room first.
    ///
    /// # Errors
    /// See [`ReplyError`]; with any of them nothing was sent, and nothing committed.
    pub fn reply(self, answer: &[u8]) -> Result<(), ReplyError> {
        self.info.reply(&self.link, answer, None)
    }

    /// As [`reply`](Self::reply), but only until `deadline`.
    ///
    /// # Errors
    /// As there.
    pub fn reply_deadline(self, answer: &[u8], deadline: Instant) -> Result<(), ReplyError> {
        self.info.reply(&self.link, answer, Some(deadline))
    }

    /// As [`reply`](Self::reply) without waiting: [`SendError::TimedOut`](crate::SendError::TimedOut) if there is no room now,
    /// and the message is still there.
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
        f.debug_struct("LinkMessage")
            .field("position", &self.position())
            .field("len", &self.len())
            .field("attempt", &self.attempt())
            .finish_non_exhaustive()
    }
}

/// Names the end of one message of one stream.
///
/// An application that keeps what it makes of messages in a database of its own stores the token in the same transaction.
/// After a restart it commits, without working on them again, the messages that the stored token [`covers`](Self::covers).
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
    /// The length of a stored token.
    pub const BYTES: usize = 24;

    /// To be stored.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let words = [self.0.stream.0.get(), self.0.start.0, self.0.end.0];
        let mut bytes = [0; Self::BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// What was stored; `None` if that was no token.
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

    /// Whether the message of `other` is that of this token or one before it, of the same stream.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.0.stream == other.0.stream && other.0.end <= self.0.end
    }
}
