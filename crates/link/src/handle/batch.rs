// SPDX-License-Identifier: MIT OR Apache-2.0
//! A batch of messages that is sent completely or not at all.
//!
//! ```text
//!   send ─▶ memory of this process ─▶ commit ─▶ the link's memory, one store ─▶ the peer
//!                                 └─ dropped: none is sent
//! ```
//!
//! The batch collects its messages in memory of this process, so that other senders do not wait
//! meanwhile. Locking the link instead would save one copy, but block them.

use std::fmt;
use std::time::Instant;

use crate::end::{Endpoint, Load};
use crate::error::{SendError, TrySendError};

/// A batch of messages of one link, which are sent together. Dropping the batch sends none of them.
///
/// The peer may receive some messages of a batch before others. But after a crash and restart, an
/// end finds either all messages of the batch or none.
#[must_use = "a batch that is dropped is not sent"]
pub struct Batch<'a> {
    link: &'a Endpoint,
    lens: Vec<usize>,
    bytes: Vec<u8>,
}

impl<'a> Batch<'a> {
    pub(crate) const fn new(link: &'a Endpoint) -> Self {
        Self { link, lens: Vec::new(), bytes: Vec::new() }
    }

    /// Appends a message to the batch.
    pub fn send(&mut self, message: &[u8]) -> &mut Self {
        self.lens.push(message.len());
        self.bytes.extend_from_slice(message);
        self
    }

    /// Number of messages in the batch.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lens.len()
    }

    /// Whether the batch has no message.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lens.is_empty()
    }

    /// Sends all messages of the batch; waits until the link has room for all of them.
    ///
    /// # Errors
    /// [`SendError`] lists the reasons; then no message was sent.
    pub fn commit(self) -> Result<(), SendError> {
        self.link.send_driver().send(self.load(), None)
    }

    /// Sends all messages of the batch; waits only until `deadline` for the link to have room for
    /// all of them.
    ///
    /// # Errors
    /// [`SendError`] lists the reasons.
    pub fn commit_deadline(self, deadline: Instant) -> Result<(), SendError> {
        self.link.send_driver().send(self.load(), Some(deadline))
    }

    /// Sends all messages of the batch if the link has room for all of them now. If not, nothing is
    /// sent and the batch keeps its messages.
    ///
    /// # Errors
    /// [`TrySendError`] lists the reasons.
    pub fn try_commit(&mut self) -> Result<(), TrySendError> {
        self.link.send_driver().try_send(self.load())?;
        self.lens.clear();
        self.bytes.clear();
        Ok(())
    }

    fn load(&self) -> Load<'_> {
        Load::Batch(&self.lens, &self.bytes)
    }
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("len", &self.len()).finish_non_exhaustive()
    }
}
