// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sleeping and waking of a link over shared memory (SPEC 16).
//!
//! ```text
//!            ┌────── notified: check again ◀────────────┐
//!            ▼                                          │
//!          awake ── on the reactor's list ── arm ────▶ declared asleep: for records, and for room
//!            │                                          ▲              if a thread waits for room
//!            └── a waiting thread's check finds nothing ┘
//! ```
//!
//! # Invariants
//!
//! - While a connection is shared, one of three holds: the link is declared asleep for records; or
//!   it is on the reactor's list; or it has a record that was not taken, and the group lists the
//!   link. The thread that takes this record puts the link on the reactor's list.
//! - A declaration stays until the peer notifies: there is one notification for each declaration.
//! - A thread that reads a higher acked offset of the peer reports it, because other threads may
//!   wait for it, and the peer does not notify them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use partywall_sys::epoll::EventFlags;
use partywall_sys::{Doorbell, clock};

use super::{Endpoint, Locked, State};
use crate::drive::Source;
use crate::link_state::LinkState;

/// The wake-ups of one end: its doorbell, what is armed, and the numbers of waiting threads.
#[derive(Default)]
pub(super) struct Wakeups {
    /// The doorbell of this end, and its token in the reactor.
    doorbell: Option<(Arc<Doorbell>, u64)>,
    for_records: bool,
    for_room: bool,
    awaits_room: bool,
    /// Whether the reactor's list of sources to arm contains this end.
    is_listed: bool,
    /// Whether the reactor's list of sources to settle contains this end, because it has to report
    /// an acknowledgement.
    pub(super) is_unsettled: bool,
    /// Whether a leader already slept when this end was put on the list of sources to settle.
    pub(super) is_late: bool,
    /// Number of threads whose reply waits for room. Another thread's acknowledgement of the
    /// request ends such a wait.
    pub(super) replying: u32,
    /// Number of threads that wait until sent bytes are in the system's buffers; each write
    /// notifies them.
    pub(super) awaiting_writes: u32,
    polls: PollClock,
}

/// Decides when a thread that finds all its messages in memory also polls the socket: once in each
/// tick of the coarse clock.
#[derive(Default)]
struct PollClock {
    /// The tick in which the socket was polled last.
    polled_at: Duration,
    /// Number of reads of the clock since that tick.
    reads: u32,
    /// Number of following calls that do not read the clock.
    skips: u32,
}

/// Arms and checks the wake-ups of one end of a link.
#[derive(Clone, Copy)]
pub(crate) struct WakeupDriver<'a> {
    pub(super) end: &'a Endpoint,
}

impl WakeupDriver<'_> {
    /// The doorbell of this end, created and registered on first use. `None` if the process has no
    /// descriptor left.
    pub(super) fn own_doorbell(&self, state: &mut Locked<'_>) -> Option<Arc<Doorbell>> {
        if let Some((doorbell, _)) = &state.wakeups.doorbell {
            return Some(Arc::clone(doorbell));
        }
        let doorbell = Arc::new(Doorbell::new().ok()?);
        let token = self.end.group.reactor.enter(self.end.me.clone());
        if self.end.group.reactor.watch(&*doorbell, EventFlags::IN, token).is_err() {
            self.end.group.reactor.forget(token);
            return None;
        }
        state.wakeups.doorbell = Some((Arc::clone(&doorbell), token));
        Some(doorbell)
    }

    /// Whether `token` is that of this end's doorbell; if so, handles the notification.
    pub(super) fn is_notified(&self, state: &mut Locked<'_>, token: u64) -> bool {
        let State { core, wakeups: rest, .. } = &mut **state;
        let Some((doorbell, own)) = &rest.doorbell else { return false };
        if *own != token {
            return false;
        }
        // Draining an intact eventfd does not fail. A doorbell that the peer damaged has at least
        // been notified.
        let _ = doorbell.drain();
        (rest.for_records, rest.for_room) = (false, false);
        let acked = core.as_mut().map(|core| {
            core.cancel_sleep();
            core.acked()
        });
        self.end.exchange().poll_acks(state);
        // Only a change of the acked offset ends a wait for room: without one the thread still
        // waits.
        let has_acks = state.core.as_deref().map(LinkState::acked) != acked;
        state.wakeups.awaits_room &= !has_acks;
        self.end.report_change(state);
        self.arm_later(state);
        true
    }

    /// Asks the peer to notify this end when it acknowledges, which frees room.
    pub(super) fn await_room(&self, state: &mut Locked<'_>) {
        state.wakeups.await_room();
        self.arm_later(state);
    }

    /// Puts the link on the reactor's list, so that it is armed before any thread sleeps.
    #[inline]
    pub(super) fn arm_later(&self, state: &mut Locked<'_>) {
        let rest = &state.wakeups;
        if rest.is_listed || rest.is_declared() || !state.is_shared() {
            return;
        }
        let me: Weak<dyn Source> = self.end.me.clone();
        if self.end.group.reactor.arm_later(me) {
            self.arm(state);
        } else {
            state.wakeups.is_listed = true;
        }
    }

    /// Declares the link asleep. Whatever arrived meanwhile is reported to all waiting threads.
    pub(super) fn arm(&self, state: &mut Locked<'_>) {
        while !self.try_arm(state) {
            self.end.exchange().poll_acks(state);
        }
    }

    /// Arms a link of the reactor's list, for a leader that is about to sleep.
    pub(super) fn arm_listed(&self, state: &mut Locked<'_>) {
        state.wakeups.is_listed = false;
        self.arm(state);
    }

    /// Declares the link asleep, where it is not declared so yet. `false` if a record or
    /// acknowledgement arrived at that moment: all waiting threads have to check again.
    pub(super) fn try_arm(&self, state: &mut Locked<'_>) -> bool {
        if !state.is_shared() {
            return true;
        }
        let State { core: Some(core), wakeups: rest, .. } = &mut **state else { return true };
        let has_record = core.has_next() || core.is_pull_ready();
        let for_records = !rest.for_records && !has_record;
        let for_room = !rest.for_room && rest.awaits_room;
        if (for_records || for_room) && !core.prepare_sleep(for_records, for_room) {
            (rest.for_records, rest.for_room) = (false, false);
            self.end.report_change(state);
            return false;
        }
        rest.for_records |= for_records;
        rest.for_room |= for_room;
        if !rest.for_records && !state.is_listed {
            // The peer does not notify for the record that is already there.
            self.end.list_in_group(state);
        }
        true
    }

    /// Resets the wake-ups after a connection became shared, or stopped being shared.
    pub(super) fn rearm(&self, state: &mut Locked<'_>) {
        let State { core, wakeups: rest, .. } = &mut **state;
        core.iter_mut().for_each(|core| core.cancel_sleep());
        (rest.for_records, rest.for_room, rest.awaits_room) = (false, false, false);
        self.arm_later(state);
    }

    /// Whether a thread that finds all its messages in memory has to poll the socket, too.
    /// `is_busy`: the thread will use the link again soon.
    #[inline(always)]
    pub(super) fn is_poll_due(&self, state: &mut Locked<'_>, is_busy: bool) -> bool {
        if is_busy && state.wakeups.polls.skip() {
            return false;
        }
        Self::is_tick_over(state)
    }

    #[inline(never)]
    fn is_tick_over(state: &mut Locked<'_>) -> bool {
        state.is_shared() && state.wakeups.polls.is_tick_over(clock::coarse())
    }

    /// Closes the doorbell of this end. The peer has a descriptor of the doorbell too, so the epoll
    /// set must forget it first: closing it alone would leave it registered.
    pub(super) fn forget_doorbell(&self, state: &mut Locked<'_>) {
        if let Some((doorbell, token)) = state.wakeups.doorbell.take() {
            self.end.group.reactor.unwatch(&*doorbell, token);
        }
    }
}

