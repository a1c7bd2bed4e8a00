// SPDX-License-Identifier: MIT OR Apache-2.0
//! A stream of a session on tokio. A stream carries messages in two directions, and one direction
//! can end while the other continues.
//!
//! The calls that each message takes return the future that polls the stream. An `async fn` around
//! it would have a state to look at in each poll, and would move its arguments (decision 0067).

use super::io::StreamIo;
use super::runtime::within_budget;
use crate::message::Message;
use crate::peer::Peer;
use crate::session::assert_application_code;
use crate::session::{RecvHalf, ReplyError, SendHalf, StreamRecvError, StreamSendError};
use crate::transport::{OwnedReservation, Transport};
use std::fmt;
use std::future::poll_fn;
use std::ops::{Deref, DerefMut};
use std::task::{Context, Poll, Waker, ready};

/// Both directions of a stream.
///
/// Dropping a stream finishes its sending direction in good order and stops receiving. If a panic
/// drops the stream, the sending direction is reset instead.
#[derive(Debug)]
pub struct Stream {
    send: SendStream,
    recv: RecvStream,
}

impl Stream {
    pub(super) fn new((mut send, recv): (SendHalf, RecvHalf)) -> Self {
        send.await_answers(true);
        Self { send: SendStream { half: send }, recv: RecvStream { half: recv, received: 0 } }
    }

    pub(super) const fn of_halves(send: SendStream, recv: RecvStream) -> Self {
        Self { send, recv }
    }

    /// Splits the stream into its two directions, each of which a task of its own may use.
    #[must_use]
    pub fn into_split(self) -> (SendStream, RecvStream) {
        (self.send, self.recv)
    }

    #[cfg(any(feature = "serde", feature = "zerocopy"))]
    pub(crate) const fn halves_mut(&mut self) -> (&mut SendStream, &mut RecvStream) {
        (&mut self.send, &mut self.recv)
    }

    /// Converts the stream to bytes, for protocols that run over byte streams.
    #[must_use]
    pub fn into_io(self) -> StreamIo {
        StreamIo::new(self.send, self.recv)
    }

    /// Returns the metadata with which the peer opened the stream; empty if this side opened the
    /// stream.
    #[must_use]
    pub fn metadata(&self) -> &[u8] {
        &self.recv.half.stream.metadata
    }

