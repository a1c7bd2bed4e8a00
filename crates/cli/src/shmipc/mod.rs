// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall shmipc`: inspects the shared memory of programs that use the shmipc protocol, with
//! any library.
//!
//! ```text
//!   dump   FILE ─ find.rs ────┐
//!          PID ── process.rs ─┴▶ Memory ─ pair.rs ─▶ check ─▶ dump.rs ─▶ text, or json.rs
//!                                memory.rs
//! ```
//! The command works on copies, and does not map, lock or change the inspected memory.

mod dump;
mod find;
mod json;
mod memory;
mod pair;
mod process;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

/// Inspect the shared memory of shmipc
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Clone, Debug, Subcommand)]
enum Task {
    Dump(dump::Arguments),
}

/// Runs the subcommand that the arguments name.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.task {
        Task::Dump(arguments) => Ok(dump::run(arguments)),
    }
}

const EXAMPLES: &str = "\
Examples:
  partywall shmipc dump 4242                        all regions of a process
  partywall shmipc dump /dev/shm/shmipc_4242_buffer a file, also of dead processes
  partywall shmipc dump --help                      output and exit codes";
