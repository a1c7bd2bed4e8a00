// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiving direction of a channel: owned messages, and messages borrowed from the ring.

use super::message_ref::MessageRef;
use super::receiver_parker::ReceiverParker;
use crate::config::Config;
use crate::error::{Closed, Fault, RecvError, TryRecvError};
use crate::message::Message;
use crate::stats::ReceiverStats;
use crate::transport::protocol::ProtocolReceiver;
use crate::transport::shm::ShmReceiver;
use crate::transport::socket::SocketReceiver;
use crate::transport::{Found, TransportReceiver, Waited};
use partywall_wait::{Spinner, Wait};
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

/// The receiving direction of a channel.
///
/// Dropping the receiver closes its direction: the peer's next `send` returns `Closed`. Over a
/// socket, the peer may learn of the close later, and messages that the peer sends meanwhile are
/// lost.
#[derive(Debug)]
pub struct Receiver {
    pub(super) end: AnyReceiver,
    wait: Wait,
    spinner: Spinner,
}

/// Whether a caller may block on the descriptor of a receiver or sender. Result of
/// [`Receiver::arm`] and [`Sender::arm`](crate::Sender::arm).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Readiness {
    /// A message, or room to send, may have come already: call `try_recv` or `try_send` before
    /// polling the descriptor.
    Ready,
    /// Neither a message nor room to send has come. The descriptor becomes readable when a message
    /// or room may have come.
    WillNotify,
}

impl Receiver {
    pub(crate) fn new(end: AnyReceiver, config: &Config) -> Self {
        Self { end, wait: config.wait, spinner: Spinner::new(config.spin_budget) }
    }

    /// Sets how this receiver waits from now on.
    pub const fn set_wait(&mut self, wait: Wait) {
        self.wait = wait;
    }

    /// Blocks until a message arrives, and returns it. Returns `None` once the sender has finished
    /// and every message that it sent was received.
    ///
    /// A short message is copied out of the ring; a long one is a view of the sender's memory.
    ///
    /// # Errors
    /// [`RecvError::Disconnected`] if the peer died or hung up without finishing; messages that it
    /// had committed are received first. [`RecvError::Fault`] if the channel is broken.
    #[inline]
    pub fn recv(&mut self) -> Result<Option<Message>, RecvError> {
        self.recv_until(None)
    }

    /// Returns the next message, like [`recv`](Self::recv), but blocks only until `deadline`.
    ///
    /// # Errors
    /// [`RecvError::TimedOut`] if the deadline passed, and the errors of [`recv`](Self::recv).
    pub fn recv_deadline(&mut self, deadline: Instant) -> Result<Option<Message>, RecvError> {
        self.recv_until(Some(deadline))
    }

    /// Returns the next message if one has arrived, or `None` once the sender has finished. Never
    /// blocks.
    ///
    /// # Errors
    /// [`TryRecvError::Empty`] if no message has arrived, and the errors of [`recv`](Self::recv).
    #[inline]
    pub fn try_recv(&mut self) -> Result<Option<Message>, TryRecvError> {
        if self.end.find_inline() {
            return Ok(Some(self.end.take()));
        }
        match self.find_any()? {
            Found::Message => Ok(Some(self.end.take())),
            Found::Nothing | Found::Control(_) => self.try_recv_at_end(),
            Found::End(closed) => Ok(at_end(closed)?),
        }
    }

