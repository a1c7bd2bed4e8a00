// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a plan round by round; each cell is measured once in a round.
//!
//! ```text
//! round 1   shm  uds  tcp  baseline …      not   shm shm shm, uds uds uds:
//! round 2   shm  uds  tcp  baseline …      a machine that slows down would favour one of them
//! ```
//! Each measurement opens new connections, so that no accidental placement of memory lasts for a
//! whole run.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use partywall_sys::cpu::set_affinity;

use crate::harness::cell::{Cell, Processes};
use crate::harness::control::{Child, Control, Reply, Request};
use crate::harness::pair::Pair;
use crate::harness::round::Round;
use crate::harness::watchdog::Watchdog;
use crate::harness::workspace::Workspace;
use crate::machine::Pin;
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::scenario::Runner;
use crate::table::Transports;

/// A program that measures; parent and child process are the same program.
pub struct Program {
    /// The program's name: the prefix of its error messages and of the names of its files.
    pub name: &'static str,
    /// The argument with which the parent starts the child process.
    pub child_command: &'static str,
    /// The transports that this program can measure.
    pub transports: Transports,
}

impl Program {
    /// Measures all steps of `plan` in each round; returns one outcome per step, which holds all
    /// its rounds.
    pub fn run(&'static self, plan: &Plan, pin: Pin) -> Result<Vec<Outcome>> {
        let mut run = Run::start(self, pin)?;
        let mut outcomes: Vec<Outcome> =
            plan.steps.iter().map(|step| Outcome::new(step.cell)).collect();
        let progress = Progress::start(plan);
        let start = Instant::now();
        for round in 0..plan.rounds {
            if !is_time_for(round, start.elapsed(), plan.time_max) {
                progress.cut_short(round);
                break;
            }
            progress.begin_round(round);
            for (step, outcome) in plan.steps.iter().zip(&mut outcomes) {
                if round < step.rounds_max {
                    progress.begin_step(step);
                    run.add_round(outcome, step.duration, plan.failures_max)?;
                }
            }
        }
        progress.finish();
        Ok(outcomes)
    }

    /// Runs the child process: serves the requests of the parent process until stdin ends, on CPU
    /// `cpu` if one is given.
    pub fn serve(&self, cpu: Option<usize>) -> Result<()> {
        let control = Control::from_stdin(self.name);
        let served = self.serve_cells(cpu, &control);
        if let Err(error) = &served {
            control.reply(&Reply::Failed { why: format!("{error:#}") })?;
        }
        served
    }

    fn serve_cells(&self, cpu: Option<usize>, control: &Control) -> Result<()> {
        if let Some(cpu) = cpu {
            set_affinity(cpu).with_context(|| pin_advice(cpu))?;
        }
        loop {
            match control.next_request()? {
                Request::Open { transport, cell, setup } => {
                    let (runner, cell) = self.runner(&transport, cell)?;
                    (runner.serve)(cell, &setup, control)?;
                }
                Request::Connect { transport, cell, setup, address } => {
                    let (runner, cell) = self.runner(&transport, cell)?;
                    let connect = runner.connect.context("no connections of this transport")?;
                    control.reply(&Reply::Connected(connect(cell, &setup, &address)?))?;
                }
                _ => bail!("received a batch before a cell was opened"),
            }
        }
    }

    /// Finds the functions that measure `cell` on the transport with the name `transport`. Returns
    /// the functions as a `Runner`, and `cell` with that transport.
    fn runner(&self, transport: &str, cell: Cell) -> Result<(Runner, Cell)> {
        let row = self.transports.find(transport).context("an unknown transport")?;
        let cell = Cell { transport: row.name, ..cell };
        let runner = self.transports.runner(cell).context("no such combination")?;
        Ok((runner, cell))
    }
}

/// What the parent process keeps during a run. Its fields are dropped in the order of declaration,
/// so the child process has ended before the run's directories are removed.
struct Run {
    pair: Pair,
    workspace: Workspace,
    program: &'static Program,
    pin: Pin,
    measurements: u32,
}

