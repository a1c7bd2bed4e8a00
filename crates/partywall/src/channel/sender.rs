// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sending from one thread, without a lock: copies, reservations, batches.
//!
//! Every call is an attempt first. Only if there is no space does it block, as [`Wait`] says, or
//! act as the [`BackPressure`] policy says.

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
    Memory, NotSent, Progress, ProgressSnapshot, SpaceWaiter, TransportSender, Waited,
    wait_for_space, waiting_failed,
};
use partywall_layout::Kind;
use partywall_wait::{Spinner, Wait};
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

/// The sending direction of a channel, for one thread.
///
/// Dropping it finishes the direction: the receiver gets every message that was sent, then the end.
#[derive(Debug)]
pub struct Sender {
    pub(super) end: Option<AnySender>,
    pub(super) space: Arc<dyn SpaceWaiter>,
    /// The snapshot before the last attempt that found no space: `arm` compares with it.
    seen: ProgressSnapshot,
    wait: Wait,
    spinner: Spinner,
    pub(super) policy: BackPressure,
    /// A batch has messages that were neither committed nor aborted.
    pub(super) batch_open: bool,
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
        }
    }

    /// Sets how this sender waits for space from now on.
    pub const fn set_wait(&mut self, wait: Wait) {
        self.wait = wait;
    }

    /// The policy that decides what happens when there is no space.
    #[must_use]
    pub const fn back_pressure(&self) -> BackPressure {
        self.policy
    }

    /// Sends a copy of `payload`, of any length up to the limits of both sides.
    ///
    /// When this returns `Ok`, the message is committed: the peer receives it if it lives, even if
    /// this process dies at once.
    ///
    /// # Errors
    /// [`SendError::Closed`] if the peer receives no more, [`SendError::TooLarge`] with the limit
    /// and how to raise it, [`SendError::Full`] only under [`BackPressure::Error`].
    #[inline]
    pub fn send(&mut self, payload: &[u8]) -> Result<(), SendError> {
        self.send_until(payload, None)
    }

    /// As [`send`](Self::send), but waits for space only until `deadline`.
    ///
    /// # Errors
    /// [`SendError::TimedOut`] if there was none; the message was then not sent. And as `send`.
    pub fn send_deadline(&mut self, payload: &[u8], deadline: Instant) -> Result<(), SendError> {
        self.send_until(payload, Some(deadline))
    }

    /// Sends a copy of `payload` if there is space now. Never blocks.
    ///
    /// # Errors
    /// [`TrySendError::Full`] if there is no space now, and as [`send`](Self::send).
    #[inline]
    pub fn try_send(&mut self, payload: &[u8]) -> Result<(), TrySendError> {
        match self.end()?.try_send(payload) {
            Err(NotSent::Full) => self.try_again(|end| end.try_send(payload)),
            other => Ok(other?),
        }
    }

    /// Sends a message of `len` bytes that `fill` writes where the receiver reads it: in the ring
    /// if it is short, in shared memory if it is long. `fill` must write every byte. The memory it
    /// finds is unspecified, though never of another process.
    ///
    /// This is the fastest way to send. If `fill` panics, nothing is sent.
    ///
    /// # Errors
    /// As [`send`](Self::send); `fill` may then not have been called.
    #[inline]
    pub fn send_with(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), SendError> {
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

    /// Allocates memory for a message of `len` bytes, to be written in place and committed. The
    /// receiver of a large message reads this very memory.
    ///
    /// Its contents are unspecified at first: zeros, or bytes that this process wrote before. An
    /// open reservation delays no other message: it has no place in the order until it is
    /// committed.
    ///
    /// # Errors
    /// As [`send`](Self::send).
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

    /// As [`reserve`](Self::reserve), but waits for memory, and at `commit` for space, only until
    /// `deadline`.
    ///
    /// # Errors
    /// [`SendError::TimedOut`], and as `reserve`.
    pub fn reserve_deadline(
        &mut self,
        len: usize,
        deadline: Instant,
    ) -> Result<Reservation<'_>, SendError> {
        self.reserve_until(len, Some(deadline))
    }

    /// As [`reserve`](Self::reserve), if there is memory now. Never blocks.
    ///
    /// # Errors
    /// As [`try_send`](Self::try_send).
    pub fn try_reserve(&mut self, len: usize) -> Result<Reservation<'_>, TrySendError> {
        let memory = match self.end()?.reserve(len) {
            Err(NotSent::Full) => self.try_again(|end| end.reserve(len))?,
            other => other?,
        };
        let holder = Holder::Exclusive(self);
        Ok(Reservation { holder, memory: Some(memory), deadline: None })
    }

    /// Begins a batch: the receiver sees its messages all at once, or not at all, and is woken
    /// once.
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

    /// As [`batch`](Self::batch), but waits for space only until `deadline`.
    pub fn batch_deadline(&mut self, deadline: Instant) -> Batch<'_> {
        let _ = self.end();
        Batch::new(self, Some(deadline))
    }

    /// Waits until the kernel has taken the bytes that were sent over a socket without waiting.
    /// Over shared memory there are none.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn flush(&mut self, deadline: Option<Instant>) -> Result<(), SendError> {
        self.drive(deadline, true, |end| end.flush())
    }

    /// Gives all unused memory for large messages back to the system.
    ///
    /// # Errors
    /// As [`try_send`](Self::try_send).
    pub fn trim(&mut self) -> Result<(), TrySendError> {
        Ok(self.end()?.trim(true)?)
    }

    /// For an external event loop that waits for space: call this after `Full` and before polling
    /// the descriptor ([`AsFd`]), and poll only if it returns [`Readiness::WillNotify`]. Try again
    /// when the descriptor is readable. Never read it.
    ///
    /// # Errors
    /// [`Fault`] if the channel is broken.
    pub fn arm(&mut self) -> Result<Readiness, Fault> {
        let Some(end) = &mut self.end else { return Ok(Readiness::Ready) };
        end.drain()?;
        end.arm(false)?;
        // Consumes events that would keep the descriptor readable, and finds a hang-up, which the
        // next attempt then reports.
        if self.space.sleep(Some(Instant::now())).map_err(waiting_failed)? {
            end.note_hang_up();
            return Ok(Readiness::Ready);
        }
        // Compared with the snapshot *before* the attempt that failed: space freed since counts.
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
        SharedSender::new(end, Arc::clone(&self.space), self.wait, spinner, self.policy)
    }

    /// Counters of this direction.
    #[must_use]
    pub fn stats(&self) -> SenderStats {
        self.end.as_ref().map(|end| end.stats()).unwrap_or_default()
    }

    /// The end of the transport. It is missing only in a sender that became shared.
    #[inline]
    pub(super) fn end(&mut self) -> Result<&mut AnySender, NotSent> {
        let end = self.end.as_mut().ok_or(NotSent::Full)?;
        if self.batch_open {
            // The batch was dropped, or leaked: it is not sent.
            self.batch_open = false;
            end.abort_batch();
        }
        Ok(end)
    }

    /// Repeats an attempt, with a snapshot before it that [`arm`](Self::arm) compares with.
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
        let mut progress = Progress::NONE;
        // The first attempt stands alone: nearly always it is the only one.
        match self.end()?.send_on(payload, &mut progress) {
            Ok(()) => return Ok(()),
            Err(NotSent::Full) => {}
            Err(other) => return Err(other.into()),
        }
        let waits = self.policy != BackPressure::Error;
        let sent = self.drive(deadline, waits, |end| end.send_on(payload, &mut progress));
        self.settle(sent, payload, &progress)
    }

    /// Settles a message of which a part may have gone: it counts as sent, or is given up in order.
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

    /// Repeats an attempt until it succeeds, and waits for space in between.
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
            let (space, wait) = (&*self.space, self.wait);
            let spinner = &mut self.spinner;
            let waited =
                wait_for_space(space, seen, wait, spinner, deadline, |with| with(&mut **end))?;
            if waited == Waited::TimedOut {
                return Err(SendError::TimedOut);
            }
        }
    }
}

