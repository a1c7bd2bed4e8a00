// SPDX-License-Identifier: MIT OR Apache-2.0
//! A stream: messages in both directions, each with an end of its own.

use super::io::StreamIo;
use super::runtime::within_budget;
use crate::message::Message;
use crate::peer::Peer;
use crate::session::assert_application_code;
use crate::session::{RecvHalf, ReplyError, SendHalf, StreamRecvError, StreamSendError};
use crate::transport::Transport;
use std::fmt;
use std::future::poll_fn;
use std::ops::{Deref, DerefMut};
use std::task::{Context, Poll, Waker};

/// Both directions of a stream.
///
/// Dropping it finishes the sending direction in good order (while unwinding: resets it), and stops
/// receiving.
#[derive(Debug)]
pub struct Stream {
    send: SendStream,
    recv: RecvStream,
}

impl Stream {
    pub(super) fn new((send, recv): (SendHalf, RecvHalf)) -> Self {
        Self { send: SendStream { half: send }, recv: RecvStream { half: recv, received: 0 } }
    }

    pub(super) const fn of_halves(send: SendStream, recv: RecvStream) -> Self {
        Self { send, recv }
    }

    /// Splits the stream into its two directions, to be used by a task each.
    #[must_use]
    pub fn into_split(self) -> (SendStream, RecvStream) {
        (self.send, self.recv)
    }

    #[cfg(any(feature = "serde", feature = "zerocopy"))]
    pub(crate) const fn halves_mut(&mut self) -> (&mut SendStream, &mut RecvStream) {
        (&mut self.send, &mut self.recv)
    }

    /// Makes bytes of the stream, for protocols that run over bytes.
    #[must_use]
    pub fn into_io(self) -> StreamIo {
        StreamIo::new(self.send, self.recv)
    }

    /// Metadata with which the peer opened it; empty for a stream that this side opened.
    #[must_use]
    pub fn metadata(&self) -> &[u8] {
        &self.recv.half.stream.metadata
    }

    /// Its number within the session. Numbers are used again.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.recv.half.stream.number
    }

    /// The peer process.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.recv.half.shared.peer
    }

    /// The session's transport, and the reason for it.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.recv.half.shared.transport
    }

    /// The sending direction.
    pub const fn sender(&mut self) -> &mut SendStream {
        &mut self.send
    }

    /// The receiving direction.
    pub const fn receiver(&mut self) -> &mut RecvStream {
        &mut self.recv
    }

    /// The same as [`SendStream::send`].
    ///
    /// # Errors
    /// Fails as [`send`](SendStream::send) does.
    pub async fn send(&mut self, payload: &[u8]) -> Result<(), StreamSendError> {
        self.send.send(payload).await
    }

    /// The same as [`SendStream::try_send`].
    ///
    /// # Errors
    /// Fails as [`try_send`](SendStream::try_send) does.
    pub fn try_send(&mut self, payload: &[u8]) -> Result<(), StreamSendError> {
        self.send.try_send(payload)
    }

    /// The same as [`SendStream::reserve`].
    ///
    /// # Errors
    /// Fails as [`reserve`](SendStream::reserve) does.
    pub async fn reserve(&mut self, len: usize) -> Result<Reservation<'_>, StreamSendError> {
        self.send.reserve(len).await
    }

    /// The same as [`RecvStream::recv`].
    ///
    /// # Errors
    /// Fails as [`recv`](RecvStream::recv) does.
    pub async fn recv(&mut self) -> Result<Option<Message>, StreamRecvError> {
        self.recv.recv().await
    }

    /// The same as [`RecvStream::try_recv`].
    ///
    /// # Errors
    /// Fails as [`try_recv`](RecvStream::try_recv) does.
    pub fn try_recv(&mut self) -> Result<Option<Message>, StreamRecvError> {
        self.recv.try_recv()
    }

    /// Answers the next request: receives a message, and sends the response that `respond` writes
    /// in place. `respond` gets the request and `len_max` bytes of the response, and returns how
    /// many of them it used. A large response is written in the very memory that the peer will
    /// read.
    ///
    /// Returns `false` once the peer has finished, without calling `respond`.
    ///
    /// Dropping the future before it is ready sends nothing; a request that was received is then
    /// lost.
    ///
    /// # Errors
    /// See [`ReplyError`]. A request whose response was not sent is lost.
    ///
    /// # Panics
    /// If `respond` returns more than `len_max`.
    pub async fn reply_with(
        &mut self,
        len_max: usize,
        respond: impl FnOnce(&[u8], &mut [u8]) -> usize,
    ) -> Result<bool, ReplyError> {
        let received = self.recv.recv().await.map_err(ReplyError::Recv)?;
        let Some(request) = received else { return Ok(false) };
        let mut response = self.send.reserve(len_max).await.map_err(ReplyError::Send)?;
        let used = respond(&request, &mut response);
        assert!(used <= len_max, "a response of {used} bytes in {len_max}");
        response.truncate(used);
        // Its memory goes back to the peer before the response comes.
        drop(request);
        response.commit().await.map_err(ReplyError::Send)?;
        Ok(true)
    }

    /// The same as [`SendStream::finish`]. A protocol without half-close transmits the end only
    /// once receiving is over too: by [`RecvStream::stop`], or when the stream is dropped.
    pub fn finish(&mut self) {
        self.send.finish();
    }

    /// Resets both directions with a code for the peer.
    ///
    /// # Panics
    /// If the code is one of the protocol's: 0xffffff00 or greater.
    #[track_caller]
    pub fn reset(&mut self, code: u32) {
        self.send.reset(code);
        self.recv.stop(code);
    }
}

