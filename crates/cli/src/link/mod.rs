// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall link`: named streams of messages that outlive their processes, from the command line.
//!
//! ```text
//!   send      send.rs     file, stdin ─▶ framing.rs ─▶ link
//!   recv      recv.rs     link ─▶ framing.rs ─▶ output.rs
//!   both      options.rs  flags                   monitor.rs     connections, time limits
//!             totals.rs   --stats                 checkpoint.rs  --exactly-once over kills
//!   recv      admission.rs  who may attach        sender_record.rs  whether the sender finished
//!   inspect   DIR ─ partywall_link ─▶ Found ─ inspect.rs ─▶ text, or json.rs
//!   adopt, reset        repair.rs
//! ```
//! The library has all of the link itself. This folder has files, terminals and texts.

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
mod sender_record;
mod totals;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

/// Send and receive messages that survive kill -9, and inspect the files that keep them
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

/// Runs the task of the arguments.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.task {
        Task::Send(arguments) => send::run(arguments),
        Task::Recv(arguments) => recv::run(arguments),
        Task::Inspect(arguments) => Ok(inspect::run(arguments)),
        Task::Adopt(arguments) => Ok(repair::run_adopt(arguments)),
        Task::Reset(arguments) => Ok(repair::run_reset(arguments)),
    }
}

/// Whether code 1 of this command is a finding, so that wrong usage has another code.
pub fn answers_with_one(task: Option<&std::ffi::OsStr>) -> bool {
    task.is_none_or(|task| task != "send" && task != "recv")
}

const EXAMPLES: &str = "\
Examples:
  mkdir -m 700 links
  partywall link recv --dir links --name bob --peer alice unix:/tmp/links.sock           one end …
  partywall link send --dir links --name alice --peer bob unix:/tmp/links.sock < lines   … the other
  partywall link inspect --dir links        all links with a file there
  partywall link inspect --help             output and exit codes
  partywall link adopt --help               how to end a quarantine";
