// SPDX-License-Identifier: MIT OR Apache-2.0
//! The second process of a measurement: it echoes, drains or accepts, as the first tells it.
//!
//! It does *not* decide anything: cells, amounts and the end come over the control pipe (`control.rs`).

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use partywall_sys::cpu::set_affinity;

use super::cell::{Cell, Scenario};
use super::control::{Control, Reply, Request};
use super::lane::{Door, Setup, Transport, Work, dispatch};
use super::{connect, crowd, duplex, flood, idle, parallel, ping, rate};

/// What `bench` passes to the process it starts.
#[derive(clap::Args)]
pub struct ChildArguments {
    /// Stay on this CPU
    #[arg(long)]
    cpu: Option<usize>,
}

/// Serves the first process until it closes our stdin.
pub fn run_child(arguments: &ChildArguments) -> Result<ExitCode> {
    let control = Control::from_stdin();
    let outcome = serve(arguments, &control);
    if let Err(error) = &outcome {
        control.reply(&Reply::Failed { why: format!("{error:#}") })?;
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn serve(arguments: &ChildArguments, control: &Control) -> Result<()> {
    if let Some(cpu) = arguments.cpu {
        set_affinity(cpu).with_context(|| format!("pinning to CPU {cpu}"))?;
    }
    loop {
        let Request::Open { cell, setup } = control.next_request()? else {
            bail!("asked for a batch before a cell was opened");
        };
        match cell.scenario {
            Scenario::Parallel => parallel::answer(cell, &setup, control)?,
            _ => dispatch(cell.transport, Part { cell, setup: &setup, control })?,
        }
    }
}

/// The child's part in one cell.
struct Part<'a> {
    cell: Cell,
    setup: &'a Setup,
    control: &'a Control,
}

impl Work for Part<'_> {
    type Output = ();

    fn on<T: Transport>(self) -> Result<()> {
        let Self { cell, setup, control } = self;
        let mut door = T::bind(setup)?;
        control.reply(&Reply::Bound { address: door.address() })?;
        match cell.scenario {
            Scenario::Ping => ping::echo(cell, door.accept()?, control),
            Scenario::Flood => flood::drain(cell, door.accept()?, control),
            Scenario::Duplex => duplex::answer(cell, door.accept()?, control),
            Scenario::Rate => rate::drain(cell, door.accept()?, control),
            Scenario::Crowd => crowd::echo(cell, &mut door, control),
            Scenario::Connect => connect::accept(cell, &mut door, control),
            Scenario::Idle => idle::hold(cell, &mut door, control),
            Scenario::Parallel => bail!("parallel has lanes of its own"),
        }
    }
}
