// SPDX-License-Identifier: MIT OR Apache-2.0
//! The second process of a measurement: it answers, as the first tells it.
//!
//! It does *not* decide anything: cells, amounts and the end come over the control pipe (`control.rs`).

use anyhow::{Context, Result, bail};
use partywall_sys::cpu::set_affinity;

use super::cell::Scenario;
use super::control::{Control, Reply, Request};
use super::{parallel, ping};

/// What the first process passes to the one it starts.
#[derive(clap::Args, Clone, Debug)]
pub struct ChildArguments {
    /// Stay on this CPU
    #[arg(long)]
    cpu: Option<usize>,
}

/// Serves the first process until it closes our stdin.
pub fn run(arguments: &ChildArguments) -> Result<()> {
    let control = Control::from_stdin();
    let outcome = serve(arguments, &control);
    if let Err(error) = &outcome {
        control.reply(&Reply::Failed { why: format!("{error:#}") })?;
    }
    outcome
}

fn serve(arguments: &ChildArguments, control: &Control) -> Result<()> {
    if let Some(cpu) = arguments.cpu {
        set_affinity(cpu).with_context(|| format!("pinning to CPU {cpu}; choose with --pin"))?;
    }
    loop {
        let Request::Open { cell, setup, amount } = control.next_request()? else {
            bail!("asked to begin before a cell was opened");
        };
        match cell.scenario {
            Scenario::Parallel => parallel::serve(cell, &setup, control)?,
            Scenario::Ping => ping::serve(cell, &setup, amount, control)?,
        }
    }
}
