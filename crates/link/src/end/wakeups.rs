// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sleeping and waking of one end of a link over shared memory: when the peer has to notify its
//! doorbell (SPEC 16).
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
//! - While a connection is over shared memory, one of three holds: the link is declared asleep for
//!   records; or it is on the reactor's list of sources to arm; or it has a record that the
//!   application has not received, and the group lists the link as one with events. The thread that
//!   receives this record puts the link on the reactor's list.
//! - A declaration that this end sleeps stays until the peer notifies this end: there is one
//!   notification for each declaration.
//! - A thread that reads a higher acked offset of the peer reports the offset to the other threads:
//!   they may wait for it, and the peer does not notify them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use partywall_sys::epoll::EventFlags;
use partywall_sys::{Doorbell, clock};

use super::{Endpoint, Locked, State};
use crate::drive::Source;
use crate::link_state::LinkState;

/// The wake-ups of one end: its doorbell, the events of which the peer notifies it, and the numbers
/// of waiting threads.
#[derive(Default)]
pub(super) struct Wakeups {
    /// The doorbell that the peer notifies, and the token of this doorbell in the reactor.
    doorbell: Option<(Arc<Doorbell>, u64)>,
    for_records: bool,
    for_room: bool,
    awaits_room: bool,
    /// Whether this end is on the reactor's list of sources to arm.
    is_listed: bool,
    /// Whether this end is on the reactor's list of sources to settle, because it has to report an
    /// acknowledgement to the peer.
    pub(super) is_unsettled: bool,
    /// Whether the leader already slept when this end was put on the list of sources to settle. The
    /// postponed report is then not made soon.
    pub(super) is_late: bool,
    /// Number of threads whose reply waits for room. Such a wait also ends when another thread
    /// acknowledges the message to which the reply answers.
    pub(super) replying: u32,
    /// Number of threads that wait until sent bytes are in the system's buffers. Each write to the
    /// socket wakes all of them.
    pub(super) awaiting_writes: u32,
    polls: PollClock,
}

/// Decides when a thread that finds all its messages in shared memory polls the socket, too: once
/// in each tick of the coarse clock, which advances every few milliseconds.
#[derive(Default)]
struct PollClock {
    /// The tick of the coarse clock in which the socket was polled last.
    polled_at: Duration,
    /// Number of times that the coarse clock was read within its present tick.
    reads: u32,
    /// Number of further messages, from the next one on, for which the coarse clock is not read.
    skips: u32,
}

#[derive(Clone, Copy)]
pub(crate) struct WakeupDriver<'a> {
    pub(super) end: &'a Endpoint,
}

impl WakeupDriver<'_> {
    /// Returns the doorbell of this end, which is created and registered on first use; `None` if
    /// the process has no descriptor left.
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

    /// Whether `token` is the token of this end's doorbell. If so, handles the peer's notification.
    pub(super) fn is_notified(&self, state: &mut Locked<'_>, token: u64) -> bool {
        let State { core, wakeups: rest, .. } = &mut **state;
        let Some((doorbell, own)) = &rest.doorbell else { return false };
        if *own != token {
            return false;
        }
        // Draining an intact eventfd does not fail. If the peer has damaged the doorbell, this end
        // checks for events all the same.
        let _ = doorbell.drain();
        (rest.for_records, rest.for_room) = (false, false);
        let acked = core.as_mut().map(|core| {
            core.cancel_sleep();
            core.acked()
        });
        self.end.exchange().poll_acks(state);
        // Only a further acknowledgement of the peer, a higher acked offset, ends a wait for room.
        // If the offset is unchanged, the waiting thread continues to wait.
        let has_acks = state.core.as_deref().map(LinkState::acked) != acked;
        state.wakeups.awaits_room &= !has_acks;
        self.end.report_change(state);
        self.arm_later(state);
        true
    }

    /// Makes the peer notify this end when the peer acknowledges messages, which frees room.
    pub(super) fn await_room(&self, state: &mut Locked<'_>) {
        state.wakeups.await_room();
        self.arm_later(state);
    }

    /// Puts this end on the reactor's list of sources to arm.
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

    /// Declares this end asleep to the peer. If records or acknowledgements arrive at that moment,
    /// the waiting threads are woken, and the declaration is tried again.
    pub(super) fn arm(&self, state: &mut Locked<'_>) {
        while !self.try_arm(state) {
            self.end.exchange().poll_acks(state);
        }
    }

    /// Declares this end asleep to the peer, because this end is on the reactor's list of sources
    /// to arm, and the leader is about to sleep.
    pub(super) fn arm_listed(&self, state: &mut Locked<'_>) {
        state.wakeups.is_listed = false;
        self.arm(state);
    }

    /// Declares this end asleep to the peer for records, and for room if a thread waits for room.
    /// Returns `false` if a record or acknowledgement arrived at that moment: all waiting threads
    /// have to check again.
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
            // A record has already arrived, and the peer sends no notification for this record. So
            // the group lists the link as one with events.
            self.end.list_in_group(state);
        }
        true
    }

    /// Resets the wake-ups after a connection with shared memory was attached or has ended: this
    /// end then counts as awake.
    pub(super) fn rearm(&self, state: &mut Locked<'_>) {
        let State { core, wakeups: rest, .. } = &mut **state;
        core.iter_mut().for_each(|core| core.cancel_sleep());
        (rest.for_records, rest.for_room, rest.awaits_room) = (false, false, false);
        self.arm_later(state);
    }

    /// Whether a thread that finds all its messages in shared memory has to poll the connection's
    /// socket, too. `is_busy` says that the thread will use the link again soon.
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

    /// Closes the doorbell of this end. The peer also has a descriptor of this doorbell. So the
    /// doorbell is removed from the epoll set first: closing our descriptor alone would leave it
    /// registered.
    pub(super) fn forget_doorbell(&self, state: &mut Locked<'_>) {
        if let Some((doorbell, token)) = state.wakeups.doorbell.take() {
            self.end.group.reactor.unwatch(&*doorbell, token);
        }
    }
}

