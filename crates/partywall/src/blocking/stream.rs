// SPDX-License-Identifier: MIT OR Apache-2.0
//! A stream: messages in both directions, each with an end of its own.

use super::io::StreamIo;
use super::park::{poll_once, wait_for};
use super::thread::ThreadHandle;
use crate::message::Message;
use crate::peer::Peer;
use crate::session::assert_application_code;
use crate::session::{RecvHalf, ReplyError, SendHalf, StreamRecvError, StreamSendError, WaitError};
use crate::transport::Transport;
use partywall_wait::{Spinner, Wait};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Both directions of a stream.
///
/// Dropping it finishes the sending direction in good order (while unwinding: resets it), and stops
/// receiving. The last handle of a session also waits, as [`Session`](super::Session) says.
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

    /// Splits the stream into its two directions, to be used by a thread each.
    #[must_use]
    pub fn into_split(self) -> (SendStream, RecvStream) {
        (self.send, self.recv)
    }

    /// Makes bytes of the stream: [`std::io::Read`] and [`std::io::Write`].
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
    pub fn send(&mut self, payload: &[u8]) -> Result<(), StreamSendError> {
        self.send.send(payload)
    }

    /// The same as [`SendStream::send_deadline`].
    ///
    /// # Errors
    /// Fails as [`send_deadline`](SendStream::send_deadline) does.
    pub fn send_deadline(
        &mut self,
        payload: &[u8],
        deadline: Instant,
    ) -> Result<(), StreamSendError> {
        self.send.send_deadline(payload, deadline)
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
    pub fn reserve(&mut self, len: usize) -> Result<Reservation<'_>, StreamSendError> {
        self.send.reserve(len)
    }

    /// The same as [`SendStream::reserve_deadline`].
    ///
    /// # Errors
    /// Fails as [`reserve_deadline`](SendStream::reserve_deadline) does.
    pub fn reserve_deadline(
        &mut self,
        len: usize,
        deadline: Instant,
    ) -> Result<Reservation<'_>, StreamSendError> {
        self.send.reserve_deadline(len, deadline)
    }

    /// The same as [`RecvStream::recv`].
    ///
    /// # Errors
    /// Fails as [`recv`](RecvStream::recv) does.
    pub fn recv(&mut self) -> Result<Option<Message>, StreamRecvError> {
        self.recv.recv()
    }

    /// The same as [`RecvStream::recv_deadline`].
    ///
    /// # Errors
    /// Fails as [`recv_deadline`](RecvStream::recv_deadline) does.
    pub fn recv_deadline(&mut self, deadline: Instant) -> Result<Option<Message>, StreamRecvError> {
        self.recv.recv_deadline(deadline)
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
    /// See [`ReplyError`]. A request whose response was not sent is lost.
    ///
    /// # Panics
    /// If `respond` returns more than `len_max`.
    pub fn reply_with(
        &mut self,
        len_max: usize,
        respond: impl FnOnce(&[u8], &mut [u8]) -> usize,
    ) -> Result<bool, ReplyError> {
        self.reply_until(len_max, respond, None)
    }

    /// As [`reply_with`](Self::reply_with), but only until `deadline`.
    ///
    /// # Errors
    /// As `reply_with`, with `TimedOut` of the direction in which the deadline passed.
    ///
    /// # Panics
    /// Panics as `reply_with` does.
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
        // Its memory goes back to the peer before the response comes.
        drop(request);
        response.commit_until(deadline).map_err(ReplyError::Send)?;
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
    wait: Wait,
    spinner: Spinner,
    // Declared after the half, so that it is dropped after it.
    _thread: Arc<ThreadHandle>,
}

impl SendStream {
    /// Sets how calls wait from now on.
    pub const fn set_wait(&mut self, wait: Wait) {
        self.wait = wait;
    }

    /// Sends a copy of `payload`, of any length up to the limits of both sides. Waits for credit of
    /// this stream, and for room in the session.
    ///
    /// When this returns `Ok`, the message is committed.
    ///
    /// # Errors
    /// Returns [`StreamSendError`] if it fails.
    pub fn send(&mut self, payload: &[u8]) -> Result<(), StreamSendError> {
        self.send_until(payload, None)
    }

