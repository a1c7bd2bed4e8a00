// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages that appear at once, or not at all.
//!
//! ```text
//!   push ─▶ memory of this process ─▶ publish ─▶ the link's memory, one store ─▶ the peer
//!                                 └─ dropped: never were
//! ```
//!
//! They are gathered outside the link, so that nobody else who sends has to wait for a batch that is still being made. The copy
//! that this costs lost against a lock that an application holds for as long as it likes.

use std::fmt;
use std::time::Instant;

use crate::end::{Endpoint, Load};
use crate::error::{SendError, TrySendError};

/// Messages that are sent together. Dropped, none of them is.
///
/// The peer may receive some of them before others, but a restart of either end finds all or none of them sent.
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

    /// Puts a message behind the others.
    pub fn send(&mut self, message: &[u8]) -> &mut Self {
        self.lens.push(message.len());
        self.bytes.extend_from_slice(message);
        self
    }

    /// How many messages there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lens.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lens.is_empty()
    }

    /// Sends them; waits until there is room for all.
    ///
    /// # Errors
    /// See [`SendError`]; none of them was sent.
    pub fn commit(self) -> Result<(), SendError> {
        self.link.send_driver().send(self.load(), None)
    }

    /// As [`commit`](Self::commit), but only until `deadline`.
    ///
    /// # Errors
    /// As there.
    pub fn commit_deadline(self, deadline: Instant) -> Result<(), SendError> {
        self.link.send_driver().send(self.load(), Some(deadline))
    }

    /// Sends them if there is room now; else the batch is still there.
    ///
    /// # Errors
    /// See [`TrySendError`].
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
        f.debug_struct("LinkBatch").field("len", &self.len()).finish_non_exhaustive()
    }
}
