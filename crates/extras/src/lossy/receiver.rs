// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiving end of a lossy channel, in the log agent: receives records, each with the number
//! of records lost before it.

use super::header::{HEADER_BYTES, Meaning, meaning};
use bytes::Buf;
use partywall::Message;
use partywall::Receiver;
use partywall::Wait;
use partywall::{Fault, Readiness};
use partywall::{RecvError, TryRecvError};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

/// A received log record.
#[derive(Debug)]
#[non_exhaustive]
pub struct Record {
    /// Number of log records lost between the previous record and this one.
    pub lost_before: u64,
    /// The log record as a message, without the header.
    pub message: Message,
}

/// Why no log record was received; `E` is the error type of the channel's receiver.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LossyRecvError<E> {
    /// The channel's receiver returned an error.
    #[error(transparent)]
    Recv(E),
    /// The message is not a log record. The message counts as received; the next message can be
    /// received.
    #[error("message {number} ({len} bytes) is not a record: does the peer send with LossySender?")]
    NotARecord {
        /// The index of the message among all messages of the channel, from 0.
        number: u64,
        /// Length in bytes of the message that is not a log record.
        len: usize,
    },
}

/// Receives the log records of a [`LossySender`](super::LossySender).
#[derive(Debug)]
pub struct LossyReceiver {
    receiver: Receiver,
    received: u64,
    lost: u64,
    /// Number of lost log records that reports have announced since the last record. The next
    /// record that the application receives counts them in its field `lost_before`.
    reported: u64,
}

impl LossyReceiver {
    /// Makes a receiver of the log records that arrive at `receiver`.
    #[must_use]
    pub const fn new(receiver: Receiver) -> Self {
        Self { receiver, received: 0, lost: 0, reported: 0 }
    }

    /// Sets how the receiver waits for log records. With [`Wait::Poll`] the application that logs
    /// never makes a system call to wake the receiver.
    pub const fn set_wait(&mut self, wait: Wait) {
        self.receiver.set_wait(wait);
    }

    /// Returns the number of log records received so far.
    #[must_use]
    pub const fn received(&self) -> u64 {
        self.received
    }

    /// Returns the number of lost log records that the sender has reported so far.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Blocks until a record arrives, and returns it. Returns `None` once the sender has finished;
    /// then [`lost`](Self::lost) is final.
    ///
    /// # Errors
    /// Returns [`LossyRecvError`] if no record was received.
    pub fn recv(&mut self) -> Result<Option<Record>, LossyRecvError<RecvError>> {
        while let Some(message) = self.receiver.recv().map_err(LossyRecvError::Recv)? {
            if let Some(record) = self.take(message)? {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// Blocks until a record arrives, at most until `deadline`, and returns the record. Returns
    /// `None` once the sender has finished.
    ///
    /// # Errors
    /// Returns [`LossyRecvError`] if no record was received.
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

    /// Returns the next record if one has arrived, or `None` once the sender has finished. Never
    /// blocks.
    ///
    /// # Errors
    /// Returns [`LossyRecvError`] if no record was received.
    pub fn try_recv(&mut self) -> Result<Option<Record>, LossyRecvError<TryRecvError>> {
        while let Some(message) = self.receiver.try_recv().map_err(LossyRecvError::Recv)? {
            if let Some(record) = self.take(message)? {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// Prepares the descriptor ([`AsFd`]) for an external event loop, as [`Receiver::arm`] does.
    ///
    /// # Errors
    /// [`Fault`] if the channel is broken.
    pub fn arm(&mut self) -> Result<Readiness, Fault> {
        self.receiver.arm()
    }

    /// Returns the log record in a message. Returns `None` if the message is a report, after
    /// counting its losses.
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

impl AsFd for LossyReceiver {
    /// Returns the descriptor of the channel's receiver, on which an event loop waits. Call
    /// [`arm`](LossyReceiver::arm) before each wait.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }
}
