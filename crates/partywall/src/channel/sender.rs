// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sending direction of a channel, for one thread, without a lock. A caller sends copies, fills
//! reserved memory, or sends several messages as a batch.
//!
//! Every call first attempts to send without blocking. If there is no room, the [`BackPressure`]
//! policy decides whether the call blocks, in the way that [`Wait`] says.

use super::receiver::Readiness;
use super::reservation::{Batch, Holder, Reservation};
use super::shared_sender::SharedSender;
use crate::config::{BackPressure, Config};
use crate::error::{Fault, SendError, TrySendError};
use crate::stats::SenderStats;
use crate::transport::protocol::ProtocolSender;
use crate::transport::shm::ShmSender;
use crate::transport::socket::SocketSender;
use crate::transport::{
    Home, Memory, NotSent, OwnedReservation, Progress, ProgressSnapshot, SpaceWaiter,
    TransportSender, Waited, has_passed, wait_for_space, waiting_failed,
};
use partywall_layout::{Kind, seeded_fault};
use partywall_wait::{Spinner, Wait};
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The sending direction of a channel, for one thread.
///
/// Dropping the sender finishes its direction: the receiver gets every sent message, then `None`.
#[derive(Debug)]
pub struct Sender {
    pub(super) end: Option<AnySender>,
    pub(super) space: Arc<dyn SpaceWaiter>,
    /// A snapshot of the room that the receiver has freed, taken before the last attempt that
    /// found no room. `arm` compares it with a new snapshot.
    seen: ProgressSnapshot,
    wait: Wait,
    spinner: Spinner,
    pub(super) policy: BackPressure,
    /// Whether the open batch has messages that were neither committed nor aborted.
    pub(super) batch_open: bool,
    /// Identifies this sender, so that it can recognise its own owned reservations.
    owner: Arc<()>,
}

impl Sender {
    pub(crate) fn new(end: AnySender, config: &Config) -> Self {
        let space = end.space();
        Self {
            seen: space.snapshot(),
            space,
            end: Some(end),
            wait: config.wait,
            spinner: Spinner::new(config.spin_budget),
            policy: config.back_pressure,
            batch_open: false,
            owner: Arc::default(),
        }
    }

    /// Sets how this sender waits for room from now on.
    pub const fn set_wait(&mut self, wait: Wait) {
        self.wait = wait;
    }

    /// Returns the policy for messages for which there is no room.
    #[must_use]
    pub const fn back_pressure(&self) -> BackPressure {
        self.policy
    }

    /// Sends a copy of `payload`, which may have any length up to the limits of both sides.
    ///
    /// When the call returns `Ok`, the message is committed. Over shared memory, a living peer
    /// receives it even if this process dies immediately afterwards. Over a socket, that holds only
    /// once [`flush`](Self::flush) has returned.
    ///
    /// # Errors
    /// [`SendError::Closed`] if the peer has stopped receiving. [`SendError::TooLarge`] if a limit
    /// is exceeded; the error names the limit and how to raise it. [`SendError::Full`] only under
    /// [`BackPressure::Error`].
    #[inline]
    pub fn send(&mut self, payload: &[u8]) -> Result<(), SendError> {
        self.send_until(payload, None)
    }

    /// Sends a copy of `payload`, like [`send`](Self::send), but blocks only until `deadline`.
    ///
    /// # Errors
    /// [`SendError::TimedOut`] if there was no room before the deadline; the message was then not
    /// sent. Other errors as of [`send`](Self::send).
    pub fn send_deadline(&mut self, payload: &[u8], deadline: Instant) -> Result<(), SendError> {
        self.send_until(payload, Some(deadline))
    }

