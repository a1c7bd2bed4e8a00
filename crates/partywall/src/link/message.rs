// SPDX-License-Identifier: MIT OR Apache-2.0
//! A message that was received, and what becomes of it.
//!
//! ```text
//!   recv ─▶ LinkMessage ─┬─ commit ──▶ consumed: it and all before it
//!                        ├─ reply ───▶ consumed, and another sent: both or none
//!                        ├─ token ───▶ kept elsewhere, given back to `commit_to`
//!                        └─ dropped ─▶ not consumed: received again after a restart, or after `rewind`
//! ```

use std::fmt;
use std::num::NonZeroU64;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use partywall_reconcile::{Position, StreamId};

use super::core::{Payload, Token};
use super::end::{Endpoint, Facts};
use super::fault::{LinkCommitError, LinkReplyError};

/// A message of a link. It is the application's own memory, however long it is kept.
pub struct LinkMessage {
    bytes: Bytes,
    facts: Facts,
    link: Arc<Endpoint>,
}

/// A message that was received with [`recv_ref`](super::LinkReceiver::recv_ref): it can be read until the next is.
///
/// A short one costs neither an allocation nor a count, which makes it the form for who receives many and is done with each before the
/// next. Everything else is as with a [`LinkMessage`].
pub struct LinkMessageRef<'a> {
    lent: &'a Lent,
    link: &'a Endpoint,
}

/// The message that was received last, for as long as it is borrowed.
#[derive(Debug)]
pub(super) struct Lent {
    /// A short one, copied.
    copied: Vec<u8>,
    /// A long one, which `copied` is not.
    shared: Option<Bytes>,
    /// It stays here, and is not handed on: a processor waits when it copies in one what was just stored in several.
    facts: Facts,
}

impl Lent {
    /// Nothing yet.
    pub(super) const fn new() -> Self {
        Self { copied: Vec::new(), shared: None, facts: Facts::NONE }
    }

    /// The last one is not lent any more: a long one is not to be kept while the next is waited for.
    #[inline]
    pub(super) fn end(&mut self) {
        if self.shared.is_some() {
            self.shared = None;
        }
    }

    /// Takes along what can be shared; anything else is copied.
    #[inline]
    pub(super) fn take(&mut self, payload: &Payload<'_>, facts: Facts) {
        self.facts = facts;
        match payload {
            Payload::Own(bytes) => self.shared = Some(Bytes::clone(bytes)),
            Payload::Short(bytes) => {
                self.copied.clear();
                self.copied.extend_from_slice(bytes);
            }
        }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        self.shared.as_deref().unwrap_or(&self.copied)
    }
}

impl Facts {
    /// Of no message.
    const NONE: Self = Self {
        token: Token {
            start: Position::START,
            stream: StreamId(NonZeroU64::MIN),
            end: Position::START,
        },
        attempt: 0,
        is_committed: false,
    };

    fn is_poison(&self, link: &Endpoint) -> bool {
        self.attempt > link.config().attempts_max
    }

    #[inline]
    fn commit(&self, link: &Endpoint) -> Result<(), LinkCommitError> {
        if self.is_committed {
            return Ok(());
        }
        link.commit_to(&self.token)
    }

    fn reply(
        &self,
        link: &Endpoint,
        answer: &[u8],
        deadline: Option<Instant>,
    ) -> Result<(), LinkReplyError> {
        if self.is_committed {
            return Ok(link.send(super::end::Load::Message(&[answer]), deadline)?);
        }
        link.reply(self.token, &[answer], deadline)
    }
}

impl LinkMessage {
    pub(super) fn new((bytes, facts): (Bytes, Facts), link: Arc<Endpoint>) -> Self {
        Self { bytes, facts, link }
    }

