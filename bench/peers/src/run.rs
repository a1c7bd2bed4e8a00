// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a plan: round by round, within each round every cell in turn, so that all share the machine's moods.
//!
//! ```text
//! round 1   rival  rival v4  uds  tcp …      not   rival rival rival, uds uds uds:
//! round 2   rival  rival v4  uds  tcp …      a machine that slows down half-way would favour one of them
//! ```
//! How many round trips fit the wanted duration is found in the first round and corrected after each.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use partywall_sys::cpu::set_affinity;

use super::arguments::Pin;
use super::cell::{Cell, Processes, Scenario};
use super::control::Child;
use super::leftovers::Workspace;
use super::measure::{Round, pool};
use super::plan::Plan;
use super::progress::Progress;
use super::watchdog::Watchdog;
use super::{parallel, ping};

/// All rounds of one cell.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was measured.
    pub cell: Cell,
    /// In the order they were measured; `None` where it failed.
    pub rounds: Vec<Option<Round>>,
    /// Why it failed, each time.
    pub failures: Vec<String>,
    /// Round trips per stream that fit the wanted duration, once that is known.
    pub amount: Option<u64>,
}

impl Outcome {
    /// Nothing measured yet.
    pub const fn new(cell: Cell) -> Self {
        Self { cell, rounds: Vec::new(), failures: Vec::new(), amount: None }
    }

    /// All rounds together; `None` if there were none.
    pub fn pooled(&self) -> Option<Round> {
        pool(self.rounds.iter().flatten())
    }
}

/// Measures everything in `plan`.
pub fn run(plan: &Plan, pin: Pin) -> Result<Vec<Outcome>> {
    let workspace = Workspace::make()?;
    let mut bench = Bench {
        child: Child::start(pin.child())?,
        pin,
        watchdog: Watchdog::start()?,
        workspace,
        measurements: 0,
    };
    let mut outcomes: Vec<Outcome> = plan.cells.iter().copied().map(Outcome::new).collect();
    let progress = Progress::start(plan);
    let start = Instant::now();
    for round in 0..plan.rounds {
        if !is_time_for(round, start.elapsed(), plan.time_max) {
            progress.cut_short(round);
            break;
        }
        for outcome in &mut outcomes {
            progress.begin(round, outcome.cell);
            bench.add_round(outcome, plan.duration)?;
        }
    }
    progress.finish();
    Ok(outcomes)
}

/// Two processes, ready to measure. Dropped in this order: what the child leaves is removed after its end.
struct Bench {
    child: Child,
    watchdog: Watchdog,
    workspace: Workspace,
    pin: Pin,
    /// So many have been made; none meets at an address of an earlier one.
    measurements: u32,
}

impl Bench {
    /// Measures a cell for about `duration`. A transport that fails is noted, and the run goes on without it: what
    /// breaks one library says nothing about the others.
    fn add_round(&mut self, outcome: &mut Outcome, duration: Duration) -> Result<()> {
        if outcome.failures.len() >= FAILURES_MAX {
            outcome.rounds.push(None);
            return Ok(());
        }
        match self.measure(outcome.cell, duration, outcome.amount) {
            Ok((round, amount)) => {
                outcome.amount = Some(scale(amount, round.elapsed_ns, duration));
                outcome.rounds.push(Some(round));
            }
            Err(error) => {
                outcome.rounds.push(None);
                outcome.failures.push(format!("{error:#}"));
                self.child = Child::start(self.pin.child())?; // the old one may be anywhere
            }
        }
        Ok(())
    }

    /// One round, and how many round trips per stream it took; that is found out first, if it is not known.
    fn measure(
        &mut self,
        cell: Cell,
        duration: Duration,
        amount: Option<u64>,
    ) -> Result<(Round, u64)> {
        let amount = match amount {
            Some(amount) => amount,
            None => self.calibrate(cell, duration)?,
        };
        Ok((self.batch(cell, amount, duration)?, amount))
    }

