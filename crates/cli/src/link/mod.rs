// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall link`: the files that named streams of messages leave behind.
//!
//! ```text
//!   inspect   DIR ─ partywall::link ─▶ Found ─ inspect.rs ─▶ text, or json.rs
//! ```
//! It reads. Nothing is locked, mapped or changed.

mod inspect;
mod json;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

/// Look into the files of links
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Clone, Debug, Subcommand)]
enum Task {
    Inspect(inspect::Arguments),
}

/// Does what was asked for.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.task {
        Task::Inspect(arguments) => Ok(inspect::run(arguments)),
    }
}

const EXAMPLES: &str = "\
Examples:
  partywall link inspect --dir links        every link that has a file there
  partywall link inspect --help             what it prints, and exit codes";
