// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sending from any thread: the same sender behind a lock that is private to this process.
//!
//! ```text
//!   thread A ── lock ── attempt ── full ── becomes the waiter: sleeps on the bell, without the lock
//!   thread B ── lock ── attempt ── full ── queues on the condition variable
//!   A wakes, or times out ─▶ A is no longer the waiter, all who queue try again: one of them is next
//! ```
//!
//! One waiter per bell: whoever gives up hands the wait on. A message that goes in pieces keeps the
//! others from sending until its last piece went.

use crate::config::BackPressure;
use crate::error::{Fault, SendError, TrySendError};
use crate::sender::{Holder, Reservation};
use crate::stats::SenderStats;
use crate::transport::{Memory, Progress, SendWire, SpaceWaiter, Unsent, Waited, wait_for_room};
use partywall_wait::{Spinner, Wait};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// The sending direction of a channel, for any number of threads; clones send through the same
/// channel, and dropping the last tells the receiver that no more will come.
#[derive(Clone, Debug)]
pub struct SharedSender {
    core: Arc<Core>,
}

#[derive(Debug)]
struct Core {
    state: Mutex<State>,
    changed: Condvar,
    room: SpaceWaiter,
    policy: BackPressure,
}

#[derive(Debug)]
struct State {
    /// Away only if the sender was taken away already: then there is nothing to send with.
    wire: Option<SendWire>,
    wait: Wait,
    /// With whoever waits on the bell, if somebody does.
    spinner: Option<Spinner>,
    /// A message goes in pieces: nobody else may send.
    in_pieces: bool,
    /// How often reserved memory came back unsent.
    returned: u64,
}

impl SharedSender {
    pub(crate) fn new(
        wire: Option<SendWire>,
        room: SpaceWaiter,
        wait: Wait,
        spinner: Spinner,
        policy: BackPressure,
    ) -> Self {
        let state = State { wire, wait, spinner: Some(spinner), in_pieces: false, returned: 0 };
        let core = Core { state: Mutex::new(state), changed: Condvar::new(), room, policy };
        Self { core: Arc::new(core) }
    }

    /// How to wait for room from now on.
    pub fn set_wait(&self, wait: Wait) {
        self.core.lock().wait = wait;
    }

    /// See [`Sender::send`](crate::Sender::send).
    ///
    /// # Errors
    /// As there.
    pub fn send(&self, payload: &[u8]) -> Result<(), SendError> {
        self.send_until(payload, None)
    }

    /// See [`Sender::send_deadline`](crate::Sender::send_deadline).
    ///
    /// # Errors
    /// As there.
    pub fn send_deadline(&self, payload: &[u8], deadline: Instant) -> Result<(), SendError> {
        self.send_until(payload, Some(deadline))
    }

    /// See [`Sender::try_send`](crate::Sender::try_send). Does not wait for another thread either.
    ///
    /// # Errors
    /// [`TrySendError::Busy`] while another thread sends, and as there.
    pub fn try_send(&self, payload: &[u8]) -> Result<(), TrySendError> {
        self.attempt(|wire| wire.try_send(payload))
    }

    /// Sends messages that the receiver sees all at once, or not at all.
    ///
    /// # Errors
    /// As [`Batch::send`](crate::Batch::send) and [`Batch::commit`](crate::Batch::commit).
    pub fn send_batch<P: AsRef<[u8]>>(&self, payloads: &[P]) -> Result<(), SendError> {
        // Before the lock is taken: this is the caller's code.
        let payloads: Vec<&[u8]> = payloads.iter().map(AsRef::as_ref).collect();
        self.drive(None, &mut Progress::default(), |wire, _| {
            let added = payloads.iter().try_for_each(|payload| wire.add_to_batch(payload));
            let sent = added.and_then(|()| wire.commit_batch());
            if sent.is_err() {
                // Nothing of it stays while others send.
                wire.abort_batch();
            }
            sent
        })?;
        // Over a socket the kernel may not have taken it all.
        match self.core.policy {
            BackPressure::Error => Ok(()),
            _ => self.flush(None),
        }
    }

