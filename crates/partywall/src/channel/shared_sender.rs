// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sending direction of a channel that several threads of one process share: a sender behind a
//! mutex.
//!
//! ```text
//!   thread A ── lock ── attempt: Full ── waiter: sleeps until there is room, without the lock
//!   thread B ── lock ── attempt: Full ── queues on the condition variable
//!   A is woken, or times out ─▶ A stops waiting; all queued threads try again; one of them waits
//! ```
//!
//! One thread at a time waits on the doorbell; if it stops waiting, another thread waits instead.
//! While one thread sends a message in pieces, other threads cannot send until its last piece was
//! sent.

use super::reservation::{Holder, Reservation};
use super::sender::AnySender;
use crate::config::BackPressure;
use crate::error::{Fault, SendError, TrySendError};
use crate::stats::SenderStats;
use crate::transport::{
    Home, Memory, NotSent, OwnedReservation, Progress, SpaceWaiter, Waited, wait_for_space,
};
use partywall_wait::{Spinner, Wait};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// The sending direction of a channel, for any number of threads. All clones send through the same
/// channel. Dropping the last clone finishes the direction.
#[derive(Clone, Debug)]
pub struct SharedSender {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// The identity of the sender that `Sender::shared` converted to this object. An owned
    /// reservation whose memory belongs to another sender cannot be sent here.
    home: Home,
    space: Arc<dyn SpaceWaiter>,
    policy: BackPressure,
}

#[derive(Debug)]
struct State {
    /// The sending end of the transport. It is `None` only if `Sender::shared` was called on a
    /// sender that `shared` had already converted.
    end: Option<AnySender>,
    wait: Wait,
    /// Decides how long a thread spins before it blocks on the doorbell. `None` while a thread
    /// waits there, because that thread has taken the spinner.
    spinner: Option<Spinner>,
    /// Whether a thread is sending a message in pieces (fragments). Until the last piece is sent,
    /// no other thread may send.
    in_pieces: bool,
    /// Number of times that a caller freed reserved memory without sending it. A thread that waits
    /// for room notices by a change of this number that such memory is free.
    returned: u64,
}

impl SharedSender {
    pub(crate) fn new(
        end: Option<AnySender>,
        home: Home,
        space: Arc<dyn SpaceWaiter>,
        wait: Wait,
        spinner: Spinner,
        policy: BackPressure,
    ) -> Self {
        let state = State { end, wait, spinner: Some(spinner), in_pieces: false, returned: 0 };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        Self { shared: Arc::new(Shared { state, changed, home, space, policy }) }
    }

    /// Sets how this sender waits for room from now on.
    pub fn set_wait(&self, wait: Wait) {
        self.shared.lock().wait = wait;
    }

    /// Sends a copy of `payload`, as [`Sender::send`](crate::Sender::send) does.
    ///
    /// # Errors
    /// Fails as [`Sender::send`](crate::Sender::send) does, for example if the peer is gone or the
    /// message is too long.
    pub fn send(&self, payload: &[u8]) -> Result<(), SendError> {
        self.send_until(payload, None)
    }

    /// Sends a copy of `payload` before `deadline`, as
    /// [`Sender::send_deadline`](crate::Sender::send_deadline) does.
    ///
    /// # Errors
    /// Fails as [`Sender::send_deadline`](crate::Sender::send_deadline) does, for example if the
    /// deadline passes or the peer is gone.
    pub fn send_deadline(&self, payload: &[u8], deadline: Instant) -> Result<(), SendError> {
        self.send_until(payload, Some(deadline))
    }

    /// Sends a copy of `payload` without blocking, as [`Sender::try_send`](crate::Sender::try_send)
    /// does. The call never waits for another thread either.
    ///
    /// # Errors
    /// [`TrySendError::Busy`] while another thread sends, and the errors of
    /// [`Sender::try_send`](crate::Sender::try_send).
    pub fn try_send(&self, payload: &[u8]) -> Result<(), TrySendError> {
        self.attempt(|end| end.try_send(payload))
    }

