// SPDX-License-Identifier: MIT OR Apache-2.0
//! The wait of a thread for an event of its link: the thread polls according to the wait strategy,
//! and then sleeps until the link changes.
//!
//! ```text
//!   poll briefly ─▶ acknowledge ─▶ pace, if that pays ─▶ check, poll … check, poll …
//!                                                           one thread at a time
//!                ─▶ check or arm ─▶ sleep, drive ─▶ check or arm …
//!                     any number of threads
//!
//!   check   ask whether the awaited event has happened, with the lock held
//!   poll    read the word where the next record begins, until another thread wants the lock
//!   pace    pause a receiver that is faster than its sender
//! ```

use std::hint::spin_loop;
use std::time::{Duration, Instant};

use partywall_layout::seeded_fault;
use partywall_wait::{Pacer, Pause, SPIN_CHECK_EVERY, Spinner, Wait, has_passed, poll_for};

use super::{Endpoint, Locked, State};
use crate::drive::Before;
use crate::error::{Awaited, Stopped, WaitError};
use crate::link_state::{Event, FastPath};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// The thread waits for messages, or for a change of the link's status.
    ForRecords,
    /// The thread waits for room in the ring, or for acknowledgements.
    ForRoom,
}

/// What decides how a thread polls before it sleeps: the spinner, and the pacer, by whose pauses
/// sender and receiver contend less for cache lines.
pub(super) struct Pacing {
    pub(super) pacer: Pacer,
    /// The spinner, which a thread must hold in order to spin; `None` while a thread of this end
    /// holds it.
    pub(super) spinner: Option<Spinner>,
}

#[derive(Clone, Copy)]
pub(crate) struct Waiter<'a> {
    pub(super) end: &'a Endpoint,
}

