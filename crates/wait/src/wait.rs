// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a thread waits: spin, spin a little and then sleep, sleep, or look at intervals.
//!
//! ```text
//!   Spin      look ── look ── look ── look ── ...                       a core, the least latency
//!   Adaptive  look for a budget ── declare ── look once more ── sleep   the budget follows success
//!   Park      declare ── look once more ── sleep                        no CPU while nothing comes
//!   Timed     declare (quietly) ── look ── sleep for the period         the sender never rings
//! ```
//!
//! Each side of a channel chooses for itself, for records and for room apart, at any time. This file
//! has the strategies and the spinning; declaring and sleeping belong to the transports.

use std::hint::spin_loop;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How a thread waits for a record, or for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Wait {
    /// Look without pause. The least latency, for the price of a core.
    Spin,
    /// Look for a while, then sleep. The while grows as long as it pays and shrinks to nothing when it
    /// does not; it is nothing on a single CPU or under a CPU quota.
    #[default]
    Adaptive,
    /// Sleep at once.
    Park,
    /// Look once per period; the other side is spared from waking this one. For those to whom a late
    /// message is as good as an early one, such as a log agent.
    Poll(Duration),
}

/// What became of spinning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spun {
    /// What was waited for is there.
    Ready,
    /// The budget is used up: sleep.
    Exhausted,
    /// Time to check deadline and neighbour, then spin on.
    Pause,
}

/// Spins, and remembers whether it paid.
#[derive(Debug)]
pub struct Spinner {
    budget: Budget,
}

/// How long to look before sleeping: more as long as it pays, less and then nothing when it does not.
#[derive(Debug)]
pub struct Budget {
    time: Duration,
    time_max: Duration,
    /// How many more waits go without looking before it is tried again.
    skip: u32,
    /// How many waits were skipped the last time; doubles with each failure.
    skipped: u32,
}

/// Looks between two questions for the time, while spinning.
const LOOKS_PER_CLOCK: u32 = 32;
/// A spinning thread checks its deadline and whether the neighbour lives this often.
pub const SPIN_CHECK_EVERY: Duration = Duration::from_millis(2);
/// A budget below this is none.
const BUDGET_MIN: Duration = Duration::from_micros(1);
/// After this many waits at the most, spinning is tried again.
const SKIP_MAX: u32 = 256;

impl Spinner {
    /// A spinner that spins at most `budget_max` under [`Wait::Adaptive`].
    #[must_use]
    pub fn new(budget_max: Duration) -> Self {
        Self { budget: Budget::new(budget_max) }
    }

    /// Spins as the strategy says; `ready` is the look.
    ///
    /// `Spun::Pause` asks to be called again after the caller has checked what must be checked now
    /// and then; only `Wait::Spin` gives it.
    #[inline]
    pub fn spin(&mut self, wait: Wait, ready: impl FnMut() -> bool) -> Spun {
        match wait {
            Wait::Spin => {
                if look_for(SPIN_CHECK_EVERY, ready) {
                    Spun::Ready
                } else {
                    Spun::Pause
                }
            }
            Wait::Adaptive => self.spin_adaptively(ready),
            Wait::Park | Wait::Poll(_) => Spun::Exhausted,
        }
    }

    fn spin_adaptively(&mut self, ready: impl FnMut() -> bool) -> Spun {
        let Some(time) = self.budget.spin_time() else { return Spun::Exhausted };
        if look_for(time, ready) {
            self.budget.paid();
            return Spun::Ready;
        }
        self.budget.failed();
        Spun::Exhausted
    }
}

impl Budget {
    /// A budget that starts at `time_max` and never exceeds it; 0 where spinning is futile: on one
    /// CPU, or under a CPU quota.
    #[must_use]
    pub fn new(time_max: Duration) -> Self {
        let time_max = if spinning_is_futile() { Duration::ZERO } else { time_max };
        Self { time: time_max, time_max, skip: 0, skipped: 0 }
    }