    /// Returns the number of the stream within the session. A later stream may get the same number.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.recv.half.stream.number
    }

    /// Returns the identity of the peer process.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        self.recv.half.shared.peer.get()
    }

    /// Returns the transport of the session; for a socket, with the reason why memory is not
    /// shared.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.recv.half.shared.transport.get()
    }

    /// Returns the sending direction of this stream.
    pub const fn sender(&mut self) -> &mut SendStream {
        &mut self.send
    }

    /// Returns the receiving direction of this stream.
    pub const fn receiver(&mut self) -> &mut RecvStream {
        &mut self.recv
    }

    /// Sends a copy of `payload`, as [`SendStream::send`] does.
    ///
    /// # Errors
    /// Fails as [`send`](SendStream::send) does, for example if the peer has stopped receiving or
    /// the session is over.
    #[inline]
    pub fn send(
        &mut self,
        payload: &[u8],
    ) -> impl Future<Output = Result<(), StreamSendError>> + Send {
        self.send.send(payload)
    }

    /// Sends a copy of `payload` without waiting, as [`SendStream::try_send`] does.
    ///
    /// # Errors
    /// Fails as [`try_send`](SendStream::try_send) does, for example if credit or room is lacking,
    /// or the session is over.
    pub fn try_send(&mut self, payload: &[u8]) -> Result<(), StreamSendError> {
        self.send.try_send(payload)
    }

    /// Reserves memory for a message, as [`SendStream::reserve`] does.
    ///
    /// # Errors
    /// Fails as [`reserve`](SendStream::reserve) does, for example if the peer has stopped
    /// receiving or the session is over.
    #[inline]
    pub fn reserve(
        &mut self,
        len: usize,
    ) -> impl Future<Output = Result<Reservation<'_>, StreamSendError>> + Send {
        self.send.reserve(len)
    }

    /// Receives the next message, as [`RecvStream::recv`] does.
    ///
    /// # Errors
    /// Fails as [`recv`](RecvStream::recv) does, for example if the peer reset the stream or the
    /// session is over.
    #[inline]
    pub fn recv(
        &mut self,
    ) -> impl Future<Output = Result<Option<Message>, StreamRecvError>> + Send {
        self.recv.recv()
    }

    /// Receives a message without waiting, as [`RecvStream::try_recv`] does.
    ///
    /// # Errors
    /// Fails as [`try_recv`](RecvStream::try_recv) does, for example if no message has arrived or
    /// the session is over.
    pub fn try_recv(&mut self) -> Result<Option<Message>, StreamRecvError> {
        self.recv.try_recv()
    }

    /// Answers the next request: receives a message and sends the response that `respond` writes.
    /// `respond` gets the request and a buffer of `len_max` bytes, and returns how many bytes it
    /// has written. The buffer of a large response is shared memory, which the peer reads without a
    /// copy.
    ///
    /// Returns `false` once the peer has finished, without calling `respond`.
    ///
    /// If the future is dropped before it completes, no response is sent, and a received request is
    /// lost.
    ///
    /// # Errors
    /// Returns [`ReplyError`]. A received request is lost if its response was not sent.
    ///
    /// # Panics
    /// Panics if `respond` returns more than `len_max`.
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
        // Dropping the request before the response is sent returns its memory to the peer earlier.
        drop(request);
        response.commit().await.map_err(ReplyError::Send)?;
        Ok(true)
    }

    /// Finishes the sending direction, as [`SendStream::finish`] does. A protocol without
    /// half-close transmits the end only after receiving has ended too: by [`RecvStream::stop`], or
    /// when the stream is dropped.
    pub fn finish(&mut self) {
        self.send.finish();
    }

    /// Resets both directions of the stream: the peer's sends and receives fail with `code`.
    ///
    /// # Panics
    /// Panics if the code is reserved for the protocol: 0xffffff00 or greater.
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
    /// Sends a copy of `payload`, which may have any length up to the limits of both sides. Waits
    /// for credit of this stream and for room in the session's connection.
    ///
    /// When the call returns `Ok`, the message is committed. If the future is dropped before, the
    /// peer receives nothing of the message. Over shared memory, a living peer receives a committed
    /// message even if this process dies. Over a socket, that holds only for bytes that the kernel
    /// has accepted.
    ///
    /// # Errors
    /// Returns [`StreamSendError`] if the message was not sent.
    #[inline]
    pub fn send(
        &mut self,
        payload: &[u8],
    ) -> impl Future<Output = Result<(), StreamSendError>> + Send {
        let mut operation = Operation::new(Guard::new(self));
        poll_fn(move |context| {
            within_budget(context, |context| {
                operation.poll(|half| half.poll_send(context, payload))
            })
        })
    }

    /// Sends a copy of `payload` if there is credit and room now. Never waits.
    ///
    /// # Errors
    /// [`StreamSendError::Full`] if credit or room is lacking; others as [`send`](Self::send).
    pub fn try_send(&mut self, payload: &[u8]) -> Result<(), StreamSendError> {
        // The message is sent whole or not at all. If a longer message were sent in fragments, a
        // call that never waits would have to abort it after its first fragments.
        let context = Context::from_waker(Waker::noop());
        let mut outgoing = Guard::new(self);
        match outgoing.poll(|half| half.poll_send_whole(&context, payload)) {
            Poll::Ready(sent) => sent,
            Poll::Pending => Err(StreamSendError::Full),
        }
    }

    /// Reserves memory for a message of `len` bytes, which the caller fills and commits. The
    /// receiver of a large message reads the same memory, without a copy. The memory contains
    /// unspecified bytes at first: zeros, or bytes that this process wrote before.
    ///
    /// # Errors
    /// Fails as [`send`](Self::send) does, for example if the peer has stopped receiving or the
    /// session is over.
    #[inline]
    pub fn reserve(
        &mut self,
        len: usize,
    ) -> impl Future<Output = Result<Reservation<'_>, StreamSendError>> + Send {
        let mut outgoing = Some(Guard::new(self));
        poll_fn(move |context| {
            let guard = outgoing.as_mut().expect(COMPLETED);
            ready!(guard.poll(|half| half.poll_reserve(context, len)))?;
            Poll::Ready(Ok(Reservation { outgoing: outgoing.take().expect(COMPLETED) }))
        })
    }

    /// Reserves memory for a message, like [`reserve`](Self::reserve), but the result does not
    /// borrow the stream. Any stream of the session may commit it.
    ///
    /// # Errors
    /// Fails as [`send`](Self::send) does, for example if the peer has stopped receiving or the
    /// session is over.
    pub async fn reserve_owned(&mut self, len: usize) -> Result<OwnedReservation, StreamSendError> {
        let mut outgoing = Guard::new(self);
        poll_fn(|context| outgoing.poll(|half| half.poll_reserve_owned(context, len))).await
    }

    /// Sends the message in `reservation`, which a stream of the same session reserved. A dropped
    /// future has sent all of the message or nothing of it, and drops the message.
    ///
    /// # Errors
    /// [`StreamSendError::ForeignReservation`] if another session reserved the memory; others as
    /// [`send`](Self::send). The message is then dropped.
    pub async fn commit_owned(
        &mut self,
        reservation: OwnedReservation,
    ) -> Result<(), StreamSendError> {
        let mut outgoing = Guard::new(self);
        let own = outgoing.half.put_reserved(reservation);
        own.map_err(|_| StreamSendError::ForeignReservation)?;
        poll_fn(|context| {
            within_budget(context, |context| outgoing.poll(|half| half.poll_commit(context)))
        })
        .await
    }

    /// Sends the message in `reservation`, like [`commit_owned`](Self::commit_owned), if there is
    /// credit and room now. Never waits.
    ///
    /// # Errors
    /// Returns the reservation together with the reason: see [`StreamSendError`].
    pub fn try_commit_owned(
        &mut self,
        reservation: OwnedReservation,
    ) -> Result<(), (OwnedReservation, StreamSendError)> {
        let half = &mut *Guard::new(self).half;
        if let Err(foreign) = half.put_reserved(reservation) {
            return Err((foreign, StreamSendError::ForeignReservation));
        }
        let sent = match half.poll_commit_whole(&Context::from_waker(Waker::noop())) {
            Poll::Ready(sent) => Some(sent),
            Poll::Pending => None,
        };
        half.settle_owned(sent)
    }

    /// Ends the sending direction in good order: no more messages follow, and every sent message is
    /// still delivered. The other direction continues. A protocol without half-close transmits the
    /// end only after receiving has ended too.
    pub fn finish(&mut self) {
        self.half.finish();
    }

    /// Resets the sending direction: the receiver gets `code` instead of an end in good order.
    ///
    /// # Panics
    /// Panics if the code is reserved for the protocol: 0xffffff00 or greater.
    #[track_caller]
    pub fn reset(&mut self, code: u32) {
        assert_application_code(code);
        self.half.reset(code);
    }

    /// Waits until the peer stops receiving from this stream or this side stops sending. Returns
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
    received: u64,
}

