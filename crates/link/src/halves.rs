// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two directions of a link.
//!
//! ```text
//!   Link ── split ──▶ LinkSender     any number of clones, any thread
//!                └──▶ LinkReceiver   one
//! ```

use std::sync::Arc;
use std::time::Instant;

use super::batch::LinkBatch;
use super::end::Load;
use super::fault::{
    LinkCommitError, LinkRecvError, LinkSendError, LinkStopped, LinkTryRecvError, LinkTrySendError,
    LinkWaitError,
};
use super::handle::{Handle, Link, alone};
use super::lent::{Lent, LinkMessageRef};
use super::message::{LinkMessage, LinkToken};
use super::view::LinkMessageView;

/// The sending direction of a link. Clones send into the same link.
#[derive(Clone, Debug)]
pub struct LinkSender {
    handle: Arc<Handle>,
}

/// The receiving direction of a link.
#[derive(Debug)]
pub struct LinkReceiver {
    handle: Arc<Handle>,
    lent: Lent,
}

impl LinkSender {
    pub(super) const fn new(handle: Arc<Handle>) -> Self {
        Self { handle }
    }

    /// See [`Link::send`].
    ///
    /// # Errors
    /// As there.
    pub fn send(&self, message: &[u8]) -> Result<(), LinkSendError> {
        self.handle.end.send_with(message.len(), |room| room.copy_from_slice(message), None)
    }

    /// See [`Link::try_send`].
    ///
    /// # Errors
    /// As there.
    pub fn try_send(&self, message: &[u8]) -> Result<(), LinkTrySendError> {
        self.handle.end.try_send_with(message.len(), |room| room.copy_from_slice(message))
    }

    /// See [`Link::send_deadline`].
    ///
    /// # Errors
    /// As there.
    pub fn send_deadline(&self, message: &[u8], deadline: Instant) -> Result<(), LinkSendError> {
        self.handle.end.send_with(
            message.len(),
            |room| room.copy_from_slice(message),
            Some(deadline),
        )
    }

    /// See [`Link::send_with`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn send_with(&self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), LinkSendError> {
        self.handle.end.send_with(len, alone(fill), None)
    }

    /// See [`Link::try_send_with`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn try_send_with(
        &self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), LinkTrySendError> {
        self.handle.end.try_send_with(len, alone(fill))
    }

    /// See [`Link::send_with_deadline`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn send_with_deadline(
        &self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
        deadline: Instant,
    ) -> Result<(), LinkSendError> {
        self.handle.end.send_with(len, alone(fill), Some(deadline))
    }

    /// See [`Link::send_parts`].
    ///
    /// # Errors
    /// As there.
    pub fn send_parts(&self, parts: &[&[u8]]) -> Result<(), LinkSendError> {
        self.handle.end.send(Load::Message(parts), None)
    }

    /// See [`Link::batch`].
    pub fn batch(&self) -> LinkBatch<'_> {
        LinkBatch::new(&self.handle.end)
    }

    /// See [`Link::flush`].
    ///
    /// # Errors
    /// As there.
    pub fn flush(&self, deadline: Instant) -> Result<(), LinkWaitError> {
        self.handle.end.flush(Some(deadline))
    }

    /// See [`Link::wait_sent`].
    ///
    /// # Errors
    /// As there.
    pub fn wait_sent(&self, deadline: Instant) -> Result<(), LinkWaitError> {
        self.handle.end.wait_sent(Some(deadline))
    }

    /// See [`Link::unconsumed_bytes`].
    ///
    /// # Errors
    /// As there.
    pub fn unconsumed_bytes(&self) -> Result<u64, LinkStopped> {
        self.handle.end.unconsumed_bytes()
    }

    /// The link, for all that is of neither direction. Dropping it is dropping one more handle.
    #[must_use]
    pub fn link(&self) -> Link {
        Link { handle: Arc::clone(&self.handle) }
    }
}

impl LinkReceiver {
    pub(super) const fn new(handle: Arc<Handle>) -> Self {
        Self { handle, lent: Lent::new() }
    }

