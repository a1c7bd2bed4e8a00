// SPDX-License-Identifier: MIT OR Apache-2.0
//! The idle policy of a driver that shares its thread with other tasks. The driver cannot spin in
//! place, so it asks the policy what to do after each poll.
//!
//! ```text
//!   poll ── something ──▶ busy ─▶ poll again
//!     └──── nothing ────▶ idle ─┬─ Poll ────────▶ let other tasks run, poll again
//!                               ├─ Block ───────▶ until woken
//!                               └─ BlockFor(t) ─▶ until woken, at most t
//! ```
//!
//! [`Spinner`](crate::Spinner) is the counterpart for a thread that may spin in place. The policy
//! reads the clock once per call of `idle`, so the driver exceeds the spin budget by at most one
//! poll.

use crate::short_sleeps::ShortSleeps;
use crate::{SpinBudget, Wait, deadline_after};
use std::time::{Duration, Instant};

/// Decides after each poll of a driver whether the driver polls again or blocks. The decision
/// follows the [`Wait`] that the user chose.
#[derive(Debug)]
pub struct IdlePolicy {
    wait: Wait,
    budget: SpinBudget,
    /// The instant at which the spin budget ends; `None` while the last poll found something.
    spin_until: Option<Instant>,
    sleeps: ShortSleeps,
}

/// The next step of a driver after a poll that found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleStep {
    /// The driver lets other tasks of its thread run, and then polls again.
    Poll,
    /// The driver blocks until another thread wakes it.
    Block,
    /// The driver blocks for this time, or until it is woken. It has not asked the peer for a
    /// wake-up (it is armed quietly), so a record that the peer publishes in the ordinary way does
    /// not wake it.
    BlockFor(Duration),
}

impl IdlePolicy {
    /// An idle policy for the strategy `wait`. Under [`Wait::Adaptive`] the driver polls for at
    /// most `spin_budget` before it blocks.
    #[must_use]
    pub fn new(wait: Wait, spin_budget: Duration) -> Self {
        Self {
            wait,
            budget: SpinBudget::new(spin_budget),
            spin_until: None,
            sleeps: ShortSleeps::default(),
        }
    }

    /// Records that the driver's last poll found something to do.
    #[inline]
    pub fn busy(&mut self) {
        if self.spin_until.take().is_some() {
            self.budget.hit();
        }
    }

    /// The time at which the spin budget ends, after a step [`IdleStep::Poll`]; `None` if the
    /// driver polls without end.
    #[must_use]
    pub const fn spins_until(&self) -> Option<Instant> {
        self.spin_until
    }

    /// Records that the driver's last poll found nothing to do; returns the next step of the
    /// driver.
    pub fn idle(&mut self) -> IdleStep {
        let step = self.step();
        if step == IdleStep::Block {
            self.sleeps.begin();
        }
        step
    }

    fn step(&mut self) -> IdleStep {
        match self.wait {
            Wait::Spin => IdleStep::Poll,
            Wait::Poll(period) => IdleStep::BlockFor(period),
            Wait::Park => IdleStep::Block,
            Wait::Adaptive => match self.spin_until {
                Some(until) if Instant::now() < until => IdleStep::Poll,
                Some(_) => {
                    self.budget.miss();
                    self.spin_until = None;
                    IdleStep::Block
                }
                None => match self.budget.spin_time() {
                    Some(time) => {
                        self.spin_until = Some(deadline_after(time));
                        IdleStep::Poll
                    }
                    None => IdleStep::Block,
                },
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Duration = Duration::from_micros(50);

    #[test]
    fn park_blocks_at_once_and_spin_never() {
        let policy = |wait| IdlePolicy::new(wait, BUDGET);
        assert_eq!(policy(Wait::Park).idle(), IdleStep::Block);
        assert_eq!(policy(Wait::Spin).idle(), IdleStep::Poll);
        let period = Duration::from_millis(3);
        assert_eq!(policy(Wait::Poll(period)).idle(), IdleStep::BlockFor(period));
    }

    #[test]
    fn spin_budget_of_any_length_is_accepted() {
        let mut policy = IdlePolicy::new(Wait::Adaptive, Duration::MAX);
        for _ in 0..3 {
            let _ = policy.idle();
        }
    }

    #[test]
    fn adaptive_polling_ends() {
        let mut policy = IdlePolicy::new(Wait::Adaptive, BUDGET);
        while policy.idle() == IdleStep::Poll {}
        policy.busy();
    }

    #[test]
    fn adaptive_polling_ends_with_the_first_poll_behind_the_budget() {
        let mut policy = IdlePolicy::new(Wait::Adaptive, Duration::from_micros(1));
        for _ in 0..100 {
            if policy.idle() == IdleStep::Poll {
                let until = policy.spin_until.unwrap();
                while Instant::now() < until {}
                assert_eq!(policy.idle(), IdleStep::Block);
            }
        }
    }
}
