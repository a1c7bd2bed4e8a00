// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two directions of a link as separate objects, for threads that only send or only receive.
//!
//! ```text
//!   Link ── split ──▶ Sender     any number of clones, in any thread
//!                └──▶ Receiver   exactly one
//! ```

use std::sync::Arc;
use std::time::Instant;

use crate::end::Load;
use crate::error::{
    AckError, RecvError, SendError, Stopped, TryRecvError, TrySendError, WaitError,
};
use crate::handle::batch::Batch;
use crate::handle::link::{Handle, Link, alone};
use crate::handle::message::{Message, Token};
use crate::handle::message_ref::{MessageRef, RefBuffer};
use crate::handle::view::MessageView;

/// The sending direction of a link. All clones of a sender send into the same link.
#[derive(Clone, Debug)]
pub struct Sender {
    handle: Arc<Handle>,
}

/// The receiving direction of a link. Each split link has exactly one receiver.
#[derive(Debug)]
pub struct Receiver {
    handle: Arc<Handle>,
    buffer: RefBuffer,
}

impl Sender {
    pub(crate) const fn new(handle: Arc<Handle>) -> Self {
        Self { handle }
    }

    /// Sends a message, and waits until the link has room for it, as [`Link::send`] does.
    ///
    /// # Errors
    /// [`SendError`] lists the reasons.
    pub fn send(&self, message: &[u8]) -> Result<(), SendError> {
        self.handle.end.send_with(message.len(), |room| room.copy_from_slice(message), None)
    }

    /// Sends a message if the link has room now, as [`Link::try_send`] does.
    ///
    /// # Errors
    /// [`TrySendError`] lists the reasons.
    pub fn try_send(&self, message: &[u8]) -> Result<(), TrySendError> {
        self.handle.end.try_send_with(message.len(), |room| room.copy_from_slice(message))
    }

    /// Sends a message, and waits for room until `deadline`, as [`Link::send_deadline`] does.
    ///
    /// # Errors
    /// [`SendError`] lists the reasons.
    pub fn send_deadline(&self, message: &[u8], deadline: Instant) -> Result<(), SendError> {
        self.handle.end.send_with(
            message.len(),
            |room| room.copy_from_slice(message),
            Some(deadline),
        )
    }

    /// Sends a message of `len` bytes that `fill` writes, as [`Link::send_with`] does.
    ///
    /// # Errors
    /// [`SendError`] lists the reasons.
    #[inline]
    pub fn send_with(&self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), SendError> {
        self.handle.end.send_with(len, alone(fill), None)
    }

    /// Sends a message that `fill` writes, if the link has room now, as [`Link::try_send_with`]
    /// does.
    ///
    /// # Errors
    /// [`TrySendError`] lists the reasons.
    #[inline]
    pub fn try_send_with(
        &self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), TrySendError> {
        self.handle.end.try_send_with(len, alone(fill))
    }

    /// Sends a message that `fill` writes, and waits for room until `deadline`, as
    /// [`Link::send_with_deadline`] does.
    ///
    /// # Errors
    /// [`SendError`] lists the reasons.
    #[inline]
    pub fn send_with_deadline(
        &self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
        deadline: Instant,
    ) -> Result<(), SendError> {
        self.handle.end.send_with(len, alone(fill), Some(deadline))
    }

    /// Sends one message that consists of `parts`, as [`Link::send_parts`] does.
    ///
    /// # Errors
    /// [`SendError`] lists the reasons.
    pub fn send_parts(&self, parts: &[&[u8]]) -> Result<(), SendError> {
        self.handle.end.send_driver().send(Load::Message(parts), None)
    }

    /// Begins a batch, whose messages are sent all or none, as [`Link::batch`] does.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(&self.handle.end)
    }

    /// Waits until the peer has acknowledged all messages sent so far, as [`Link::wait_acked`]
    /// does.
    ///
    /// # Errors
    /// [`WaitError`] lists the reasons.
    pub fn wait_acked(&self, deadline: Instant) -> Result<(), WaitError> {
        self.handle.end.send_driver().wait_acked(Some(deadline))
    }

    /// Waits until all messages sent so far have left this process, as [`Link::wait_sent`] does.
    ///
    /// # Errors
    /// [`WaitError`] lists the reasons.
    pub fn wait_sent(&self, deadline: Instant) -> Result<(), WaitError> {
        self.handle.end.send_driver().wait_sent(Some(deadline))
    }

    /// Number of bytes that the peer has not acknowledged yet, as [`Link::unacked_bytes`] counts
    /// them.
    ///
    /// # Errors
    /// [`Stopped`] lists the reasons.
    pub fn unacked_bytes(&self) -> Result<u64, Stopped> {
        self.handle.end.send_driver().unacked_bytes()
    }

    /// A handle of the link, for operations that belong to neither direction, such as `status`.
    /// Dropping the handle does not close the link, which this sender still holds.
    #[must_use]
    pub fn link(&self) -> Link {
        Link { handle: Arc::clone(&self.handle) }
    }
}

impl Receiver {
    pub(crate) const fn new(handle: Arc<Handle>) -> Self {
        Self { handle, buffer: RefBuffer::new() }
    }