    /// See [`Sender::reserve`](crate::Sender::reserve).
    ///
    /// # Errors
    /// As there.
    pub fn reserve(&self, len: usize) -> Result<Reservation<'_>, SendError> {
        self.reserve_until(len, None)
    }

    /// See [`Sender::reserve_deadline`](crate::Sender::reserve_deadline).
    ///
    /// # Errors
    /// As there.
    pub fn reserve_deadline(
        &self,
        len: usize,
        deadline: Instant,
    ) -> Result<Reservation<'_>, SendError> {
        self.reserve_until(len, Some(deadline))
    }

    /// See [`Sender::try_reserve`](crate::Sender::try_reserve).
    ///
    /// # Errors
    /// [`TrySendError::Busy`] while another thread sends, and as there.
    pub fn try_reserve(&self, len: usize) -> Result<Reservation<'_>, TrySendError> {
        let memory = self.attempt(|wire| wire.reserve(len))?;
        Ok(Reservation { holder: Holder::Shared(self), memory: Some(memory), deadline: None })
    }

    /// See [`Sender::trim`](crate::Sender::trim).
    ///
    /// # Errors
    /// [`TrySendError::Busy`] while another thread sends, and as there.
    pub fn trim(&self) -> Result<(), TrySendError> {
        self.attempt(|wire| wire.trim(true))
    }

    /// See [`Sender::flush`](crate::Sender::flush).
    ///
    /// # Errors
    /// As there.
    pub fn flush(&self, deadline: Option<Instant>) -> Result<(), SendError> {
        self.drive(deadline, &mut Progress::default(), |wire, _| wire.flush())
    }

    /// Counters of this direction.
    #[must_use]
    pub fn stats(&self) -> SenderStats {
        self.core.lock().wire.as_ref().map(SendWire::stats).unwrap_or_default()
    }

    pub(crate) fn is_inherited(&self) -> bool {
        self.core.room.is_inherited()
    }

    /// One attempt, unless another thread is at it.
    pub(crate) fn attempt<T>(
        &self,
        attempt: impl FnOnce(&mut SendWire) -> Result<T, Unsent>,
    ) -> Result<T, TrySendError> {
        let mut state = match self.core.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(TrySendError::Busy),
        };
        if state.in_pieces {
            return Err(TrySendError::Busy);
        }
        let Some(wire) = &mut state.wire else { return Err(TrySendError::Full) };
        Ok(attempt(wire)?)
    }

    /// Takes reserved memory back.
    pub(crate) fn release(&self, memory: Memory) {
        let mut state = self.core.lock();
        if let Some(wire) = &mut state.wire {
            wire.release(memory);
        }
        state.returned += 1;
        if state.spinner.is_none() {
            // Somebody waits for room, and the receiver will not ring for this.
            self.core.room.nudge();
        }
    }

    pub(crate) fn commit_until(
        &self,
        memory: &mut Option<Memory>,
        deadline: Option<Instant>,
    ) -> Result<(), SendError> {
        let mut progress = Progress::default();
        let sent =
            self.drive(deadline, &mut progress, |wire, progress| wire.commit(memory, progress));
        let payload = memory.as_ref().map_or(&[][..], Memory::as_slice);
        self.settle(sent, payload, &progress)
    }

    fn send_until(&self, payload: &[u8], deadline: Option<Instant>) -> Result<(), SendError> {
        let mut progress = Progress::default();
        let sent =
            self.drive(deadline, &mut progress, |wire, progress| wire.send_on(payload, progress));
        self.settle(sent, payload, &progress)
    }

    fn reserve_until(
        &self,
        len: usize,
        deadline: Option<Instant>,
    ) -> Result<Reservation<'_>, SendError> {
        let memory = self.drive(deadline, &mut Progress::default(), |wire, _| wire.reserve(len))?;
        Ok(Reservation { holder: Holder::Shared(self), memory: Some(memory), deadline })
    }

    /// Ends a message of which a part went, and lets the others send.
    fn settle(
        &self,
        sent: Result<(), SendError>,
        payload: &[u8],
        progress: &Progress,
    ) -> Result<(), SendError> {
        if !progress.started {
            return sent;
        }
        let mut state = self.core.lock();
        let settled = match (sent, &mut state.wire) {
            (Err(SendError::TimedOut | SendError::Full), Some(wire)) => {
                wire.give_up(payload, progress)
            }
            (sent, _) => sent,
        };
        state.in_pieces = false;
        drop(state);
        self.core.changed.notify_all();
        settled
    }

    /// Attempts until it succeeds, waiting for room in between.
    fn drive<T>(
        &self,
        deadline: Option<Instant>,
        progress: &mut Progress,
        mut attempt: impl FnMut(&mut SendWire, &mut Progress) -> Result<T, Unsent>,
    ) -> Result<T, SendError> {
        let core = &*self.core;
        if core.room.is_inherited() {
            return Err(SendError::Fault(Fault::Forked));
        }
        let mut state = core.lock();
        loop {
            if state.in_pieces && !progress.started {
                state = core.queue(state, deadline)?;
                continue;
            }
            let Some(wire) = &mut state.wire else { return Err(SendError::Full) };
            let seen = core.room.snapshot();
            let attempted = attempt(wire, progress);
            state.in_pieces = progress.started;
            match attempted {
                Err(Unsent::Full) if core.policy != BackPressure::Error => {}
                other => return other.map_err(SendError::from),
            }
            let Some(mut spinner) = state.spinner.take() else {
                // Somebody waits on the bell already.
                state = core.queue(state, deadline)?;
                continue;
            };
            let (wait, returned) = (state.wait, state.returned);
            drop(state);
            let waited = wait_for_room(&core.room, seen, wait, &mut spinner, deadline, |with| {
                let mut state = core.lock();
                let done = state.wire.as_mut().map_or(Ok(()), with);
                if state.returned != returned {
                    // It came back between the attempt and now: arming took the ring for it.
                    core.room.nudge();
                }
                done
            });
            state = core.lock();
            state.spinner = Some(spinner);
            // Whoever queued tries again; one of them waits next if need be.
            core.changed.notify_all();
            if waited? == Waited::TimedOut {
                return Err(SendError::TimedOut);
            }
        }
    }
}

impl Core {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues until something changed.
    fn queue<'a>(
        &self,
        state: MutexGuard<'a, State>,
        deadline: Option<Instant>,
    ) -> Result<MutexGuard<'a, State>, SendError> {
        let Some(deadline) = deadline else {
            return Ok(self.changed.wait(state).unwrap_or_else(PoisonError::into_inner));
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left == Duration::ZERO {
            return Err(SendError::TimedOut);
        }
        let waited = self.changed.wait_timeout(state, left);
        Ok(waited.unwrap_or_else(PoisonError::into_inner).0)
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(wire) = &mut state.wire {
            wire.close();
        }
    }
}

/// A shared sender crosses threads.
const _: fn() = || {
    fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<SharedSender>();
    fn is_send<T: Send>() {}
    is_send::<crate::Sender>();
    is_send::<crate::Receiver>();
    is_send_and_sync::<crate::Message>();
    is_send_and_sync::<SendError>();
};
