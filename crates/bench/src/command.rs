// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command `partywall bench`: plans, measures, prints and writes the report.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::arguments::{Arguments, Choice};
use crate::harness::allocator::keep_freed_memory;
use crate::harness::pattern::Touch;
use crate::machine::{Machine, Pin};
use crate::plan::{self, Plan};
use crate::report::json::Line;
use crate::report::targets::{self, Targets};
use crate::report::{self, Output, detail, summary};
use crate::run::Program;
use crate::table::TRANSPORTS;

/// The flags with which the parent starts the child process.
#[derive(clap::Args)]
pub struct ChildArguments {
    /// Pin this process to the CPU with this number
    #[arg(long)]
    cpu: Option<usize>,
}

/// Runs the child process of a measurement until its stdin ends.
pub fn run_child(arguments: &ChildArguments) -> Result<ExitCode> {
    // The child process does not print its error, because the parent process reports it.
    Ok(PROGRAM.serve(arguments.cpu).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS))
}

/// Measures the cells that the arguments select, and prints the results.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    arguments.check()?;
    // The usable CPUs are counted before a thread is pinned to one CPU, because a pinned thread
    // sees only that CPU.
    plan::default_pairs();
    let choice = if arguments.targets { Some(Choice::Targets) } else { arguments.scenario };
    let report_directory = report_directory(arguments, choice);
    if let Some(directory) = &report_directory {
        report::prepare(directory)?;
    }
    let plan = match choice {
        None => Plan::selection(arguments.rounds.unwrap_or(plan::ROUNDS)),
        Some(Choice::Targets) => Targets::own().plan(arguments.rounds, arguments.duration),
        Some(scenario) => Plan::scenario(scenario, arguments)?,
    };
    if plan.has_frameworks() {
        keep_freed_memory()?;
    }
    let pin = match arguments.pin {
        _ if arguments.one_process => Pin::OneProcess,
        Some(pin) => pin,
        None => Pin::first_two()?,
    };
    let machine = Machine::read(pin);
    let outcomes = PROGRAM.run(&plan, pin)?;

    let mut is_missed = false;
    let output = match choice {
        None => Output { table: summary::table(&outcomes), notes: summary::LEGEND.to_owned() },
        Some(Choice::Targets) => {
            let verdicts = Targets::own().judge(&outcomes, pin);
            is_missed = verdicts.iter().any(|verdict| verdict.is_met == Some(false));
            Output { table: targets::table(&verdicts), notes: String::new() }
        }
        Some(_) => Output {
            table: detail::table(&outcomes),
            notes: [detail::notes(&outcomes), detail::LEGEND.to_owned()].concat(),
        },
    };
    let lines: Vec<Line> =
        outcomes.iter().filter_map(|outcome| Line::of(outcome, &outcomes)).collect();
    print(arguments, &lines, &output, &machine)?;
    if let Some(directory) = report_directory {
        report::write(&directory, &machine, &lines, &outcomes, &output)?;
        announce(&directory);
    }
    Ok(if is_missed && arguments.strict { ExitCode::from(EXIT_MISSED) } else { ExitCode::SUCCESS })
}

fn print(arguments: &Arguments, lines: &[Line], output: &Output, machine: &Machine) -> Result<()> {
    if arguments.json {
        for line in lines {
            println!("{}", serde_json::to_string(line).context("writing JSON")?);
        }
        return Ok(());
    }
    println!("{}", output.table.to_text());
    if !output.notes.is_empty() {
        println!("{}\n", output.notes);
    }
    if arguments.touch == Touch::None {
        println!("Payloads were NOT touched (--touch none).\n");
    }
    println!("{}", machine.summary());
    if cfg!(debug_assertions) {
        println!("This is a debug build. Measure with: cargo run --release -- bench");
    }
    Ok(())
}

/// Returns the directory to which the report is written. A run without a scenario has a default
/// directory; other runs write a report only if `--out` names a directory.
fn report_directory(arguments: &Arguments, choice: Option<Choice>) -> Option<PathBuf> {
    let default = choice.is_none().then(|| PathBuf::from("bench-report"));
    arguments.out.clone().or(default)
}

/// Prints on stderr where the report was written, because stdout may carry JSON.
fn announce(directory: &Path) {
    eprintln!("report: {}", directory.join("report.html").display());
}

/// The exit code of `bench --strict` if a target was missed.
const EXIT_MISSED: u8 = 11;

/// The description of `partywall bench` for the harness: its name, the subcommand that starts its
/// second process, and the transports that it can measure.
static PROGRAM: Program =
    Program { name: "partywall-bench", child_command: "bench-child", transports: TRANSPORTS };
