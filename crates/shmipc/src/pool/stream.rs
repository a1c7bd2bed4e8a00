// SPDX-License-Identifier: MIT OR Apache-2.0
//! A stream of the pool, which goes back to the pool only on demand, and only if it is clean.
//!
//! ```text
//!   clean ─ try_recv: nothing ─▶ expecting ─ received ─▶ clean
//!     │                             └─ sends ─▶ dirty
//!     └─ a send or recv that failed, or whose future was dropped ─▶ dirty to its end
//!
//!   put_back: clean ─▶ idle          drop, or put_back otherwise ─▶ closed
//! ```
//!
//! A clean stream can be used for another call. An expecting stream may still get an answer, and a
//! dirty one is never used again. If the caller drops the future of a `recv`, the answer may still
//! arrive later. The next user of the stream would take it for the answer to another call. So such
//! a stream is never reused.

use super::place::Place;
use partywall::tokio::{RecvStream, Reservation, SendStream, Stream, StreamIo};
use partywall::{Message, StreamRecvError, StreamSendError};
use std::io;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream of a [`SessionManager`](super::SessionManager), as messages; [`into_io`](Self::into_io)
/// converts it to bytes.
///
/// Dropping the value closes the stream. [`put_back`](Self::put_back) hands the stream to the next
/// [`get_stream`](super::SessionManager::get_stream).
#[derive(Debug)]
pub struct PooledStream {
    // The stream is dropped before the field `use_`, which refers to the stream's session in the
    // pool: the session may end with the last such reference.
    stream: Stream,
    use_: Use,
}

/// The session of the pool from which a stream came (its place), and whether the stream may be
/// reused.
#[derive(Debug)]
struct Use {
    place: Arc<Place>,
    /// Number of messages of the session that had used the socket when the stream was handed out.
    /// If the number has changed since, the stream is not reused.
    fallbacks: u64,
    condition: Condition,
}

/// Whether a stream of the pool may be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    Clean,
    /// A receive on the stream found no message, so an answer may still arrive.
    Expecting,
    Dirty,
}

impl Condition {
    /// Records that the caller sends a message on the stream. If an answer to an earlier message
    /// may still arrive, the stream is never reused.
    fn send(&mut self) {
        if *self == Self::Expecting {
            *self = Self::Dirty;
        }
    }

    /// Records that the caller tried to receive; `found` says whether there was a message.
    fn looked(&mut self, found: bool) {
        *self = match (*self, found) {
            (Self::Dirty, _) => Self::Dirty,
            (_, true) => Self::Clean,
            (_, false) => Self::Expecting,
        };
    }

    /// Records that a `send` or `recv` begins to wait: sets the condition to `Dirty`, and returns
    /// the previous condition. If the future of the call is dropped, the stream stays dirty and is
    /// never reused.
    fn begin(&mut self) -> Self {
        std::mem::replace(self, Self::Dirty)
    }

    /// Records that the wait of a `send` or `recv` has ended. `before` is the stream's condition
    /// before the wait, as [`begin`](Self::begin) returned it.
    fn end(&mut self, before: Self, succeeded: bool) {
        if succeeded {
            *self = before;
        }
    }
}

impl PooledStream {
    pub(super) fn new(stream: Stream, place: Arc<Place>, fallbacks: u64) -> Self {
        Self { stream, use_: Use { place, fallbacks, condition: Condition::Clean } }
    }

    /// Ends the use of this stream, and keeps the stream for the next call; returns whether it was
    /// kept. The stream is closed instead if
    ///
    /// - a message is unread, or the peer has closed the stream;
    /// - a call on the stream failed or was cancelled;
    /// - messages of its session used the socket instead of shared memory meanwhile, on any stream;
    /// - its session was replaced, or [`max_stream_num`](crate::Config::max_stream_num) are idle
    ///   already.
    ///
    /// The peer sees one stream for many calls, so its handler has to loop. Only put a stream back
    /// at the end of a call: the pool does not detect an answer that was never awaited.
    pub fn put_back(self) -> bool {
        self.use_.put_back(self.stream)
    }

    /// Converts the stream to a stream of bytes, which can be [given back](PooledIo::put_back) to
    /// the pool as well.
    #[must_use]
    pub fn into_io(self) -> PooledIo {
        PooledIo { io: self.stream.into_io(), use_: self.use_ }
    }

    /// Converts the stream to a plain stream of messages, which cannot go back to the pool.
    #[must_use]
    pub fn into_inner(self) -> Stream {
        self.stream
    }

    /// Sends a message; see [`SendStream::send`].
    ///
    /// # Errors
    /// A [`StreamSendError`]: why the message was not sent.
    pub async fn send(&mut self, payload: &[u8]) -> Result<(), StreamSendError> {
        self.use_.condition.send();
        let before = self.use_.condition.begin();
        let sent = self.stream.send(payload).await;
        self.use_.condition.end(before, sent.is_ok());
        sent
    }