impl AsFd for Sender {
    /// A descriptor that becomes readable when there may be space; see [`arm`](Self::arm).
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

/// The sending end of one of the transports. The methods on the path of a message are dispatched
/// statically, the others through the trait object that this derefs to.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one per channel; a box would cost every send")]
pub(crate) enum AnySender {
    SharedMemory(ShmSender),
    Socket(SocketSender),
    Protocol(ProtocolSender),
}

impl AnySender {
    #[inline]
    pub(crate) fn try_send(&mut self, payload: &[u8]) -> Result<(), NotSent> {
        match self {
            Self::SharedMemory(end) => end.try_send(payload),
            Self::Socket(end) => end.try_send(payload),
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
            Self::Socket(end) => end.send_on(payload, progress),
            Self::Protocol(end) => end.send_on(payload, progress),
        }
    }

    /// Whether a message of `len` bytes can now be sent with [`send_inline`](Self::send_inline).
    /// Only shared memory sends messages so.
    #[inline]
    fn prepare_inline(&mut self, len: usize) -> Result<bool, NotSent> {
        match self {
            Self::SharedMemory(end) => end.prepare_inline(len),
            Self::Socket(_) | Self::Protocol(_) => Ok(false),
        }
    }

    /// Sends an inline message that `fill` writes in place.
    #[inline]
    fn send_inline(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), NotSent> {
        match self {
            Self::SharedMemory(end) => end.send_inline(len, fill),
            // Not reached: `prepare_inline` returned `false`.
            Self::Socket(_) | Self::Protocol(_) => Err(NotSent::Full),
        }
    }

    #[inline]
    pub(crate) fn set_stream(&mut self, stream: u32, credit: Option<u64>) -> Result<(), NotSent> {
        match self {
            Self::SharedMemory(end) => end.set_stream(stream, credit),
            Self::Socket(end) => end.set_stream(stream, credit),
            Self::Protocol(end) => end.set_stream(stream, credit),
        }
    }

    pub(crate) fn control(&mut self, kind: Kind, stream: u32, body: &[u8]) -> Result<(), NotSent> {
        match self {
            Self::SharedMemory(end) => end.control(kind, stream, body),
            Self::Socket(end) => end.control(kind, stream, body),
            Self::Protocol(end) => end.control(kind, stream, body),
        }
    }

    #[inline]
    pub(crate) fn reserve(&mut self, len: usize) -> Result<Memory, NotSent> {
        match self {
            Self::SharedMemory(end) => end.reserve(len),
            Self::Socket(end) => end.reserve(len),
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
            Self::Socket(end) => end.reserve_into(place, len),
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
            Self::Socket(end) => end.commit(memory, progress),
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
