// SPDX-License-Identifier: MIT OR Apache-2.0
//! A received message that the application borrows until it receives the next one, so that a short
//! message needs no allocation.
//!
//! ```text
//!   recv_ref ─▶ RefBuffer, in the receiver: short messages copied, long ones shared ◀── MessageRef
//!   next recv_ref ─▶ the borrow has ended, and the buffer takes the next message
//! ```
//!
//! `message.rs` has the operations on messages.

use std::fmt;
use std::num::NonZeroU64;
use std::ops::Deref;
use std::time::Instant;

use bytes::Bytes;
use partywall_reconcile::{Position, StreamId};

use crate::end::{Endpoint, MessageInfo, Sink};
use crate::error::{AckError, ReplyError};
use crate::handle::message::Token;
use crate::link_state::{DeliveryId, Payload};

/// A message received with [`recv_ref`](crate::Receiver::recv_ref), which is borrowed until the
/// next receive.
///
/// A short message costs neither an allocation nor a reference count. So this type suits a receiver
/// of many messages that is done with each before it receives the next. Otherwise it behaves like a
/// [`Message`](crate::Message).
pub struct MessageRef<'a> {
    buffer: &'a RefBuffer,
    link: &'a Endpoint,
}

/// The memory of the message that a receiver received last. The application borrows the message
/// from this buffer.
#[derive(Debug)]
pub(crate) struct RefBuffer {
    /// The bytes of the message, if it is short: a copy.
    copied: Vec<u8>,
    /// The bytes of the message, if it is long; `copied` is then not used.
    shared: Option<Bytes>,
    /// Position, delivery count and acknowledgement of the message. They stay in this buffer and
    /// are not returned by value: a load of several words that were stored one by one would stall
    /// the processor.
    info: MessageInfo,
}

impl<'a> MessageRef<'a> {
    #[inline]
    pub(crate) const fn new(buffer: &'a RefBuffer, link: &'a Endpoint) -> Self {
        Self { buffer, link }
    }

    /// Position at which the message begins in its stream; see
    /// [`Message::position`](crate::Message::position).
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.buffer.info.token.start.0
    }

    /// Delivery count of the message, from 1; see [`Message::attempt`](crate::Message::attempt).
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.buffer.info.attempt
    }

    /// Whether the delivery count exceeds its limit, so that the message may be crashing its
    /// consumers; see [`Message::is_poison`](crate::Message::is_poison).
    #[must_use]
    pub fn is_poison(&self) -> bool {
        self.buffer.info.is_poison(self.link)
    }

    /// A token with which the message can be acknowledged later; see
    /// [`Message::token`](crate::Message::token).
    #[must_use]
    pub const fn token(&self) -> Token {
        Token(self.buffer.info.token)
    }

    /// Returns the bytes of the message in memory of their own; a short message is copied.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let copied = || Bytes::copy_from_slice(&self.buffer.copied);
        self.buffer.shared.as_ref().map_or_else(copied, Bytes::clone)
    }

    /// Acknowledges this message and all before it, as [`Message::ack`](crate::Message::ack) does.
    ///
    /// # Errors
    /// [`AckError`] lists the reasons.
    #[inline]
    pub fn ack(self) -> Result<(), AckError> {
        self.buffer.info.ack(self.link)
    }

    /// Sends `answer` and acknowledges this message, both or neither, as
    /// [`Message::reply`](crate::Message::reply) does.
    ///
    /// # Errors
    /// [`ReplyError`] lists the reasons.
    pub fn reply(self, answer: &[u8]) -> Result<(), ReplyError> {
        self.buffer.info.reply(self.link, answer, None)
    }

    /// Sends `answer` and acknowledges this message, both or neither; waits for room until
    /// `deadline`, as [`Message::reply_deadline`](crate::Message::reply_deadline) does.
    ///
    /// # Errors
    /// [`ReplyError`] lists the reasons.
    pub fn reply_deadline(self, answer: &[u8], deadline: Instant) -> Result<(), ReplyError> {
        self.buffer.info.reply(self.link, answer, Some(deadline))
    }
}

impl Deref for MessageRef<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.buffer.bytes()
    }
}

impl AsRef<[u8]> for MessageRef<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for MessageRef<'_> {
    fn eq(&self, other: &T) -> bool {
        &self[..] == other.as_ref()
    }
}

impl fmt::Debug for MessageRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageRef")
            .field("position", &self.position())
            .field("len", &self.len())
            .field("attempt", &self.attempt())
            .finish_non_exhaustive()
    }
}

impl RefBuffer {
    pub(crate) const fn new() -> Self {
        Self { copied: Vec::new(), shared: None, info: NOTHING }
    }

    /// Ends the borrow of the message. Releases the memory of a long message, so that it is not
    /// kept while the receiver waits for the next one.
    #[inline]
    pub(crate) fn end(&mut self) {
        if self.shared.is_some() {
            self.shared = None;
        }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        self.shared.as_deref().unwrap_or(&self.copied)
    }
}

/// As a sink, which takes each delivered message, the buffer shares the bytes of a long message and
/// copies those of a short one.
impl Sink for RefBuffer {
    type Output = ();

    #[inline(always)]
    fn take(&mut self, payload: Payload<'_>, info: MessageInfo) {
        self.info = info;
        match payload {
            Payload::Own(bytes) => self.shared = Some(Bytes::clone(bytes)),
            Payload::Short(bytes) => {
                self.copied.clear();
                self.copied.extend_from_slice(bytes);
            }
        }
    }
}

/// Placeholder for position, delivery count and acknowledgement in a receive buffer that has no
/// message yet.
const NOTHING: MessageInfo = MessageInfo {
    token: DeliveryId {
        start: Position::START,
        stream: StreamId(NonZeroU64::MIN),
        end: Position::START,
    },
    attempt: 0,
    is_acked: false,
};
