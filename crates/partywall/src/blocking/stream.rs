// SPDX-License-Identifier: MIT OR Apache-2.0
//! A stream of a session without a runtime. A stream carries messages in two directions, and one
//! direction can end while the other continues.

use super::io::StreamIo;
use super::park::{poll_once, wait_for};
use super::thread::ThreadHandle;
use crate::message::Message;
use crate::peer::Peer;
use crate::session::assert_application_code;
use crate::session::{RecvHalf, ReplyError, SendHalf, StreamRecvError, StreamSendError, WaitError};
use crate::transport::{OwnedReservation, Transport};
use partywall_wait::{Spinner, Wait};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Both directions of a stream.
///
/// Dropping a stream finishes its sending direction in good order and stops receiving. If a panic
/// drops the stream, the sending direction is reset instead. Dropping the last handle of a session
/// also waits, as [`Session`](super::Session) says.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let address = format!("unix:{}/app.sock", directory.path().display());
/// # let mut listener = partywall::blocking::Listener::bind(&address)?;
/// # let server = std::thread::spawn(move || listener.accept().unwrap());
/// # let session = partywall::blocking::connect(&address)?;
/// # let other = server.join().unwrap();
/// use std::time::{Duration, Instant};
///
/// let mut stream = session.open(b"")?;
/// let soon = Instant::now() + Duration::from_secs(1);
/// let mut reserved = stream.reserve_deadline(5, soon)?;
/// reserved.copy_from_slice(b"hello");
/// reserved.commit_deadline(soon)?;
/// stream.send_deadline(b"world", soon)?;
/// # let mut there = other.accept()?.unwrap();
/// assert_eq!(there.recv_deadline(soon)?.unwrap(), b"hello");
/// assert_eq!(there.recv_deadline(soon)?.unwrap(), b"world");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Stream {
    send: SendStream,
    recv: RecvStream,
}

impl Stream {
    pub(super) fn new(
        (send, recv): (SendHalf, RecvHalf),
        thread: &Arc<ThreadHandle>,
        wait: Wait,
        budget: Duration,
    ) -> Self {
        let spinner = || Spinner::new(budget);
        let thread = || Arc::clone(thread);
        Self {
            send: SendStream { half: send, wait, spinner: spinner(), _thread: thread() },
            recv: RecvStream {
                half: recv,
                wait,
                spinner: spinner(),
                received: 0,
                _thread: thread(),
            },
        }
    }

    /// Splits the stream into its two directions, each of which a thread of its own may use.
    #[must_use]
    pub fn into_split(self) -> (SendStream, RecvStream) {
        (self.send, self.recv)
    }

    /// Converts the stream to bytes: [`std::io::Read`] and [`std::io::Write`].
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
    pub fn send(&mut self, payload: &[u8]) -> Result<(), StreamSendError> {
        self.send.send(payload)
    }

    /// Sends a copy of `payload` before `deadline`, as [`SendStream::send_deadline`] does.
    ///
    /// # Errors
    /// Fails as [`send_deadline`](SendStream::send_deadline) does, for example if the deadline
    /// passes or the session is over.
    pub fn send_deadline(
        &mut self,
        payload: &[u8],
        deadline: Instant,
    ) -> Result<(), StreamSendError> {
        self.send.send_deadline(payload, deadline)
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
    pub fn reserve(&mut self, len: usize) -> Result<Reservation<'_>, StreamSendError> {
        self.send.reserve(len)
    }

