// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sending from one thread, without a lock: copies, reservations, batches.
//!
//! Every call is an attempt first; only when there is no room does it wait, as [`Wait`] says, or do
//! what the [`BackPressure`] policy says.

use crate::config::{BackPressure, Config};
use crate::error::{Fault, SendError, TrySendError};
use crate::receiver::Readiness;
use crate::shared::SharedSender;
use crate::stats::SenderStats;
use crate::transport::{
    Memory, Progress, ProgressSnapshot, SendWire, SpaceWaiter, Unsent, Waited, wait_for_room,
    waiting_failed,
};
use partywall_wait::{Spinner, Wait};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

/// The sending direction of a channel, for one thread.
///
/// Dropping it tells the receiver that no more will come.
#[derive(Debug)]
pub struct Sender {
    wire: Option<SendWire>,
    room: SpaceWaiter,
    /// The glance before the last attempt that found no room: what `arm` compares with.
    seen: ProgressSnapshot,
    wait: Wait,
    spinner: Spinner,
    policy: BackPressure,
    /// A batch has messages that were neither committed nor aborted.
    batch_open: bool,
}

impl Sender {
    pub(crate) fn new(wire: SendWire, config: &Config) -> Self {
        Self {
            seen: wire.room().snapshot(),
            room: wire.room(),
            wire: Some(wire),
            wait: config.wait,
            spinner: Spinner::new(config.spin_budget),
            policy: config.back_pressure,
            batch_open: false,
        }
    }

    /// How to wait for room from now on.
    pub const fn set_wait(&mut self, wait: Wait) {
        self.wait = wait;
    }

    /// What happens when there is no room is up to [`BackPressure`]; this says which policy holds.
    #[must_use]
    pub const fn back_pressure(&self) -> BackPressure {
        self.policy
    }

    /// Sends a copy of `payload`, of any length up to the limits of both sides.
    ///
    /// When this returns `Ok`, the message is committed: it will be received if the other side lives,
    /// even if this process dies at once.
    ///
    /// # Errors
    /// [`SendError::Closed`] if nobody receives any more, [`SendError::TooLarge`] with the limit and
    /// how to raise it, [`SendError::Full`] only under [`BackPressure::Error`].
    #[inline]
    pub fn send(&mut self, payload: &[u8]) -> Result<(), SendError> {
        self.send_until(payload, None)
    }

    /// As [`send`](Self::send), but waits for room only until `deadline`.
    ///
    /// # Errors
    /// [`SendError::TimedOut`] if there was none; the message was then not sent. And as `send`.
    pub fn send_deadline(&mut self, payload: &[u8], deadline: Instant) -> Result<(), SendError> {
        self.send_until(payload, Some(deadline))
    }

    /// Sends a copy of `payload` if there is room now. Never waits.
    ///
    /// # Errors
    /// [`TrySendError::Full`] if there is no room now, and as [`send`](Self::send).
    #[inline]
    pub fn try_send(&mut self, payload: &[u8]) -> Result<(), TrySendError> {
        match self.wire()?.try_send(payload) {
            Err(Unsent::Full) => self.try_again(|wire| wire.try_send(payload)),
            other => Ok(other?),
        }
    }

    /// Sends a message of `len` bytes that `fill` writes where the receiver will read it: in the ring
    /// if it is short, in shared memory if it is long. `fill` must write every byte: what it finds is
    /// unspecified, though never anything of another process.
    ///
    /// The fastest way to send. If `fill` panics, nothing is sent.
    ///
    /// # Errors
    /// As [`send`](Self::send); `fill` may then not have been called.
    #[inline]
    pub fn send_with(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), SendError> {
        let waits = self.policy != BackPressure::Error;
        let is_inline = match self.wire()?.prepare_inline(len) {
            Err(Unsent::Full) if waits => {
                self.drive(None, waits, |wire| wire.prepare_inline(len))?
            }
            other => other?,
        };
        if is_inline {
            return Ok(self.wire()?.send_inline(len, fill)?);
        }
        let mut reserved = self.reserve(len)?;
        fill(&mut reserved);
        reserved.commit()
    }

