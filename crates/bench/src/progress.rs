// SPDX-License-Identifier: MIT OR Apache-2.0
//! The progress of a run on stderr: a bar in a terminal, a line per round elsewhere.
//!
//! The bar is drawn only between measurements and by the measuring thread, so that drawing takes no
//! CPU time while the clock runs.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::plan::{Plan, Step};

/// The display of the progress of one run.
pub struct Progress {
    bar: Option<ProgressBar>,
    rounds: u32,
}

impl Progress {
    /// Shows an empty progress bar, if stderr is a terminal.
    pub fn start(plan: &Plan) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let target = ProgressDrawTarget::stderr();
            ProgressBar::with_draw_target(Some(plan.measurements()), target).with_style(style())
        });
        Self { bar, rounds: plan.rounds }
    }

    /// Shows that a round begins; rounds are counted from 0.
    pub fn begin_round(&self, round: u32) {
        if self.bar.is_none() {
            eprintln!("round {} of {}", round + 1, self.rounds);
        }
    }

    /// Shows that the run ends after `rounds` rounds, fewer than planned, because its maximum time
    /// is used up.
    pub fn cut_short(&self, rounds: u32) {
        let line = format!("this machine is too slow: {rounds} rounds instead of {}", self.rounds);
        match &self.bar {
            Some(bar) => bar.println(line),
            None => eprintln!("{line}"),
        }
    }

    /// Shows that the measurement of `step` begins.
    pub fn begin_step(&self, step: &Step) {
        if let Some(bar) = &self.bar {
            bar.set_message(step.cell.to_string());
            bar.inc(1);
        }
    }

    /// Removes the progress bar from the terminal.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn style() -> ProgressStyle {
    let template = "{bar:30} {pos}/{len}  {elapsed} of about {duration}  {msg}";
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