/// The sending direction of a stream.
#[derive(Debug)]
pub struct SendStream {
    half: SendHalf,
}

impl SendStream {
    /// Sends a copy of `payload`, of any length up to the limits of both sides. Waits for credit of
    /// this stream, and for room in the session.
    ///
    /// When this returns `Ok`, the message is committed. If the future is dropped before, nothing
    /// of the message is received.
    ///
    /// # Errors
    /// Returns [`StreamSendError`] if it fails.
    pub async fn send(&mut self, payload: &[u8]) -> Result<(), StreamSendError> {
        let mut outgoing = Guard::new(self);
        poll_fn(|context| {
            within_budget(context, |context| outgoing.poll(|half| half.poll_send(context, payload)))
        })
        .await
    }

    /// Sends a copy of `payload` if there is credit and room now. Never waits.
    ///
    /// # Errors
    /// [`StreamSendError::Full`], and as [`send`](Self::send).
    pub fn try_send(&mut self, payload: &[u8]) -> Result<(), StreamSendError> {
        // Whole or not at all: fragments would be given up at once.
        let context = Context::from_waker(Waker::noop());
        let mut outgoing = Guard::new(self);
        match outgoing.poll(|half| half.poll_send_whole(&context, payload)) {
            Poll::Ready(sent) => sent,
            Poll::Pending => Err(StreamSendError::Full),
        }
    }

    /// Reserves memory for a message of `len` bytes, to be filled and committed. A large one is the
    /// very memory that the receiver will read. Its first content is unspecified: zeros, or what
    /// this process wrote before.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn reserve(&mut self, len: usize) -> Result<Reservation<'_>, StreamSendError> {
        let mut outgoing = Guard::new(self);
        poll_fn(|context| outgoing.poll(|half| half.poll_reserve(context, len))).await?;
        Ok(Reservation { outgoing })
    }

    /// Ends this direction in good order: no more messages will come, and everything that was sent
    /// is still delivered. The other direction goes on. A protocol without half-close transmits the
    /// end only once receiving is over too.
    pub fn finish(&mut self) {
        self.half.finish();
    }

    /// Resets the direction: the receiver gets `code` instead of an end in good order.
    ///
    /// # Panics
    /// If the code is one of the protocol's: 0xffffff00 or greater.
    #[track_caller]
    pub fn reset(&mut self, code: u32) {
        assert_application_code(code);
        self.half.reset(code);
    }

    /// Waits until the peer receives no more of this stream, or this side sends no more. Returns
    /// the reason.
    pub async fn stopped(&mut self) -> StreamSendError {
        poll_fn(|context| self.half.poll_stopped(context)).await
    }

    pub(super) const fn half(&mut self) -> &mut SendHalf {
        &mut self.half
    }
}

