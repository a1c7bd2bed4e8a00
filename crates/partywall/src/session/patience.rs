// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a driver looks again before it sleeps, as [`Wait`] says: a driver that shares its thread
//! with others cannot spin in place, it comes back after them.

use crate::config::Config;
use partywall_wait::{SpinBudget, Wait, deadline_after};
use std::time::{Duration, Instant};

/// When to look again at once, and when to sleep.
#[derive(Debug)]
pub(crate) struct Patience {
    wait: Wait,
    budget: SpinBudget,
    /// Until when to look again, while nothing comes.
    until: Option<Instant>,
}

/// What to do when nothing was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Look again at once.
    Look,
    /// Sleep until called.
    Sleep,
    /// Sleep for this long, or until called by somebody who cannot wait.
    SleepFor(Duration),
}

impl Patience {
    pub(crate) fn new(config: &Config) -> Self {
        Self { wait: config.wait, budget: SpinBudget::new(config.spin_budget), until: None }
    }

    /// Something was there.
    #[inline]
    pub(crate) fn busy(&mut self) {
        if self.until.take().is_some() {
            self.budget.hit();
        }
    }

    /// Nothing was there.
    pub(crate) fn idle(&mut self) -> Next {
        match self.wait {
            Wait::Spin => Next::Look,
            Wait::Poll(period) => Next::SleepFor(period),
            Wait::Adaptive => {
                let now = Instant::now();
                match self.until {
                    Some(until) if now < until => return Next::Look,
                    Some(_) => {
                        self.budget.miss();
                        self.until = None;
                    }
                    None => {
                        if let Some(time) = self.budget.spin_time() {
                            self.until = Some(deadline_after(time));
                            return Next::Look;
                        }
                    }
                }
                Next::Sleep
            }
            // Park, and any strategy that is added later.
            _ => Next::Sleep,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parking_sleeps_at_once_and_spinning_never() {
        let patience = |wait| Patience::new(&Config::default().wait(wait));
        assert_eq!(patience(Wait::Park).idle(), Next::Sleep);
        assert_eq!(patience(Wait::Spin).idle(), Next::Look);
        let period = Duration::from_millis(3);
        assert_eq!(patience(Wait::Poll(period)).idle(), Next::SleepFor(period));
    }

    #[test]
    fn a_budget_may_be_of_any_length() {
        let mut patience = Patience::new(&Config::default().spin_budget(Duration::MAX));
        for _ in 0..3 {
            let _ = patience.idle();
        }
    }

    #[test]
    fn adaptive_patience_ends() {
        let mut patience = Patience::new(&Config::default());
        while patience.idle() == Next::Look {}
        patience.busy();
    }
}