    /// Reserves memory before `deadline`, as [`SendStream::reserve_deadline`] does.
    ///
    /// # Errors
    /// Fails as [`reserve_deadline`](SendStream::reserve_deadline) does, for example if the
    /// deadline passes or the session is over.
    pub fn reserve_deadline(
        &mut self,
        len: usize,
        deadline: Instant,
    ) -> Result<Reservation<'_>, StreamSendError> {
        self.send.reserve_deadline(len, deadline)
    }

    /// Receives the next message, as [`RecvStream::recv`] does.
    ///
    /// # Errors
    /// Fails as [`recv`](RecvStream::recv) does, for example if the peer reset the stream or the
    /// session is over.
    pub fn recv(&mut self) -> Result<Option<Message>, StreamRecvError> {
        self.recv.recv()
    }

    /// Receives a message before `deadline`, as [`RecvStream::recv_deadline`] does.
    ///
    /// # Errors
    /// Fails as [`recv_deadline`](RecvStream::recv_deadline) does, for example if the deadline
    /// passes or the session is over.
    pub fn recv_deadline(&mut self, deadline: Instant) -> Result<Option<Message>, StreamRecvError> {
        self.recv.recv_deadline(deadline)
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
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let address = format!("unix:{}/app.sock", directory.path().display());
    /// # let mut listener = partywall::blocking::Listener::bind(&address)?;
    /// # type Error = Box<dyn std::error::Error + Send + Sync>;
    /// # let client = std::thread::spawn(move || -> Result<(), Error> {
    /// #     let session = partywall::blocking::connect(&address)?;
    /// #     let mut stream = session.open(b"")?;
    /// #     stream.send(b"shout")?;
    /// #     assert_eq!(stream.recv()?.expect("a response"), b"SHOUT");
    /// #     Ok(())
    /// # });
    /// # let session = listener.accept()?;
    /// # let mut stream = session.accept()?.expect("a stream");
    /// let shout = |request: &[u8], response: &mut [u8]| {
    ///     response[..request.len()].copy_from_slice(&request.to_ascii_uppercase());
    ///     request.len()
    /// };
    /// while stream.reply_with(4096, shout)? {}
    /// # client.join().unwrap().map_err(|error| error.to_string())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`ReplyError`]. A received request is lost if its response was not sent.
    ///
    /// # Panics
    /// Panics if `respond` returns more than `len_max`.
    pub fn reply_with(
        &mut self,
        len_max: usize,
        respond: impl FnOnce(&[u8], &mut [u8]) -> usize,
    ) -> Result<bool, ReplyError> {
        self.reply_until(len_max, respond, None)
    }

    /// Answers the next request, like [`reply_with`](Self::reply_with), but waits only until
    /// `deadline`.
    ///
    /// # Errors
    /// Fails as [`reply_with`](Self::reply_with) does, or with `TimedOut` of the direction in which
    /// the deadline passed.
    ///
    /// # Panics
    /// Panics as [`reply_with`](Self::reply_with) does.
    pub fn reply_with_deadline(
        &mut self,
        len_max: usize,
        respond: impl FnOnce(&[u8], &mut [u8]) -> usize,
        deadline: Instant,
    ) -> Result<bool, ReplyError> {
        self.reply_until(len_max, respond, Some(deadline))
    }

    fn reply_until(
        &mut self,
        len_max: usize,
        respond: impl FnOnce(&[u8], &mut [u8]) -> usize,
        deadline: Option<Instant>,
    ) -> Result<bool, ReplyError> {
        let received = self.recv.recv_until(deadline).map_err(ReplyError::Recv)?;
        let Some(request) = received else { return Ok(false) };
        let mut guard = Guard::new(&mut self.send);
        let reserved = guard.wait(deadline, |half, context| half.poll_reserve(context, len_max));
        reserved.map_err(ReplyError::Send)?;
        let mut response = Reservation { guard };
        let used = respond(&request, &mut response);
        assert!(used <= len_max, "a response of {used} bytes in {len_max}");
        response.truncate(used);
        // Dropping the request before the response is sent returns its memory to the peer earlier.
        drop(request);
        response.commit_until(deadline).map_err(ReplyError::Send)?;
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
    wait: Wait,
    spinner: Spinner,
    // The field `_thread` is declared after `half`, which is a handle of the session. So `half` is
    // dropped first, and the session's thread can end.
    _thread: Arc<ThreadHandle>,
}

impl SendStream {
    /// Sets how later calls of this direction of the stream wait.
    pub const fn set_wait(&mut self, wait: Wait) {
        self.wait = wait;
    }

    /// Sends a copy of `payload`, which may have any length up to the limits of both sides. Waits
    /// for credit of this stream and for room in the session's connection.
    ///
    /// When the call returns `Ok`, the message is committed. Over shared memory, a living peer
    /// receives it even if this process dies. Over a socket, that holds only for bytes that the
    /// kernel has accepted. To wait for all bytes, close the session and call
    /// [`finished`](super::Session::finished).
    ///
    /// # Errors
    /// Returns [`StreamSendError`] if the message was not sent.
    pub fn send(&mut self, payload: &[u8]) -> Result<(), StreamSendError> {
        self.send_until(payload, None)
    }

    /// Sends a copy of `payload`, like [`send`](Self::send), but waits only until `deadline`.
    ///
    /// # Errors
    /// [`StreamSendError::TimedOut`] if the deadline passed first; others as [`send`](Self::send).
    pub fn send_deadline(
        &mut self,
        payload: &[u8],
        deadline: Instant,
    ) -> Result<(), StreamSendError> {
        self.send_until(payload, Some(deadline))
    }

    /// Sends a copy of `payload` if there is credit and room now. Never waits.
    ///
    /// # Errors
    /// [`StreamSendError::Full`] if credit or room is lacking; others as [`send`](Self::send).
    pub fn try_send(&mut self, payload: &[u8]) -> Result<(), StreamSendError> {
        let guard = Guard::new(self);
        let half = &mut guard.stream.half;
        let sent = poll_once(|context| half.poll_send_whole(context, payload));
        sent.unwrap_or(Err(StreamSendError::Full))
    }

    /// Reserves memory for a message of `len` bytes, which the caller fills and commits. The
    /// receiver of a large message reads the same memory, without a copy. The memory contains
    /// unspecified bytes at first: zeros, or bytes that this process wrote before.
    ///
    /// # Errors
    /// Fails as [`send`](Self::send) does, for example if the peer has stopped receiving or the
    /// session is over.
    pub fn reserve(&mut self, len: usize) -> Result<Reservation<'_>, StreamSendError> {
        let mut guard = Guard::new(self);
        guard.wait(None, |half, context| half.poll_reserve(context, len))?;
        Ok(Reservation { guard })
    }

    /// Reserves memory for a message, like [`reserve`](Self::reserve), but waits only until
    /// `deadline`.
    ///
    /// # Errors
    /// [`StreamSendError::TimedOut`] if the deadline passed; others as [`reserve`](Self::reserve).
    pub fn reserve_deadline(
        &mut self,
        len: usize,
        deadline: Instant,
    ) -> Result<Reservation<'_>, StreamSendError> {
        let mut guard = Guard::new(self);
        guard.wait(Some(deadline), |half, context| half.poll_reserve(context, len))?;
        Ok(Reservation { guard })
    }

    /// Reserves memory for a message, like [`reserve`](Self::reserve), but the result does not
    /// borrow the stream. Any stream of the session may commit it. The call waits only until
    /// `deadline`.
    ///
    /// # Errors
    /// [`StreamSendError::TimedOut`] if the deadline passed; others as [`send`](Self::send).
    pub fn reserve_owned(
        &mut self,
        len: usize,
        deadline: Option<Instant>,
    ) -> Result<OwnedReservation, StreamSendError> {
        let SendStream { half, wait, spinner, .. } = &mut *Guard::new(self).stream;
        let reserved =
            wait_for(*wait, spinner, deadline, |context| half.poll_reserve_owned(context, len));
        reserved.unwrap_or(Err(StreamSendError::TimedOut))
    }

    /// Sends the message in `reservation`, which a stream of the same session reserved. The call
    /// waits only until `deadline`.
    ///
    /// # Errors
    /// [`StreamSendError::ForeignReservation`] if another session reserved the memory,
    /// [`StreamSendError::TimedOut`] if the deadline passed; others as [`send`](Self::send). The
    /// message is then dropped.
    pub fn commit_owned(
        &mut self,
        reservation: OwnedReservation,
        deadline: Option<Instant>,
    ) -> Result<(), StreamSendError> {
        let mut guard = Guard::new(self);
        let own = guard.stream.half.put_reserved(reservation);
        own.map_err(|_| StreamSendError::ForeignReservation)?;
        guard.wait(deadline, |half, context| half.poll_commit(context))
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
        let guard = Guard::new(self);
        let half = &mut guard.stream.half;
        if let Err(foreign) = half.put_reserved(reservation) {
            return Err((foreign, StreamSendError::ForeignReservation));
        }
        let sent = poll_once(|context| half.poll_commit_whole(context));
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

    /// Waits until the peer stops receiving from this stream. Returns the reason.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`] if the deadline passes first.
    pub fn stopped(&mut self, deadline: Option<Instant>) -> Result<StreamSendError, WaitError> {
        let Self { half, wait, spinner, .. } = self;
        let stopped = wait_for(*wait, spinner, deadline, |context| half.poll_stopped(context));
        stopped.ok_or(WaitError::TimedOut)
    }

    fn send_until(
        &mut self,
        payload: &[u8],
        deadline: Option<Instant>,
    ) -> Result<(), StreamSendError> {
        let mut guard = Guard::new(self);
        guard.wait(deadline, |half, context| half.poll_send(context, payload))
    }
}