    /// Where it begins in its stream. Positions rise, and each is of one message for ever.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.facts.token.start.0
    }

    /// 1, and one more for each earlier owner of this end that was handed the message and did not commit it.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.facts.attempt
    }

    /// Whether it was handed out more often than [`attempts_max`](super::LinkConfig::attempts_max) allows, and so is likely what its
    /// receivers died of. It stays what it is: commit it to have it gone, perhaps with a [`reply`](Self::reply) that says so.
    #[must_use]
    pub fn is_poison(&self) -> bool {
        self.facts.is_poison(&self.link)
    }

    /// Names the message, and all before it, to [`commit_to`](super::Link::commit_to) or to a restarted process.
    #[must_use]
    pub const fn token(&self) -> LinkToken {
        LinkToken(self.facts.token)
    }

    /// Its bytes, without a copy.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    /// Consumes the message and all before it. With [`Delivery::AtMostOnce`](super::Delivery) it is consumed already.
    ///
    /// The sender is told by the next message, or when any thread waits for a link of the group; at once if one does already.
    ///
    /// # Errors
    /// See [`LinkCommitError`].
    #[inline]
    pub fn commit(self) -> Result<(), LinkCommitError> {
        self.facts.commit(&self.link)
    }

    /// Sends `answer` over the same link and consumes the message and all before it: after a crash both have happened, or
    /// neither. Waits for room first.
    ///
    /// # Errors
    /// See [`LinkReplyError`]; with any of them nothing was sent, and nothing committed.
    pub fn reply(self, answer: &[u8]) -> Result<(), LinkReplyError> {
        self.facts.reply(&self.link, answer, None)
    }

    /// As [`reply`](Self::reply), but only until `deadline`.
    ///
    /// # Errors
    /// As there.
    pub fn reply_deadline(self, answer: &[u8], deadline: Instant) -> Result<(), LinkReplyError> {
        self.facts.reply(&self.link, answer, Some(deadline))
    }

    /// As [`reply`](Self::reply) without waiting: [`LinkSendError::TimedOut`](super::LinkSendError::TimedOut) if there is no room now,
    /// and the message is still there.
    #[cfg(feature = "tokio")]
    pub(crate) fn try_reply(&self, answer: &[u8]) -> Result<(), LinkReplyError> {
        self.facts.reply(&self.link, answer, Some(Instant::now()))
    }
}

impl<'a> LinkMessageRef<'a> {
    #[inline]
    pub(super) const fn new(lent: &'a Lent, link: &'a Endpoint) -> Self {
        Self { lent, link }
    }

    /// See [`LinkMessage::position`].
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.lent.facts.token.start.0
    }

    /// See [`LinkMessage::attempt`].
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.lent.facts.attempt
    }

    /// See [`LinkMessage::is_poison`].
    #[must_use]
    pub fn is_poison(&self) -> bool {
        self.lent.facts.is_poison(self.link)
    }

    /// See [`LinkMessage::token`].
    #[must_use]
    pub const fn token(&self) -> LinkToken {
        LinkToken(self.lent.facts.token)
    }

    /// Its bytes, to be kept; a short message is copied.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let copied = || Bytes::copy_from_slice(&self.lent.copied);
        self.lent.shared.as_ref().map_or_else(copied, Bytes::clone)
    }

    /// See [`LinkMessage::commit`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn commit(self) -> Result<(), LinkCommitError> {
        self.lent.facts.commit(self.link)
    }

    /// See [`LinkMessage::reply`].
    ///
    /// # Errors
    /// As there.
    pub fn reply(self, answer: &[u8]) -> Result<(), LinkReplyError> {
        self.lent.facts.reply(self.link, answer, None)
    }

    /// See [`LinkMessage::reply_deadline`].
    ///
    /// # Errors
    /// As there.
    pub fn reply_deadline(self, answer: &[u8], deadline: Instant) -> Result<(), LinkReplyError> {
        self.lent.facts.reply(self.link, answer, Some(deadline))
    }
}

impl Deref for LinkMessageRef<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.lent.bytes()
    }
}

impl AsRef<[u8]> for LinkMessageRef<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for LinkMessageRef<'_> {
    fn eq(&self, other: &T) -> bool {
        &self[..] == other.as_ref()
    }
}

impl fmt::Debug for LinkMessageRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkMessageRef")
            .field("position", &self.position())
            .field("len", &self.len())
            .field("attempt", &self.attempt())
            .finish_non_exhaustive()
    }
}

impl Deref for LinkMessage {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsRef<[u8]> for LinkMessage {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for LinkMessage {
    fn eq(&self, other: &T) -> bool {
        &self[..] == other.as_ref()
    }
}

impl fmt::Debug for LinkMessage {
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
/// use partywall::link::LinkToken;
///
/// let stored = [7; LinkToken::BYTES];
/// let token = LinkToken::from_bytes(stored).ok_or("no token")?;
/// assert!(token.covers(&token) && token.to_bytes() == stored);
/// # Ok::<(), &str>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkToken(pub(super) Token);

impl LinkToken {
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
        Some(Self(Token { stream, start: Position(words[1]), end: Position(words[2]) }))
    }

    /// Whether the message of `other` is that of this token or one before it, of the same stream.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.0.stream == other.0.stream && other.0.end <= self.0.end
    }
}
