// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages before they are sent: reserved memory for one message, and batches of several.
//!
//! ```text
//!   reserve ─▶ Reservation ── write ──┬─ commit ──▶ sent
//!                                     └─ abort, drop ─▶ freed
//! ```

use super::sender::{AnySender, Sender};
use super::shared_sender::SharedSender;
use crate::config::BackPressure;
use crate::error::{SendError, TrySendError};
use crate::transport::{Memory, NotSent, Progress, TransportSender};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Instant;

/// Reserved memory for one message: fill it, then [`commit`](Self::commit).
///
/// Dropping the reservation, or [`abort`](Self::abort), frees the memory without sending a message.
///
/// # Panics
/// Reading or writing the memory panics in a forked child.
pub struct Reservation<'a> {
    pub(crate) holder: Holder<'a>,
    pub(crate) memory: Option<Memory>,
    pub(crate) deadline: Option<Instant>,
}

impl Reservation<'_> {
    /// Sends the message in the reserved memory.
    ///
    /// # Errors
    /// Fails as [`Sender::send`] does, and then drops the message. To keep the message, use
    /// [`try_commit`](Self::try_commit).
    pub fn commit(mut self) -> Result<(), SendError> {
        let (deadline, memory) = (self.deadline, &mut self.memory);
        match &mut self.holder {
            Holder::Exclusive(sender) => {
                let waits = sender.policy != BackPressure::Error;
                let mut progress = Progress::default();
                let sent = sender.drive(deadline, waits, |end| end.commit(memory, &mut progress));
                let payload = memory.as_ref().map_or(&[][..], Memory::as_slice);
                sender.settle(sent, payload, &progress)
            }
            Holder::Shared(sender) => sender.commit_until(memory, deadline),
        }
    }

    /// Sends the message if the ring has room now; otherwise returns the reservation. Never
    /// blocks.
    ///
    /// # Errors
    /// Returns the reservation together with the reason: see [`TrySendError`].
    #[expect(clippy::result_large_err, reason = "the reservation is given back")]
    pub fn try_commit(mut self) -> Result<(), (Self, TrySendError)> {
        let memory = &mut self.memory;
        let sent = match &mut self.holder {
            Holder::Exclusive(sender) => {
                match sender.end().and_then(|end| end.commit_whole(memory)) {
                    Err(NotSent::Full) => sender.try_again(|end| end.commit_whole(memory)),
                    other => other.map_err(TrySendError::from),
                }
            }
            Holder::Shared(sender) => sender.attempt(|end| end.commit_whole(memory)),
        };
        sent.map_err(|error| (self, error))
    }

    /// Frees the reserved memory without sending the message.
    pub fn abort(self) {
        drop(self);
    }

    /// Shortens the message to `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        if let Some(memory) = &mut self.memory {
            memory.truncate(len);
        }
    }
}

impl Deref for Reservation<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.holder.assert_owner();
        self.memory.as_ref().map_or(&[], Memory::as_slice)
    }
}

impl DerefMut for Reservation<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.holder.assert_owner();
        self.memory.as_mut().map_or(&mut [], Memory::as_mut_slice)
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else { return };
        match &mut self.holder {
            Holder::Exclusive(sender) => {
                if let Ok(end) = sender.end() {
                    end.release(memory);
                }
            }
            Holder::Shared(sender) => sender.release(memory),
        }
    }
}

impl fmt::Debug for Reservation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("len", &self.len()).finish()
    }
}

/// Several messages that become visible to the receiver all at once.
///
/// Dropping the batch without [`commit`](Self::commit) sends none of its messages.
#[derive(Debug)]
pub struct Batch<'a> {
    sender: &'a mut Sender,
    deadline: Option<Instant>,
}

impl<'a> Batch<'a> {
    pub(super) const fn new(sender: &'a mut Sender, deadline: Option<Instant>) -> Self {
        Self { sender, deadline }
    }

    /// Adds a message with a copy of `payload` to the batch.
    ///
    /// # Errors
    /// [`SendError::TooLarge`] with [`Limit::Batch`](crate::Limit::Batch) if the batch is full; the
    /// messages already in the batch can then be committed. Other errors as of [`Sender::send`].
    pub fn send(&mut self, payload: &[u8]) -> Result<(), SendError> {
        let waits = self.sender.policy != BackPressure::Error;
        self.sender.batch_open = true;
        self.sender.drive(self.deadline, waits, |end| end.add_to_batch(payload))
    }

    /// Sends all messages of the batch.
    ///
    /// # Errors
    /// Fails as [`Sender::send`] does; then no message of the batch was sent.
    pub fn commit(self) -> Result<(), SendError> {
        let waits = self.sender.policy != BackPressure::Error;
        self.sender.drive(self.deadline, waits, |end| end.commit_batch())?;
        self.sender.batch_open = false;
        if !waits {
            return Ok(());
        }
        // Over a socket, the kernel may not have accepted all bytes when the deadline passes. The
        // batch then counts as sent, and the next call of the sender writes the remaining bytes.
        match self.sender.flush(self.deadline) {
            Err(SendError::TimedOut) => Ok(()),
            other => other,
        }
    }

    /// Discards all messages of the batch.
    pub fn abort(self) {
        drop(self);
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        // A call of `Sender::end` discards the messages of a batch that is still open.
        let _ = self.sender.end();
    }
}

/// The sender that made a reservation, and that sends the reserved message.
#[derive(Debug)]
pub(crate) enum Holder<'a> {
    Exclusive(&'a mut Sender),
    Shared(&'a SharedSender),
}

impl Holder<'_> {
    /// Panics in a forked child, because a child does not have the shared memory of its parent's
    /// connections mapped.
    #[inline]
    fn assert_owner(&self) {
        let is_inherited = match self {
            Self::Exclusive(sender) => sender.space.is_inherited(),
            Self::Shared(sender) => sender.is_inherited(),
        };
        assert!(!is_inherited, "this reservation belongs to the parent process");
    }
}

impl AnySender {
    /// Sends a message whose memory was reserved while the channel sent on the socket. The message
    /// goes over the socket, because shared memory may have other limits.
    ///
    /// If the sender has meanwhile written the record SWITCH, with which it leaves the socket, the
    /// message goes through shared memory, because no record may follow SWITCH on the socket.
    #[cold]
    pub(super) fn commit_on_socket(
        &mut self,
        memory: &mut Option<Memory>,
        progress: &mut Progress,
    ) -> Result<(), NotSent> {
        self.finish_switch()?;
        (**self).commit(memory, progress)
    }

    /// Sends the message in reserved memory as a whole, or sends nothing of it. A message in
    /// private memory is sent as a copy.
    pub(crate) fn commit_whole(&mut self, memory: &mut Option<Memory>) -> Result<(), NotSent> {
        self.finish_switch()?;
        match memory {
            Some(Memory::Private(bytes)) => {
                match self {
                    Self::Socket(end) => end.try_send(bytes)?,
                    other => other.try_send(bytes)?,
                }
                *memory = None;
                Ok(())
            }
            _ => match self {
                Self::Socket(end) => end.commit(memory, &mut Progress::default()),
                other => other.commit(memory, &mut Progress::default()),
            },
        }
    }

    /// Replaces the socket's sender by the sender over shared memory, if the record SWITCH, after
    /// which nothing may follow on the socket, was written.
    fn finish_switch(&mut self) -> Result<(), NotSent> {
        let Self::Socket(end) = self else { return Ok(()) };
        if let Some(end) = end.finish_switch()? {
            self.replace(end);
        }
        Ok(())
    }
}
