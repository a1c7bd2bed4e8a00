// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pacing: a receiver that is faster than its sender stays a little behind it.
//!
//! ```text
//!   in step      sender    ▏r1▏  ▏r2▏  ▏r3▏      every record: both fetch the cache line
//!                receiver    ▏r1▏  ▏r2▏  ▏r3▏    from each other
//!   a bit behind sender    ▏r1▏r2▏r3▏r4▏r5▏      cache lines move once for many records
//!                receiver              ▏r1▏r2▏r3▏r4▏r5▏
//! ```
//!
//! A spinning receiver that is faster than its sender finds each record as soon as it is written,
//! and the polls slow the sender down. Therefore the receiver pauses before the first poll of a
//! wait, as long as one pause yields many records. If a pause yields few (a ping-pong), pacing is
//! suspended, for twice as many waits after each such failure. Pacing affects only time, never
//! which record is received.

use crate::Wait;
use std::hint::spin_loop;

/// Decides before each wait of a receiver whether the receiver pauses before its first poll.
#[derive(Debug, Default)]
pub struct Pacer {
    /// Length of the pause before the first poll of a wait, in spin-loop hints; 0 for none.
    pause_hints: u32,
    /// Number of records that the receiver has received since its last wait. If there are few of
    /// them, the pause before that wait did not pay off.
    records: u32,
    /// Number of polls that the last wait took. If there were few of them, the next wait may begin
    /// with a pause.
    polls: u32,
    /// Number of waits without a pause until the receiver tries a pause again.
    waits_held_off: u32,
    /// Value from which `waits_held_off` last counted down; it doubles whenever a pause does not
    /// pay off.
    hold_off: u32,
}

/// A pause that a receiver makes before the first poll of a wait, in spin-loop hints.
#[derive(Clone, Copy, Debug)]
#[must_use = "the caller runs the pause after it has released its locks"]
pub struct Pause(u32);

const PAUSE_HINTS_FIRST: u32 = 8;
const PAUSE_HINTS_MAX: u32 = 128;
/// A pause pays off if at least this many records arrive while the receiver pauses.
const RECORDS_MIN: u32 = 4;
/// If a pause yields at least this many records, a longer pause gains nothing.
const RECORDS_ENOUGH: u32 = 64;
/// If a wait takes at most this many polls, the record came fast: the receiver is faster than its
/// sender, and a pause may pay off.
const POLLS_FAST: u32 = 2;
/// After this many records without a wait, the receiver counts as behind its sender: the ring
/// probably contains further records.
const RECORDS_BEHIND: u32 = 8;
const HOLD_OFF_FIRST: u32 = 64;
const HOLD_OFF_MAX: u32 = 1 << 16;

impl Pacer {
    /// After this many records without a wait, a receiver counts as behind its sender.
    pub const RECORDS_BEHIND: u32 = RECORDS_BEHIND;

    /// Counts `records` received records in one call, instead of one call for each. From the count
    /// the pacer computes the rate of records.
    #[inline]
    pub const fn count_records(&mut self, records: u32) {
        self.records = self.records.saturating_add(records);
    }

    /// Counts one received record; from the count the pacer computes the rate of records.
    #[inline]
    pub const fn count_record(&mut self) {
        self.records = self.records.saturating_add(1);
    }

    /// Whether the receiver is so far behind its sender that the ring probably contains further
    /// records.
    #[inline]
    pub const fn is_behind(&self) -> bool {
        self.records >= RECORDS_BEHIND
    }

    /// Whether the receiver's next wait will begin with a pause.
    #[inline]
    pub const fn will_pause(&self) -> bool {
        self.pause_hints > 0 || self.waits_held_off == 0 && self.came_fast()
    }

    /// Whether the receiver's last wait took few polls and yielded a record.
    #[inline]
    const fn came_fast(&self) -> bool {
        self.records > 0 && self.polls <= POLLS_FAST
    }

    /// Counts one poll of the waiting receiver. Returns `is_ready`, the result of that poll,
    /// unchanged.
    #[inline]
    pub const fn count_poll(&mut self, is_ready: bool) -> bool {
        self.polls = self.polls.saturating_add(1);
        is_ready
    }

    /// Counts `polls` polls of the waiting receiver, which all found nothing.
    #[inline]
    pub const fn count_misses(&mut self, polls: u32) {
        self.polls = self.polls.saturating_add(polls);
    }

    /// Begins a wait and returns the pause that must precede its first poll.
    #[inline]
    pub fn before_wait(&mut self, wait: Wait) -> Pause {
        let (records, came_fast) = (self.records, self.came_fast());
        (self.records, self.polls) = (0, 0);
        if !matches!(wait, Wait::Spin | Wait::Adaptive) {
            return Pause(0);
        }
        if self.pause_hints > 0 {
            if records < RECORDS_MIN {
                self.pause_hints = 0;
                self.hold_off = (self.hold_off * 2).clamp(HOLD_OFF_FIRST, HOLD_OFF_MAX);
                self.waits_held_off = self.hold_off;
            } else if records < RECORDS_ENOUGH {
                self.pause_hints = (self.pause_hints * 2).min(PAUSE_HINTS_MAX);
            } else {
                self.hold_off = 0;
            }
        } else if self.waits_held_off > 0 {
            self.waits_held_off -= 1;
        } else if came_fast {
            self.pause_hints = PAUSE_HINTS_FIRST;
        }
        Pause(self.pause_hints)
    }
}

impl Pause {
    /// Executes the pause, as spin-loop hints, in the calling thread.
    #[inline]
    pub fn pause(self) {
        for _ in 0..self.0 {
            spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates `waits` waits, each with `polls` polls and `records` received records. Returns the
    /// number of waits that began with a pause.
    fn run(pacer: &mut Pacer, waits: u32, records: u32, polls: u32) -> u32 {
        let mut paused = 0;
        for _ in 0..waits {
            let _ = pacer.before_wait(Wait::Spin);
            paused += u32::from(pacer.pause_hints > 0);
            (0..polls).for_each(|_| {
                pacer.count_poll(false);
            });
            (0..records).for_each(|_| pacer.count_record());
        }
        paused
    }

    #[test]
    fn stream_of_records_is_followed_with_pauses() {
        assert!(run(&mut Pacer::default(), 1000, 10, 1) > 990);
    }

    #[test]
    fn will_pause_covers_every_wait_that_pauses() {
        let mut pacer = Pacer::default();
        for step in 0..100_000_u32 {
            let will_pause = pacer.will_pause();
            let Pause(hints) = pacer.before_wait(Wait::Spin);
            // Even if `will_pause` predicted a pause, the wait may begin without one, because
            // `before_wait` gives up pausing if the last pause did not pay off.
            assert!(will_pause || hints == 0, "step {step}");
            pacer.count_misses(step % 5);
            (0..step / 7 % 9).for_each(|_| pacer.count_record());
        }
    }

    #[test]
    fn ping_pong_is_rarely_paused() {
        assert!(run(&mut Pacer::default(), 100_000, 1, 1) < 20);
        assert_eq!(run(&mut Pacer::default(), 100_000, 1, 10), 0);
    }
}
