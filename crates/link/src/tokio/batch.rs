// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages that appear at once, or not at all.

use std::fmt;

use super::notices::Notices;
use crate::{SendError, TrySendError};

/// Messages that are sent together. Dropped, none of them is.
///
/// The peer may receive some of them before others, but a restart of either end finds all or none of them sent.
#[must_use = "a batch that is dropped is not sent"]
pub struct Batch<'a> {
    batch: crate::Batch<'a>,
    notices: &'a Notices,
}

impl<'a> Batch<'a> {
    pub(super) const fn new(batch: crate::Batch<'a>, notices: &'a Notices) -> Self {
        Self { batch, notices }
    }

    /// Puts a message behind the others.
    pub fn send(&mut self, message: &[u8]) -> &mut Self {
        self.batch.send(message);
        self
    }

    /// How many messages there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Sends them; waits until there is room for all.
    ///
    /// Cancel-safe: dropped before it is ready, none of them was sent.
    ///
    /// # Errors
    /// See [`SendError`]; none of them was sent.
    pub async fn commit(mut self) -> Result<(), SendError> {
        let publish = || match self.batch.try_commit() {
            Ok(()) => Some(Ok(())),
            Err(TrySendError::Full) => None,
            Err(TrySendError::Never(error)) => Some(Err(error)),
        };
        self.notices.until_done(publish).await?
    }

    /// Sends them if there is room now; else the batch is still there.
    ///
    /// # Errors
    /// See [`TrySendError`].
    pub fn try_commit(&mut self) -> Result<(), TrySendError> {
        self.notices.act(|| self.batch.try_commit())
    }
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.batch.fmt(f)
    }
}