    /// Receives the next message, like [`recv`](Self::recv), but the result borrows the message in
    /// the ring or block, without a copy.
    ///
    /// The result borrows the receiver. Dropping the result consumes the message. A short message
    /// may keep its space in the ring until the next receive call.
    ///
    /// # Errors
    /// Fails as [`recv`](Self::recv) does, for example if the peer died.
    #[inline]
    pub fn recv_ref(&mut self) -> Result<Option<MessageRef<'_>>, RecvError> {
        self.recv_ref_until(None)
    }

    /// Borrows the next message, like [`recv_ref`](Self::recv_ref), but blocks only until
    /// `deadline`.
    ///
    /// # Errors
    /// [`RecvError::TimedOut`] if the deadline passed, and the errors of [`recv`](Self::recv).
    pub fn recv_ref_deadline(
        &mut self,
        deadline: Instant,
    ) -> Result<Option<MessageRef<'_>>, RecvError> {
        self.recv_ref_until(Some(deadline))
    }

    /// Borrows the next message, like [`recv_ref`](Self::recv_ref), if one has arrived. Never
    /// blocks.
    ///
    /// # Errors
    /// Fails as [`try_recv`](Self::try_recv) does, for example if no message has arrived or the
    /// peer died.
    #[inline]
    pub fn try_recv_ref(&mut self) -> Result<Option<MessageRef<'_>>, TryRecvError> {
        if self.end.find_inline() {
            return Ok(Some(MessageRef::new(self)));
        }
        match self.find_any()? {
            Found::Message => Ok(Some(MessageRef::new(self))),
            Found::Nothing | Found::Control(_) => {
                self.end.notice_end()?;
                Err(TryRecvError::Empty)
            }
            Found::End(closed) => Ok(at_end(closed)?),
        }
    }

    /// Receives the next message, like [`recv_ref`](Self::recv_ref), but without a guard: the
    /// result is valid until the next receive call, which consumes the message. Until then the
    /// message keeps its space in the ring.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let address = format!("unix:{}/app.sock", directory.path().display());
    /// # let mut listener = partywall::Listener::bind(&address)?;
    /// # let client = std::thread::spawn(move || {
    /// #     let mut channel = partywall::connect(&address).unwrap();
    /// #     channel.send(b"one").unwrap();
    /// #     channel.send(b"two").unwrap();
    /// # });
    /// # let mut channel = listener.accept()?;
    /// let receiver = channel.receiver();
    /// assert_eq!(receiver.recv_view()?, Some(&b"one"[..])); // read in the ring itself
    /// assert_eq!(receiver.recv_view()?, Some(&b"two"[..])); // the first is consumed
    /// let kept = receiver.keep_view(); // an owned message
    /// assert_eq!(kept.unwrap(), b"two");
    /// # client.join().unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Fails as [`recv`](Self::recv) does, for example if the peer died.
    #[inline]
    pub fn recv_view(&mut self) -> Result<Option<&[u8]>, RecvError> {
        let found = self.find_until(None)?;
        Ok(self.view(found))
    }

    /// Receives a view of the next message, like [`recv_view`](Self::recv_view), but blocks only
    /// until `deadline`.
    ///
    /// # Errors
    /// [`RecvError::TimedOut`] if the deadline passed, and the errors of [`recv`](Self::recv).
    pub fn recv_view_deadline(&mut self, deadline: Instant) -> Result<Option<&[u8]>, RecvError> {
        let found = self.find_until(Some(deadline))?;
        Ok(self.view(found))
    }

    /// Receives a view of the next message, like [`recv_view`](Self::recv_view), if one has
    /// arrived. Never blocks.
    ///
    /// # Errors
    /// Fails as [`try_recv`](Self::try_recv) does, for example if no message has arrived or the
    /// peer died.
    #[inline]
    pub fn try_recv_view(&mut self) -> Result<Option<&[u8]>, TryRecvError> {
        let found = self.try_find()?;
        Ok(self.view(found))
    }

    /// Makes the message that [`recv_view`](Self::recv_view) returned last an owned message. A
    /// short message is copied; a long one is not. Returns `None` if a later receive call has
    /// consumed the message.
    pub fn keep_view(&mut self) -> Option<Message> {
        self.end.end_view().then(|| self.end.take())
    }

    /// Prepares the descriptor ([`AsFd`]) for an external event loop. Call `arm` before polling the
    /// descriptor, and poll only if the result is [`Readiness::WillNotify`]. When the descriptor is
    /// readable, call [`try_recv`](Self::try_recv) until `Empty`, then `arm` again. Never read from
    /// the descriptor.
    ///
    /// # Errors
    /// [`Fault`] if the channel is broken.
    pub fn arm(&mut self) -> Result<Readiness, Fault> {
        Ok(if self.end.arm(false)? { Readiness::Ready } else { Readiness::WillNotify })
    }

    /// Returns an object on which a thread waits for the next message, and by which another thread
    /// ends that wait. Such a wait takes one system call, where polling the descriptor takes two.
    /// The receiver of a channel that uses a socket has no such object, and the result is `None`:
    /// poll the descriptor instead, after [`arm`](Self::arm).
    ///
    /// ```
    /// # use partywall::{Readiness, TryRecvError};
    /// # let directory = tempfile::tempdir()?;
    /// # let address = format!("unix:{}/app.sock", directory.path().display());
    /// # let mut listener = partywall::Listener::bind(&address)?;
    /// # let client = std::thread::spawn(move || partywall::connect(&address).unwrap());
    /// let (_sender, mut receiver) = listener.accept()?.split();
    /// let parker = receiver.parker().expect("the channel shares memory");
    /// let waker = parker.clone();
    /// let other = std::thread::spawn(move || waker.wake());
    /// assert!(matches!(receiver.try_recv(), Err(TryRecvError::Empty)));
    /// assert_eq!(receiver.arm_parker()?, Readiness::WillNotify);
    /// parker.park(None)?; // no message: the other thread has woken this one
    /// # other.join().unwrap();
    /// # drop(client.join().unwrap());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn parker(&self) -> Option<ReceiverParker> {
        match &self.end {
            AnyReceiver::SharedMemory(end) => Some(ReceiverParker::new(end.shared())),
            AnyReceiver::Socket(_) | AnyReceiver::Protocol(_) => None,
        }
    }

    /// Prepares for [`ReceiverParker::park`], as [`arm`](Self::arm) does for polling the
    /// descriptor, and without a system call. Park only if the result is
    /// [`Readiness::WillNotify`].
    ///
    /// # Errors
    /// [`Fault`] if the channel is broken.
    pub fn arm_parker(&mut self) -> Result<Readiness, Fault> {
        let is_ready = match &mut self.end {
            AnyReceiver::SharedMemory(end) => end.arm_parker()?,
            // A receiver over a socket has no object on which a thread could park. So it reports
            // `Ready`, and the caller does not park.
            AnyReceiver::Socket(_) | AnyReceiver::Protocol(_) => true,
        };
        Ok(if is_ready { Readiness::Ready } else { Readiness::WillNotify })
    }

    /// Returns the counters of the receiving direction.
    #[must_use]
    pub fn stats(&self) -> ReceiverStats {
        self.end.stats()
    }

    /// Returns the number of the last received message. The first message has the number 0.
    #[cfg(any(feature = "serde", feature = "zerocopy"))]
    pub(crate) fn last_number(&self) -> u64 {
        self.stats().messages.saturating_sub(1)
    }

    #[inline]
    fn recv_until(&mut self, deadline: Option<Instant>) -> Result<Option<Message>, RecvError> {
        Ok(self.find_until(deadline)?.then(|| self.end.take()))
    }

    #[inline]
    fn recv_ref_until(
        &mut self,
        deadline: Option<Instant>,
    ) -> Result<Option<MessageRef<'_>>, RecvError> {
        Ok(self.find_until(deadline)?.then(|| MessageRef::new(self)))
    }

    /// Blocks until a message has arrived, and makes it the receiver's current message. Returns
    /// false if the peer has finished sending.
    #[inline(always)]
    fn find_until(&mut self, deadline: Option<Instant>) -> Result<bool, RecvError> {
        Ok(self.end.find_inline() || self.wait_for_message(deadline)?)
    }

    /// Does what [`find_until`](Self::find_until) does, after a short look has found no message.
    /// The function is not inlined, so that the functions which look first stay short.
    #[inline(never)]
    fn wait_for_message(&mut self, deadline: Option<Instant>) -> Result<bool, RecvError> {
        loop {
            match self.end.find(true)? {
                Found::Message => return Ok(true),
                Found::Nothing | Found::Control(_) => {
                    if self.wait_until(deadline)? {
                        return Ok(true);
                    }
                }
                Found::End(closed) => return Ok(at_end(closed)?.unwrap_or(false)),
            }
        }
    }

    /// Finds the next record, of whatever kind, for a caller that does not wait. The function is
    /// not inlined, so that the functions which call `find_inline` first stay short.
    #[inline(never)]
    fn find_any(&mut self) -> Result<Found, Fault> {
        self.end.find(false)
    }

    /// Makes the next message the receiver's current message if one has arrived. Returns false if
    /// the peer has finished sending.
    #[inline]
    pub(crate) fn try_find(&mut self) -> Result<bool, TryRecvError> {
        Ok(self.try_recv_ref()?.map(std::mem::forget).is_some())
    }

    pub(crate) fn take_found(&mut self) -> Message {
        self.end.take()
    }

    /// Returns the bytes of the receiver's current message, or `None` if the search for a message,
    /// whose result is `found`, found none. The bytes stay valid until the next call that receives.
    #[inline(always)]
    pub(crate) fn view(&mut self, found: bool) -> Option<&[u8]> {
        if found {
            self.end.begin_view();
        }
        found.then(|| self.end.current())
    }

    /// Blocks until there may be something to receive. Returns whether a message has become the
    /// receiver's current message.
    #[inline(always)]
    fn wait_until(&mut self, deadline: Option<Instant>) -> Result<bool, RecvError> {
        let (wait, spinner) = (self.wait, &mut self.spinner);
        let waited = match &mut self.end {
            AnyReceiver::SharedMemory(end) => end.wait(wait, spinner, deadline)?,
            AnyReceiver::Socket(end) => end.wait(wait, spinner, deadline)?,
            AnyReceiver::Protocol(end) => end.wait(wait, spinner, deadline)?,
        };
        match waited {
            Waited::Found => Ok(true),
            Waited::Again => Ok(false),
            Waited::TimedOut => Err(RecvError::TimedOut),
        }
    }

    /// Handles a call of `try_recv` that found no message. In some of these calls it checks whether
    /// the sender lives, because a receiver that never blocks would not notice the sender's death.
    #[cold]
    fn try_recv_at_end(&mut self) -> Result<Option<Message>, TryRecvError> {
        if !self.end.notice_end()? {
            return Err(TryRecvError::Empty);
        }
        match self.find_any()? {
            Found::Message => Ok(Some(self.end.take())),
            Found::Nothing | Found::Control(_) => Err(TryRecvError::Empty),
            Found::End(closed) => Ok(at_end(closed)?),
        }
    }
}