    /// How long to look this time, if at all.
    #[inline]
    pub fn spin_time(&mut self) -> Option<Duration> {
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        if self.time < BUDGET_MIN {
            self.time = self.time_max;
        }
        (self.time >= BUDGET_MIN).then_some(self.time)
    }

    /// What was waited for came in time.
    #[inline]
    pub fn paid(&mut self) {
        self.skipped = 0;
        self.time = self.time_max.min(self.time.saturating_mul(2));
    }

    /// It did not.
    pub fn failed(&mut self) {
        self.time /= 2;
        if self.time < self.time_max / 4 {
            // Three in a row did not pay: leave it for a while, longer each time.
            self.time = Duration::ZERO;
            self.skipped = (self.skipped * 2).clamp(4, SKIP_MAX);
            self.skip = self.skipped;
        }
    }
}

/// Looks until `ready` or until `budget` is over.
#[inline]
pub fn look_for(budget: Duration, mut ready: impl FnMut() -> bool) -> bool {
    // The first looks go without asking for the time: what comes at once costs no more than that.
    for _ in 0..LOOKS_PER_CLOCK {
        if ready() {
            return true;
        }
        spin_loop();
    }
    let started = Instant::now();
    loop {
        for _ in 0..LOOKS_PER_CLOCK {
            if ready() {
                return true;
            }
            spin_loop();
        }
        if started.elapsed() >= budget {
            return false;
        }
    }
}

/// Waits that users ask for are no longer than this: later instants may not exist.
const WAIT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// The instant after such a wait from now, or after a year.
pub fn after(wait: Duration) -> Instant {
    Instant::now() + wait.min(WAIT_MAX)
}

/// Whether whoever spins keeps the other from running: one CPU, or a quota that spinning eats.
pub fn spinning_is_futile() -> bool {
    static FUTILE: OnceLock<bool> = OnceLock::new();
    *FUTILE.get_or_init(|| {
        let alone = partywall_sys::cpu::online_cpus().is_ok_and(|cpus| cpus.len() < 2);
        alone || partywall_sys::cpu::cpu_quota().is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spinner() -> Spinner {
        let max = Duration::from_micros(20);
        Spinner { budget: Budget { time: max, time_max: max, skip: 0, skipped: 0 } }
    }

    #[test]
    fn a_wait_may_be_of_any_length() {
        let year = after(WAIT_MAX);
        assert!(after(Duration::MAX) >= year && after(Duration::ZERO) < year);
    }

    #[test]
    fn spinning_that_never_pays_becomes_rare() {
        let mut spinner = spinner();
        let mut spun = 0;
        for _ in 0..10_000 {
            let mut looked = false;
            let never = || {
                looked = true;
                false
            };
            assert_eq!(spinner.spin(Wait::Adaptive, never), Spun::Exhausted);
            spun += u32::from(looked);
        }
        assert!(spun < 200, "spun {spun} times in vain");
    }

    #[test]
    fn spinning_that_pays_again_is_taken_up_again() {
        let mut spinner = spinner();
        for _ in 0..1000 {
            let _ = spinner.spin(Wait::Adaptive, || false);
        }
        let paid =
            (0..1000).filter(|_| spinner.spin(Wait::Adaptive, || true) == Spun::Ready).count();
        assert!(paid >= 1000 - SKIP_MAX as usize, "only {paid} of 1000");
    }

    #[test]
    fn parking_never_spins() {
        let mut spinner = spinner();
        let none = || -> bool { panic!("looked") };
        assert_eq!(spinner.spin(Wait::Park, none), Spun::Exhausted);
        assert_eq!(spinner.spin(Wait::Poll(Duration::from_millis(1)), none), Spun::Exhausted);
    }

    #[test]
    fn without_a_budget_adaptive_parks() {
        let none = Duration::ZERO;
        let budget = Budget { time: none, time_max: none, skip: 0, skipped: 0 };
        let mut spinner = Spinner { budget };
        assert_eq!(spinner.spin(Wait::Adaptive, || panic!("looked")), Spun::Exhausted);
    }
}
