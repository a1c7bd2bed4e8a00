// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bench-peers`: measures libraries from the package registry, sockets and Partywall in one run.
//!
//! ```text
//! arguments ─► plan (cells) ─► partywall_bench: run, harness ─► outcomes ─► summary | json
//!                 │                          ▲
//!                 └──── table ───────────────┘  rows: shm uds tcp · shmipc ×4 · iceoryx2 ×2
//!                         │
//!                     transport/     adapters of other libraries to the interface of the bench
//! ```
//! A cell is one combination of scenario, transport and size; the table has a row for each
//! transport. Scenarios, harness and figures are those of `partywall bench`. Measurements of
//! Partywall alone are *not* part of this program.

#![forbid(unsafe_code)]

mod arguments;
mod json;
mod one_thread;
mod plan;
mod summary;
mod table;
mod targets;
mod transport;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use partywall_bench::harness::cell::Scenario;
use partywall_bench::machine::{Machine, Pin};
use partywall_bench::outcome::Outcome;
use partywall_bench::report;
use partywall_bench::run::Program;

use arguments::{Arguments, Choice, Role};
use json::Line;
use table::TRANSPORTS;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match &arguments.role {
        Some(Role::Child { cpu }) => PROGRAM.serve(*cpu).map(|()| ExitCode::SUCCESS),
        Some(Role::OneThread { prefix, rounds }) => {
            one_thread::bench(prefix, *rounds).map(|()| ExitCode::SUCCESS)
        }
        None => bench(&arguments),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("bench-peers: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Measures the cells that the arguments select, and prints the results.
fn bench(arguments: &Arguments) -> Result<ExitCode> {
    let plan = plan::of(arguments)?;
    let pin = arguments.pin.map_or_else(Pin::first_two, Ok)?;
    let machine = Machine::read(pin).summary();
    eprintln!("{machine}");
    let outcomes = PROGRAM.run(&plan, pin)?;
    if arguments.json {
        print_json(&outcomes)?;
    } else {
        match arguments.scenario {
            Some(Choice::Targets) => print_targets(&outcomes, pin),
            _ => print_tables(&outcomes, pin),
        }
        println!("{machine}");
        if cfg!(debug_assertions) {
            println!("This is a debug build. Measure with: cargo run --release");
        }
    }
    let is_complete = outcomes.iter().all(|outcome| outcome.failures.is_empty());
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::from(EXIT_INCOMPLETE) })
}

/// Prints one JSON line per cell. If all rounds of a cell failed, the cell has no line, so failures
/// are also printed on stderr.
fn print_json(outcomes: &[Outcome]) -> Result<()> {
    eprint!("{}", summary::notes(outcomes));
    for line in outcomes.iter().filter_map(|outcome| Line::of(outcome, outcomes)) {
        println!("{}", serde_json::to_string(&line).context("writing JSON")?);
    }
    Ok(())
}

fn print_targets(outcomes: &[Outcome], pin: Pin) {
    let verdicts = targets::all().judge(outcomes, pin);
    println!("\n{}{}", report::targets::table(&verdicts).to_text(), summary::notes(outcomes));
}

fn print_tables(outcomes: &[Outcome], pin: Pin) {
    for scenario in [Scenario::Parallel, Scenario::Ping] {
        let first = outcomes.iter().find(|outcome| outcome.cell.scenario == scenario);
        let Some(first) = first else { continue };
        println!("\n{}", summary::legend(first.cell, &pin.placement()));
        println!("\n{}", summary::table(scenario, outcomes).to_text());
    }
    println!("{}{}\n", summary::notes(outcomes), summary::RATIOS);
}

/// The exit code of `bench-peers` if measurements of one or more transports failed, although the
/// other transports were measured.
const EXIT_INCOMPLETE: u8 = 2;

/// The description of `bench-peers` for the harness: its name, the subcommand that starts its
/// second process, and the transports that it can measure.
static PROGRAM: Program =
    Program { name: "bench-peers", child_command: "child", transports: TRANSPORTS };
