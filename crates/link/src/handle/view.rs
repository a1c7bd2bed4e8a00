// SPDX-License-Identifier: MIT OR Apache-2.0
//! A message that the application reads in the link's own memory, where it was checked, and that is
//! acknowledged afterwards.
//!
//! ```text
//!   recv_with ─▶ noted as delivered ─▶ MessageView ─▶ read() ─ returns ─▶ acked   under the lock
//!                                                       └ panics ─▶ received next again
//!   AtMostOnce ─▶ acked, and copied ─▶ lock released ─▶ MessageView ─▶ read()
//! ```

use std::fmt;
use std::ops::Deref;

use partywall_sys::biased::locking_nothing;

use std::time::Instant;

use bytes::Bytes;

use crate::config::Delivery;
use crate::end::{Endpoint, MessageInfo, Sink};
use crate::error::{RecvError, TryRecvError};
use crate::handle::message::OwnedSink;
use crate::handle::message::Token;
use crate::link_state::Payload;

/// A message, while the closure given to [`recv_with`](crate::Link::recv_with) reads it.
pub struct MessageView<'a> {
    bytes: &'a [u8],
    info: &'a MessageInfo,
    link: &'a Endpoint,
}

impl<'a> MessageView<'a> {
    pub(crate) const fn new(bytes: &'a [u8], info: &'a MessageInfo, link: &'a Endpoint) -> Self {
        Self { bytes, info, link }
    }

    /// Returns the bytes, which may be used until the closure returns.
    #[must_use]
    #[inline]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Does the same as [`Message::position`](crate::Message::position).
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.info.token.start.0
    }

    /// Does the same as [`Message::token`](crate::Message::token).
    #[must_use]
    pub const fn token(&self) -> Token {
        Token(self.info.token)
    }

    /// Does the same as [`Message::attempt`](crate::Message::attempt).
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.info.attempt
    }

    /// Does the same as [`Message::is_poison`](crate::Message::is_poison).
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

/// Has the application's code read a message, which is acknowledged when that returns.
pub(crate) struct ReadSink<'a, F> {
    read: Option<F>,
    link: &'a Endpoint,
}

impl<'a, F> ReadSink<'a, F> {
    #[inline]
    pub(crate) const fn new(link: &'a Endpoint, read: F) -> Self {
        Self { read: Some(read), link }
    }
}

impl<R, F: FnOnce(MessageView<'_>) -> R> Sink for ReadSink<'_, F> {
    type Output = R;

    const ACKS: bool = true;

    #[inline(always)]
    fn take(&mut self, payload: Payload<'_>, info: MessageInfo) -> R {
        let bytes = match payload {
            Payload::Short(bytes) => bytes,
            Payload::Own(bytes) => bytes,
        };
        let Some(read) = self.read.take() else { unreachable!("one message is taken") };
        let view = MessageView::new(bytes, &info, self.link);
        // The lock of the link is held here.
        locking_nothing(|| read(view))
    }
}

/// Has `read` read the next message, and acknowledges it when `read` returns. Waits for a message
/// until `deadline`.
#[inline]
pub(crate) fn recv_with<R>(
    link: &Endpoint,
    deadline: Option<Instant>,
    read: impl FnOnce(MessageView<'_>) -> R,
) -> Result<Option<R>, RecvError> {
    if link.config().delivery == Delivery::AtMostOnce {
        let found = link.receive_driver().recv(deadline, OwnedSink)?;
        return Ok(found.map(|found| read_acked(link, found, read)));
    }
    link.receive_driver().recv(deadline, ReadSink::new(link, read))
}

/// As [`recv_with`], if there is a message now.
pub(crate) fn try_recv_with<R>(
    link: &Endpoint,
    read: impl FnOnce(MessageView<'_>) -> R,
) -> Result<Option<R>, TryRecvError> {
    if link.config().delivery == Delivery::AtMostOnce {
        let found = link.receive_driver().try_recv(OwnedSink)?;
        return Ok(found.map(|found| read_acked(link, found, read)));
    }
    link.receive_driver().try_recv(ReadSink::new(link, read))
}

/// Reads a message that was acknowledged before, and so is in memory of its own.
fn read_acked<R>(
    link: &Endpoint,
    (bytes, info): (Bytes, MessageInfo),
    read: impl FnOnce(MessageView<'_>) -> R,
) -> R {
    read(MessageView::new(&bytes, &info, link))
}