    /// Sends several messages, which the receiver sees all at once or not at all.
    ///
    /// # Errors
    /// Fails as [`Batch::send`](crate::Batch::send) and [`Batch::commit`](crate::Batch::commit) do.
    pub fn send_batch<P: AsRef<[u8]>>(&self, payloads: &[P]) -> Result<(), SendError> {
        // `as_ref` runs code of the caller, so it is called before the lock of the shared sender is
        // taken.
        let payloads: Vec<&[u8]> = payloads.iter().map(AsRef::as_ref).collect();
        self.drive(None, &mut Progress::default(), |end, _| {
            let added = payloads.iter().try_for_each(|payload| end.add_to_batch(payload));
            let sent = added.and_then(|()| end.commit_batch());
            if sent.is_err() {
                // If a message could not be added, or the batch could not be committed, this call
                // discards the messages added so far. Otherwise another thread would commit them.
                end.abort_batch();
            }
            sent
        })?;
        // Over a socket, the kernel may not have accepted all bytes of the batch yet. `flush` waits
        // until it has.
        match self.shared.policy {
            BackPressure::Error => Ok(()),
            _ => self.flush(None),
        }
    }

    /// Reserves memory for a message, as [`Sender::reserve`](crate::Sender::reserve) does.
    ///
    /// # Errors
    /// Fails as [`Sender::reserve`](crate::Sender::reserve) does, for example if the peer is gone
    /// or the message is too long.
    pub fn reserve(&self, len: usize) -> Result<Reservation<'_>, SendError> {
        self.reserve_until(len, None)
    }

    /// Reserves memory before `deadline`, as
    /// [`Sender::reserve_deadline`](crate::Sender::reserve_deadline) does.
    ///
    /// # Errors
    /// Fails as [`Sender::reserve_deadline`](crate::Sender::reserve_deadline) does, for example if
    /// the deadline passes or the peer is gone.
    pub fn reserve_deadline(
        &self,
        len: usize,
        deadline: Instant,
    ) -> Result<Reservation<'_>, SendError> {
        self.reserve_until(len, Some(deadline))
    }

    /// Reserves memory without blocking, as [`Sender::try_reserve`](crate::Sender::try_reserve)
    /// does.
    ///
    /// # Errors
    /// [`TrySendError::Busy`] while another thread sends, and the errors of
    /// [`Sender::try_reserve`](crate::Sender::try_reserve).
    pub fn try_reserve(&self, len: usize) -> Result<Reservation<'_>, TrySendError> {
        let memory = self.attempt(|end| end.reserve(len))?;
        Ok(Reservation { holder: Holder::Shared(self), memory: Some(memory), deadline: None })
    }

    /// Reserves memory without a lifetime, as
    /// [`Sender::reserve_owned`](crate::Sender::reserve_owned) does.
    ///
    /// # Errors
    /// Fails as [`Sender::reserve_owned`](crate::Sender::reserve_owned) does, for example if the
    /// peer is gone or the message is too long.
    pub fn reserve_owned(
        &self,
        len: usize,
        deadline: Option<Instant>,
    ) -> Result<OwnedReservation, SendError> {
        let memory = self.drive(deadline, &mut Progress::default(), |end, _| end.reserve(len))?;
        Ok(OwnedReservation::new(Some(memory), self.shared.home.clone()))
    }

    /// Reserves memory without a lifetime and without blocking, as
    /// [`Sender::try_reserve_owned`](crate::Sender::try_reserve_owned) does.
    ///
    /// # Errors
    /// [`TrySendError::Busy`] while another thread sends, and the errors of
    /// [`Sender::try_reserve_owned`](crate::Sender::try_reserve_owned).
    pub fn try_reserve_owned(&self, len: usize) -> Result<OwnedReservation, TrySendError> {
        let memory = self.attempt(|end| end.reserve(len))?;
        Ok(OwnedReservation::new(Some(memory), self.shared.home.clone()))
    }

    /// Sends the message in `reservation`, as [`Sender::commit_owned`](crate::Sender::commit_owned)
    /// does. Also accepts a reservation that the `Sender` made before
    /// [`Sender::shared`](crate::Sender::shared) converted it into this shared sender.
    ///
    /// # Errors
    /// Fails as [`Sender::commit_owned`](crate::Sender::commit_owned) does, for example if the peer
    /// is gone or the message is too long.
    pub fn commit_owned(
        &self,
        mut reservation: OwnedReservation,
        deadline: Option<Instant>,
    ) -> Result<(), SendError> {
        if !self.is_own(&reservation) {
            return Err(SendError::ForeignReservation);
        }
        self.commit_until(reservation.memory_mut(), deadline)
    }

    /// Sends the message in `reservation` without blocking, as
    /// [`Sender::try_commit_owned`](crate::Sender::try_commit_owned) does.
    ///
    /// # Errors
    /// Returns the reservation together with the reason, which is [`TrySendError::Busy`] while
    /// another thread sends.
    #[expect(clippy::result_large_err, reason = "the reservation is given back")]
    pub fn try_commit_owned(
        &self,
        mut reservation: OwnedReservation,
    ) -> Result<(), (OwnedReservation, TrySendError)> {
        if !self.is_own(&reservation) {
            return Err((reservation, TrySendError::ForeignReservation));
        }
        let sent = self.attempt(|end| end.commit_whole(reservation.memory_mut()));
        sent.map_err(|error| (reservation, error))
    }

    /// Frees unused memory, as [`Sender::trim`](crate::Sender::trim) does.
    ///
    /// # Errors
    /// [`TrySendError::Busy`] while another thread sends, and the errors of
    /// [`Sender::trim`](crate::Sender::trim).
    pub fn trim(&self) -> Result<(), TrySendError> {
        self.attempt(|end| end.trim(true))
    }

    /// Writes the unsent bytes of a socket, as [`Sender::flush`](crate::Sender::flush) does.
    ///
    /// # Errors
    /// Fails as [`Sender::flush`](crate::Sender::flush) does, for example if the peer is gone.
    pub fn flush(&self, deadline: Option<Instant>) -> Result<(), SendError> {
        self.drive(deadline, &mut Progress::default(), |end, _| end.flush())
    }

    /// Returns the counters of the sending direction.
    #[must_use]
    pub fn stats(&self) -> SenderStats {
        self.shared.lock().end.as_ref().map(|end| end.stats()).unwrap_or_default()
    }

    pub(crate) fn is_inherited(&self) -> bool {
        self.shared.space.is_inherited()
    }

    fn is_own(&self, reservation: &OwnedReservation) -> bool {
        matches!(&self.shared.home, Home::Channel { owner, .. } if reservation.home().is_channel(owner))
    }

    /// Calls `attempt` once with the sending end. Returns `Busy` if another thread is sending at
    /// this moment.
    pub(crate) fn attempt<T>(
        &self,
        attempt: impl FnOnce(&mut AnySender) -> Result<T, NotSent>,
    ) -> Result<T, TrySendError> {
        let mut state = match self.shared.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(TrySendError::Busy),
        };
        if state.in_pieces {
            return Err(TrySendError::Busy);
        }
        let Some(end) = &mut state.end else { return Err(TrySendError::Full) };
        Ok(attempt(end)?)
    }

    /// Frees reserved memory without sending it, and notifies a thread that waits for room.
    pub(crate) fn release(&self, memory: Memory) {
        let mut state = self.shared.lock();
        if let Some(end) = &mut state.end {
            end.release(memory);
        }
        state.returned += 1;
        if state.spinner.is_none() {
            // Another thread waits for room on the doorbell. The peer's receiver does not notify it
            // of this memory, which was freed on this side. So this thread notifies it.
            self.shared.space.notify_self();
        }
    }

    pub(crate) fn commit_until(
        &self,
        memory: &mut Option<Memory>,
        deadline: Option<Instant>,
    ) -> Result<(), SendError> {
        let mut progress = Progress::default();
        let sent =
            self.drive(deadline, &mut progress, |end, progress| end.commit(memory, progress));
        let payload = memory.as_ref().map_or(&[][..], Memory::as_slice);
        self.settle(sent, payload, &progress)
    }

    fn send_until(&self, payload: &[u8], deadline: Option<Instant>) -> Result<(), SendError> {
        let mut progress = Progress::default();
        let sent =
            self.drive(deadline, &mut progress, |end, progress| end.send_on(payload, progress));
        self.settle(sent, payload, &progress)
    }

    fn reserve_until(
        &self,
        len: usize,
        deadline: Option<Instant>,
    ) -> Result<Reservation<'_>, SendError> {
        let memory = self.drive(deadline, &mut Progress::default(), |end, _| end.reserve(len))?;
        Ok(Reservation { holder: Holder::Shared(self), memory: Some(memory), deadline })
    }

    /// Ends the sending of a message. If there was no room or no time for its remaining pieces,
    /// the message is aborted, and the receiver drops the pieces already sent. Then other threads
    /// may send again.
    fn settle(
        &self,
        sent: Result<(), SendError>,
        payload: &[u8],
        progress: &Progress,
    ) -> Result<(), SendError> {
        if !progress.started {
            return sent;
        }
        let mut state = self.shared.lock();
        let settled = match (sent, &mut state.end) {
            (Err(SendError::TimedOut | SendError::Full), Some(end)) => {
                end.give_up(payload, progress)
            }
            (sent, _) => sent,
        };
        state.in_pieces = false;
        drop(state);
        self.shared.changed.notify_all();
        settled
    }

    /// Repeats `attempt` until it succeeds, and waits for room between two attempts.
    fn drive<T>(
        &self,
        deadline: Option<Instant>,
        progress: &mut Progress,
        mut attempt: impl FnMut(&mut AnySender, &mut Progress) -> Result<T, NotSent>,
    ) -> Result<T, SendError> {
        let shared = &*self.shared;
        if shared.space.is_inherited() {
            return Err(SendError::Fault(Fault::Forked));
        }
        let mut state = shared.lock();
        loop {
            if state.in_pieces && !progress.started {
                state = shared.queue(state, deadline)?;
                continue;
            }
            let Some(end) = &mut state.end else { return Err(SendError::Full) };
            let seen = shared.space.snapshot();
            let attempted = attempt(end, progress);
            state.in_pieces = progress.started;
            match attempted {
                Err(NotSent::Full) if shared.policy != BackPressure::Error => {}
                other => return other.map_err(SendError::from),
            }
            let Some(mut spinner) = state.spinner.take() else {
                // Another thread has taken the spinner, and with it the wait on the doorbell. So
                // this thread waits on the condition variable.
                state = shared.queue(state, deadline)?;
                continue;
            };
            let (wait, returned) = (state.wait, state.returned);
            drop(state);
            let waited =
                wait_for_space(&*shared.space, seen, wait, &mut spinner, deadline, |with| {
                    let mut state = shared.lock();
                    let done = state.end.as_mut().map_or(Ok(()), |end| with(&mut **end));
                    if state.returned != returned {
                        // Another thread freed memory after this thread's attempt. `arm` of the
                        // sender has consumed the notification of that memory, so this thread
                        // notifies itself and tries again.
                        shared.space.notify_self();
                    }
                    done
                });
            state = shared.lock();
            state.spinner = Some(spinner);
            // This thread waits on the doorbell no longer. So the threads that wait on the
            // condition variable try again; if there is no room, one of them waits on the doorbell
            // next.
            shared.changed.notify_all();
            if waited? == Waited::TimedOut {
                return Err(SendError::TimedOut);
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks on the condition variable until another thread has sent, freed memory or stopped
    /// waiting.
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

impl Drop for Shared {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(end) = &mut state.end {
            end.close();
        }
    }
}

/// Compile-time check: a shared sender can be sent to other threads and used by several at a time.
const _: fn() = || {
    fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<SharedSender>();
    fn is_send<T: Send>() {}
    is_send::<crate::Sender>();
    is_send::<crate::Receiver>();
    is_send_and_sync::<crate::Message>();
    is_send_and_sync::<SendError>();
    is_send::<OwnedReservation>();
};