    /// Sends a copy of `payload` if there is room now. Never blocks.
    ///
    /// # Errors
    /// [`TrySendError::Full`] if there is no room now, and the errors of [`send`](Self::send).
    #[inline]
    pub fn try_send(&mut self, payload: &[u8]) -> Result<(), TrySendError> {
        if self.send_plainly(payload.len(), |room| room.copy_from_slice(payload)).is_ok() {
            return Ok(());
        }
        match self.end()?.try_send(payload) {
            Err(NotSent::Full) => self.try_again(|end| end.try_send(payload)),
            other => Ok(other?),
        }
    }

    /// Sends a message of `len` bytes. `fill` writes a short message directly into the ring, and a
    /// long message into a block of shared memory. `fill` must write every byte. The memory
    /// contains unspecified bytes before, but never bytes of another process.
    ///
    /// This is the fastest way to send. If `fill` panics, nothing is sent.
    ///
    /// # Errors
    /// Fails as [`send`](Self::send) does; `fill` is then not always called.
    #[inline]
    pub fn send_with(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), SendError> {
        let Err(fill) = self.send_plainly(len, fill) else { return Ok(()) };
        self.send_with_any(len, fill)
    }

    /// Sends a message that `fill` writes, of whatever length and in whatever state of the channel.
    /// The function is not inlined, because it has a large frame, for messages over a socket.
    #[inline(never)]
    fn send_with_any(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), SendError> {
        let waits = self.policy != BackPressure::Error;
        let is_inline = match self.end()?.prepare_inline(len) {
            Err(NotSent::Full) if waits => {
                self.drive(None, waits, |end| end.prepare_inline(len))?
            }
            other => other?,
        };
        if is_inline {
            return Ok(self.end()?.send_inline(len, fill)?);
        }
        let mut reserved = self.reserve(len)?;
        fill(&mut reserved);
        reserved.commit()
    }

