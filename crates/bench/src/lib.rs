// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall bench`: measures Partywall against sockets, pipes and the machine's own floor, between two processes.
//!
//! ```text
//! arguments ─► plan (cells) ─► run: round by round, cell by cell ─► summary | detail | targets | json
//!                                │                                └► report.html, *.svg, results.json
//!              parent ◄─ control (JSON lines) ─► child        the same program, started again
//!                 └──── lane: wall link uds tcp pipe floor ─┘       ping flood rate crowd connect idle parallel
//! ```
//! What it does *not* do: compare with other libraries (their dependencies stay out of this workspace).
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::cast_possible_truncation))]
#![forbid(unsafe_code)]

mod arguments;
mod bytes;
mod cell;
mod charts;
mod child;
mod connect;
mod control;
mod crowd;
mod detail;
mod duplex;
mod eventfd;
mod flood;
mod floor;
mod footprint;
mod handover;
mod host;
mod idle;
mod json;
mod lane;
mod link;
mod machine;
mod measure;
mod parallel;
mod parent;
mod pattern;
mod ping;
mod pipe;
mod plan;
mod plot;
mod progress;
mod rate;
mod ratio;
mod report;
mod run;
mod second;
mod shm;
mod spread;
mod summary;
mod system;
mod table;
mod targets;
mod tcp;
mod uds;
mod watchdog;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};

pub use arguments::Arguments;
pub use child::{ChildArguments, run_child};

use arguments::{Choice, Pin};
use json::Line;
use machine::Machine;
use plan::Plan;
use table::Table;

/// The version of the package, and the commit it was built from.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("PARTYWALL_COMMIT"), ")");

/// Measures what was asked for and shows it.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    arguments.check().map_err(|why| anyhow!(why))?;
    plan::default_pairs(); // before anything is pinned
    let choice = if arguments.targets { Some(Choice::Targets) } else { arguments.scenario };
    let report_directory = report_directory(arguments, choice);
    if let Some(directory) = &report_directory {
        report::prepare(directory)?;
    }
    let plan = match choice {
        None => Plan::selection(arguments.rounds.unwrap_or(plan::ROUNDS)),
        Some(Choice::Targets) => targets::plan(arguments.rounds, arguments.duration),
        Some(scenario) => Plan::scenario(scenario, arguments)?,
    };
    let pin = match arguments.pin {
        _ if arguments.one_process => Pin::OneProcess,
        Some(pin) => pin,
        None => machine::default_pin()?,
    };
    let machine = Machine::look(pin);
    let outcomes = run::run(&plan, pin)?;

    let mut is_broken = false;
    let shown = match choice {
        None => Shown { table: summary::table(&outcomes), notes: summary::LEGEND.to_owned() },
        Some(Choice::Targets) => {
            let verdicts = targets::judge(&outcomes);
            is_broken = verdicts.iter().any(|verdict| verdict.is_kept == Some(false));
            Shown { table: targets::table(&verdicts), notes: String::new() }
        }
        Some(_) => Shown {
            table: detail::table(&outcomes),
            notes: [detail::notes(&outcomes), detail::LEGEND.to_owned()].concat(),
        },
    };
    let lines: Vec<Line> =
        outcomes.iter().filter_map(|outcome| Line::of(outcome, &outcomes)).collect();
    show(arguments, &lines, &shown, &machine)?;
    if let Some(directory) = report_directory {
        report::write(&directory, &machine, &lines, &outcomes, &shown)?;
        announce(&directory);
    }
    Ok(if is_broken && arguments.strict { ExitCode::from(EXIT_MISSED) } else { ExitCode::SUCCESS })
}

/// What a person sees of a run.
struct Shown {
    table: Table,
    notes: String,
}

fn show(arguments: &Arguments, lines: &[Line], shown: &Shown, machine: &Machine) -> Result<()> {
    if arguments.json {
        for line in lines {
            println!("{}", serde_json::to_string(line).context("writing JSON")?);
        }
        return Ok(());
    }
    println!("{}", shown.table.to_text());
    if !shown.notes.is_empty() {
        println!("{}\n", shown.notes);
    }
    if arguments.touch == pattern::Touch::None {
        println!("Payloads were NOT touched (--touch none).\n");
    }
    println!("{}", machine.summary());
    if cfg!(debug_assertions) {
        println!("This is a debug build; for numbers that count: cargo run --release -- bench");
    }
    Ok(())
}

/// A report is written for a run of everything, and wherever one is asked for.
fn report_directory(arguments: &Arguments, choice: Option<Choice>) -> Option<PathBuf> {
    let default = choice.is_none().then(|| PathBuf::from("bench-report"));
    arguments.out.clone().or(default)
}

/// Says where the report is; on stderr, so that `--json` stays JSON.
fn announce(directory: &Path) {
    eprintln!("report: {}", directory.join("report.html").display());
}

/// The exit code of `--strict` when a target was missed.
const EXIT_MISSED: u8 = 2;
