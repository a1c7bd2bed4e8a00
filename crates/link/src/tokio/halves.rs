// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two directions of a link.
//!
//! ```text
//!   Link ── split ──▶ Sender     any number of clones, any task
//!                └──▶ Receiver   one
//!   all of them dropped: a client's link is closed, a server's stays with the server
//! ```

use std::sync::Arc;

use super::batch::Batch;
use super::link::{Handle, Link};
use super::message::Message;
use crate::{
    AckError, MessageView, RecvError, SendError, Stopped, Token, TryRecvError, TrySendError,
    WaitError,
};

/// The sending direction of a link. Clones send into the same link.
#[derive(Clone, Debug)]
pub struct Sender {
    handle: Arc<Handle>,
}

/// The receiving direction of a link.
#[derive(Debug)]
pub struct Receiver {
    handle: Arc<Handle>,
}

impl Sender {
    pub(super) const fn new(handle: Arc<Handle>) -> Self {
        Self { handle }
    }

    /// See [`Link::send`].
    ///
    /// # Errors
    /// As there.
    pub async fn send(&self, message: &[u8]) -> Result<(), SendError> {
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
    ) -> Result<(), SendError> {
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
    ) -> Result<(), TrySendError> {
        self.handle.try_send_with(len, fill)
    }

    /// See [`Link::try_send`].
    ///
    /// # Errors
    /// As there.
    pub fn try_send(&self, message: &[u8]) -> Result<(), TrySendError> {
        self.handle.try_send(message)
    }

    /// See [`Link::batch`].
    pub fn batch(&self) -> Batch<'_> {
        self.handle.batch()
    }

    /// See [`Link::wait_acked`].
    ///
    /// # Errors
    /// As there.
    pub async fn wait_acked(&self) -> Result<(), WaitError> {
        self.handle.wait_acked().await
    }

    /// See [`Link::unconsumed_bytes`].
    ///
    /// # Errors
    /// As there.
    pub fn unconsumed_bytes(&self) -> Result<u64, Stopped> {
        self.handle.link.unconsumed_bytes()
    }

    /// The link, for all that is of neither direction. Dropping it is dropping one more handle.
    #[must_use]
    pub fn link(&self) -> Link {
        Link { handle: Arc::clone(&self.handle) }
    }
}

impl Receiver {
    pub(super) const fn new(handle: Arc<Handle>) -> Self {
        Self { handle }
    }

    /// See [`Link::recv`].
    ///
    /// # Errors
    /// As there.
    pub async fn recv(&mut self) -> Result<Option<Message>, RecvError> {
        self.handle.recv().await
    }

    /// See [`Link::try_recv`].
    ///
    /// # Errors
    /// As there.
    pub fn try_recv(&mut self) -> Result<Option<Message>, TryRecvError> {
        self.handle.try_recv()
    }

    /// See [`Link::recv_with`].
    ///
    /// # Errors
    /// As there.
    pub async fn recv_with<R>(
        &mut self,
        read: impl FnOnce(MessageView<'_>) -> R,
    ) -> Result<Option<R>, RecvError> {
        self.handle.recv_with(read).await
    }

    /// See [`Link::try_recv_with`].
    ///
    /// # Errors
    /// As there.
    pub fn try_recv_with<R>(
        &mut self,
        read: impl FnOnce(MessageView<'_>) -> R,
    ) -> Result<Option<R>, TryRecvError> {
        self.handle.try_recv_with(read)
    }

    /// See [`Link::ack_to`].
    ///
    /// # Errors
    /// As there.
    pub fn ack_to(&mut self, token: Token) -> Result<(), AckError> {
        self.link().ack_to(token)
    }

    /// See [`Link::rewind`].
    ///
    /// # Errors
    /// As there.
    pub fn rewind(&mut self) -> Result<(), Stopped> {
        self.link().rewind()
    }

    /// The link, for all that is of neither direction. Dropping it is dropping one more handle.
    #[must_use]
    pub fn link(&self) -> Link {
        Link { handle: Arc::clone(&self.handle) }
    }
}
