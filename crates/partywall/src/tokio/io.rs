// SPDX-License-Identifier: MIT OR Apache-2.0
//! Implements `AsyncRead` and `AsyncWrite` for a stream of a session, as bytes without message
//! boundaries.
//!
//! ```text
//!   write ─▶ one message of almost 64 KiB at most            read ◀─ rest of the last message
//!   shutdown ─▶ CLOSE_WRITE: the peer reads the end                ◀─ the next message
//! ```
//!
//! After a long message, a read that finds nothing takes the records that have come to the session
//! itself, and so does a write without credit. The session's task may be behind many others.
//!
//! When the peer has finished, a read returns the end of the stream. After a reset, or the end of
//! the session, a read returns an error. Every write sends its bytes before it returns, so `flush`
//! does nothing.

use super::runtime::within_budget;
use super::stream::{RecvStream, SendStream, Stream};
use crate::error::TooLarge;
use crate::message::Message;
use crate::peer::Peer;
use crate::session::{REFUSED, StreamSendError, WRITE_BYTES_MAX};
use crate::transport::Transport;
use bytes::Buf;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

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
    /// Whether the last received message was long, so that another one probably follows at once.
    is_long: bool,
    is_finished: bool,
}

/// The writing half of a [`StreamIo`].
#[derive(Debug)]
pub struct WriteHalf {
    /// The sending direction of the stream. A pending write keeps no bytes of its caller, so the
    /// next call may pass other bytes.
    send: SendStream,
}

/// Most messages that one read takes before it lets other tasks run. The limit matters for empty
/// messages, which fill no buffer.
const READ_MESSAGES_MAX: u32 = 64;
/// Least length of a message after which a read looks for the next one itself. Messages of this
/// length are parts of a long write. After shorter ones, many streams or calls are often served at
/// once, and it takes less time to take their records together.
const LONG_BYTES: usize = 32 << 10;
/// Most bytes of a write when shared memory is exhausted and the policy is `Overflow`. So short a
/// message is copied into the ring, which may still have room.
const WRITE_BYTES_SMALL: usize = 4 << 10;

impl StreamIo {
    pub(super) fn new(mut send: SendStream, recv: RecvStream) -> Self {
        // A task that writes often has more to read before it waits.
        send.half().await_answers(false);
        let read = ReadHalf { recv, rest: None, is_long: false, is_finished: false };
        Self { read, write: WriteHalf { send } }
    }

