// SPDX-License-Identifier: MIT OR Apache-2.0
//! A stream as bytes: `AsyncRead` and `AsyncWrite`.
//!
//! ```text
//!   write ─▶ one message of up to 64 KiB, from all slices     read ◀─ rest of the last message
//!   shutdown ─▶ CLOSE_WRITE: the peer reads the end                ◀─ the next message
//! ```
//!
//! The end of the peer's messages reads as the end of the stream. A reset or the end of the session
//! reads as an error. A write that returned was sent, so there is nothing to flush.

use super::runtime::within_budget;
use super::stream::{RecvStream, SendStream, Stream};
use crate::error::TooLarge;
use crate::message::Message;
use crate::peer::Peer;
use crate::session::{REFUSED, StreamSendError};
use crate::transport::Transport;
use bytes::Buf;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

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
    is_finished: bool,
}

/// The writing half of a [`StreamIo`].
#[derive(Debug)]
pub struct WriteHalf {
    /// A write that is pending holds none of its bytes: the next call may bring others.
    send: SendStream,
    /// The bytes of several slices.
    gathered: Vec<u8>,
}

/// Largest number of bytes of one write.
const WRITE_BYTES_MAX: usize = 64 << 10;
/// Largest number of messages of one read: empty ones fill nothing.
const READ_MESSAGES_MAX: u32 = 64;
/// Bytes of a write when memory is exhausted and the policy is `Overflow`.
const WRITE_BYTES_SMALL: usize = 4 << 10;

impl StreamIo {
    pub(super) fn new(send: SendStream, recv: RecvStream) -> Self {
        let read = ReadHalf { recv, rest: None, is_finished: false };
        Self { read, write: WriteHalf { send, gathered: Vec::new() } }
    }

    /// Splits the stream into two halves, to be used by a task each.
    #[must_use]
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        (self.read, self.write)
    }

    /// Makes a stream of messages of it again.
    ///
    /// # Errors
    /// Returns itself if a message was read in part.
    pub fn into_stream(mut self) -> Result<Stream, Box<Self>> {
        if self.read.rest.as_ref().is_some_and(|rest| rest.remaining() > 0) {
            return Err(Box::new(self));
        }
        self.write.give_back();
        Ok(Stream::of_halves(self.write.send, self.read.recv))
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
        self.read.recv.stop(code);
    }

    /// Ends the writing direction: the peer reads the end. This side may go on reading. The same as
    /// `shutdown`, which never waits here. A protocol without half-close transmits the end only
    /// once receiving is over too.
    pub fn finish(&mut self) {
        self.write.finish();
    }

    /// Refuses the stream: no application has seen it.
    pub(super) fn refuse(&mut self) {
        self.write.give_back();
        self.write.send.half().reset(REFUSED);
        self.read.recv.half().stop(REFUSED);
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
    /// Ends this direction: the peer reads the end. The same as `shutdown`, which never waits here.
    /// A protocol without half-close transmits the end only once receiving is over too.
    pub fn finish(&mut self) {
        self.give_back();
        self.send.finish();
    }

    /// Resets the direction: the reader gets an error instead of the end.
    ///
    /// # Panics
    /// If the code is one of the protocol's: 0xffffff00 or greater.
    #[track_caller]
    pub fn reset(&mut self, code: u32) {
        self.give_back();
        self.send.reset(code);
    }

    /// Ready when the peer reads no more, with the reason.
    pub async fn stopped(&mut self) -> StreamSendError {
        self.send.stopped().await
    }

    fn give_back(&mut self) {
        self.send.half().give_back();
    }

    /// Sends as many of `bytes` as one message takes.
    fn poll_bytes(&mut self, context: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let len = bytes.len().min(WRITE_BYTES_MAX);
        let half = self.send.half();
        let mut taken = len;
        let mut polled = half.poll_send_whole(context, &bytes[..len]);
        if let Poll::Ready(Err(StreamSendError::TooLarge(TooLarge { max: max @ 1.., .. }))) = polled
        {
            // Bytes have no boundaries, so a shorter message will do.
            taken = usize::try_from(max).map_or(len, |max| max.min(len));
            half.give_back();
            polled = half.poll_send_whole(context, &bytes[..taken]);
        }
        if polled.is_pending() && taken > WRITE_BYTES_SMALL {
            // If memory is exhausted, a short message may still go through the ring.
            taken = WRITE_BYTES_SMALL;
            polled = half.poll_send_whole(context, &bytes[..taken]);
        }
        if polled.is_ready() {
            self.give_back();
        }
        Poll::Ready(ready!(polled).map(|()| taken).map_err(io::Error::from))
    }

    /// Gathers several slices into one message.
    fn poll_slices(
        &mut self,
        context: &Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut filled = slices.iter().filter(|slice| !slice.is_empty());
        let (first, second) = (filled.next(), filled.next());
        let (Some(first), Some(_)) = (first, second) else {
            return self.poll_bytes(context, first.map_or(&[], |slice| slice));
        };
        if first.len() >= WRITE_BYTES_MAX {
            return self.poll_bytes(context, first);
        }
        let mut gathered = std::mem::take(&mut self.gathered);
        gathered.clear();
        for slice in slices {
            let room = WRITE_BYTES_MAX - gathered.len();
            gathered.extend_from_slice(&slice[..slice.len().min(room)]);
        }
        let polled = self.poll_bytes(context, &gathered);
        self.gathered = gathered;
        polled
    }
}

impl AsyncRead for ReadHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        within_budget(context, |context| self.get_mut().poll_fill(context, buffer))
    }
}

impl ReadHalf {
    /// Fills the buffer with the bytes that are there.
    fn poll_fill(
        &mut self,
        context: &Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // The buffer may hold bytes of earlier reads. Only the bytes of this read show that it is
        // not the end.
        let before = buffer.filled().len();
        let mut taken = 0;
        while buffer.remaining() > 0 && !self.is_finished {
            if let Some(rest) = &mut self.rest {
                let count = rest.chunk().len().min(buffer.remaining());
                buffer.put_slice(&rest.chunk()[..count]);
                rest.advance(count);
                if rest.has_remaining() {
                    break;
                }
                self.rest = None;
                // Messages that are there already may fill the rest of the buffer.
                if count > 0 && buffer.remaining() == 0 {
                    break;
                }
            }
            let had = buffer.filled().len() - before;
            if taken == READ_MESSAGES_MAX && had > 0 {
                break;
            }
            if taken == READ_MESSAGES_MAX {
                // All of them were empty: let other tasks run, then go on.
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            taken += 1;
            match self.recv.poll_next(context) {
                Poll::Ready(Ok(Some(message))) => self.rest = Some(message),
                Poll::Ready(Ok(None)) => self.is_finished = true,
                // Bytes that were read before must not be lost. The error comes again.
                Poll::Ready(Err(_)) if had > 0 => break,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Pending if had > 0 => break,
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for WriteHalf {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        within_budget(context, |context| self.get_mut().poll_bytes(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        within_budget(context, |context| self.get_mut().poll_slices(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().finish();
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for StreamIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.read).poll_read(context, buffer)
    }
}

impl AsyncWrite for StreamIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.write).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.write).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_shutdown(context)
    }
}
