// SPDX-License-Identifier: MIT OR Apache-2.0
//! A timer against the costs of short sleeps: while a thread sleeps often, its processor keeps its
//! tick.
//!
//! ```text
//!   sleeps begin:  ·  ·  ·  ·  ·  ·  ·  ·          ·        ·  ·
//!                  └── 16 in a row ──┘└ set ┘  pause: fires once, nobody waits for it
//! ```
//!
//! A processor that becomes idle stops the kernel's periodic tick, unless a timer is due before the
//! next tick. When a notification wakes the processor, it starts the tick again. Both write the
//! register of its timer, which leaves the guest on a virtual machine: together a fifth of a round
//! trip between two processors. With a timer that is due soon, the processor does neither.

use std::time::{Duration, Instant};

use partywall_sys::timer::Timer;

/// Keeps a timer of the kernel pending on the processor of a thread that sleeps often. The timer is
/// set again before it fires. After the last of many sleeps it fires once, and wakes nobody.
///
/// [`Spinner`](crate::Spinner) and [`IdlePolicy`](crate::IdlePolicy) have one each. A thread that
/// sleeps without them calls [`begin`](Self::begin) itself.
#[derive(Debug, Default)]
pub struct ShortSleeps {
    /// When the last sleep began.
    last: Option<Instant>,
    /// Number of sleeps in a row, each of which began soon after the one before.
    in_row: u32,
    timer: State,
    /// When the timer was set.
    set: Option<Instant>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Unused,
    Open(Timer),
    /// The process has no descriptor left, or may not use timers.
    Unavailable,
}

/// Sleeps are frequent if each begins within this time after the one before.
const GAP_MAX: Duration = Duration::from_micros(250);
/// Number of sleeps in a row before the first of them for which the timer is set, so that a short
/// burst costs no descriptor.
const ROW_MIN: u32 = 16;
/// The time after which the timer fires: the shortest tick of Linux. A timer that is due later does
/// not keep such a tick.
const FIRES_AFTER: Duration = Duration::from_millis(1);
/// The time after which a sleep sets the timer again.
const SET_EVERY: Duration = Duration::from_micros(500);

impl ShortSleeps {
    /// Must be called when a sleep is about to begin.
    #[cold]
    pub fn begin(&mut self) {
        let now = Instant::now();
        if self.is_due(now) {
            self.set(now);
        }
    }

    /// Counts a sleep that begins at `now`. Returns whether the timer has to be set for it.
    fn is_due(&mut self, now: Instant) -> bool {
        let is_near = |earlier, limit| {
            let earlier: Option<Instant> = earlier;
            earlier.is_some_and(|earlier| now.saturating_duration_since(earlier) < limit)
        };
        self.in_row = if is_near(self.last, GAP_MAX) { self.in_row.saturating_add(1) } else { 0 };
        self.last = Some(now);
        self.in_row >= ROW_MIN && !is_near(self.set, SET_EVERY)
    }

    fn set(&mut self, now: Instant) {
        self.set = Some(now);
        if matches!(self.timer, State::Unused) {
            self.timer = Timer::new().map_or(State::Unavailable, State::Open);
        }
        if let State::Open(timer) = &self.timer {
            // Without the timer, sleeps only cost more.
            if timer.set(Some(now + FIRES_AFTER)).is_err() {
                self.timer = State::Unavailable;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Begins `count` sleeps, each `gap` after the one before and the first at `start`. Returns the
    /// numbers of those for which the timer had to be set.
    fn sleeps(sleeps: &mut ShortSleeps, start: Instant, gap: Duration, count: u32) -> Vec<u32> {
        let mut set = Vec::new();
        for number in 0..count {
            let now = start + gap * number;
            if sleeps.is_due(now) {
                sleeps.set(now);
                set.push(number);
            }
        }
        set
    }

    #[test]
    fn frequent_sleeps_set_the_timer_before_it_fires() {
        let mut short = ShortSleeps::default();
        let set = sleeps(&mut short, Instant::now(), Duration::from_micros(100), 40);
        assert_eq!(set, [16, 21, 26, 31, 36]);
        assert!(matches!(short.timer, State::Open(_)));
    }

    #[test]
    fn rare_sleeps_and_short_bursts_use_no_timer() {
        let mut short = ShortSleeps::default();
        let mut now = Instant::now();
        assert_eq!(sleeps(&mut short, now, GAP_MAX, 100), []);
        for _ in 0..10 {
            now += Duration::from_secs(1);
            assert_eq!(sleeps(&mut short, now, Duration::from_micros(1), ROW_MIN), []);
        }
        assert!(matches!(short.timer, State::Unused));
    }

    #[test]
    fn pause_ends_the_row() {
        let mut short = ShortSleeps::default();
        let (now, gap) = (Instant::now(), Duration::from_micros(100));
        assert_eq!(sleeps(&mut short, now, gap, 17), [16]);
        let later = now + Duration::from_secs(1);
        assert_eq!(sleeps(&mut short, later, gap, 17), [16]);
    }
}