impl Wakeups {
    /// Whether the peer will be notified before any thread sleeps.
    #[inline]
    pub(super) fn is_settled_in_time(&self) -> bool {
        self.is_unsettled && !self.is_late
    }

    /// Whether a message that is received and acknowledged gives this end anything else to do.
    pub(super) fn are_pending_for_receiver(&self) -> bool {
        let is_armed_in_time = self.is_listed || self.is_declared();
        self.replying > 0 || !is_armed_in_time || !self.is_settled_in_time()
    }

    /// Whether the peer notifies this end of everything that a thread waits for.
    #[inline]
    const fn is_declared(&self) -> bool {
        self.for_records && (self.for_room || !self.awaits_room)
    }

    /// Messages of frequent callers until the socket is polled as well.
    pub(super) const fn unpolled(&self) -> u32 {
        self.polls.skips
    }

    /// Sets that number: the fast path takes them over, and gives back those that are left.
    pub(super) const fn set_unpolled(&mut self, messages: u32) {
        self.polls.skips = messages;
    }

    /// Records that a thread waits for room, or for acknowledgements.
    pub(super) const fn await_room(&mut self) {
        self.awaits_room = true;
    }

    /// Whether the peer will notify this end of the next record.
    pub(super) const fn is_armed_for_records(&self) -> bool {
        self.for_records
    }
}

impl PollClock {
    /// Uses up one of the calls that do not read the clock; `false` if none is left.
    #[inline(always)]
    fn skip(&mut self) -> bool {
        let has_skip = self.skips > 0;
        if has_skip {
            self.skips -= 1;
        }
        has_skip
    }

    /// Whether `now` lies in another tick than the last poll; `now` then becomes the tick of the
    /// last poll.
    fn is_tick_over(&mut self, now: Duration) -> bool {
        let is_over = std::mem::replace(&mut self.polled_at, now) != now;
        // Only a thread that polled often within the last tick is likely to poll again soon.
        self.reads = if is_over { 0 } else { self.reads.saturating_add(1) };
        self.skips = if self.reads >= READS_MIN { SKIPS_MAX } else { 0 };
        is_over
    }
}

/// Number of clock reads that are skipped after each read: reading the clock costs 10 % of sending
/// a short message.
const SKIPS_MAX: u32 = 7;
/// Number of clock reads within one tick from which on reads are skipped.
const READS_MIN: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_are_once_a_tick_and_frequent_callers_skip_the_clock() {
        let (mut polls, tick) = (PollClock::default(), Duration::from_millis(4));
        assert!(polls.is_tick_over(tick), "the first tick");
        for _ in 0..READS_MIN {
            assert!(!polls.skip(), "it came too seldom to skip");
            assert!(!polls.is_tick_over(tick));
        }
        let skipped = (0..100).take_while(|_| polls.skip()).count();
        assert_eq!(skipped, SKIPS_MAX as usize);
        assert!(polls.is_tick_over(tick * 2));
        assert!(!polls.skip(), "another tick begins anew");
    }
}
