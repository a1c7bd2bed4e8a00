// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agent's end: receives records, and the number of records lost before each.

use super::header::{HEADER_BYTES, Meaning, meaning};
use bytes::Buf;
use partywall::Message;
use partywall::Receiver;
use partywall::Wait;
use partywall::{RecvError, TryRecvError};
use std::time::Instant;

/// A received record.
#[derive(Debug)]
#[non_exhaustive]
pub struct Record {
    /// Number of records lost between this one and the one before.
    pub lost_before: u64,
    /// The message of the record, without the header.
    pub message: Message,
}

/// Why no record was received; `E` is the error of the channel's receiver.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LossyRecvError<E> {
    /// The channel returned no message.
    #[error(transparent)]
    Recv(E),
    /// A message is not a record. It was taken; the next one can be received.
    #[error("message {number} ({len} bytes) is not a record: does the peer send with LossySender?")]
    NotARecord {
        /// Number of the message in this channel, from 0.
        number: u64,
        /// Length of the message in bytes.
        len: usize,
    },
}

/// Receives the records of a [`LossySender`](super::LossySender).
#[derive(Debug)]
pub struct LossyReceiver {
    receiver: Receiver,
    received: u64,
    lost: u64,
    /// Losses from reports that no record has carried to the application yet.
    reported: u64,
}

impl LossyReceiver {
    /// Receives from `receiver` from now on.
    #[must_use]
    pub const fn new(receiver: Receiver) -> Self {
        Self { receiver, received: 0, lost: 0, reported: 0 }
    }

    /// Sets the wait strategy. With [`Wait::Poll`] the application never needs to wake the agent.
    pub const fn set_wait(&mut self, wait: Wait) {
        self.receiver.set_wait(wait);
    }

    /// Number of records received so far.
    #[must_use]
    pub const fn received(&self) -> u64 {
        self.received
    }

    /// Number of records lost so far, as far as the sender has reported them.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Blocks until a record arrives, and returns it; `None` at the end, when
    /// [`lost`](Self::lost) is final.
    ///
    /// # Errors
    /// One of the reasons in [`LossyRecvError`].
    pub fn recv(&mut self) -> Result<Option<Record>, LossyRecvError<RecvError>> {
        while let Some(message) = self.receiver.recv().map_err(LossyRecvError::Recv)? {
            if let Some(record) = self.take(message)? {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// As [`recv`](Self::recv), but only until `deadline`.
    ///
    /// # Errors
    /// One of the reasons in [`LossyRecvError`].
    pub fn recv_deadline(
        &mut self,
        deadline: Instant,
    ) -> Result<Option<Record>, LossyRecvError<RecvError>> {
        while let Some(message) =
            self.receiver.recv_deadline(deadline).map_err(LossyRecvError::Recv)?
        {
            if let Some(record) = self.take(message)? {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// Returns the next record if there is one now, or `None` at the end. The call never blocks.
    ///
    /// # Errors
    /// One of the reasons in [`LossyRecvError`].
    pub fn try_recv(&mut self) -> Result<Option<Record>, LossyRecvError<TryRecvError>> {
        while let Some(message) = self.receiver.try_recv().map_err(LossyRecvError::Recv)? {
            if let Some(record) = self.take(message)? {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// The record of a message; `None` if the message is a report, which is counted here.
    fn take<E>(&mut self, mut message: Message) -> Result<Option<Record>, LossyRecvError<E>> {
        match meaning(&message) {
            Some(Meaning::Record(lost)) => {
                message.advance(HEADER_BYTES);
                self.received += 1;
                self.lost = self.lost.saturating_add(lost);
                let lost_before = std::mem::take(&mut self.reported).saturating_add(lost);
                Ok(Some(Record { lost_before, message }))
            }
            Some(Meaning::Report(lost)) => {
                self.lost = self.lost.saturating_add(lost);
                self.reported = self.reported.saturating_add(lost);
                Ok(None)
            }
            None => {
                let number = self.receiver.stats().messages.saturating_sub(1);
                Err(LossyRecvError::NotARecord { number, len: message.len() })
            }
        }
    }
}