    /// Splits the stream into two halves, each of which a task of its own may use.
    #[must_use]
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        (self.read, self.write)
    }

    /// Converts the byte stream back into a stream of messages.
    ///
    /// # Errors
    /// Returns the byte stream unchanged if a message was read only in part.
    pub fn into_stream(mut self) -> Result<Stream, Box<Self>> {
        if self.read.rest.as_ref().is_some_and(|rest| rest.remaining() > 0) {
            return Err(Box::new(self));
        }
        self.write.give_back();
        self.write.send.half().await_answers(true);
        Ok(Stream::of_halves(self.write.send, self.read.recv))
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
        self.read.recv.stop(code);
    }

    /// Ends the writing direction, as `shutdown` does: the peer's reads return the end of the
    /// stream. This side may continue to read. Neither `finish` nor `shutdown` waits. A protocol
    /// without half-close transmits the end only after receiving has ended too.
    pub fn finish(&mut self) {
        self.write.finish();
    }

    /// Refuses a stream that no application has seen.
    pub(super) fn refuse(&mut self) {
        self.write.give_back();
        self.write.send.half().reset(REFUSED);
        self.read.recv.half().stop(REFUSED);
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
    /// Ends the writing direction, as `shutdown` does: the peer's reads return the end of the
    /// stream. Neither `finish` nor `shutdown` waits. A protocol without half-close transmits the
    /// end only after receiving has ended too.
    pub fn finish(&mut self) {
        self.give_back();
        self.send.finish();
    }

    /// Resets the writing direction: the peer's reads return an error instead of the end of the
    /// stream.
    ///
    /// # Panics
    /// Panics if the code is reserved for the protocol: 0xffffff00 or greater.
    #[track_caller]
    pub fn reset(&mut self, code: u32) {
        self.give_back();
        self.send.reset(code);
    }

    /// Waits until the peer stops reading. Returns the reason for the stop.
    pub async fn stopped(&mut self) -> StreamSendError {
        self.send.stopped().await
    }

    fn give_back(&mut self) {
        self.send.half().give_back();
    }

    /// Attempts once to send the first `len` bytes of `slices` as one message, or as many of them
    /// as the longest message has. Returns the number of bytes that were tried.
    #[inline]
    fn poll_message(
        &mut self,
        context: &Context<'_>,
        slices: &[IoSlice<'_>],
        len: usize,
    ) -> (usize, Poll<Result<(), StreamSendError>>) {
        let half = self.send.half();
        let polled = half.poll_send_slices(context, slices, len);
        let Poll::Ready(Err(StreamSendError::TooLarge(TooLarge { max: max @ 1.., .. }))) = polled
        else {
            return (len, polled);
        };
        // The bytes exceed the longest message. A byte stream has no message boundaries, so a
        // shorter message is sent instead.
        let taken = usize::try_from(max).map_or(len, |max| max.min(len));
        half.give_back();
        (taken, half.poll_send_slices(context, slices, taken))
    }

    /// Sends as many of the bytes in `slices` as one message can hold. Returns their number.
    fn poll_slices(
        &mut self,
        context: &Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let total = slices.iter().fold(0, |total: usize, slice| total.saturating_add(slice.len()));
        let len = total.min(WRITE_BYTES_MAX);
        if len == 0 {
            return Poll::Ready(Ok(0));
        }
        let (mut taken, mut polled) = self.poll_message(context, slices, len);
        if polled.is_pending() && !self.send.half().awaits_room() && self.send.half().receive() {
            // The peer has read meanwhile, so there may be credit.
            (taken, polled) = self.poll_message(context, slices, len);
        }
        let half = self.send.half();
        if polled.is_pending() && taken > WRITE_BYTES_SMALL && half.awaits_room() {
            // When shared memory is exhausted, the ring may still have room for a short message.
            taken = WRITE_BYTES_SMALL;
            polled = half.poll_send_slices(context, slices, taken);
        }
        if polled.is_ready() {
            self.give_back();
        }
        Poll::Ready(ready!(polled).map(|()| taken).map_err(io::Error::from))
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
    /// Fills `buffer` with the bytes that have arrived on the stream.
    fn poll_fill(
        &mut self,
        context: &Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // The buffer may contain bytes of earlier reads. Only bytes of this read show the caller
        // that the stream has not ended.
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
                // The read continues while the buffer has room: messages that have already arrived
                // may fill it.
                if count > 0 && buffer.remaining() == 0 {
                    break;
                }
            }
            let had = buffer.filled().len() - before;
            if taken == READ_MESSAGES_MAX && had > 0 {
                break;
            }
            if taken == READ_MESSAGES_MAX {
                // Every message so far was empty. The read lets other tasks run before it
                // continues.
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            taken += 1;
            if had > 0 {
                // The read has bytes for its caller, and so never waits. A waker registered now
                // would wake the task for a message that the next read finds anyway. That read
                // also reports an end or an error.
                match self.recv.take_arrived() {
                    Some(message) => self.keep(message),
                    None => break,
                }
                continue;
            }
            if let Some(message) = self.take_following() {
                self.keep(message);
                continue;
            }
            match self.recv.poll_next(context) {
                Poll::Ready(Ok(Some(message))) => self.keep(message),
                Poll::Ready(Ok(None)) => self.is_finished = true,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl ReadHalf {
    fn keep(&mut self, message: Message) {
        self.is_long = message.len() >= LONG_BYTES;
        self.rest = Some(message);
    }

    /// Returns the message that follows a long one, if it has come. The peer is probably writing
    /// more than the window holds, and writes on as soon as this side reads. So the records are
    /// taken here, as a read of a socket finds the bytes that have just come. The task of the
    /// session would take them only after all tasks that are to run before it.
    fn take_following(&mut self) -> Option<Message> {
        if !self.is_long {
            return None;
        }
        let arrived = self.recv.take_arrived();
        if arrived.is_none() && self.recv.half().receive() {
            return self.recv.take_arrived();
        }
        arrived
    }
}

impl AsyncWrite for WriteHalf {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let slices = [IoSlice::new(bytes)];
        within_budget(context, |context| self.get_mut().poll_slices(context, &slices))
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