    /// Allocates memory for a message of `len` bytes, which the caller fills and commits. The
    /// receiver of a large message reads the same memory, without a copy.
    ///
    /// The memory contains unspecified bytes at first: zeros, or bytes that this process wrote
    /// before. An open reservation does not delay other messages: a message gets its place in the
    /// order when it is committed.
    ///
    /// # Errors
    /// Fails as [`send`](Self::send) does, for example if the peer is gone or the message is too
    /// long.
    ///
    /// # Examples
    /// ```no_run
    /// # let mut channel = partywall::connect("unix:/run/app.sock")?;
    /// let mut frame = channel.sender().reserve(1 << 20)?;
    /// frame.fill(7); // rendered straight into shared memory
    /// frame.commit()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve(&mut self, len: usize) -> Result<Reservation<'_>, SendError> {
        self.reserve_until(len, None)
    }

    /// Allocates memory for a message, like [`reserve`](Self::reserve). `deadline` limits how long
    /// the call waits for memory and how long the later `commit` waits for room.
    ///
    /// # Errors
    /// [`SendError::TimedOut`] if the deadline passed, and the errors of
    /// [`reserve`](Self::reserve).
    pub fn reserve_deadline(
        &mut self,
        len: usize,
        deadline: Instant,
    ) -> Result<Reservation<'_>, SendError> {
        self.reserve_until(len, Some(deadline))
    }

    /// Allocates memory for a message, like [`reserve`](Self::reserve), if memory is free now.
    /// Never blocks.
    ///
    /// # Errors
    /// Fails as [`try_send`](Self::try_send) does, for example if there is no room now or the peer
    /// is gone.
    pub fn try_reserve(&mut self, len: usize) -> Result<Reservation<'_>, TrySendError> {
        let memory = match self.end()?.reserve(len) {
            Err(NotSent::Full) => self.try_again(|end| end.reserve(len))?,
            other => other?,
        };
        let holder = Holder::Exclusive(self);
        Ok(Reservation { holder, memory: Some(memory), deadline: None })
    }

    /// Allocates memory for a message, like [`reserve`](Self::reserve), but the result does not
    /// borrow the sender. Any thread may fill, keep or drop it;
    /// [`commit_owned`](Self::commit_owned) sends it. The call blocks only until `deadline`.
    ///
    /// # Errors
    /// [`SendError::TimedOut`] if the deadline passed, and the errors of [`send`](Self::send).
    pub fn reserve_owned(
        &mut self,
        len: usize,
        deadline: Option<Instant>,
    ) -> Result<OwnedReservation, SendError> {
        let waits = self.policy != BackPressure::Error;
        self.end()?;
        let memory = self.drive(deadline, waits, |end| end.reserve(len))?;
        Ok(OwnedReservation::new(Some(memory), self.home()))
    }

    /// Allocates memory for a message, like [`reserve_owned`](Self::reserve_owned), if memory is
    /// free now. Never blocks.
    ///
    /// # Errors
    /// Fails as [`try_send`](Self::try_send) does, for example if there is no room now or the peer
    /// is gone.
    pub fn try_reserve_owned(&mut self, len: usize) -> Result<OwnedReservation, TrySendError> {
        let memory = match self.end()?.reserve(len) {
            Err(NotSent::Full) => self.try_again(|end| end.reserve(len))?,
            other => other?,
        };
        Ok(OwnedReservation::new(Some(memory), self.home()))
    }

    /// Sends the message in `reservation`, which this sender reserved. The call blocks only until
    /// `deadline`.
    ///
    /// # Errors
    /// [`SendError::ForeignReservation`] if another sender reserved the memory,
    /// [`SendError::TimedOut`] if the deadline passed, and the errors of [`send`](Self::send). The
    /// message is then dropped. To keep it, use [`try_commit_owned`](Self::try_commit_owned).
    pub fn commit_owned(
        &mut self,
        mut reservation: OwnedReservation,
        deadline: Option<Instant>,
    ) -> Result<(), SendError> {
        if !reservation.home().is_channel(&self.owner) {
            return Err(SendError::ForeignReservation);
        }
        self.end()?;
        let waits = self.policy != BackPressure::Error;
        let mut progress = Progress::default();
        let memory = reservation.memory_mut();
        let sent = self.drive(deadline, waits, |end| end.commit(memory, &mut progress));
        let payload = memory.as_ref().map_or(&[][..], Memory::as_slice);
        self.settle(sent, payload, &progress)
    }

    /// Sends the message in `reservation` if the ring has room now; otherwise returns the
    /// reservation. Never blocks.
    ///
    /// # Errors
    /// Returns the reservation together with the reason:
    /// [`TrySendError::ForeignReservation`], or as [`try_send`](Self::try_send).
    #[expect(clippy::result_large_err, reason = "the reservation is given back")]
    pub fn try_commit_owned(
        &mut self,
        mut reservation: OwnedReservation,
    ) -> Result<(), (OwnedReservation, TrySendError)> {
        if !reservation.home().is_channel(&self.owner) {
            return Err((reservation, TrySendError::ForeignReservation));
        }
        let memory = reservation.memory_mut();
        let sent = match self.end().and_then(|end| end.commit_whole(memory)) {
            Err(NotSent::Full) => self.try_again(|end| end.commit_whole(memory)),
            other => other.map_err(TrySendError::from),
        };
        sent.map_err(|error| (reservation, error))
    }

    /// Begins a batch. The receiver sees the messages of a batch all at once or not at all, and is
    /// notified once.
    ///
    /// # Examples
    /// ```no_run
    /// # let mut channel = partywall::connect("unix:/run/app.sock")?;
    /// let mut batch = channel.sender().batch();
    /// batch.send(b"one")?;
    /// batch.send(b"two")?;
    /// batch.commit()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn batch(&mut self) -> Batch<'_> {
        let _ = self.end();
        Batch::new(self, None)
    }

    /// Begins a batch, like [`batch`](Self::batch), whose calls block only until `deadline`.
    pub fn batch_deadline(&mut self, deadline: Instant) -> Batch<'_> {
        let _ = self.end();
        Batch::new(self, Some(deadline))
    }

    /// Waits until the kernel has accepted all bytes of messages sent over a socket. Over shared
    /// memory there are no such bytes, and the call returns immediately.
    ///
    /// # Errors
    /// Fails as [`send`](Self::send) does, for example if the peer is gone.
    pub fn flush(&mut self, deadline: Option<Instant>) -> Result<(), SendError> {
        self.drive(deadline, true, |end| end.flush())
    }

    /// Returns all unused memory for large messages to the operating system.
    ///
    /// # Errors
    /// Fails as [`try_send`](Self::try_send) does, for example if there is no room now or the peer
    /// is gone.
    pub fn trim(&mut self) -> Result<(), TrySendError> {
        Ok(self.end()?.trim(true)?)
    }

    /// Prepares the descriptor ([`AsFd`]) for an external event loop that waits for room. Call
    /// `arm` after `Full` and before polling the descriptor, and poll only if the result is
    /// [`Readiness::WillNotify`]. When the descriptor is readable, try to send again. Never read
    /// from the descriptor.
    ///
    /// # Errors
    /// [`Fault`] if the channel is broken.
    pub fn arm(&mut self) -> Result<Readiness, Fault> {
        let Some(end) = &mut self.end else { return Ok(Readiness::Ready) };
        end.drain()?;
        end.arm(false)?;
        // `sleep` with a deadline of now does not wait, but consumes events that would keep the
        // descriptor readable. It also detects a hang-up of the peer, which the next attempt to
        // send reports.
        if self.space.sleep(Some(Instant::now())).map_err(waiting_failed)? {
            end.note_hang_up();
            return Ok(Readiness::Ready);
        }
        // Another thread may have dropped an owned reservation after the failed attempt, and its
        // memory may suffice now. The call of `sleep` above has consumed the notification of that
        // drop.
        if end.take_back() && !seeded_fault("no_look_for_given_back") {
            return Ok(Readiness::Ready);
        }
        // The snapshot `seen` was taken *before* the failed attempt. So a new snapshot differs from
        // `seen` if the receiver has freed room since then.
        if self.space.snapshot() == self.seen {
            Ok(Readiness::WillNotify)
        } else {
            Ok(Readiness::Ready)
        }
    }

    /// Converts into a sender that any number of threads may use at a time.
    #[must_use]
    pub fn shared(mut self) -> SharedSender {
        let end = self.end.take();
        let spinner = std::mem::replace(&mut self.spinner, Spinner::new(std::time::Duration::ZERO));
        SharedSender::new(
            end,
            self.home(),
            Arc::clone(&self.space),
            self.wait,
            spinner,
            self.policy,
        )
    }

    /// Returns the counters of the sending direction.
    #[must_use]
    pub fn stats(&self) -> SenderStats {
        self.end.as_ref().map(|end| end.stats()).unwrap_or_default()
    }

    /// Returns the identity that this sender gives its owned reservations, and by which it
    /// recognises them.
    fn home(&self) -> Home {
        Home::Channel { owner: Arc::clone(&self.owner), space: Arc::clone(&self.space) }
    }

    /// Whether there are bytes of sent messages that the kernel has not accepted yet.
    pub(crate) fn has_unsent(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.has_unsent())
    }

    /// Ends the channel's sending direction as far as that is possible without waiting. Returns
    /// whether a socket has not accepted all bytes of sent messages; the caller may then wait for
    /// room and call again. Dropping the sender afterwards does not wait.
    pub(crate) fn begin_close(&mut self) -> bool {
        self.end.as_mut().is_some_and(AnySender::begin_close)
    }

    /// Reads and discards bytes that a TCP peer has sent and the receiver has not read. If they
    /// stayed unread, closing the socket would make the kernel discard the last sent messages.
    /// Returns the socket to wait for if more bytes may come. Never waits.
    pub(crate) fn discard_step(&self) -> Option<BorrowedFd<'_>> {
        match &self.end {
            Some(AnySender::Socket(end)) => end.discard_step(),
            _ => None,
        }
    }

    /// Makes a later close of this sender not wait for the peer.
    pub(crate) fn give_up_end(&self) {
        if let Some(AnySender::Socket(end)) = &self.end {
            end.give_up_end();
        }
    }

    /// Waits until a socket has accepted all bytes of sent messages, at most until `deadline`.
    pub(crate) fn wait_for_close(&mut self, deadline: Instant) {
        while self.begin_close() && !has_passed(Some(deadline)) {
            if self.space.sleep(Some(deadline)).unwrap_or(true) {
                break;
            }
        }
    }

    /// Hands the channel's sending direction over to the returned sender. Calls of this sender fail
    /// from now on, and dropping this sender has no effect.
    pub(crate) fn take(&mut self) -> Self {
        Self {
            end: self.end.take(),
            space: Arc::clone(&self.space),
            seen: self.seen,
            wait: self.wait,
            spinner: std::mem::replace(&mut self.spinner, Spinner::new(Duration::ZERO)),
            policy: self.policy,
            batch_open: self.batch_open,
            owner: Arc::clone(&self.owner),
        }
    }

    /// Returns the sending end of the transport, or the error `Full` if `Sender::shared` has
    /// converted this sender into a shared one.
    #[inline]
    pub(super) fn end(&mut self) -> Result<&mut AnySender, NotSent> {
        let end = self.end.as_mut().ok_or(NotSent::Full)?;
        if self.batch_open {
            // A batch borrows the sender, so nobody can make this call while a batch is in use. So
            // the caller has dropped or leaked its batch without a commit, and this call discards
            // the messages of that batch.
            self.batch_open = false;
            end.abort_batch();
        }
        Ok(end)
    }

    /// Sends a short message over shared memory, if nothing else is to be done before. Otherwise
    /// returns `fill`; other calls do the rest, and find out why a message cannot be sent.
    #[inline(always)]
    fn send_plainly<F: FnOnce(&mut [u8])>(&mut self, len: usize, fill: F) -> Result<(), F> {
        match &mut self.end {
            Some(AnySender::SharedMemory(end)) if !self.batch_open => end.send_plainly(len, fill),
            _ => Err(fill),
        }
    }

    /// Repeats an attempt to send that found no room. Takes a snapshot before the attempt, with
    /// which [`arm`](Self::arm) detects room that was freed since.
    #[cold]
    pub(super) fn try_again<T>(
        &mut self,
        attempt: impl FnOnce(&mut AnySender) -> Result<T, NotSent>,
    ) -> Result<T, TrySendError> {
        self.seen = self.space.snapshot();
        Ok(attempt(self.end()?)?)
    }

    #[inline]
    fn send_until(&mut self, payload: &[u8], deadline: Option<Instant>) -> Result<(), SendError> {
        if self.send_plainly(payload.len(), |room| room.copy_from_slice(payload)).is_ok() {
            return Ok(());
        }
        let mut progress = Progress::NONE;
        // Nearly every first attempt to send succeeds. So it is made here, and not in `drive`,
        // which waits for room and makes further attempts.
        match self.end()?.send_on(payload, &mut progress) {
            Ok(()) => return Ok(()),
            Err(NotSent::Full) => {}
            Err(other) => return Err(other.into()),
        }
        let waits = self.policy != BackPressure::Error;
        let sent = self.drive(deadline, waits, |end| end.send_on(payload, &mut progress));
        self.settle(sent, payload, &progress)
    }

    /// Ends the sending of a message of which perhaps only some pieces could be sent. Then either
    /// the sender keeps the other pieces, and the message counts as sent; or the message is
    /// aborted, and the receiver drops the pieces that it got.
    pub(super) fn settle(
        &mut self,
        sent: Result<(), SendError>,
        payload: &[u8],
        progress: &Progress,
    ) -> Result<(), SendError> {
        match sent {
            Err(SendError::TimedOut | SendError::Full) if progress.started => {
                self.end()?.give_up(payload, progress)
            }
            other => other,
        }
    }

    fn reserve_until(
        &mut self,
        len: usize,
        deadline: Option<Instant>,
    ) -> Result<Reservation<'_>, SendError> {
        let waits = self.policy != BackPressure::Error;
        self.end()?;
        let memory = self.drive(deadline, waits, |end| end.reserve(len))?;
        Ok(Reservation { holder: Holder::Exclusive(self), memory: Some(memory), deadline })
    }

    /// Repeats `attempt` until it succeeds, and waits for room between two attempts. If `waits` is
    /// false, `attempt` is called once, and an attempt that finds no room fails with `Full`.
    pub(super) fn drive<T>(
        &mut self,
        deadline: Option<Instant>,
        waits: bool,
        mut attempt: impl FnMut(&mut AnySender) -> Result<T, NotSent>,
    ) -> Result<T, SendError> {
        loop {
            let Some(end) = &mut self.end else { return Err(SendError::Full) };
            let seen = self.space.snapshot();
            self.seen = seen;
            match attempt(end) {
                Err(NotSent::Full) if waits => {}
                other => return other.map_err(SendError::from),
            }
            let (space, wait, spinner) = (&*self.space, self.wait, &mut self.spinner);
            let waited =
                wait_for_space(space, seen, wait, spinner, deadline, |with| with(&mut **end))?;
            if waited == Waited::TimedOut {
                return Err(SendError::TimedOut);
            }
        }
    }
}