    /// Memory for a message of `len` bytes, to be filled in place and committed. A large one is the
    /// very memory that the receiver will look at.
    ///
    /// What it holds at first is unspecified: zeros, or what this process wrote before. An open
    /// reservation holds up nobody: it has no place in the order until it is committed.
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

    /// As [`reserve`](Self::reserve), but waits for memory, and at `commit` for room, only until
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

    /// As [`reserve`](Self::reserve), if there is memory now. Never waits.
    ///
    /// # Errors
    /// As [`try_send`](Self::try_send).
    pub fn try_reserve(&mut self, len: usize) -> Result<Reservation<'_>, TrySendError> {
        let memory = match self.wire()?.reserve(len) {
            Err(Unsent::Full) => self.try_again(|wire| wire.reserve(len))?,
            other => other?,
        };
        let holder = Holder::Exclusive(self);
        Ok(Reservation { holder, memory: Some(memory), deadline: None })
    }

    /// Begins a batch: messages that the receiver sees all at once, or not at all, and is woken for
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
        let _ = self.wire();
        Batch { sender: self, deadline: None }
    }

    /// As [`batch`](Self::batch), where waiting for room ends at `deadline`.
    pub fn batch_deadline(&mut self, deadline: Instant) -> Batch<'_> {
        let _ = self.wire();
        Batch { sender: self, deadline: Some(deadline) }
    }

    /// Waits until the kernel has taken what was sent over a socket without waiting. On a wall there
    /// is nothing to wait for.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn flush(&mut self, deadline: Option<Instant>) -> Result<(), SendError> {
        self.drive(deadline, true, SendWire::flush)
    }

    /// Gives all memory for large messages that is not in use back to the system.
    ///
    /// # Errors
    /// As [`try_send`](Self::try_send).
    pub fn trim(&mut self) -> Result<(), TrySendError> {
        Ok(self.wire()?.trim(true)?)
    }

    /// For a foreign event loop that waits for room: call this after `Full` and before polling the
    /// descriptor ([`AsFd`]), and poll only if it returns [`Readiness::WillNotify`]. Try again when the
    /// descriptor is readable. Never read it.
    ///
    /// # Errors
    /// [`Fault`] if the channel is broken.
    pub fn arm(&mut self) -> Result<Readiness, Fault> {
        let Some(wire) = &mut self.wire else { return Ok(Readiness::Ready) };
        wire.drain()?;
        wire.arm(false)?;
        // Takes from the descriptor what is not meant for us and would keep it readable; hears of a
        // hang-up, which the next attempt then reports.
        if self.room.sleep(Some(Instant::now())).map_err(waiting_failed)? {
            wire.note_hang_up();
            return Ok(Readiness::Ready);
        }
        // Compared with the glance *before* the attempt that failed: room that came since counts.
        if self.room.snapshot() == self.seen {
            Ok(Readiness::WillNotify)
        } else {
            Ok(Readiness::Ready)
        }
    }

    /// A sender that any number of threads may use at a time.
    #[must_use]
    pub fn shared(mut self) -> SharedSender {
        let wire = self.wire.take();
        let spinner = std::mem::replace(&mut self.spinner, Spinner::new(std::time::Duration::ZERO));
        SharedSender::new(wire, self.room.clone(), self.wait, spinner, self.policy)
    }

    /// Counters of this direction.
    #[must_use]
    pub fn stats(&self) -> SenderStats {
        self.wire.as_ref().map(SendWire::stats).unwrap_or_default()
    }

    /// The wire; it is away only in a sender that became shared, which nobody can hold.
    #[inline]
    fn wire(&mut self) -> Result<&mut SendWire, Unsent> {
        let wire = self.wire.as_mut().ok_or(Unsent::Full)?;
        if self.batch_open {
            // The batch was dropped, or leaked: it never was.
            self.batch_open = false;
            wire.abort_batch();
        }
        Ok(wire)
    }

    /// The attempt after which a foreign event loop arms: a glance goes before it.
    #[cold]
    fn try_again<T>(
        &mut self,
        attempt: impl FnOnce(&mut SendWire) -> Result<T, Unsent>,
    ) -> Result<T, TrySendError> {
        self.seen = self.room.snapshot();
        Ok(attempt(self.wire()?)?)
    }

    #[inline]
    fn send_until(&mut self, payload: &[u8], deadline: Option<Instant>) -> Result<(), SendError> {
        let mut progress = Progress::default();
        // The first attempt stands alone: nearly always it is the only one.
        match self.wire()?.send_on(payload, &mut progress) {
            Err(Unsent::Full) => {}
            other => return other.map_err(SendError::from),
        }
        let waits = self.policy != BackPressure::Error;
        let sent = self.drive(deadline, waits, |wire| wire.send_on(payload, &mut progress));
        self.settle(sent, payload, &progress)
    }

    /// A message of which a part went either counts as sent, or must be given up in order.
    fn settle(
        &mut self,
        sent: Result<(), SendError>,
        payload: &[u8],
        progress: &Progress,
    ) -> Result<(), SendError> {
        match sent {
            Err(SendError::TimedOut | SendError::Full) if progress.started => {
                self.wire()?.give_up(payload, progress)
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
        self.wire()?;
        let memory = self.drive(deadline, waits, |wire| wire.reserve(len))?;
        Ok(Reservation { holder: Holder::Exclusive(self), memory: Some(memory), deadline })
    }

    /// Attempts until it succeeds, waiting for room in between.
    fn drive<T>(
        &mut self,
        deadline: Option<Instant>,
        waits: bool,
        mut attempt: impl FnMut(&mut SendWire) -> Result<T, Unsent>,
    ) -> Result<T, SendError> {
        loop {
            let Some(wire) = &mut self.wire else { return Err(SendError::Full) };
            let seen = self.room.snapshot();
            self.seen = seen;
            match attempt(wire) {
                Err(Unsent::Full) if waits => {}
                other => return other.map_err(SendError::from),
            }
            let (room, wait) = (&self.room, self.wait);
            let waited =
                wait_for_room(room, seen, wait, &mut self.spinner, deadline, |with| with(wire))?;
            if waited == Waited::TimedOut {
                return Err(SendError::TimedOut);
            }
        }
    }
}

impl AsFd for Sender {
    /// A descriptor that becomes readable when there may be room; see [`arm`](Self::arm).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.room.descriptor()
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if let Some(wire) = &mut self.wire {
            wire.close();
        }
    }
}

