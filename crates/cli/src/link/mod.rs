// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall link`: named streams of messages that survive their processes, from the command line.
//!
//! ```text
//!   send      send.rs   file, stdin ─▶ framing.rs ─▶ link          options.rs   what both have
//!   recv      recv.rs   link ─▶ framing.rs ─▶ output.rs            watch.rs     connections come and go; when to give up
//!                       gate.rs    whom it lets in                 ledger.rs    --exactly-once: what is where, after a kill
//!                                                                  totals.rs    --stats
//!   inspect   DIR ─ partywall_link ─▶ Found ─ inspect.rs ─▶ text, or json.rs
//!   adopt, reset        repair.rs
//! ```
//! Whatever a link is and does is in the library: here are files, terminals, and words.

mod admission;
mod checkpoint;
mod framing;
mod inspect;
mod json;
mod monitor;
mod options;
mod output;
mod recv;
mod repair;
mod send;
mod totals;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

/// Send and receive messages that survive kill -9, and look into what is kept of them
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Clone, Debug, Subcommand)]
enum Task {
    Send(Box<send::Arguments>),
    Recv(Box<recv::Arguments>),
    Inspect(inspect::Arguments),
    Adopt(repair::AdoptArguments),
    Reset(repair::ResetArguments),
}

/// Does what was asked for.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.task {
        Task::Send(arguments) => send::run(arguments),
        Task::Recv(arguments) => recv::run(arguments),
        Task::Inspect(arguments) => Ok(inspect::run(arguments)),
        Task::Adopt(arguments) => Ok(repair::run_adopt(arguments)),
        Task::Reset(arguments) => Ok(repair::run_reset(arguments)),
    }
}

/// Whether 1 is an answer of this command, so that wrong usage has another code.
pub fn answers_with_one(task: Option<&std::ffi::OsStr>) -> bool {
    task.is_none_or(|task| task != "send" && task != "recv")
}

const EXAMPLES: &str = "\
Examples:
  mkdir -m 700 links
  partywall link recv --dir links --name bob --peer alice unix:/tmp/links.sock            one end …
  partywall link send --dir links --name alice --peer bob unix:/tmp/links.sock < lines    … and the other
  partywall link inspect --dir links        every link that has a file there
  partywall link inspect --help             what it prints, and exit codes
  partywall link adopt --help               what to do about quarantine";