/// Converts the reason why no more messages come into the result of a receive call: `None` if the
/// peer finished, else an error.
fn at_end<T>(closed: Closed) -> Result<Option<T>, Disconnected> {
    match closed {
        Closed::Finished => Ok(None),
        Closed::Disconnected => Err(Disconnected),
    }
}

/// The error of a receive call if the peer died or hung up without finishing. It converts into the
/// errors of both `recv` and `try_recv`.
struct Disconnected;

impl From<Disconnected> for RecvError {
    fn from(_: Disconnected) -> Self {
        Self::Disconnected
    }
}

impl From<Disconnected> for TryRecvError {
    fn from(_: Disconnected) -> Self {
        Self::Disconnected
    }
}

impl AsFd for Receiver {
    /// Returns a descriptor that becomes readable when a message may have arrived; see
    /// [`arm`](Self::arm).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.descriptor()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.end.close();
    }
}

/// The receiving end of one transport. Methods that every message uses are dispatched statically,
/// all others through the trait object to which `AnyReceiver` derefs.
#[derive(Debug)]
pub(crate) enum AnyReceiver {
    SharedMemory(ShmReceiver),
    Socket(SocketReceiver),
    Protocol(ProtocolReceiver),
}

impl AnyReceiver {
    #[inline]
    pub(crate) fn find(&mut self, may_wait: bool) -> Result<Found, Fault> {
        match self {
            Self::SharedMemory(end) => end.find(may_wait),
            Self::Socket(end) => match end.find(may_wait)? {
                Found::Nothing => self.find_switched(may_wait),
                found => Ok(found),
            },
            Self::Protocol(end) => end.find(may_wait),
        }
    }