impl RecvStream {
    /// Waits for the next message. Returns `None` once the peer has finished its direction and
    /// every message was received. Cancel-safe: a dropped future has taken no message.
    ///
    /// # Errors
    /// Returns [`StreamRecvError`] if no message was received.
    #[inline]
    pub fn recv(
        &mut self,
    ) -> impl Future<Output = Result<Option<Message>, StreamRecvError>> + Send {
        poll_fn(|context| self.poll_recv(context))
    }

    /// Returns the next message if one has arrived. Never waits.
    ///
    /// # Errors
    /// [`StreamRecvError::Empty`] if no message has arrived; others as [`recv`](Self::recv).
    pub fn try_recv(&mut self) -> Result<Option<Message>, StreamRecvError> {
        match self.poll_next(&Context::from_waker(Waker::noop())) {
            Poll::Ready(received) => received,
            Poll::Pending => Err(StreamRecvError::Empty),
        }
    }

    /// Polls for the next message, like [`recv`](Self::recv), for futures that are written by hand.
    ///
    /// # Errors
    /// Fails as [`recv`](Self::recv) does.
    pub fn poll_recv(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Message>, StreamRecvError>> {
        within_budget(context, |context| self.poll_next(context))
    }

    /// Polls for the next message without charging tokio's task budget, unlike
    /// [`poll_recv`](Self::poll_recv).
    pub(super) fn poll_next(
        &mut self,
        context: &Context<'_>,
    ) -> Poll<Result<Option<Message>, StreamRecvError>> {
        let polled = self.half.poll_recv(context);
        self.received += u64::from(matches!(polled, Poll::Ready(Ok(Some(_)))));
        polled
    }

    /// Returns the next message if one has arrived, without registering the task to be woken.
    pub(super) fn take_arrived(&mut self) -> Option<Message> {
        let message = self.half.take_arrived();
        self.received += u64::from(message.is_some());
        message
    }

    /// Stops receiving on this stream: the peer's sends fail with `code`, and unread messages are
    /// dropped.
    ///
    /// # Panics
    /// Panics if the code is reserved for the protocol: 0xffffff00 or greater.
    #[track_caller]
    pub fn stop(&mut self, code: u32) {
        assert_application_code(code);
        self.half.stop(code);
    }

    /// Returns the number of messages received on this stream.
    #[must_use]
    pub const fn received(&self) -> u64 {
        self.received
    }

    pub(super) const fn half(&self) -> &RecvHalf {
        &self.half
    }
}

/// Reserved memory for one message: fill it, then [`commit`](Self::commit). Dropping the
/// reservation frees the memory without sending.
pub struct Reservation<'a> {
    outgoing: Guard<'a>,
}