impl AsFd for Sender {
    /// Returns a descriptor that becomes readable when there may be room; see [`arm`](Self::arm).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.space.descriptor()
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if let Some(end) = &mut self.end {
            end.close();
        }
    }
}

/// The sending end of one transport. Methods that every message uses are dispatched statically, all
/// others through the trait object to which `AnySender` derefs.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one per channel; a box would cost every send")]
pub(crate) enum AnySender {
    SharedMemory(ShmSender),
    Socket(SocketSender),
    Protocol(ProtocolSender),
}

impl AnySender {
    /// Replaces the socket's sender by the sender over shared memory, because this direction of the
    /// connection has moved to shared memory.
    #[cold]
    pub(super) fn replace(&mut self, end: ShmSender) -> &mut ShmSender {
        *self = Self::SharedMemory(end);
        match self {
            Self::SharedMemory(end) => end,
            _ => unreachable!("the line above made it shared memory"),
        }
    }

    /// Whether this end keeps bytes that the socket, or the queue of another protocol, has not
    /// accepted.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        match self {
            Self::SharedMemory(_) => false,
            other => (**other).has_unsent(),
        }
    }

    pub(crate) fn add_to_batch(&mut self, payload: &[u8]) -> Result<(), NotSent> {
        match self {
            Self::Socket(end) => match end.switch(payload.len())? {
                None => end.add_to_batch(payload),
                Some(end) => self.replace(end).add_to_batch(payload),
            },
            other => (**other).add_to_batch(payload),
        }
    }

    /// Writes the record that ends a session's sending direction. Returns whether a socket has not
    /// accepted all of it; the caller may then wait for room and call again.
    pub(crate) fn begin_close(&mut self) -> bool {
        match self {
            Self::Socket(end) => end.begin_close(),
            Self::SharedMemory(_) | Self::Protocol(_) => false,
        }
    }

    #[inline(always)]
    pub(crate) fn try_send(&mut self, payload: &[u8]) -> Result<(), NotSent> {
        match self {
            Self::SharedMemory(end) => end.try_send(payload),
            Self::Socket(end) => match end.switch(payload.len())? {
                None => end.try_send(payload),
                Some(end) => self.replace(end).try_send(payload),
            },
            Self::Protocol(end) => end.try_send(payload),
        }
    }

    #[inline]
    pub(crate) fn send_on(
        &mut self,
        payload: &[u8],
        progress: &mut Progress,
    ) -> Result<(), NotSent> {
        match self {
            Self::SharedMemory(end) => end.send_on(payload, progress),
            Self::Socket(end) => match end.switch(payload.len())? {
                None => end.send_on(payload, progress),
                Some(end) => self.replace(end).send_on(payload, progress),
            },
            Self::Protocol(end) => end.send_on(payload, progress),
        }
    }

    /// Whether [`send_inline`](Self::send_inline) can now send a message of `len` bytes. Only the
    /// shared memory transport sends inline messages.
    #[inline]
    fn prepare_inline(&mut self, len: usize) -> Result<bool, NotSent> {
        match self {
            Self::SharedMemory(end) => end.prepare_inline(len),
            Self::Socket(end) => match end.switch(len)? {
                None => Ok(false),
                Some(end) => self.replace(end).prepare_inline(len),
            },
            Self::Protocol(_) => Ok(false),
        }
    }

    /// Sends an inline message, which `fill` writes directly into the ring.
    #[inline]
    fn send_inline(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), NotSent> {
        match self {
            Self::SharedMemory(end) => end.send_inline(len, fill),
            // Unreachable: no caller sends an inline message over a socket or another protocol.
            Self::Socket(_) | Self::Protocol(_) => Err(NotSent::Full),
        }
    }

    #[inline]
    pub(crate) fn set_stream(&mut self, stream: u32, credit: Option<u64>) -> Result<(), NotSent> {
        match self {
            Self::SharedMemory(end) => end.set_stream(stream, credit),
            Self::Socket(end) => match end.switch(0)? {
                None => end.set_stream(stream, credit),
                Some(end) => self.replace(end).set_stream(stream, credit),
            },
            Self::Protocol(end) => end.set_stream(stream, credit),
        }
    }

    pub(crate) fn control(&mut self, kind: Kind, stream: u32, body: &[u8]) -> Result<(), NotSent> {
        match self {
            Self::SharedMemory(end) => end.control(kind, stream, body),
            Self::Socket(end) => match end.switch(0)? {
                None => end.control(kind, stream, body),
                Some(end) => self.replace(end).control(kind, stream, body),
            },
            Self::Protocol(end) => end.control(kind, stream, body),
        }
    }

    #[inline]
    pub(crate) fn reserve(&mut self, len: usize) -> Result<Memory, NotSent> {
        match self {
            Self::SharedMemory(end) => end.reserve(len),
            Self::Socket(end) => match end.switch(len)? {
                None => end.reserve(len),
                Some(end) => self.replace(end).reserve(len),
            },
            Self::Protocol(end) => end.reserve(len),
        }
    }

    #[inline]
    pub(crate) fn reserve_into(
        &mut self,
        place: &mut Option<Memory>,
        len: usize,
    ) -> Result<(), NotSent> {
        match self {
            Self::SharedMemory(end) => end.reserve_into(place, len),
            Self::Socket(end) => match end.switch(len)? {
                None => end.reserve_into(place, len),
                Some(end) => self.replace(end).reserve_into(place, len),
            },
            Self::Protocol(end) => end.reserve_into(place, len),
        }
    }

    #[inline]
    pub(crate) fn commit(
        &mut self,
        memory: &mut Option<Memory>,
        progress: &mut Progress,
    ) -> Result<(), NotSent> {
        match self {
            Self::SharedMemory(end) => end.commit(memory, progress),
            Self::Socket(_) => self.commit_on_socket(memory, progress),
            Self::Protocol(end) => end.commit(memory, progress),
        }
    }
}

impl Deref for AnySender {
    type Target = dyn TransportSender;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::SharedMemory(end) => end,
            Self::Socket(end) => end,
            Self::Protocol(end) => end,
        }
    }
}

impl DerefMut for AnySender {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::SharedMemory(end) => end,
            Self::Socket(end) => end,
            Self::Protocol(end) => end,
        }
    }
}
