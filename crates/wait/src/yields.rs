// SPDX-License-Identifier: MIT OR Apache-2.0
//! A yield before the sleep: a waiting thread lets a peer run that waits for the same processor.
//!
//! ```text
//!   poll ── nothing ──▶ yield ──▶ poll ── nothing ──▶ the caller arms and blocks
//!                                   └─ ready ──▶ no sleep, no notification, no wake-up
//! ```
//!
//! Two processes on one processor then answer each other by two switches a round trip. If the peer
//! runs on another processor, a yield achieves nothing, and takes as long as a short system call.
//! So each yield in vain suspends yields, for more waits each time. A yield that takes long
//! suspends them for many waits: another thread has used its time slice meanwhile, which it cannot
//! do if the waiting thread sleeps and a notification wakes it.

use std::thread;
use std::time::{Duration, Instant};

/// Decides whether a waiting thread yields its processor before it blocks.
#[derive(Debug, Default)]
pub(crate) struct Yields {
    /// Number of the next waits that block without a yield.
    skip: u32,
    /// Value from which `skip` last counted down; it doubles with each yield in vain.
    skipped: u32,
}

/// Longest time of a yield that pays off.
const YIELD_MAX: Duration = Duration::from_micros(200);
/// Least and greatest number of waits without a yield after a yield in vain.
const SKIP_MIN: u32 = 4;
const SKIP_MAX: u32 = 256;
/// Least and greatest number of waits without a yield after a yield that took longer than
/// `YIELD_MAX`.
const LONG_SKIP_MIN: u32 = 1 << 10;
const LONG_SKIP_MAX: u32 = 1 << 16;

impl Yields {
    /// Yields the processor and returns the result of one `poll` after that. While yields are
    /// suspended, it returns `false` without a poll.
    #[cold]
    pub(crate) fn poll(&mut self, mut poll: impl FnMut() -> bool) -> bool {
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        let started = Instant::now();
        thread::yield_now();
        let is_ready = poll();
        self.count(is_ready, started.elapsed());
        is_ready
    }

    /// Decides for how many waits yields are suspended, after a yield. The yield and the poll after
    /// it took `elapsed`; `is_ready` says whether the poll found something.
    fn count(&mut self, is_ready: bool, elapsed: Duration) {
        let doubled = self.skipped.saturating_mul(2);
        self.skipped = if elapsed > YIELD_MAX {
            doubled.clamp(LONG_SKIP_MIN, LONG_SKIP_MAX)
        } else if is_ready {
            0
        } else {
            // A yield in vain never shortens the suspension that an earlier, long yield has caused.
            self.skipped.max(doubled.clamp(SKIP_MIN, SKIP_MAX))
        };
        self.skip = self.skipped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(1);
    const LONG: Duration = Duration::from_micros(201);

    /// Returns how many waits do not yield before the next one does.
    fn waits_without_yield(yields: &mut Yields) -> u32 {
        let mut waits = 0;
        while yields.skip > 0 {
            assert!(!yields.poll(|| panic!("polled although yields are suspended")));
            waits += 1;
        }
        waits
    }

    #[test]
    fn yields_in_vain_suspend_yields_for_longer_each_time() {
        let mut yields = Yields::default();
        for expected in [4, 8, 16, 32, 64, 128, 256, 256] {
            yields.count(false, SHORT);
            assert_eq!(waits_without_yield(&mut yields), expected);
        }
        yields.count(true, SHORT);
        assert_eq!(waits_without_yield(&mut yields), 0);
    }

    #[test]
    fn long_yields_suspend_yields_for_many_waits_whatever_the_poll_finds() {
        for is_ready in [false, true] {
            let mut yields = Yields::default();
            for expected in [1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 65_536] {
                yields.count(is_ready, LONG);
                assert_eq!(waits_without_yield(&mut yields), expected);
            }
            yields.count(false, SHORT);
            assert_eq!(waits_without_yield(&mut yields), 65_536);
        }
    }

    #[test]
    fn one_poll_follows_the_yield() {
        for expected in [false, true] {
            let mut polls = 0;
            let is_ready = Yields::default().poll(|| {
                polls += 1;
                expected
            });
            assert_eq!((is_ready, polls), (expected, 1));
        }
    }
}
