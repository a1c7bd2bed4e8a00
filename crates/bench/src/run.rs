// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a plan: round by round, within each round every cell in turn, so that all share the machine's moods.
//!
//! ```text
//! round 1   ours  uds  tcp  floor …      not   ours ours ours, uds uds uds:
//! round 2   ours  uds  tcp  floor …      a machine that slows down half-way would favour one of them
//! ```

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use partywall_sys::cpu::set_affinity;

use super::arguments::Pin;
use super::cell::Cell;
use super::control::Child;
use super::lane::Setup;
use super::measure::{Round, pool};
use super::parent::Pair;
use super::plan::Plan;
use super::progress::Progress;
use super::watchdog::Watchdog;

/// All rounds of one cell.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was measured.
    pub cell: Cell,
    /// In the order they were measured.
    pub rounds: Vec<Round>,
}

impl Outcome {
    /// All rounds together; `None` if there were none.
    pub fn pooled(&self) -> Option<Round> {
        pool(&self.rounds)
    }
}

/// Finds the outcome of `cell`.
pub fn find(outcomes: &[Outcome], cell: Cell) -> Option<&Outcome> {
    outcomes.iter().find(|outcome| outcome.cell == cell)
}

/// Measures everything in `plan`.
pub fn run(plan: &Plan, pin: Pin) -> Result<Vec<Outcome>> {
    let directory = Directory::make(&std::env::temp_dir())?;
    let memory =
        Directory::make(Path::new(MEMORY)).or_else(|_| Directory::make(&directory.path))?;
    let watchdog = Watchdog::start(vec![memory.path.clone(), directory.path.clone()]);
    let child_cpu = match pin {
        Pin::None | Pin::OneProcess => None,
        Pin::To(parent, child) => {
            set_affinity(parent).with_context(|| pin_advice(parent))?;
            Some(child)
        }
    };
    let mut pair = Pair { child: Child::start(child_cpu)?, watchdog };
    let mut outcomes: Vec<Outcome> =
        plan.steps.iter().map(|step| Outcome { cell: step.cell, rounds: Vec::new() }).collect();
    let progress = Progress::start(plan);
    let start = Instant::now();
    for round in 0..plan.rounds {
        if !is_time_for(round, start.elapsed(), plan.time_max) {
            progress.cut_short(round);
            break;
        }
        progress.begin_round(round);
        for (step, outcome) in plan.steps.iter().zip(&mut outcomes) {
            if round >= step.rounds_max {
                continue;
            }
            progress.begin_step(step);
            let cell = step.cell;
            let setup = Setup {
                directory: directory.path.clone(),
                memory: memory.path.clone(),
                wait: cell.wait,
                size: cell.size,
            };
            let measure = || pair.measure(cell, &setup, step.duration);
            outcome.rounds.extend(placed(cell, pin, measure)?);
        }
    }
    progress.finish();
    Ok(outcomes)
}

/// Measures where the cell wants both ends to be; `None` if that is one CPU, and this run chooses none.
fn placed(cell: Cell, pin: Pin, measure: impl FnOnce() -> Result<Round>) -> Result<Option<Round>> {
    if !cell.is_on_one_cpu() {
        return measure().map(Some);
    }
    let Pin::To(parent, child) = pin else { return Ok(None) };
    set_affinity(child).with_context(|| pin_advice(child))?;
    let measured = measure();
    set_affinity(parent).with_context(|| pin_advice(parent))?;
    measured.map(Some)
}

/// Whether one more round, as long as those before, fits the time; the first always does.
fn is_time_for(rounds_done: u32, elapsed: Duration, time_max: Option<Duration>) -> bool {
    let per_round = elapsed / rounds_done.max(1);
    time_max.is_none_or(|time_max| elapsed + per_round <= time_max)
}

fn pin_advice(cpu: usize) -> String {
    format!("pinning to CPU {cpu}; choose others with --pin, or --pin none")
}

/// A private directory, removed when dropped. That is after the second process has ended, which may leave something there.
struct Directory {
    path: PathBuf,
}

/// A memory file system, on most machines.
const MEMORY: &str = "/dev/shm";

impl Directory {
    fn make(within: &Path) -> Result<Self> {
        let name = format!("partywall-bench-{}", std::process::id());
        let path = within.join(name);
        let make = || DirBuilder::new().mode(0o700).create(&path);
        make().with_context(|| format!("making the directory {}", path.display()))?;
        Ok(Self { path })
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Nothing depends on it.
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_round_begins_that_would_end_too_late() {
        let seconds = Duration::from_secs;
        assert!(is_time_for(0, seconds(0), Some(seconds(52))));
        assert!(is_time_for(4, seconds(40), Some(seconds(52))));
        assert!(!is_time_for(4, seconds(44), Some(seconds(52))));
        assert!(is_time_for(4, seconds(9999), None));
    }
}
