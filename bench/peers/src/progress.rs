// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows how far a run is, on stderr: one line that changes in a terminal, a line per round elsewhere.
//!
//! It writes only between measurements, never during one.

use std::cell::Cell as Counter;
use std::io::{IsTerminal, Write};
use std::time::Instant;

use super::cell::Cell;
use super::plan::Plan;

/// The display of one run.
pub struct Progress {
    is_terminal: bool,
    rounds: u32,
    cells: usize,
    begun: Counter<usize>,
    start: Instant,
}

impl Progress {
    /// Shows nothing yet.
    pub fn start(plan: &Plan) -> Self {
        let (rounds, cells) = (plan.rounds, plan.cells.len());
        let is_terminal = std::io::stderr().is_terminal();
        Self { is_terminal, rounds, cells, begun: Counter::new(0), start: Instant::now() }
    }

    /// A measurement begins, in round `round` (counted from 0).
    pub fn begin(&self, round: u32, cell: Cell) {
        let (index, round) = (self.begun.get(), round + 1);
        self.begun.set(index + 1);
        let elapsed = self.start.elapsed().as_secs();
        if self.is_terminal {
            let done = format!("{}/{}", index + 1, self.cells * self.rounds as usize);
            eprint!("\r\x1b[K{done}  {elapsed} s  round {round} of {}  {cell}", self.rounds);
            let _ = std::io::stderr().flush(); // a display that does not show is no reason to stop
        } else if index.is_multiple_of(self.cells) {
            eprintln!("round {round} of {}, {elapsed} s", self.rounds);
        }
    }

    /// The time is over before all rounds are.
    pub fn cut_short(&self, rounds: u32) {
        self.clear();
        eprintln!("this machine is busy: {rounds} rounds instead of {}", self.rounds);
    }

    /// The line goes away.
    pub fn finish(&self) {
        self.clear();
    }

    fn clear(&self) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
    }
}