/// Whose memory a reservation goes back to.
#[derive(Debug)]
pub(crate) enum Holder<'a> {
    Exclusive(&'a mut Sender),
    Shared(&'a SharedSender),
}

impl Holder<'_> {
    /// A reservation of shared memory cannot be looked at in a forked child: it is not mapped there.
    #[inline]
    fn assert_owner(&self) {
        let is_inherited = match self {
            Self::Exclusive(sender) => sender.room.is_inherited(),
            Self::Shared(sender) => sender.is_inherited(),
        };
        assert!(!is_inherited, "this reservation belongs to the parent process");
    }
}

/// Memory of a message that is not sent yet: fill it, then [`commit`](Self::commit).
///
/// Dropping it, or [`abort`](Self::abort), gives it back; the receiver never learns of it.
///
/// # Panics
/// Looking at it, or writing to it, panics in a forked child.
pub struct Reservation<'a> {
    pub(crate) holder: Holder<'a>,
    pub(crate) memory: Option<Memory>,
    pub(crate) deadline: Option<Instant>,
}

impl Reservation<'_> {
    /// Sends the message.
    ///
    /// # Errors
    /// As [`Sender::send`]; the message is then dropped. To keep it, use
    /// [`try_commit`](Self::try_commit).
    pub fn commit(mut self) -> Result<(), SendError> {
        let (deadline, memory) = (self.deadline, &mut self.memory);
        match &mut self.holder {
            Holder::Exclusive(sender) => {
                let waits = sender.policy != BackPressure::Error;
                let mut progress = Progress::default();
                let sent = sender.drive(deadline, waits, |wire| wire.commit(memory, &mut progress));
                let payload = memory.as_ref().map_or(&[][..], Memory::as_slice);
                sender.settle(sent, payload, &progress)
            }
            Holder::Shared(sender) => sender.commit_until(memory, deadline),
        }
    }

    /// Sends the message if there is room in the ring now; gives the reservation back if not.
    ///
    /// # Errors
    /// The reservation, and why: see [`TrySendError`].
    #[expect(clippy::result_large_err, reason = "the reservation is given back")]
    pub fn try_commit(mut self) -> Result<(), (Self, TrySendError)> {
        // Private memory goes like any copy: whole or not at all.
        let attempt = |wire: &mut SendWire, memory: &mut Option<Memory>| match memory {
            Some(Memory::Private(bytes)) => {
                wire.try_send(bytes)?;
                *memory = None;
                Ok(())
            }
            _ => wire.commit(memory, &mut Progress::default()),
        };
        let memory = &mut self.memory;
        let sent = match &mut self.holder {
            Holder::Exclusive(sender) => {
                match sender.wire().and_then(|wire| attempt(wire, memory)) {
                    Err(Unsent::Full) => sender.try_again(|wire| attempt(wire, memory)),
                    other => other.map_err(TrySendError::from),
                }
            }
            Holder::Shared(sender) => sender.attempt(|wire| attempt(wire, memory)),
        };
        sent.map_err(|error| (self, error))
    }

    /// Gives the memory back unsent.
    pub fn abort(self) {
        drop(self);
    }

    /// Makes the message shorter than was reserved.
    pub fn truncate(&mut self, len: usize) {
        if let Some(memory) = &mut self.memory {
            memory.truncate(len);
        }
    }
}