impl Run {
    fn start(program: &'static Program, pin: Pin) -> Result<Self> {
        let workspace = Workspace::make(program.name)?;
        let watchdog = Watchdog::start(program.name)?;
        let child = Child::start(program.child_command, pin.child())?;
        let pair = Pair { child, child_command: program.child_command, watchdog };
        Ok(Self { pair, workspace, program, pin, measurements: 0 })
    }

    /// Measures the cell of `outcome` once, and adds the result to `outcome`. After as many
    /// failures as the plan allows (`failures_max`) the cell is skipped; if that number is 0, the
    /// first failure ends the run.
    fn add_round(
        &mut self,
        outcome: &mut Outcome,
        duration: Duration,
        failures_max: usize,
    ) -> Result<()> {
        if failures_max > 0 && outcome.failures.len() >= failures_max {
            outcome.rounds.push(None);
            return Ok(());
        }
        match self.measure(outcome.cell, duration) {
            Ok(round) => outcome.rounds.push(round),
            Err(error) if failures_max == 0 => {
                return Err(error).with_context(|| format!("measuring {}", outcome.cell));
            }
            Err(error) => {
                outcome.rounds.push(None);
                outcome.failures.push(format!("{error:#}"));
                // The state of the child process that failed is unknown, so a new child process
                // replaces it.
                self.pair.child = Child::start(self.program.child_command, self.pin.child())?;
            }
        }
        Ok(())
    }

    /// Measures `cell` once, in a thread of its own: the thread's pinning ends with it, and a
    /// runtime made there has one thread for each usable CPU.
    ///
    /// Returns `None` if `cell` needs one CPU for both processes and this run is not pinned.
    fn measure(&mut self, cell: Cell, duration: Duration) -> Result<Option<Round>> {
        let cpu = match (cell.processes, self.pin) {
            (Processes::Two, Pin::To(parent, _)) => Some(parent),
            (Processes::TwoOnOneCpu, Pin::To(_, child)) => Some(child),
            (Processes::TwoOnOneCpu, _) => return Ok(None),
            (Processes::One, _) | (Processes::Two, Pin::None | Pin::OneProcess) => None,
        };
        let runner = self.program.transports.runner(cell).context("no such combination")?;
        self.measurements += 1;
        let setup = self.workspace.setup(self.measurements, cell);
        let pair = &mut self.pair;
        pair.watchdog.arm(duration * DURATION_FACTOR + DURATION_ALLOWANCE);
        let measured = thread::scope(|scope| {
            let measure = || {
                if let Some(cpu) = cpu {
                    set_affinity(cpu).with_context(|| pin_advice(cpu))?;
                }
                (runner.measure)(cell, &setup, duration, &mut *pair)
            };
            scope.spawn(measure).join()
        });
        self.pair.watchdog.disarm();
        let measured = measured.unwrap_or_else(|_| Err(anyhow!("the measuring thread panicked")));
        measured.map(Some).map_err(|error| match self.pair.child.failure() {
            Some(why) => anyhow!("{error:#}; the child process failed: {why}"),
            None => error,
        })
    }
}

/// Whether one more round of average length fits into `time_max`; the first round always does.
fn is_time_for(rounds_done: u32, elapsed: Duration, time_max: Option<Duration>) -> bool {
    let per_round = elapsed / rounds_done.max(1);
    time_max.is_none_or(|time_max| rounds_done == 0 || elapsed + per_round <= time_max)
}

fn pin_advice(cpu: usize) -> String {
    format!("pinning to CPU {cpu}; choose others with --pin, or --pin none")
}

/// A measurement counts as hung after 20 times its planned duration plus a fixed time
/// (`DURATION_ALLOWANCE`), far longer than a measurement takes on a busy machine.
const DURATION_FACTOR: u32 = 20;
const DURATION_ALLOWANCE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_that_would_end_too_late_is_not_begun() {
        let seconds = Duration::from_secs;
        assert!(is_time_for(0, seconds(0), Some(seconds(52))));
        assert!(is_time_for(4, seconds(40), Some(seconds(52))));
        assert!(!is_time_for(4, seconds(44), Some(seconds(52))));
        assert!(is_time_for(4, seconds(9999), None));
    }
}