    /// As [`send`](Self::send), but only until `deadline`.
    ///
    /// # Errors
    /// [`StreamSendError::TimedOut`] if it was not sent by then, and as `send`.
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
    /// [`StreamSendError::Full`], and as [`send`](Self::send).
    pub fn try_send(&mut self, payload: &[u8]) -> Result<(), StreamSendError> {
        let guard = Guard::new(self);
        let half = &mut guard.stream.half;
        let sent = poll_once(|context| half.poll_send_whole(context, payload));
        sent.unwrap_or(Err(StreamSendError::Full))
    }

    /// Reserves memory for a message of `len` bytes, to be filled and committed. A large one is the
    /// very memory that the receiver will read. Its first content is unspecified: zeros, or what
    /// this process wrote before.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn reserve(&mut self, len: usize) -> Result<Reservation<'_>, StreamSendError> {
        let mut guard = Guard::new(self);
        guard.wait(None, |half, context| half.poll_reserve(context, len))?;
        Ok(Reservation { guard })
    }

    /// As [`reserve`](Self::reserve), but only until `deadline`.
    ///
    /// # Errors
    /// [`StreamSendError::TimedOut`], and as `reserve`.
    pub fn reserve_deadline(
        &mut self,
        len: usize,
        deadline: Instant,
    ) -> Result<Reservation<'_>, StreamSendError> {
        let mut guard = Guard::new(self);
        guard.wait(Some(deadline), |half, context| half.poll_reserve(context, len))?;
        Ok(Reservation { guard })
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

    /// Waits until the peer receives no more of this stream. Returns the reason.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`] if the peer still receives by then.
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

/// A message on its way out, which returns what it holds when dropped.
struct Guard<'a> {
    stream: &'a mut SendStream,
}

impl<'a> Guard<'a> {
    fn new(stream: &'a mut SendStream) -> Self {
        // A reservation may have been leaked instead of dropped.
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
    /// Number of messages received.
    received: u64,
    // Declared after the half, so that it is dropped after it.
    _thread: Arc<ThreadHandle>,
}

impl RecvStream {
    /// Sets how calls wait from now on.
    pub const fn set_wait(&mut self, wait: Wait) {
        self.wait = wait;
    }

    /// Waits for the next message. `None` once the peer has finished its direction and everything
    /// it sent was received.
    ///
    /// # Errors
    /// Returns [`StreamRecvError`] if it fails.
    pub fn recv(&mut self) -> Result<Option<Message>, StreamRecvError> {
        self.recv_until(None)
    }

    /// As [`recv`](Self::recv), but only until `deadline`.
    ///
    /// # Errors
    /// [`StreamRecvError::TimedOut`] if none came by then, and as `recv`.
    pub fn recv_deadline(&mut self, deadline: Instant) -> Result<Option<Message>, StreamRecvError> {
        self.recv_until(Some(deadline))
    }

    /// The next message if one is there now. Never waits.
    ///
    /// # Errors
    /// [`StreamRecvError::Empty`] if none is, and as [`recv`](Self::recv).
    pub fn try_recv(&mut self) -> Result<Option<Message>, StreamRecvError> {
        let received = poll_once(|context| self.half.poll_recv(context));
        self.count(received.unwrap_or(Err(StreamRecvError::Empty)))
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

/// Memory of a message that is not sent yet: fill it, then [`commit`](Self::commit). Dropping it
/// frees it.
pub struct Reservation<'a> {
    guard: Guard<'a>,
}

impl Reservation<'_> {
    /// Sends the message.
    ///
    /// # Errors
    /// As [`SendStream::send`]; the message is then dropped.
    pub fn commit(self) -> Result<(), StreamSendError> {
        self.commit_until(None)
    }

    /// As [`commit`](Self::commit), but only until `deadline`.
    ///
    /// # Errors
    /// [`StreamSendError::TimedOut`], and as `commit`.
    pub fn commit_deadline(self, deadline: Instant) -> Result<(), StreamSendError> {
        self.commit_until(Some(deadline))
    }

    /// Shortens the message to `len` bytes; does nothing if it is not longer.
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