/// The receiving direction of a stream.
#[derive(Debug)]
pub struct RecvStream {
    half: RecvHalf,
    /// Number of messages received.
    received: u64,
}

impl RecvStream {
    /// The next message. `None` once the peer has finished its direction and everything it sent was
    /// received. Cancel-safe: a future that is dropped took nothing.
    ///
    /// # Errors
    /// Returns [`StreamRecvError`] if it fails.
    pub async fn recv(&mut self) -> Result<Option<Message>, StreamRecvError> {
        poll_fn(|context| self.poll_recv(context)).await
    }

    /// The next message if one is there now. Never waits.
    ///
    /// # Errors
    /// [`StreamRecvError::Empty`] if none is, and as [`recv`](Self::recv).
    pub fn try_recv(&mut self) -> Result<Option<Message>, StreamRecvError> {
        match self.poll_next(&Context::from_waker(Waker::noop())) {
            Poll::Ready(received) => received,
            Poll::Pending => Err(StreamRecvError::Empty),
        }
    }

    /// As [`recv`](Self::recv), for futures written by hand.
    ///
    /// # Errors
    /// Fails as [`recv`](Self::recv) does.
    pub fn poll_recv(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Message>, StreamRecvError>> {
        within_budget(context, |context| self.poll_next(context))
    }

    /// As [`poll_recv`](Self::poll_recv), outside the task's budget.
    pub(super) fn poll_next(
        &mut self,
        context: &Context<'_>,
    ) -> Poll<Result<Option<Message>, StreamRecvError>> {
        let polled = self.half.poll_recv(context);
        self.received += u64::from(matches!(polled, Poll::Ready(Ok(Some(_)))));
        polled
    }

    /// Stops receiving: the sender gets `code`, and unread messages are dropped.
    ///
    /// # Panics
    /// If the code is one of the protocol's: 0xffffff00 or greater.
    #[track_caller]
    pub fn stop(&mut self, code: u32) {
        assert_application_code(code);
        self.half.stop(code);
    }

    /// Number of messages received on this stream.
    #[must_use]
    pub const fn received(&self) -> u64 {
        self.received
    }

    pub(super) const fn half(&self) -> &RecvHalf {
        &self.half
    }
}

/// Memory of a message that is not sent yet: fill it, then [`commit`](Self::commit). Dropping it
/// frees it.
pub struct Reservation<'a> {
    outgoing: Guard<'a>,
}

/// A message on its way out, which returns what it holds when dropped.
struct Guard<'a> {
    half: &'a mut SendHalf,
}

impl<'a> Guard<'a> {
    #[inline]
    fn new(stream: &'a mut SendStream) -> Self {
        let half = &mut stream.half;
        // A reservation may have been leaked instead of dropped.
        half.give_back();
        Self { half }
    }

    #[inline]
    fn poll<T>(&mut self, poll: impl FnOnce(&mut SendHalf) -> T) -> T {
        poll(self.half)
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.half.give_back();
    }
}

impl Reservation<'_> {
    /// Sends the message.
    ///
    /// # Errors
    /// As [`SendStream::send`]; the message is then dropped.
    pub async fn commit(mut self) -> Result<(), StreamSendError> {
        poll_fn(|context| {
            within_budget(context, |context| self.outgoing.poll(|half| half.poll_commit(context)))
        })
        .await
    }

    /// Shortens the message to `len` bytes; does nothing if it is not longer.
    pub fn truncate(&mut self, len: usize) {
        self.outgoing.half.truncate(len);
    }
}

impl Deref for Reservation<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.outgoing.half.memory()
    }
}

impl DerefMut for Reservation<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.outgoing.half.memory_mut()
    }
}

impl fmt::Debug for Reservation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("len", &self.len()).finish_non_exhaustive()
    }
}