    /// Makes the next message the current message, if a short look finds it; otherwise
    /// [`find`](Self::find) does.
    #[inline(always)]
    pub(crate) fn find_inline(&mut self) -> bool {
        if let Self::SharedMemory(end) = self { end.find_inline() } else { false }
    }

    /// Replaces the socket's receiver by the receiver over shared memory, if the peer has moved
    /// this direction of the connection to shared memory.
    #[cold]
    fn find_switched(&mut self, may_wait: bool) -> Result<Found, Fault> {
        let Self::Socket(end) = self else { return Ok(Found::Nothing) };
        let Some(end) = end.take_switched() else { return Ok(Found::Nothing) };
        *self = Self::SharedMemory(end);
        self.find(may_wait)
    }

    #[inline]
    pub(crate) fn stream(&self) -> u32 {
        match self {
            Self::SharedMemory(end) => end.stream(),
            Self::Socket(end) => end.stream(),
            Self::Protocol(end) => end.stream(),
        }
    }

    #[inline]
    pub(crate) fn take_credit(&mut self) -> Option<u64> {
        match self {
            Self::SharedMemory(end) => end.take_credit(),
            Self::Socket(_) | Self::Protocol(_) => None,
        }
    }

    #[inline]
    pub(crate) fn current(&self) -> &[u8] {
        match self {
            Self::SharedMemory(end) => end.current(),
            Self::Socket(end) => end.current(),
            Self::Protocol(end) => end.current(),
        }
    }