    /// Receives the next message, and waits for one if none has arrived. The message is borrowed
    /// until the next receive. `None` means the same as for [`Link::recv`].
    ///
    /// ```
    /// # use partywall_link::{Receiver, RecvError};
    /// # fn sum_of(mut receiver: Receiver) -> Result<u64, Box<dyn std::error::Error>> {
    /// let mut sum = 0;
    /// while let Some(message) = receiver.recv_ref()? {
    ///     match <[u8; 8]>::try_from(&message[..]) {
    ///         Ok(bytes) => sum += u64::from_le_bytes(bytes),
    ///         Err(_) => break, // not acknowledged: `rewind` delivers it again
    ///     }
    ///     message.ack()?;
    /// }
    /// # Ok(sum)
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`RecvError`] lists the reasons.
    #[inline]
    pub fn recv_ref(&mut self) -> Result<Option<MessageRef<'_>>, RecvError> {
        self.recv_ref_until(None)
    }

    /// Receives the next message, borrowed, like [`recv_ref`](Self::recv_ref), but waits only until
    /// `deadline`.
    ///
    /// # Errors
    /// [`RecvError`] lists the reasons.
    pub fn recv_ref_deadline(
        &mut self,
        deadline: Instant,
    ) -> Result<Option<MessageRef<'_>>, RecvError> {
        self.recv_ref_until(Some(deadline))
    }

    /// Receives the next message if one has arrived; the message is borrowed until the next
    /// receive. `None` means that the peer closed its end in good order, as for [`Link::recv`].
    ///
    /// # Errors
    /// [`TryRecvError`] lists the reasons.
    pub fn try_recv_ref(&mut self) -> Result<Option<MessageRef<'_>>, TryRecvError> {
        let Self { handle, buffer } = self;
        buffer.end();
        let received = handle.end.receive_driver().try_recv(&mut *buffer)?;
        Ok(received.map(|()| MessageRef::new(buffer, &handle.end)))
    }

    #[inline]
    fn recv_ref_until(
        &mut self,
        deadline: Option<Instant>,
    ) -> Result<Option<MessageRef<'_>>, RecvError> {
        let Self { handle, buffer } = self;
        buffer.end();
        let received = handle.end.receive_driver().recv(deadline, &mut *buffer)?;
        Ok(received.map(|()| MessageRef::new(buffer, &handle.end)))
    }

    /// Waits for the next message and returns it, as [`Link::recv`] does.
    ///
    /// # Errors
    /// [`RecvError`] lists the reasons.
    pub fn recv(&mut self) -> Result<Option<Message>, RecvError> {
        self.handle.recv(None)
    }

    /// Returns the next message if one has arrived, as [`Link::try_recv`] does.
    ///
    /// # Errors
    /// [`TryRecvError`] lists the reasons.
    pub fn try_recv(&mut self) -> Result<Option<Message>, TryRecvError> {
        self.handle.try_recv()
    }

    /// Waits for the next message until `deadline`, as [`Link::recv_deadline`] does.
    ///
    /// # Errors
    /// [`RecvError`] lists the reasons.
    pub fn recv_deadline(&mut self, deadline: Instant) -> Result<Option<Message>, RecvError> {
        self.handle.recv(Some(deadline))
    }

    /// Waits for the next message and passes it to `read`, as [`Link::recv_with`] does.
    ///
    /// # Errors
    /// [`RecvError`] lists the reasons.
    #[inline]
    pub fn recv_with<R>(
        &mut self,
        read: impl FnOnce(MessageView<'_>) -> R,
    ) -> Result<Option<R>, RecvError> {
        let end = &self.handle.end;
        end.recv_with(None, |bytes, info| read(MessageView::new(bytes, info, end)))
    }

    /// Passes the next message to `read` if one has arrived, as [`Link::try_recv_with`] does.
    ///
    /// # Errors
    /// [`TryRecvError`] lists the reasons.
    pub fn try_recv_with<R>(
        &mut self,
        read: impl FnOnce(MessageView<'_>) -> R,
    ) -> Result<Option<R>, TryRecvError> {
        let end = &self.handle.end;
        end.try_recv_with(|bytes, info| read(MessageView::new(bytes, info, end)))
    }

    /// Waits for the next message until `deadline` and passes it to `read`, as
    /// [`Link::recv_with_deadline`] does.
    ///
    /// # Errors
    /// [`RecvError`] lists the reasons.
    pub fn recv_with_deadline<R>(
        &mut self,
        read: impl FnOnce(MessageView<'_>) -> R,
        deadline: Instant,
    ) -> Result<Option<R>, RecvError> {
        let end = &self.handle.end;
        end.recv_with(Some(deadline), |bytes, info| read(MessageView::new(bytes, info, end)))
    }

    /// Acknowledges the message that `token` names and all before it, as [`Link::ack_to`] does.
    ///
    /// # Errors
    /// [`AckError`] lists the reasons.
    pub fn ack_to(&mut self, token: Token) -> Result<(), AckError> {
        self.handle.end.receive_driver().ack_to(&token.0)
    }

    /// Makes every received and unacknowledged message arrive again, as [`Link::rewind`] does.
    ///
    /// # Errors
    /// [`Stopped`] lists the reasons.
    pub fn rewind(&mut self) -> Result<(), Stopped> {
        self.handle.end.receive_driver().rewind()
    }

    /// A handle of the link, for operations that belong to neither direction, such as `status`.
    /// Dropping the handle does not close the link, which this receiver still holds.
    #[must_use]
    pub fn link(&self) -> Link {
        Link { handle: Arc::clone(&self.handle) }
    }
}
