// SPDX-License-Identifier: MIT OR Apache-2.0
//! Implements `Read` and `Write` for a stream of a session, as bytes without message boundaries.
//!
//! When the peer has finished, a read returns the end of the stream. After a reset, or the end of
//! the session, a read returns an error. Every write sends its bytes before it returns, so `flush`
//! does nothing.

use super::stream::{RecvStream, SendStream};
use crate::message::Message;
use crate::peer::Peer;
use crate::session::{StreamSendError, WRITE_BYTES_MAX, WaitError};
use crate::transport::Transport;
use bytes::Buf;
use std::io::{self, IoSlice, Read, Write};
use std::time::Instant;

/// A stream without message boundaries, as bytes; see [`Stream::into_io`](super::Stream::into_io).
#[derive(Debug)]
pub struct StreamIo {
    read: ReadHalf,
    write: WriteHalf,
}

/// The reading half of a [`StreamIo`].
#[derive(Debug)]
pub struct ReadHalf {
    recv: RecvStream,
    /// The bytes of the last received message that were not read yet.
    rest: Option<Message>,
}

/// The writing half of a [`StreamIo`].
#[derive(Debug)]
pub struct WriteHalf {
    send: SendStream,
}

impl StreamIo {
    pub(super) const fn new(send: SendStream, recv: RecvStream) -> Self {
        Self { read: ReadHalf { recv, rest: None }, write: WriteHalf { send } }
    }

    /// Splits the stream into two halves, each of which a thread of its own may use.
    #[must_use]
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        (self.read, self.write)
    }

    /// Returns the identity of the peer process.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        self.read.recv.half().shared.peer.get()
    }

    /// Returns the transport of the session; for a socket, with the reason why memory is not
    /// shared.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.read.recv.half().shared.transport.get()
    }

    /// Returns the metadata with which the peer opened the stream; empty if this side opened the
    /// stream.
    #[must_use]
    pub fn metadata(&self) -> &[u8] {
        &self.read.recv.half().stream.metadata
    }

    /// Resets both directions of the stream: the peer's reads and writes fail with `code`.
    ///
    /// # Panics
    /// Panics if the code is reserved for the protocol: 0xffffff00 or greater.
    #[track_caller]
    pub fn reset(&mut self, code: u32) {
        self.write.reset(code);
        self.read.stop(code);
    }

    /// Ends the writing direction: the peer's reads return the end of the stream. This side may
    /// continue to read.
    pub fn finish(&mut self) {
        self.write.finish();
    }
}

impl ReadHalf {
    /// Stops receiving: the peer's sending direction ends with `code`.
    ///
    /// # Panics
    /// Panics if the code is reserved for the protocol: 0xffffff00 or greater.
    #[track_caller]
    pub fn stop(&mut self, code: u32) {
        self.recv.stop(code);
    }
}

impl WriteHalf {
    /// Ends the writing direction: the peer's reads return the end of the stream.
    pub fn finish(&mut self) {
        self.send.finish();
    }

    /// Resets the writing direction: the peer's reads return an error instead of the end of the
    /// stream.
    ///
    /// # Panics
    /// Panics if the code is reserved for the protocol: 0xffffff00 or greater.
    #[track_caller]
    pub fn reset(&mut self, code: u32) {
        self.send.reset(code);
    }

    /// Waits until the peer stops reading. Returns the reason.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`] if the deadline passes first.
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
                // An empty message is not the end of the stream, so the read continues with the
                // next message.
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