    /// Returns the length of the current message in bytes, without a look at the message itself.
    #[inline]
    pub(crate) fn current_len(&self) -> usize {
        match self {
            Self::SharedMemory(end) => end.current_len(),
            Self::Socket(end) => end.current_len(),
            Self::Protocol(end) => end.current_len(),
        }
    }

    /// Appends the current message to `queue`. The caller then consumes the message by
    /// [`done`](Self::done), after it has released its locks.
    #[inline]
    pub(crate) fn append_to(&mut self, queue: &mut VecDeque<Message>) {
        match self {
            Self::SharedMemory(end) => end.append_to(queue),
            Self::Socket(end) => end.append_to(queue),
            Self::Protocol(end) => queue.push_back(end.take()),
        }
    }

    #[inline]
    pub(crate) fn take(&mut self) -> Message {
        match self {
            Self::SharedMemory(end) => end.take(),
            Self::Socket(end) => end.take(),
            Self::Protocol(end) => end.take(),
        }
    }

    /// Consumes the current message, as [`done`](Self::done) does. Over shared memory some of the
    /// work is left to the next call that receives.
    #[inline]
    pub(crate) fn done_for_now(&mut self) {
        if let Self::SharedMemory(end) = self { end.done_for_now() } else { self.done() }
    }

    #[inline]
    pub(crate) fn done(&mut self) {
        match self {
            Self::SharedMemory(end) => end.done(),
            Self::Socket(end) => end.done(),
            Self::Protocol(end) => end.done(),
        }
    }
}

impl Deref for AnyReceiver {
    type Target = dyn TransportReceiver;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::SharedMemory(end) => end,
            Self::Socket(end) => end,
            Self::Protocol(end) => end,
        }
    }
}

impl DerefMut for AnyReceiver {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::SharedMemory(end) => end,
            Self::Socket(end) => end,
            Self::Protocol(end) => end,
        }
    }
}