impl Deref for Reservation<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.holder.assert_owner();
        self.memory.as_ref().map_or(&[], Memory::as_slice)
    }
}

impl DerefMut for Reservation<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.holder.assert_owner();
        self.memory.as_mut().map_or(&mut [], Memory::as_mut_slice)
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else { return };
        match &mut self.holder {
            Holder::Exclusive(sender) => {
                if let Ok(wire) = sender.wire() {
                    wire.release(memory);
                }
            }
            Holder::Shared(sender) => sender.release(memory),
        }
    }
}

impl fmt::Debug for Reservation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("len", &self.len()).finish()
    }
}

/// Messages that become visible all at once.
///
/// Dropping it without [`commit`](Self::commit) sends none of them.
#[derive(Debug)]
pub struct Batch<'a> {
    sender: &'a mut Sender,
    deadline: Option<Instant>,
}

impl Batch<'_> {
    /// Adds a copy of `payload`.
    ///
    /// # Errors
    /// [`SendError::TooLarge`] with [`Limit::Batch`](crate::Limit::Batch) if the batch is full: what
    /// it has so far can be committed. And as [`Sender::send`].
    pub fn send(&mut self, payload: &[u8]) -> Result<(), SendError> {
        let waits = self.sender.policy != BackPressure::Error;
        self.sender.batch_open = true;
        self.sender.drive(self.deadline, waits, |wire| wire.add_to_batch(payload))
    }

    /// Sends all messages of the batch.
    ///
    /// # Errors
    /// As [`Sender::send`]; none of them is then sent.
    pub fn commit(self) -> Result<(), SendError> {
        let waits = self.sender.policy != BackPressure::Error;
        self.sender.drive(self.deadline, waits, SendWire::commit_batch)?;
        self.sender.batch_open = false;
        if !waits {
            return Ok(());
        }
        // Over a socket the kernel may not have taken it all; at the deadline the batch counts as sent,
        // and the rest goes with the next call.
        match self.sender.flush(self.deadline) {
            Err(SendError::TimedOut) => Ok(()),
            other => other,
        }
    }

    /// Sends none of them.
    pub fn abort(self) {
        drop(self);
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        // Forgets what is open.
        let _ = self.sender.wire();
    }
}
