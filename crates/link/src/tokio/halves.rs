// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two directions of a link as separate objects, for tasks that only send or only receive.
//!
//! ```text
//!   Link ── split ──▶ Sender     any number of clones, in any task
//!                └──▶ Receiver   exactly one
//!   when the last sender and the receiver are dropped: a client's link is closed,
//!                                                      a server's link stays with the server
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

    /// Does the same as [`Link::send`].
    ///
    /// # Errors
    /// The errors of [`Link::send`].
    pub async fn send(&self, message: &[u8]) -> Result<(), SendError> {
        self.handle.send(message).await
    }

    /// Does the same as [`Link::send_with`].
    ///
    /// # Errors
    /// The errors of [`Link::send_with`].
    pub async fn send_with(
        &self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        self.handle.send_with(len, fill).await
    }

    /// Does the same as [`Link::try_send_with`].
    ///
    /// # Errors
    /// The errors of [`Link::try_send_with`].
    pub fn try_send_with(
        &self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), TrySendError> {
        self.handle.try_send_with(len, fill)
    }

    /// Does the same as [`Link::try_send`].
    ///
    /// # Errors
    /// The errors of [`Link::try_send`].
    pub fn try_send(&self, message: &[u8]) -> Result<(), TrySendError> {
        self.handle.try_send(message)
    }

    /// Does the same as [`Link::batch`].
    pub fn batch(&self) -> Batch<'_> {
        self.handle.batch()
    }

    /// Does the same as [`Link::wait_acked`].
    ///
    /// # Errors
    /// The errors of [`Link::wait_acked`].
    pub async fn wait_acked(&self) -> Result<(), WaitError> {
        self.handle.wait_acked().await
    }

    /// Does the same as [`Link::unacked_bytes`].
    ///
    /// # Errors
    /// The errors of [`Link::unacked_bytes`].
    pub fn unacked_bytes(&self) -> Result<u64, Stopped> {
        self.handle.link.unacked_bytes()
    }

    /// A handle of the link, for operations that belong to neither direction. Dropping it does not
    /// close the link, which this sender still holds.
    #[must_use]
    pub fn link(&self) -> Link {
        Link { handle: Arc::clone(&self.handle) }
    }
}

impl Receiver {
    pub(super) const fn new(handle: Arc<Handle>) -> Self {
        Self { handle }
    }

    /// Does the same as [`Link::recv`].
    ///
    /// # Errors
    /// The errors of [`Link::recv`].
    pub async fn recv(&mut self) -> Result<Option<Message>, RecvError> {
        self.handle.recv().await
    }

    /// Does the same as [`Link::try_recv`].
    ///
    /// # Errors
    /// The errors of [`Link::try_recv`].
    pub fn try_recv(&mut self) -> Result<Option<Message>, TryRecvError> {
        self.handle.try_recv()
    }

    /// Does the same as [`Link::recv_with`].
    ///
    /// # Errors
    /// The errors of [`Link::recv_with`].
    pub async fn recv_with<R>(
        &mut self,
        read: impl FnOnce(MessageView<'_>) -> R,
    ) -> Result<Option<R>, RecvError> {
        self.handle.recv_with(read).await
    }

    /// Does the same as [`Link::try_recv_with`].
    ///
    /// # Errors
    /// The errors of [`Link::try_recv_with`].
    pub fn try_recv_with<R>(
        &mut self,
        read: impl FnOnce(MessageView<'_>) -> R,
    ) -> Result<Option<R>, TryRecvError> {
        self.handle.try_recv_with(read)
    }

    /// Does the same as [`Link::ack_to`].
    ///
    /// # Errors
    /// The errors of [`Link::ack_to`].
    pub fn ack_to(&mut self, token: Token) -> Result<(), AckError> {
        self.link().ack_to(token)
    }

    /// Does the same as [`Link::rewind`].
    ///
    /// # Errors
    /// The errors of [`Link::rewind`].
    pub fn rewind(&mut self) -> Result<(), Stopped> {
        self.link().rewind()
    }

    /// A handle of the link, for operations that belong to neither direction. Dropping it does not
    /// close the link, which this receiver still holds.
    #[must_use]
    pub fn link(&self) -> Link {
        Link { handle: Arc::clone(&self.handle) }
    }
}
