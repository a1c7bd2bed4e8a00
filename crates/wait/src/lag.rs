// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeping a little behind a fast sender.
//!
//! ```text
//!   in step      sender  ▏r1▏  ▏r2▏  ▏r3▏      every record: both fetch the line from each other
//!                reader    ▏r1▏  ▏r2▏  ▏r3▏
//!   a bit behind sender  ▏r1▏r2▏r3▏r4▏r5▏      lines move once, many records at a time
//!                reader              ▏r1▏r2▏r3▏r4▏r5▏
//! ```
//!
//! A spinning reader that is faster than the sender finds each record the moment it is written, and
//! its looking slows the sender down. So where records come so fast, it pauses before it looks, as
//! long as the pause yields many records; where it does not (a ping-pong), it leaves that alone, and
//! for longer each time. Nothing but time depends on it.

use crate::Wait;
use std::hint::spin_loop;

/// What decides whether to pause.
#[derive(Debug, Default)]
pub struct Lag {
    /// Pauses before the first look of a wait.
    pauses: u32,
    /// Records since the last wait.
    received: u32,
    /// Looks of the last wait.
    looks: u32,
    /// So many waits go by before it is tried again.
    hold_off: u32,
    /// How many went by the last time.
    held_off: u32,
}

/// How long to pause.
#[derive(Clone, Copy, Debug)]
#[must_use = "it is the caller who pauses, once it holds no lock"]
pub struct Pause(u32);

const PAUSES_FIRST: u32 = 8;
const PAUSES_MAX: u32 = 128;
/// A pause pays if it yields so many records.
const RECORDS_MIN: u32 = 4;
/// Beyond so many, a longer pause gains nothing.
const RECORDS_ENOUGH: u32 = 64;
/// A record found by so many looks at the most came fast.
const LOOKS_FAST: u32 = 2;
/// After so many records without a wait, the reader is behind.
const RECORDS_BEHIND: u32 = 8;
const HOLD_OFF_FIRST: u32 = 64;
const HOLD_OFF_MAX: u32 = 1 << 16;

impl Lag {
    /// A record was received.
    #[inline]
    pub const fn received(&mut self) {
        self.received = self.received.saturating_add(1);
    }

    /// Whether so much came without a wait that more is likely to lie ahead.
    #[inline]
    pub const fn is_behind(&self) -> bool {
        self.received >= RECORDS_BEHIND
    }

    /// Whether the next wait is to begin with a pause.
    #[inline]
    pub const fn is_to_pause(&self) -> bool {
        self.pauses > 0 || self.hold_off == 0 && self.came_fast()
    }

    /// Whether the last wait, if it was one, was short, and gave something.
    #[inline]
    const fn came_fast(&self) -> bool {
        self.received > 0 && self.looks <= LOOKS_FAST
    }

    /// A look was made.
    #[inline]
    pub const fn look(&mut self, is_ready: bool) -> bool {
        self.looks = self.looks.saturating_add(1);
        is_ready
    }

    /// So many looks were made, in vain.
    #[inline]
    pub const fn looked(&mut self, looks: u32) {
        self.looks = self.looks.saturating_add(looks);
    }

    /// A wait begins: it is to pause so long before it looks.
    #[inline]
    pub fn before_wait(&mut self, wait: Wait) -> Pause {
        let (received, came_fast) = (self.received, self.came_fast());
        (self.received, self.looks) = (0, 0);
        if !matches!(wait, Wait::Spin | Wait::Adaptive) {
            return Pause(0);
        }
        if self.pauses > 0 {
            if received < RECORDS_MIN {
                self.pauses = 0;
                self.held_off = (self.held_off * 2).clamp(HOLD_OFF_FIRST, HOLD_OFF_MAX);
                self.hold_off = self.held_off;
            } else if received < RECORDS_ENOUGH {
                self.pauses = (self.pauses * 2).min(PAUSES_MAX);
            } else {
                self.held_off = 0;
            }
        } else if self.hold_off > 0 {
            self.hold_off -= 1;
        } else if came_fast {
            self.pauses = PAUSES_FIRST;
        }
        Pause(self.pauses)
    }
}

impl Pause {
    /// Pauses.
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

    /// Waits `waits` times, each followed by `records`, found by `looks`; how often it paused.
    fn run(lag: &mut Lag, waits: u32, records: u32, looks: u32) -> u32 {
        let mut paused = 0;
        for _ in 0..waits {
            let _ = lag.before_wait(Wait::Spin);
            paused += u32::from(lag.pauses > 0);
            (0..looks).for_each(|_| {
                lag.look(false);
            });
            (0..records).for_each(|_| lag.received());
        }
        paused
    }

    #[test]
    fn a_stream_is_followed_at_a_distance() {
        assert!(run(&mut Lag::default(), 1000, 10, 1) > 990);
    }

    #[test]
    fn it_is_known_before_whether_a_wait_begins_with_a_pause() {
        let mut lag = Lag::default();
        for step in 0..100_000_u32 {
            let is_to_pause = lag.is_to_pause();
            let Pause(pauses) = lag.before_wait(Wait::Spin);
            // A pause that did not pay ends only when the wait begins.
            assert!(is_to_pause || pauses == 0, "step {step}");
            lag.looked(step % 5);
            (0..step / 7 % 9).for_each(|_| lag.received());
        }
    }

    #[test]
    fn a_ping_pong_is_left_alone() {
        assert!(run(&mut Lag::default(), 100_000, 1, 1) < 20);
        assert_eq!(run(&mut Lag::default(), 100_000, 1, 10), 0);
    }
}