    /// The next message, to be read before the next is received; waits for one.
    ///
    /// ```
    /// # use partywall_link::{LinkReceiver, LinkRecvError};
    /// # fn sum_of(mut receiver: LinkReceiver) -> Result<u64, Box<dyn std::error::Error>> {
    /// let mut sum = 0;
    /// loop {
    ///     let message = receiver.recv_ref()?;
    ///     match <[u8; 8]>::try_from(&message[..]) {
    ///         Ok(bytes) => sum += u64::from_le_bytes(bytes),
    ///         Err(_) => return Ok(sum), // not committed: `rewind` gives it again, and the next owner has it
    ///     }
    ///     message.commit()?;
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`LinkRecvError`].
    #[inline]
    pub fn recv_ref(&mut self) -> Result<LinkMessageRef<'_>, LinkRecvError> {
        self.recv_ref_until(None)
    }

    /// As [`recv_ref`](Self::recv_ref), but only until `deadline`.
    ///
    /// # Errors
    /// As there.
    pub fn recv_ref_deadline(
        &mut self,
        deadline: Instant,
    ) -> Result<LinkMessageRef<'_>, LinkRecvError> {
        self.recv_ref_until(Some(deadline))
    }

    /// The next message if there is one now, to be read before the next is received.
    ///
    /// # Errors
    /// See [`LinkTryRecvError`].
    pub fn try_recv_ref(&mut self) -> Result<LinkMessageRef<'_>, LinkTryRecvError> {
        let Self { handle, lent } = self;
        lent.end();
        handle.end.try_recv(&mut *lent)?;
        Ok(LinkMessageRef::new(lent, &handle.end))
    }

    #[inline]
    fn recv_ref_until(
        &mut self,
        deadline: Option<Instant>,
    ) -> Result<LinkMessageRef<'_>, LinkRecvError> {
        let Self { handle, lent } = self;
        lent.end();
        handle.end.recv(deadline, &mut *lent)?;
        Ok(LinkMessageRef::new(lent, &handle.end))
    }

    /// See [`Link::recv`].
    ///
    /// # Errors
    /// As there.
    pub fn recv(&mut self) -> Result<LinkMessage, LinkRecvError> {
        self.handle.recv(None)
    }

    /// See [`Link::try_recv`].
    ///
    /// # Errors
    /// As there.
    pub fn try_recv(&mut self) -> Result<LinkMessage, LinkTryRecvError> {
        self.handle.try_recv()
    }

    /// See [`Link::recv_deadline`].
    ///
    /// # Errors
    /// As there.
    pub fn recv_deadline(&mut self, deadline: Instant) -> Result<LinkMessage, LinkRecvError> {
        self.handle.recv(Some(deadline))
    }

    /// See [`Link::recv_with`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn recv_with<R>(
        &mut self,
        read: impl FnOnce(LinkMessageView<'_>) -> R,
    ) -> Result<R, LinkRecvError> {
        self.handle.end.recv_with(None, read)
    }

    /// See [`Link::try_recv_with`].
    ///
    /// # Errors
    /// As there.
    pub fn try_recv_with<R>(
        &mut self,
        read: impl FnOnce(LinkMessageView<'_>) -> R,
    ) -> Result<R, LinkTryRecvError> {
        self.handle.end.try_recv_with(read)
    }

    /// See [`Link::recv_with_deadline`].
    ///
    /// # Errors
    /// As there.
    pub fn recv_with_deadline<R>(
        &mut self,
        read: impl FnOnce(LinkMessageView<'_>) -> R,
        deadline: Instant,
    ) -> Result<R, LinkRecvError> {
        self.handle.end.recv_with(Some(deadline), read)
    }

    /// See [`Link::commit_to`].
    ///
    /// # Errors
    /// As there.
    pub fn commit_to(&mut self, token: LinkToken) -> Result<(), LinkCommitError> {
        self.handle.end.commit_to(&token.0)
    }

    /// See [`Link::rewind`].
    ///
    /// # Errors
    /// As there.
    pub fn rewind(&mut self) -> Result<(), LinkStopped> {
        self.handle.end.rewind()
    }

    /// The link, for all that is of neither direction. Dropping it is dropping one more handle.
    #[must_use]
    pub fn link(&self) -> Link {
        Link { handle: Arc::clone(&self.handle) }
    }
}