/// The guard of a message that is being sent. Dropping the guard frees the message's reserved
/// memory and, if the message was not sent, its credit.
struct Guard<'a> {
    half: &'a mut SendHalf,
}

impl<'a> Guard<'a> {
    #[inline]
    fn new(stream: &'a mut SendStream) -> Self {
        let half = &mut stream.half;
        // The caller may have leaked the previous reservation. Its memory and credit are freed
        // before the new message is reserved.
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

/// The operation of a future that sends a message. It completes once.
struct Operation<'a> {
    outgoing: Guard<'a>,
    has_completed: bool,
}

impl<'a> Operation<'a> {
    #[inline]
    const fn new(outgoing: Guard<'a>) -> Self {
        Self { outgoing, has_completed: false }
    }

    /// Polls the operation.
    ///
    /// # Panics
    /// Panics if the operation has completed before, as an `async fn` does.
    #[inline]
    fn poll<T>(&mut self, poll: impl FnOnce(&mut SendHalf) -> Poll<T>) -> Poll<T> {
        assert!(!self.has_completed, "{COMPLETED}");
        let polled = self.outgoing.poll(poll);
        self.has_completed = polled.is_ready();
        polled
    }
}

const COMPLETED: &str = "the future was polled after it had completed";

impl Reservation<'_> {
    /// Sends the message in the reserved memory; waits for room if necessary.
    ///
    /// # Errors
    /// Fails as [`SendStream::send`] does, and then drops the message.
    #[inline]
    pub fn commit(self) -> impl Future<Output = Result<(), StreamSendError>> + Send {
        let mut operation = Operation::new(self.outgoing);
        poll_fn(move |context| {
            within_budget(context, |context| operation.poll(|half| half.poll_commit(context)))
        })
    }

    /// Shortens the message to `len` bytes. Does nothing if the message is not longer than `len`.
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