    /// Sends a message if there is room; see [`SendStream::try_send`].
    ///
    /// # Errors
    /// A [`StreamSendError`]: why the message was not sent. After [`StreamSendError::Full`] the
    /// stream can still be reused.
    pub fn try_send(&mut self, payload: &[u8]) -> Result<(), StreamSendError> {
        self.use_.condition.send();
        self.stream.try_send(payload)
    }

    /// Reserves memory in which the caller writes a message; committing the reservation sends the
    /// message. See [`SendStream::reserve`].
    ///
    /// # Errors
    /// A [`StreamSendError`]: why no memory was reserved.
    pub async fn reserve(&mut self, len: usize) -> Result<Reservation<'_>, StreamSendError> {
        self.use_.condition.send();
        self.stream.reserve(len).await
    }

    /// Receives the next message; see [`RecvStream::recv`].
    ///
    /// # Errors
    /// A [`StreamRecvError`]: why no message was received.
    pub async fn recv(&mut self) -> Result<Option<Message>, StreamRecvError> {
        let before = self.use_.condition.begin();
        let received = self.stream.recv().await;
        let is_message = matches!(received, Ok(Some(_)));
        self.use_.condition.end(before, is_message);
        if is_message {
            self.use_.condition.looked(true);
        }
        received
    }

    /// Receives the next message if it has arrived; see [`RecvStream::try_recv`].
    ///
    /// # Errors
    /// A [`StreamRecvError`]: why no message was received.
    pub fn try_recv(&mut self) -> Result<Option<Message>, StreamRecvError> {
        let received = self.stream.try_recv();
        self.use_.condition.looked(matches!(received, Ok(Some(_))));
        received
    }
}

impl Deref for PooledStream {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        &self.stream
    }
}

impl From<PooledStream> for (SendStream, RecvStream) {
    /// Splits the stream into its two directions, which cannot go back to the pool.
    fn from(stream: PooledStream) -> Self {
        stream.into_inner().into_split()
    }
}

impl Use {
    fn put_back(self, stream: Stream) -> bool {
        self.condition == Condition::Clean && self.place.keep(stream, self.fallbacks)
    }
}

/// A stream of a [`SessionManager`](super::SessionManager), as bytes. Dropping the value closes the
/// stream.
#[derive(Debug)]
pub struct PooledIo {
    // The stream is dropped before the field `use_`, which refers to the stream's session in the
    // pool: the session may end with the last such reference.
    io: StreamIo,
    use_: Use,
}

impl PooledIo {
    /// Gives the stream back to the pool for later calls, as [`PooledStream::put_back`] does. The
    /// stream is also closed if a read is incomplete, or a message was read in part.
    pub fn put_back(self) -> bool {
        let Self { io, use_ } = self;
        io.into_stream().is_ok_and(|stream| use_.put_back(stream))
    }

    /// Converts the stream to a plain stream of bytes, which cannot go back to the pool.
    #[must_use]
    pub fn into_inner(self) -> StreamIo {
        self.io
    }
}

impl AsyncRead for PooledIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (before, has_room) = (buffer.filled().len(), buffer.remaining() > 0);
        let read = Pin::new(&mut self.io).poll_read(context, buffer);
        let condition = &mut self.use_.condition;
        match &read {
            Poll::Ready(Ok(())) if buffer.filled().len() > before => condition.looked(true),
            Poll::Ready(Ok(())) if !has_room => {}
            Poll::Pending => condition.looked(false),
            // The read returned an error, or the end of the stream, so the pool cannot reuse the
            // stream.
            Poll::Ready(_) => *condition = Condition::Dirty,
        }
        read
    }
}

impl PooledIo {
    fn wrote(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if matches!(written, Poll::Ready(Err(_))) {
            self.use_.condition = Condition::Dirty;
        }
        written
    }
}

impl AsyncWrite for PooledIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.use_.condition.send();
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
        self.wrote(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.use_.condition.send();
        let written = Pin::new(&mut self.io).poll_write_vectored(context, slices);
        self.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.use_.condition = Condition::Dirty;
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::Condition::{self, Clean, Dirty, Expecting};

    #[test]
    fn a_wait_that_was_given_up_makes_dirty_for_good() {
        let mut condition = Clean;
        let before = condition.begin();
        condition.end(before, true);
        assert_eq!(condition, Clean);
        let _ = condition.begin();
        assert_eq!(condition, Dirty);
        let before = condition.begin();
        condition.end(before, true);
        condition.looked(true);
        assert_eq!(condition, Dirty, "what came may be what nobody waits for any longer");
    }

    #[test]
    fn a_look_in_vain_is_made_good_by_what_comes_and_not_by_asking_again() {
        let mut condition: Condition = Clean;
        condition.looked(false);
        assert_eq!(condition, Expecting);
        condition.looked(true);
        assert_eq!(condition, Clean);
        condition.looked(false);
        condition.send();
        condition.looked(true);
        assert_eq!(condition, Dirty);
    }

    #[test]
    fn failed_stream_stays_dirty() {
        let mut condition = Expecting;
        let before = condition.begin();
        condition.end(before, false);
        assert_eq!(condition, Dirty);
    }
}
