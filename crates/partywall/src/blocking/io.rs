// SPDX-License-Identifier: MIT OR Apache-2.0
//! A stream as bytes: `Read` and `Write`.
//!
//! The end of the peer's messages reads as the end of the stream. A reset or the end of the session
//! reads as an error. A write that returned was sent, so there is nothing to flush.

use super::stream::{RecvStream, SendStream};
use crate::message::Message;
use crate::peer::Peer;
use crate::session::{StreamSendError, WaitError};
use crate::transport::Transport;
use bytes::Buf;
use std::io::{self, IoSlice, Read, Write};
use std::time::Instant;

/// A stream as bytes; see [`Stream::into_io`](super::Stream::into_io).
#[derive(Debug)]
pub struct StreamIo {
    read: ReadHalf,
    write: WriteHalf,
}

/// The reading half of a [`StreamIo`].
#[derive(Debug)]
pub struct ReadHalf {
    recv: RecvStream,
    /// The rest of the last message.
    rest: Option<Message>,
}

/// The writing half of a [`StreamIo`].
#[derive(Debug)]
pub struct WriteHalf {
    send: SendStream,
}

/// Largest number of bytes of one write.
const WRITE_BYTES_MAX: usize = 64 << 10;

impl StreamIo {
    pub(super) const fn new(send: SendStream, recv: RecvStream) -> Self {
        Self { read: ReadHalf { recv, rest: None }, write: WriteHalf { send } }
    }

    /// Splits the stream into two halves, to be used by a thread each.
    #[must_use]
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        (self.read, self.write)
    }

    /// The peer process.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.read.recv.half().shared.peer
    }

    /// The session's transport, and the reason for it.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.read.recv.half().shared.transport
    }

    /// Metadata with which the peer opened the stream.
    #[must_use]
    pub fn metadata(&self) -> &[u8] {
        &self.read.recv.half().stream.metadata
    }

    /// Resets both directions with a code for the peer.
    ///
    /// # Panics
    /// If the code is one of the protocol's: 0xffffff00 or greater.
    #[track_caller]
    pub fn reset(&mut self, code: u32) {
        self.write.reset(code);
        self.read.stop(code);
    }

    /// Ends the writing direction: the peer reads the end. This side may go on reading.
    pub fn finish(&mut self) {
        self.write.finish();
    }
}

impl ReadHalf {
    /// Stops receiving: the sender gets `code`.
    ///
    /// # Panics
    /// If the code is one of the protocol's: 0xffffff00 or greater.
    #[track_caller]
    pub fn stop(&mut self, code: u32) {
        self.recv.stop(code);
    }
}

impl WriteHalf {
    /// Ends this direction: the peer reads the end.
    pub fn finish(&mut self) {
        self.send.finish();
    }

    /// Resets the direction: the reader gets an error instead of the end.
    ///
    /// # Panics
    /// If the code is one of the protocol's: 0xffffff00 or greater.
    #[track_caller]
    pub fn reset(&mut self, code: u32) {
        self.send.reset(code);
    }

    /// Waits until the peer reads no more. Returns the reason.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`] if the peer still reads by then.
    pub fn stopped(&mut self, deadline: Option<Instant>) -> Result<StreamSendError, WaitError> {
        self.send.stopped(deadline)
    }
}

impl Read for ReadHalf {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if let Some(rest) = &mut self.rest {
                let count = rest.chunk().len().min(buffer.len());
                buffer[..count].copy_from_slice(&rest.chunk()[..count]);
                rest.advance(count);
                if !rest.has_remaining() {
                    self.rest = None;
                }
                // An empty message is not the end.
                if count > 0 {
                    return Ok(count);
                }
            }
            match self.recv.recv() {
                Ok(Some(message)) => self.rest = Some(message),
                Ok(None) => return Ok(0),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Write for WriteHalf {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = bytes.len().min(WRITE_BYTES_MAX);
        if len > 0 {
            self.send.send(&bytes[..len])?;
        }
        Ok(len)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        let len = total.min(WRITE_BYTES_MAX);
        if len == 0 {
            return Ok(0);
        }
        let mut reserved = self.send.reserve(len)?;
        let mut place = &mut reserved[..];
        for slice in slices {
            let count = slice.len().min(place.len());
            let (filled, rest) = std::mem::take(&mut place).split_at_mut(count);
            filled.copy_from_slice(&slice[..count]);
            place = rest;
        }
        reserved.commit()?;
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for StreamIo {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read.read(buffer)
    }
}

impl Write for StreamIo {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write.write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write.write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