    fn calibrate(&mut self, cell: Cell, duration: Duration) -> Result<u64> {
        let enough = duration / CALIBRATION_FRACTION;
        let mut amount = 1;
        loop {
            let elapsed_ns = self.batch(cell, amount, duration)?.elapsed_ns;
            if Duration::from_nanos(elapsed_ns) >= enough || amount >= AMOUNT_MAX {
                return Ok(scale(amount, elapsed_ns, duration));
            }
            amount *= CALIBRATION_STEP;
        }
    }

    /// Measures `cell` once in a thread of its own, pinned where that is asked for: pinning lasts as long as a
    /// thread, its runtime is as large as the CPUs it may use, and the next cell may want another place.
    fn batch(&mut self, cell: Cell, amount: u64, duration: Duration) -> Result<Round> {
        self.measurements += 1;
        let setup = self.workspace.setup(self.measurements);
        let cpu = if cell.processes == Processes::Two { self.pin.parent() } else { None };
        let child = &mut self.child;
        self.watchdog.arm(duration * DURATION_FACTOR + DURATION_ALLOWANCE);
        let measured = thread::scope(|scope| {
            let measure = || {
                if let Some(cpu) = cpu {
                    let pinned = set_affinity(cpu);
                    pinned.with_context(|| format!("pinning to CPU {cpu}; choose with --pin"))?;
                }
                match cell.scenario {
                    Scenario::Parallel => parallel::measure(cell, &setup, amount, child),
                    Scenario::Ping => ping::measure(cell, &setup, amount, child),
                }
            };
            scope.spawn(measure).join()
        });
        self.watchdog.disarm();
        let measured = measured.unwrap_or_else(|_| Err(anyhow!("a transport panicked")));
        measured.map_err(|error| match self.child.failure() {
            Some(why) => anyhow!("{error:#}; the second process says: {why}"),
            None => error,
        })
    }
}

/// How many round trips take `duration`, if `amount` took `elapsed_ns`.
fn scale(amount: u64, elapsed_ns: u64, duration: Duration) -> u64 {
    let wanted = u128::from(amount) * duration.as_nanos() / u128::from(elapsed_ns.max(1));
    u64::try_from(wanted).unwrap_or(AMOUNT_MAX).clamp(1, AMOUNT_MAX)
}

/// Whether one more round, as long as those before, fits the time; the first always does.
fn is_time_for(rounds_done: u32, elapsed: Duration, time_max: Option<Duration>) -> bool {
    let per_round = elapsed / rounds_done.max(1);
    time_max.is_none_or(|time_max| rounds_done == 0 || elapsed + per_round <= time_max)
}

/// A transport that failed so often is left out for the rest of the run.
const FAILURES_MAX: usize = 2;

/// The first batch that takes this part of the wanted duration is good enough to scale from.
const CALIBRATION_FRACTION: u32 = 10;
const CALIBRATION_STEP: u64 = 4;

/// Round trips per stream; the sequence number has room for four times as many.
const AMOUNT_MAX: u64 = 1 << 30;

/// A slow moment may stretch a measurement this much, and then some, before it counts as hung.
const DURATION_FACTOR: u32 = 20;
const DURATION_ALLOWANCE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_round_begins_that_would_end_too_late() {
        let seconds = Duration::from_secs;
        assert!(is_time_for(0, seconds(0), Some(seconds(100))));
        assert!(is_time_for(4, seconds(80), Some(seconds(100))));
        assert!(!is_time_for(4, seconds(84), Some(seconds(100))));
        assert!(is_time_for(4, seconds(9999), None));
    }

    #[test]
    fn amounts_scale_with_time_and_stay_in_bounds() {
        assert_eq!(scale(10, 1_000_000, Duration::from_millis(100)), 1000);
        assert_eq!(scale(1, 10_000_000_000, Duration::from_millis(100)), 1);
        assert_eq!(scale(AMOUNT_MAX, 0, Duration::from_secs(100)), AMOUNT_MAX);
    }
}
