// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two directions of a link.
//!
//! ```text
//!   Link ── split ──▶ LinkSender     any number of clones, any task
//!                └──▶ LinkReceiver   one
//!   all of them dropped: a client's link is closed, a server's stays with the server
//! ```

use std::sync::Arc;

use super::batch::LinkBatch;
use super::handle::{Handle, Link};
use super::message::LinkMessage;
use crate::{
    LinkCommitError, LinkMessageView, LinkRecvError, LinkSendError, LinkStopped, LinkToken,
    LinkTryRecvError, LinkTrySendError, LinkWaitError,
};

/// The sending direction of a link. Clones send into the same link.
#[derive(Clone, Debug)]
pub struct LinkSender {
    handle: Arc<Handle>,
}

/// The receiving direction of a link.
#[derive(Debug)]
pub struct LinkReceiver {
    handle: Arc<Handle>,
}

impl LinkSender {
    pub(super) const fn new(handle: Arc<Handle>) -> Self {
        Self { handle }
    }

    /// See [`Link::send`].
    ///
    /// # Errors
    /// As there.
    pub async fn send(&self, message: &[u8]) -> Result<(), LinkSendError> {
        self.handle.send(message).await
    }

    /// See [`Link::send_with`].
    ///
    /// # Errors
    /// As there.
    pub async fn send_with(
        &self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), LinkSendError> {
        self.handle.send_with(len, fill).await
    }

    /// See [`Link::try_send_with`].
    ///
    /// # Errors
    /// As there.
    pub fn try_send_with(
        &self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), LinkTrySendError> {
        self.handle.try_send_with(len, fill)
    }

    /// See [`Link::try_send`].
    ///
    /// # Errors
    /// As there.
    pub fn try_send(&self, message: &[u8]) -> Result<(), LinkTrySendError> {
        self.handle.try_send(message)
    }

    /// See [`Link::batch`].
    pub fn batch(&self) -> LinkBatch<'_> {
        self.handle.batch()
    }

    /// See [`Link::flush`].
    ///
    /// # Errors
    /// As there.
    pub async fn flush(&self) -> Result<(), LinkWaitError> {
        self.handle.flush().await
    }

    /// See [`Link::unconsumed_bytes`].
    ///
    /// # Errors
    /// As there.
    pub fn unconsumed_bytes(&self) -> Result<u64, LinkStopped> {
        self.handle.link.unconsumed_bytes()
    }

    /// The link, for all that is of neither direction. Dropping it is dropping one more handle.
    #[must_use]
    pub fn link(&self) -> Link {
        Link { handle: Arc::clone(&self.handle) }
    }
}

impl LinkReceiver {
    pub(super) const fn new(handle: Arc<Handle>) -> Self {
        Self { handle }
    }

    /// See [`Link::recv`].
    ///
    /// # Errors
    /// As there.
    pub async fn recv(&mut self) -> Result<LinkMessage, LinkRecvError> {
        self.handle.recv().await
    }

    /// See [`Link::try_recv`].
    ///
    /// # Errors
    /// As there.
    pub fn try_recv(&mut self) -> Result<LinkMessage, LinkTryRecvError> {
        self.handle.try_recv()
    }

    /// See [`Link::recv_with`].
    ///
    /// # Errors
    /// As there.
    pub async fn recv_with<R>(
        &mut self,
        read: impl FnOnce(LinkMessageView<'_>) -> R,
    ) -> Result<R, LinkRecvError> {
        self.handle.recv_with(read).await
    }

    /// See [`Link::try_recv_with`].
    ///
    /// # Errors
    /// As there.
    pub fn try_recv_with<R>(
        &mut self,
        read: impl FnOnce(LinkMessageView<'_>) -> R,
    ) -> Result<R, LinkTryRecvError> {
        self.handle.try_recv_with(read)
    }

    /// See [`Link::commit_to`].
    ///
    /// # Errors
    /// As there.
    pub fn commit_to(&mut self, token: LinkToken) -> Result<(), LinkCommitError> {
        self.link().commit_to(token)
    }

    /// See [`Link::rewind`].
    ///
    /// # Errors
    /// As there.
    pub fn rewind(&mut self) -> Result<(), LinkStopped> {
        self.link().rewind()
    }

    /// The link, for all that is of neither direction. Dropping it is dropping one more handle.
    #[must_use]
    pub fn link(&self) -> Link {
        Link { handle: Arc::clone(&self.handle) }
    }
}