impl Wakeups {
    /// Whether this end is on the reactor's list of sources to settle, so that it notifies the peer
    /// of acknowledgements before any thread sleeps.
    #[inline]
    pub(super) fn is_settled_in_time(&self) -> bool {
        self.is_unsettled && !self.is_late
    }

    /// Whether this end has more to do for a received message than to acknowledge it. The message
    /// then cannot take the fast path.
    pub(super) fn are_pending_for_receiver(&self) -> bool {
        let is_armed_in_time = self.is_listed || self.is_declared();
        self.replying > 0 || !is_armed_in_time || !self.is_settled_in_time()
    }

    /// Whether the peer will notify this end of everything that a thread of this end waits for.
    #[inline]
    const fn is_declared(&self) -> bool {
        self.for_records && (self.for_room || !self.awaits_room)
    }

    /// Number of messages that may still be sent or received over shared memory before the thread
    /// must also poll the socket, for which it reads the clock.
    pub(super) const fn unpolled(&self) -> u32 {
        self.polls.skips
    }

    /// Sets the number of messages that may be sent or received before the socket is polled. The
    /// fast path takes this number over when it opens, and gives back the rest when it closes.
    pub(super) const fn set_unpolled(&mut self, messages: u32) {
        self.polls.skips = messages;
    }

    /// Records that a thread waits for room or for acknowledgements. The next time that this end
    /// declares itself asleep, the peer is asked to notify it of them.
    pub(super) const fn await_room(&mut self) {
        self.awaits_room = true;
    }

    pub(super) const fn is_armed_for_records(&self) -> bool {
        self.for_records
    }
}

impl PollClock {
    /// Counts one message for which the thread need not read the clock in order to poll the socket.
    /// Returns `false` if no such message is left: the caller then has to read the clock.
    #[inline(always)]
    fn skip(&mut self) -> bool {
        let has_skip = self.skips > 0;
        if has_skip {
            self.skips -= 1;
        }
        has_skip
    }

    /// Whether `now` lies in another clock tick than the last poll of the socket. From this call
    /// on, `now` counts as the tick of the last poll.
    fn is_tick_over(&mut self, now: Duration) -> bool {
        let is_over = std::mem::replace(&mut self.polled_at, now) != now;
        // Only a thread that read the clock often within the present tick is likely to read it
        // again soon.
        self.reads = if is_over { 0 } else { self.reads.saturating_add(1) };
        self.skips = if self.reads >= READS_MIN { SKIPS_MAX } else { 0 };
        is_over
    }
}

/// Maximum number of clock reads that are skipped after each read, while many messages pass.
/// Reading the clock costs 10 % of sending a short message.
const SKIPS_MAX: u32 = 7;
/// Number of reads of the coarse clock within one tick after which the thread counts as busy. From
/// then on it skips 7 (`SKIPS_MAX`) of every 8 reads.
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
