// SPDX-License-Identifier: MIT OR Apache-2.0
//! A stream: messages both ways, each direction with an end of its own.

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
/// Dropping it closes the sending direction in good order (while unwinding: resets it) and tells the
/// other side that nothing more is received.
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

    /// The two directions, to be used by a task each.
    #[must_use]
    pub fn into_split(self) -> (SendStream, RecvStream) {
        (self.send, self.recv)
    }

    #[cfg(any(feature = "serde", feature = "zerocopy"))]
    pub(crate) const fn halves_mut(&mut self) -> (&mut SendStream, &mut RecvStream) {
        (&mut self.send, &mut self.recv)
    }

    /// The stream as bytes, for protocols that run over those.
    #[must_use]
    pub fn into_io(self) -> StreamIo {
        StreamIo::new(self.send, self.recv)
    }

    /// What the other side opened it with; empty for a stream that this side opened.
    #[must_use]
    pub fn metadata(&self) -> &[u8] {
        &self.recv.half.stream.metadata
    }

    /// Its number within the session; numbers are used again.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.recv.half.stream.number
    }

    /// Who is on the other side.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.recv.half.shared.peer
    }

    /// Which transport is used, and why.
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

    /// See [`SendStream::send`].
    ///
    /// # Errors
    /// As there.
    pub async fn send(&mut self, payload: &[u8]) -> Result<(), StreamSendError> {
        self.send.send(payload).await
    }

    /// See [`SendStream::try_send`].
    ///
    /// # Errors
    /// As there.
    pub fn try_send(&mut self, payload: &[u8]) -> Result<(), StreamSendError> {
        self.send.try_send(payload)
    }

    /// See [`SendStream::reserve`].
    ///
    /// # Errors
    /// As there.
    pub async fn reserve(&mut self, len: usize) -> Result<Reservation<'_>, StreamSendError> {
        self.send.reserve(len).await
    }

    /// See [`RecvStream::recv`].
    ///
    /// # Errors
    /// As there.
    pub async fn recv(&mut self) -> Result<Option<Message>, StreamRecvError> {
        self.recv.recv().await
    }

    /// See [`RecvStream::try_recv`].
    ///
    /// # Errors
    /// As there.
    pub fn try_recv(&mut self) -> Result<Option<Message>, StreamRecvError> {
        self.recv.try_recv()
    }

    /// Answers the next request: receives a message, and sends the response that `respond` writes in
    /// place. `respond` gets the request and `len_max` bytes of the response, and returns how many of
    /// them it used. A large response is written in the very memory that the peer will read.
    ///
    /// Returns `false` once the peer has finished, without calling `respond`.
    ///
    /// Dropping the future before it is ready sends nothing; a request that was received is then lost.
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

    /// See [`SendStream::finish`]. A protocol without half-close transmits the end only once receiving
    /// is over too: by [`RecvStream::stop`], or when the stream is dropped.
    pub fn finish(&mut self) {
        self.send.finish();
    }

    /// Gives up on both directions, with a code for the other side.
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
    /// Sends a copy of `payload`, of any length up to the limits of both sides. Waits for credit of this
    /// stream, and for room in what all streams share.
    ///
    /// When this returns `Ok`, the message is committed. When the future is dropped before, nothing of
    /// it is received.
    ///
    /// # Errors
    /// See [`StreamSendError`].
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
        // Whole or not at all: a part would only be given up.
        let context = Context::from_waker(Waker::noop());
        let mut outgoing = Guard::new(self);
        match outgoing.poll(|half| half.poll_send_whole(&context, payload)) {
            Poll::Ready(sent) => sent,
            Poll::Pending => Err(StreamSendError::Full),
        }
    }

    /// Memory for a message of `len` bytes, to be filled and committed. A large one is the very memory
    /// that the receiver will look at. What it holds at first is unspecified: zeros, or what this
    /// process wrote before.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn reserve(&mut self, len: usize) -> Result<Reservation<'_>, StreamSendError> {
        let mut outgoing = Guard::new(self);
        poll_fn(|context| outgoing.poll(|half| half.poll_reserve(context, len))).await?;
        Ok(Reservation { outgoing })
    }

    /// Ends this direction in good order: no more messages will come, and everything that was sent is
    /// still delivered. The other direction goes on. A protocol without half-close transmits the end
    /// only once receiving is over too.
    pub fn finish(&mut self) {
        self.half.finish();
    }

    /// Gives up: the receiver gets `code` instead of an end in good order.
    ///
    /// # Panics
    /// If the code is one of the protocol's: 0xffffff00 or greater.
    #[track_caller]
    pub fn reset(&mut self, code: u32) {
        assert_application_code(code);
        self.half.reset(code);
    }

    /// Waits until the other side receives no more of this stream, or this side sends no more; why.
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
    /// How many messages were received.
    received: u64,
}

impl RecvStream {
    /// The next message. `None` once the peer has finished its direction and everything it sent was
    /// received. Cancel-safe: a future that is dropped took nothing.
    ///
    /// # Errors
    /// See [`StreamRecvError`].
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

    /// As [`recv`](Self::recv), for those who write futures by hand.
    ///
    /// # Errors
    /// As there.
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

    /// Receives no more: the sender gets `code`, and what is unread is dropped.
    ///
    /// # Panics
    /// If the code is one of the protocol's: 0xffffff00 or greater.
    #[track_caller]
    pub fn stop(&mut self, code: u32) {
        assert_application_code(code);
        self.half.stop(code);
    }

    /// How many messages were received of this stream.
    #[must_use]
    pub const fn received(&self) -> u64 {
        self.received
    }

    pub(super) const fn half(&self) -> &RecvHalf {
        &self.half
    }
}

/// Memory of a message that is not sent yet: fill it, then [`commit`](Self::commit). Dropping it gives it
/// back.
pub struct Reservation<'a> {
    outgoing: Guard<'a>,
}

/// A message on its way out, which gives back what it holds.
struct Guard<'a> {
    half: &'a mut SendHalf,
}

impl<'a> Guard<'a> {
    #[inline]
    fn new(stream: &'a mut SendStream) -> Self {
        let half = &mut stream.half;
        // A reservation may have been forgotten instead of dropped.
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
