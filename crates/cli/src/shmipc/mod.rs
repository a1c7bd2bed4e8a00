// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall shmipc`: for those who speak shmipc, with our library or another.
//!
//! ```text
//!   dump   FILE ─ find.rs ────┐
//!          PID ── process.rs ─┴▶ Memory ─ pair.rs ─▶ look ─▶ dump.rs ─▶ text, or json.rs
//!                                memory.rs
//! ```
//! It reads copies. Nothing of what it looks at is mapped, locked or changed.

mod dump;
mod find;
mod json;
mod memory;
mod pair;
mod process;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

/// Look into the shared memory of shmipc
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

/// Does what was asked for.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.task {
        Task::Dump(arguments) => Ok(dump::run(arguments)),
    }
}

const EXAMPLES: &str = "\
Examples:
  partywall shmipc dump 4242                        all regions of a process
  partywall shmipc dump /dev/shm/shmipc_4242_buffer a file, of the living or of the dead
  partywall shmipc dump --help                      what it prints, and exit codes";