/// The guard of a message that is being sent. Dropping the guard frees the message's reserved
/// memory and, if the message was not sent, its credit.
struct Guard<'a> {
    stream: &'a mut SendStream,
}

impl<'a> Guard<'a> {
    fn new(stream: &'a mut SendStream) -> Self {
        // The caller may have leaked the previous reservation. Its memory and credit are freed
        // before the new message is reserved.
        stream.half.give_back();
        Self { stream }
    }

    fn wait(
        &mut self,
        deadline: Option<Instant>,
        mut poll: impl FnMut(&mut SendHalf, &Context<'_>) -> Poll<Result<(), StreamSendError>>,
    ) -> Result<(), StreamSendError> {
        let SendStream { half, wait, spinner, .. } = &mut *self.stream;
        let done = wait_for(*wait, spinner, deadline, |context| poll(half, context));
        done.unwrap_or(Err(StreamSendError::TimedOut))
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.stream.half.give_back();
    }
}

/// The receiving direction of a stream.
#[derive(Debug)]
pub struct RecvStream {
    half: RecvHalf,
    wait: Wait,
    spinner: Spinner,
    received: u64,
    // The field `_thread` is declared after `half`, which is a handle of the session. So `half` is
    // dropped first, and the session's thread can end.
    _thread: Arc<ThreadHandle>,
}

impl RecvStream {
    /// Sets how later calls of this direction of the stream wait.
    pub const fn set_wait(&mut self, wait: Wait) {
        self.wait = wait;
    }

