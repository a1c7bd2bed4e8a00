// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bench-peers`: measures Partywall's rivals from the package registry, beside sockets and Partywall itself.
//!
//! ```text
//! arguments ─► plan (cells) ─► run: round by round, cell by cell ─► table_rows | json
//!                                │
//!        parallel  one process (or two), tokio, 199 streams        lanes: wall, shmipc ×2, uds, tcp
//!        ping      parent ◄─ control (JSON lines) ─► child         lanes: wall, iceoryx2 ×2, uds
//! ```
//! What it does *not* do: everything that concerns Partywall alone; that is `partywall bench`. What both print is
//! shared source, taken from there by path.

#![forbid(unsafe_code)]

mod arguments;
mod cell;
mod child;
mod control;
#[path = "../../../crates/bench/src/host.rs"]
mod host;
mod json;
mod leftovers;
mod machine;
mod measure;
mod parallel;
mod pattern;
mod ping;
mod plan;
mod progress;
#[path = "../../../crates/cli/src/quantity.rs"]
#[allow(dead_code, reason = "shared with `partywall`, which uses the rest")]
mod quantity;
mod ratio;
mod run;
#[path = "../../../crates/bench/src/second.rs"]
mod second;
mod setup;
#[path = "../../../crates/bench/src/spread.rs"]
mod spread;
#[path = "../../../crates/bench/src/table.rs"]
#[allow(dead_code, reason = "shared with `partywall bench`, which uses the rest")]
mod table;
mod table_rows;
mod watchdog;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

use arguments::{Arguments, Role};
use cell::Scenario;
use json::Line;
use plan::Plan;
use run::Outcome;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match &arguments.role {
        Some(Role::Child(child)) => child::run(child).map(|()| ExitCode::SUCCESS),
        None => bench(&arguments),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("bench-peers: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Measures what was asked for and shows it.
fn bench(arguments: &Arguments) -> Result<ExitCode> {
    let plan = Plan::of(arguments)?;
    let pin = arguments.pin.map_or_else(machine::default_pin, Ok)?;
    let machine = machine::summary();
    eprintln!("{machine}");
    let outcomes = run::run(&plan, pin)?;
    if arguments.json {
        print_json(&outcomes)?;
    } else {
        print_tables(&outcomes, &machine::placement(pin));
        println!("{machine}");
        if cfg!(debug_assertions) {
            println!("This is a debug build; numbers that count need cargo run --release.");
        }
    }
    let is_whole = outcomes.iter().all(|outcome| outcome.failures.is_empty());
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(EXIT_INCOMPLETE) })
}

/// One line per cell; what failed altogether has none, so failures are told on stderr as well.
fn print_json(outcomes: &[Outcome]) -> Result<()> {
    eprint!("{}", table_rows::notes(outcomes));
    for line in outcomes.iter().filter_map(|outcome| Line::of(outcome, outcomes)) {
        println!("{}", serde_json::to_string(&line).context("writing JSON")?);
    }
    Ok(())
}

fn print_tables(outcomes: &[Outcome], placement: &str) {
    for scenario in [Scenario::Parallel, Scenario::Ping] {
        let first = outcomes.iter().find(|outcome| outcome.cell.scenario == scenario);
        let Some((table, first)) = table_rows::table(scenario, outcomes).zip(first) else {
            continue;
        };
        println!("\n{}", table_rows::legend(first.cell, placement));
        println!("\n{}", table.to_text());
    }
    println!("{}{}\n", table_rows::notes(outcomes), table_rows::RATIOS);
}

/// The exit code when some transport failed; the others were measured.
const EXIT_INCOMPLETE: u8 = 2;
