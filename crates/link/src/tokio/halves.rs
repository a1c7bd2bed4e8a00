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

/// The receiving direction of a link. A split link has exactly one receiver.
#[derive(Debug)]
pub struct Receiver {
    handle: Arc<Handle>,
}

impl Sender {
    pub(super) const fn new(handle: Arc<Handle>) -> Self {
        Self { handle }
    }

    /// Sends a message, like [`Link::send`]; waits for room.
    ///
    /// # Errors
    /// [`SendError`] lists the reasons.
    pub async fn send(&self, message: &[u8]) -> Result<(), SendError> {
        self.handle.send(message).await
    }

    /// Sends a message that `fill` writes, like [`Link::send_with`]; waits for room.
    ///
    /// # Errors
    /// [`SendError`] lists the reasons.
    pub async fn send_with(
        &self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        self.handle.send_with(len, fill).await
    }

    /// Sends a message that `fill` writes, if the link has room now, like [`Link::try_send_with`].
    ///
    /// # Errors
    /// [`TrySendError`] lists the reasons.
    pub fn try_send_with(
        &self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), TrySendError> {
        self.handle.try_send_with(len, fill)
    }

    /// Sends a message if the link has room now, like [`Link::try_send`].
    ///
    /// # Errors
    /// [`TrySendError`] lists the reasons.
    pub fn try_send(&self, message: &[u8]) -> Result<(), TrySendError> {
        self.handle.try_send(message)
    }

    /// Begins a batch of messages that are sent all or none, like [`Link::batch`].
    pub fn batch(&self) -> Batch<'_> {
        self.handle.batch()
    }

    /// Waits until the peer has acknowledged everything sent before, like [`Link::wait_acked`].
    ///
    /// # Errors
    /// [`WaitError`] lists the reasons.
    pub async fn wait_acked(&self) -> Result<(), WaitError> {
        self.handle.wait_acked().await
    }

    /// Number of sent bytes that the peer has not acknowledged; see [`Link::unacked_bytes`].
    ///
    /// # Errors
    /// [`Stopped`] lists the reasons.
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

    /// Receives the next message, like [`Link::recv`]; waits for one.
    ///
    /// # Errors
    /// [`RecvError`] lists the reasons.
    pub async fn recv(&mut self) -> Result<Option<Message>, RecvError> {
        self.handle.recv().await
    }

    /// Receives the next message if one has arrived, like [`Link::try_recv`].
    ///
    /// # Errors
    /// [`TryRecvError`] lists the reasons.
    pub fn try_recv(&mut self) -> Result<Option<Message>, TryRecvError> {
        self.handle.try_recv()
    }

    /// Passes the next message to `read` in the link's own memory, like [`Link::recv_with`]; waits
    /// for a message.
    ///
    /// # Errors
    /// [`RecvError`] lists the reasons.
    pub async fn recv_with<R>(
        &mut self,
        read: impl FnOnce(MessageView<'_>) -> R,
    ) -> Result<Option<R>, RecvError> {
        self.handle.recv_with(read).await
    }

    /// Passes the next message to `read` if one has arrived, like [`Link::try_recv_with`].
    ///
    /// # Errors
    /// [`TryRecvError`] lists the reasons.
    pub fn try_recv_with<R>(
        &mut self,
        read: impl FnOnce(MessageView<'_>) -> R,
    ) -> Result<Option<R>, TryRecvError> {
        self.handle.try_recv_with(read)
    }

    /// Acknowledges the message that `token` names and all before it, like [`Link::ack_to`].
    ///
    /// # Errors
    /// [`AckError`] lists the reasons.
    pub fn ack_to(&mut self, token: Token) -> Result<(), AckError> {
        self.link().ack_to(token)
    }

    /// Delivers again all messages that were received and not acknowledged, like [`Link::rewind`].
    ///
    /// # Errors
    /// [`Stopped`] lists the reasons.
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