    /// Waits for the next message. Returns `None` once the peer has finished its direction and
    /// every message was received.
    ///
    /// # Errors
    /// Returns [`StreamRecvError`] if no message was received.
    pub fn recv(&mut self) -> Result<Option<Message>, StreamRecvError> {
        self.recv_until(None)
    }

    /// Waits for the next message, like [`recv`](Self::recv), but only until `deadline`.
    ///
    /// # Errors
    /// [`StreamRecvError::TimedOut`] if the deadline passed first; others as [`recv`](Self::recv).
    pub fn recv_deadline(&mut self, deadline: Instant) -> Result<Option<Message>, StreamRecvError> {
        self.recv_until(Some(deadline))
    }

    /// Returns the next message if one has arrived. Never waits.
    ///
    /// # Errors
    /// [`StreamRecvError::Empty`] if no message has arrived; others as [`recv`](Self::recv).
    pub fn try_recv(&mut self) -> Result<Option<Message>, StreamRecvError> {
        let received = poll_once(|context| self.half.poll_recv(context));
        self.count(received.unwrap_or(Err(StreamRecvError::Empty)))
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

    fn recv_until(
        &mut self,
        deadline: Option<Instant>,
    ) -> Result<Option<Message>, StreamRecvError> {
        let Self { half, wait, spinner, .. } = self;
        let received = wait_for(*wait, spinner, deadline, |context| half.poll_recv(context));
        self.count(received.unwrap_or(Err(StreamRecvError::TimedOut)))
    }

    fn count(
        &mut self,
        received: Result<Option<Message>, StreamRecvError>,
    ) -> Result<Option<Message>, StreamRecvError> {
        self.received += u64::from(matches!(received, Ok(Some(_))));
        received
    }
}

/// Reserved memory for one message: fill it, then [`commit`](Self::commit). Dropping the
/// reservation frees the memory without sending.
pub struct Reservation<'a> {
    guard: Guard<'a>,
}

impl Reservation<'_> {
    /// Sends the message in the reserved memory; waits for room if necessary.
    ///
    /// # Errors
    /// Fails as [`SendStream::send`] does, and then drops the message.
    pub fn commit(self) -> Result<(), StreamSendError> {
        self.commit_until(None)
    }

    /// Sends the message, like [`commit`](Self::commit), but waits only until `deadline`.
    ///
    /// # Errors
    /// [`StreamSendError::TimedOut`] if the deadline passed; others as [`commit`](Self::commit).
    pub fn commit_deadline(self, deadline: Instant) -> Result<(), StreamSendError> {
        self.commit_until(Some(deadline))
    }

    /// Shortens the message to `len` bytes. Does nothing if the message is not longer than `len`.
    pub fn truncate(&mut self, len: usize) {
        self.guard.stream.half.truncate(len);
    }

    fn commit_until(mut self, deadline: Option<Instant>) -> Result<(), StreamSendError> {
        self.guard.wait(deadline, |half, context| half.poll_commit(context))
    }
}

impl Deref for Reservation<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.guard.stream.half.memory()
    }
}

impl DerefMut for Reservation<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.guard.stream.half.memory_mut()
    }
}

impl fmt::Debug for Reservation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("len", &self.len()).finish_non_exhaustive()
    }
}