impl Waiter<'_> {
    /// Waits until `check` returns a value, and returns that value; `None` if the deadline passes
    /// first. Acknowledgements are reported to the peer before the wait.
    pub(super) fn wait_for<R>(
        &self,
        deadline: Option<Instant>,
        waits: Waits,
        mut check: impl FnMut(&mut Locked<'_>) -> Option<R>,
    ) -> Result<Option<R>, Stopped> {
        let mut state = self.end.lock()?;
        self.end.exchange().acknowledge(&mut state, true);
        let is_pulling = waits == Waits::ForRecords && state.is_shared();
        if is_pulling {
            state.core.iter_mut().for_each(|core| FastPath::note_wait(core));
        }
        let lag = is_pulling.then(|| state.pacing.pacer.before_wait(self.end.config.wait));
        let may_spin = matches!(self.end.config.wait, Wait::Spin | Wait::Adaptive);
        let spinner = if may_spin { state.pacing.spinner.take() } else { None };
        drop(state);
        if let Some(spinner) = spinner {
            // The link's lock was released before this pause of the receiving thread. So the pause
            // does not delay another thread that sends.
            lag.into_iter().for_each(Pause::pause);
            let turn = SpinTurn { end: self.end, spinner: Some(spinner) };
            if let Some(found) = self.spin(deadline, waits, turn, &mut check)? {
                return Ok(Some(found));
            }
        }
        Ok(self
            .end
            .monitor
            .wait_for(deadline, |state| self.check_or_arm(state, waits, &mut check))?)
    }

    /// Polls for a record for a short time, without the preparations of a longer wait. Returns
    /// whether a record is there. A peer that spins, too, answers soon, and on the other hardware
    /// thread of this core those preparations would slow the peer down. If no record came, the
    /// caller waits as if it had not polled.
    #[inline(always)]
    pub(super) fn poll_briefly(&self, state: &mut Locked<'_>) -> bool {
        // This end has one spinner, and only the thread that takes it may spin. If the peer waits
        // for a notification, the caller has to notify it first, so this function does not poll.
        let may_watch = self.end.config.wait == Wait::Spin
            && state.pacing.spinner.is_some()
            && !state.pacing.pacer.will_pause()
            && !state.is_wanted()
            && state.core.as_ref().is_some_and(|core| core.is_caught_up());
        if !may_watch {
            return false;
        }
        state.core.iter_mut().for_each(|core| FastPath::note_wait(core));
        let (polls, is_there) = poll_record(state, POLLS_SOON);
        if is_there {
            // The pacer, which sets the pauses before waits, counts this short poll as a wait. The
            // pacer asks for no pause before a short poll, so its result is ignored.
            let _ = state.pacing.pacer.before_wait(self.end.config.wait);
            state.pacing.pacer.count_misses(polls);
        }
        is_there
    }

    /// Calls `check` repeatedly, as the wait strategy says, until it returns a value or the
    /// strategy ends the spinning.
    fn spin<R>(
        &self,
        deadline: Option<Instant>,
        waits: Waits,
        mut turn: SpinTurn<'_>,
        mut check: impl FnMut(&mut Locked<'_>) -> Option<R>,
    ) -> Result<Option<R>, Stopped> {
        if self.end.config.wait == Wait::Spin {
            return self.spin_on(deadline, waits, turn, check);
        }
        let (mut found, Some(spinner)) = (None, &mut turn.spinner) else { return Ok(None) };
        spinner.spin(self.end.config.wait, || {
            let mut state = self.end.monitor.lock();
            found = check(&mut state);
            if found.is_none() && poll(&mut state, waits, POLLS_ADAPTIVE) {
                found = check(&mut state);
            }
            state.pacing.checked(waits, found.is_some())
        });
        Ok(found)
    }

    /// Calls `check` repeatedly for `Wait::Spin`, which never sleeps. The thread holds the spinner
    /// only to mark that it spins. It may spin longer than the time that the spinner allows.
    fn spin_on<R>(
        &self,
        deadline: Option<Instant>,
        waits: Waits,
        mut turn: SpinTurn<'_>,
        mut check: impl FnMut(&mut Locked<'_>) -> Option<R>,
    ) -> Result<Option<R>, Stopped> {
        let since = (waits == Waits::ForRoom).then(Instant::now);
        let mut found = None;
        let mut check = || {
            if let Some(since) = since {
                // Each check reads the cache line in which the peer stores its acknowledgements,
                // and so takes the line away from the peer. Therefore the thread pauses between
                // checks.
                let waited = since.elapsed();
                pause(since + waited + waited.min(PAUSE_MAX));
            }
            let mut state = self.end.monitor.lock();
            found = check(&mut state);
            if found.is_none() && poll(&mut state, waits, POLLS_SPIN) {
                found = check(&mut state);
            }
            if found.is_some() {
                // The thread returns the spinner to the link's state now, while it holds the link's
                // lock. Otherwise the guard `turn`, which returns the spinner when it is dropped,
                // would take the lock again.
                state.pacing.spinner = turn.spinner.take();
            }
            state.pacing.checked(waits, found.is_some())
        };
        let mut turned = Ok(());
        while turned.is_ok() && !poll_for(SPIN_CHECK_EVERY, &mut check) && !has_passed(deadline) {
            turned = self.end.group.reactor.try_turn(Before::Polling);
        }
        turned?;
        Ok(found)
    }

    /// Calls `check`, and returns its value. If `check` finds nothing, declares this end asleep to
    /// the peer and returns `None`: the calling thread may sleep, because the peer notifies it.
    pub(super) fn check_or_arm<R>(
        &self,
        state: &mut Locked<'_>,
        waits: Waits,
        mut check: impl FnMut(&mut Locked<'_>) -> Option<R>,
    ) -> Option<R> {
        loop {
            if let Some(found) = check(state) {
                // This thread now stops waiting, and may leave this end declared awake to the peer,
                // which then sends no notifications, while other threads sleep. So this end is put
                // on the reactor's list of sources to arm.
                self.end.wakeups().arm_later(state);
                return Some(found);
            }
            if waits == Waits::ForRoom {
                state.wakeups.await_room();
            }
            // Whether the thread must check again instead of sleeping: it waits for records, and
            // this end is still declared awake because a record has arrived after the check.
            let must_look =
                |state: &State| waits == Waits::ForRecords && state.is_awake_for_records();
            if self.end.wakeups().try_arm(state) && !must_look(state) {
                return None;
            }
        }
    }

    pub(crate) fn wait_attached(&self, deadline: Option<Instant>) -> Result<(), WaitError> {
        let found = self.wait_for(deadline, Waits::ForRecords, |state| {
            if let Some(stopped) = state.stopped() {
                return Some(Err(stopped));
            }
            state.active().map(|_| Ok(()))
        })?;
        self.waited(found, Awaited::Attached)
    }

    /// Waits for an event of the link, and takes it. The events from before the link stopped come
    /// first.
    pub(crate) fn next_event(&self, deadline: Option<Instant>) -> Result<Event, WaitError> {
        let found = self.wait_for(deadline, Waits::ForRecords, |state| {
            let stopped = state.stopped();
            if stopped.is_some() && seeded_fault("link_events_after_the_end") {
                return stopped.map(Err);
            }
            let event = state.core.as_mut().and_then(|core| core.take_event());
            event.map(Ok).or_else(|| stopped.map(Err))
        })?;
        self.waited(found, Awaited::Event)
    }

    pub(super) fn waited<R>(
        &self,
        found: Option<Result<R, Stopped>>,
        awaited: Awaited,
    ) -> Result<R, WaitError> {
        match found {
            Some(found) => Ok(found?),
            None => Err(WaitError::TimedOut {
                awaited,
                link: self.end.key().to_string(),
                last: self.end.monitor.lock().connections.last_attempt.clone(),
            }),
        }
    }
}

impl Pacing {
    /// Counts a check for records in the pacer, which computes pauses from how often checks find
    /// records. Returns `is_found` (whether the check found a record) unchanged.
    fn checked(&mut self, waits: Waits, is_found: bool) -> bool {
        if waits == Waits::ForRecords { self.pacer.count_poll(is_found) } else { is_found }
    }
}

/// Polls only for the next record, at most `polls_max` times, until another thread wants the lock.
/// Returns whether a record is there. A full check takes many times as long as a poll.
#[inline]
fn poll(state: &mut Locked<'_>, waits: Waits, polls_max: u32) -> bool {
    if waits != Waits::ForRecords {
        return false;
    }
    let (polls, is_there) = poll_record(state, polls_max);
    // The pacer counts polls that found no record (misses). If the record is there, the last poll
    // found it and is no miss. The caller's next check finds the same record, and counts that
    // success.
    state.pacing.pacer.count_misses(polls.saturating_sub(u32::from(is_there)));
    is_there
}

/// Polls for the next record, at most `polls_max` times. Returns the number of polls made, and
/// whether a record is there.
#[inline(always)]
fn poll_record(state: &Locked<'_>, polls_max: u32) -> (u32, bool) {
    let mut polls = 0;
    let is_there = state.core.as_ref().is_some_and(|core| {
        core.watch(|| {
            let goes_on = polls < polls_max && !state.is_wanted();
            if goes_on {
                polls += 1;
                spin_loop();
            }
            goes_on
        })
    });
    (polls, is_there)
}

/// Guard that holds the spinner. When dropped, the guard returns the spinner to the link's state,
/// also if the application's code panics.
struct SpinTurn<'a> {
    end: &'a Endpoint,
    spinner: Option<Spinner>,
}

impl Drop for SpinTurn<'_> {
    fn drop(&mut self) {
        if self.spinner.is_some() {
            self.end.monitor.lock().pacing.spinner = self.spinner.take();
        }
    }
}

/// Number of polls for the next record between two full checks, under `Wait::Spin`. A full check,
/// which takes the lock, costs many times as much as a poll.
const POLLS_SPIN: u32 = 32;
/// Number of polls for the next record before a wait begins. This number of polls takes about as
/// long as an answer of a peer that runs on another processor core.
const POLLS_SOON: u32 = 64;
/// Number of polls for the next record between two full checks, under `Wait::Adaptive`. It is
/// small, because the spin budget of this strategy is measured in full checks.
const POLLS_ADAPTIVE: u32 = 4;
/// The longest pause between two checks for room. A pause is as long as the wait so far, up to this
/// limit.
const PAUSE_MAX: Duration = Duration::from_micros(2);

fn pause(until: Instant) {
    while Instant::now() < until {
        spin_loop();
    }
}
