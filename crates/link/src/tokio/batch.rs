// SPDX-License-Identifier: MIT OR Apache-2.0
//! A batch of messages that is sent completely or not at all, for async code.

use std::fmt;

use super::notices::Notices;
use crate::{SendError, TrySendError};

/// Messages that are sent together. Dropping the batch sends none of them.
///
/// The peer may receive some messages before others, but after a restart each end finds either all
/// of them or none.
#[must_use = "a batch that is dropped is not sent"]
pub struct Batch<'a> {
    batch: crate::Batch<'a>,
    notices: &'a Notices,
}

impl<'a> Batch<'a> {
    pub(super) const fn new(batch: crate::Batch<'a>, notices: &'a Notices) -> Self {
        Self { batch, notices }
    }

    /// Appends a message to the batch.
    pub fn send(&mut self, message: &[u8]) -> &mut Self {
        self.batch.send(message);
        self
    }

    /// Number of messages in the batch.
    #[must_use]
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    /// Whether the batch has no message.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Sends all messages of the batch; waits until the link has room for all of them.
    ///
    /// Cancel-safe: if the future is dropped before it is ready, no message was sent.
    ///
    /// # Errors
    /// [`SendError`] lists the reasons; then no message was sent.
    pub async fn commit(mut self) -> Result<(), SendError> {
        let publish = || match self.batch.try_commit() {
            Ok(()) => Some(Ok(())),
            Err(TrySendError::Full) => None,
            Err(TrySendError::Never(error)) => Some(Err(error)),
        };
        self.notices.until_done(publish).await?
    }

    /// Sends all messages of the batch if the link has room for all of them now; otherwise the
    /// batch stays unchanged.
    ///
    /// # Errors
    /// [`TrySendError`] lists the reasons.
    pub fn try_commit(&mut self) -> Result<(), TrySendError> {
        self.notices.act(|| self.batch.try_commit())
    }
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.batch.fmt(f)
    }
}
