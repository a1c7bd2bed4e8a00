// SPDX-License-Identifier: MIT OR Apache-2.0
//! When a link over shared memory sleeps, and what wakes it (SPEC 16).
//!
//! ```text
//!            ┌────── notified: check again ◀────────────┐
//!            ▼                                          │
//!          awake ── on the reactor's list ── arm ────▶ declared: for records, for room if a thread waits for it
//!            │                                          ▲
//!            └── a thread that waits checks in vain ────┘
//! ```
//!
//! # Invariants
//!
//! - While a connection is shared, the link is declared asleep for records, or is on the reactor's list, or has a record
//!   that was not taken and that the group lists. Whoever takes that record puts the link on the reactor's list.
//! - A declaration stays until the peer notifies: there is one notification for each declaration.
//! - A thread that finds more acknowledged reports it: others may wait for that, and the peer does not notify them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use partywall_sys::epoll::EventFlags;
use partywall_sys::{Doorbell, clock};

use super::{Endpoint, Locked, State};
use crate::drive::Source;
use crate::link_state::LinkState;

/// By what a link is woken.
#[derive(Default)]
pub(super) struct Wakeups {
    /// Doorbell of this end, and the token under which it is watched.
    doorbell: Option<(Arc<Doorbell>, u64)>,
    for_records: bool,
    for_room: bool,
    awaits_room: bool,
    /// On the reactor's list of those to arm.
    is_listed: bool,
    /// On the reactor's list of those with an acknowledgement to settle.
    pub(super) is_unsettled: bool,
    /// It came to that list when a thread slept already.
    pub(super) is_late: bool,
    /// Threads that wait for room for a reply, which an acknowledgement by another thread ends.
    pub(super) replying: u32,
    /// Threads that wait until what was sent is with the system: each write notifies them.
    pub(super) awaiting_writes: u32,
    polls: PollClock,
}

/// When a thread that finds all it wants in memory polls the socket, too: once in a tick of the coarse clock.
#[derive(Default)]
struct PollClock {
    /// Tick in which the socket was polled last.
    polled_at: Duration,
    /// Reads of the clock since that tick.
    reads: u32,
    /// Calls left that do not read the clock.
    skips: u32,
}

/// Arms and checks the wake-ups of one end of a link.
#[derive(Clone, Copy)]
pub(crate) struct WakeupDriver<'a> {
    pub(super) end: &'a Endpoint,
}

impl WakeupDriver<'_> {
    /// The own bell, made and watched when it is first needed. `None` if there is no descriptor left.
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

    /// Whether the token is that of the own bell; if so, it was rung.
    pub(super) fn is_notified(&self, state: &mut Locked<'_>, token: u64) -> bool {
        let State { core, wakeups: rest, .. } = &mut **state;
        let Some((doorbell, own)) = &rest.doorbell else { return false };
        if *own != token {
            return false;
        }
        // A sound eventfd does not fail; one that the peer spoilt was rung at least.
        let _ = doorbell.drain();
        (rest.for_records, rest.for_room) = (false, false);
        let acked = core.as_mut().map(|core| {
            core.cancel_sleep();
            core.acked()
        });
        self.end.exchange().poll_acks(state);
        // Who waits for room may have heard of this before, and not be told again: then it still waits.
        let has_acks = state.core.as_deref().map(LinkState::acked) != acked;
        state.wakeups.awaits_room &= !has_acks;
        self.end.report_change(state);
        self.arm_later(state);
        true
    }

    /// Somebody is to be woken when there is room, or an acknowledgement.
    pub(super) fn await_room(&self, state: &mut Locked<'_>) {
        state.wakeups.await_room();
        self.arm_later(state);
    }

    /// The link is to be rung if something comes, before anybody sleeps.
    #[inline]
    pub(super) fn arm_later(&self, state: &mut Locked<'_>) {
        let rest = &state.wakeups;
        let is_declared = rest.for_records && (rest.for_room || !rest.awaits_room);
        if rest.is_listed || is_declared || !state.is_shared() {
            return;
        }
        let me: Weak<dyn Source> = self.end.me.clone();
        if self.end.group.reactor.arm_later(me) {
            self.arm(state);
        } else {
            state.wakeups.is_listed = true;
        }
    }

    /// Declares the link asleep, whatever has come meanwhile: whoever waits for it is told.
    pub(super) fn arm(&self, state: &mut Locked<'_>) {
        while !self.try_arm(state) {
            self.end.exchange().poll_acks(state);
        }
    }

    /// As a leader says: it is about to sleep.
    pub(super) fn arm_listed(&self, state: &mut Locked<'_>) {
        state.wakeups.is_listed = false;
        self.arm(state);
    }

    /// Declares the link asleep, as far as it is not. `false`: something came just now, so that whoever waits is to look again.
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
            // Nobody will ring for the record that is there.
            self.end.list_in_group(state);
        }
        true
    }

    /// A connection became shared, or is not any more.
    pub(super) fn rearm(&self, state: &mut Locked<'_>) {
        let State { core, wakeups: rest, .. } = &mut **state;
        core.iter_mut().for_each(|core| core.cancel_sleep());
        (rest.for_records, rest.for_room, rest.awaits_room) = (false, false, false);
        self.arm_later(state);
    }

    /// Whether a thread that finds all it wants in memory is to poll the socket as well. `is_busy`: it will be back soon.
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

    /// The own bell is not needed any more. The neighbour has it, too: it would stay watched when this process closes it.
    pub(super) fn forget_doorbell(&self, state: &mut Locked<'_>) {
        if let Some((doorbell, token)) = state.wakeups.doorbell.take() {
            self.end.group.reactor.unwatch(&*doorbell, token);
        }
    }
}

impl Wakeups {
    /// Whether the peer is to be notified, and no thread sleeps before it is.
    #[inline]
    pub(super) fn is_settled_in_time(&self) -> bool {
        self.is_unsettled && !self.is_late
    }

    /// A thread waits for room, or for acknowledgements.
    pub(super) const fn await_room(&mut self) {
        self.awaits_room = true;
    }

    /// Whether the peer notifies for the next record.
    pub(super) const fn is_armed_for_records(&self) -> bool {
        self.for_records
    }
}

impl PollClock {
    /// Takes one of the calls that do not read the clock, if there is one left.
    #[inline(always)]
    fn skip(&mut self) -> bool {
        let has_skip = self.skips > 0;
        if has_skip {
            self.skips -= 1;
        }
        has_skip
    }

    /// Whether `now` is another tick than that of the last poll, which it is from here on.
    fn is_tick_over(&mut self, now: Duration) -> bool {
        let is_over = std::mem::replace(&mut self.polled_at, now) != now;
        // Only a thread that came often within a tick will come again soon.
        self.reads = if is_over { 0 } else { self.reads.saturating_add(1) };
        self.skips = if self.reads >= READS_MIN { SKIPS_MAX } else { 0 };
        is_over
    }
}

/// Reading the clock costs 10 % of sending a short message, so 7 of 8 reads are skipped.
const SKIPS_MAX: u32 = 7;
/// Reads of the clock within one tick from which on reads are skipped.
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
