// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall link`: named streams of messages that outlive their processes, from the command line.
//!
//! ```text
//!   send           send.rs           file or stdin ─▶ framing.rs ─▶ link
//!   recv           recv.rs           link ─▶ framing.rs ─▶ output.rs
//!                  admission.rs      which sender may attach
//!                  sender_record.rs  whether the sender has finished
//!   send, recv     options.rs        the flags that both commands have
//!                  monitor.rs        events of the connections, time limits
//!                  checkpoint.rs     --exactly-once, even if a command is killed
//!   inspect        inspect.rs        DIR ─▶ partywall_link ─▶ text, or JSON by json.rs
//!   adopt, reset   repair.rs
//! ```
//! The library `partywall-link` implements links. This folder only connects them to files,
//! terminals and texts.

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

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Subcommand;
use partywall_link::Stats;

use partywall_bench::figure::quantity::{
    bandwidth_name, counted, per_second, rate_name, size_name, time_name,
};

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

/// Runs the subcommand that the arguments name.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.task {
        Task::Send(arguments) => send::run(arguments),
        Task::Recv(arguments) => recv::run(arguments),
        Task::Inspect(arguments) => Ok(inspect::run(arguments)),
        Task::Adopt(arguments) => Ok(repair::run_adopt(arguments)),
        Task::Reset(arguments) => Ok(repair::run_reset(arguments)),
    }
}

/// The text that `--stats` prints at the end of `send` and `recv`; `direction` is `sent` or
/// `received`.
///
/// ```text
/// sent         1.20 MiB (1258291 bytes) in 20000 messages, 3.10 MiB/s, 51.7 k/s
/// link       3 connections, 12 separate acknowledgements
/// time        387 ms
/// ```
fn totals(direction: &str, stats: &Stats, time: Duration) -> String {
    let (bytes, messages) = match direction {
        "sent" => (stats.bytes_sent, stats.messages_sent),
        _ => (stats.bytes_received, stats.messages_received),
    };
    format!(
        "{direction:<10} {:>10} ({}) in {}, {}, {}\nlink       {}, separate {}\ntime       {:>10}\n",
        size_name(bytes),
        counted(bytes, "byte"),
        counted(messages, "message"),
        bandwidth_name(bytes, time),
        rate_name(per_second(messages, time)),
        counted(stats.connections, "connection"),
        counted(stats.acknowledgements, "acknowledgement"),
        time_name(time),
    )
}

const EXAMPLES: &str = "\
Examples:
  mkdir -m 700 links
  partywall link recv --dir links --name bob --peer alice unix:/tmp/links.sock           one end …
  partywall link send --dir links --name alice --peer bob unix:/tmp/links.sock < lines   … the other
  partywall link inspect --dir links        all links with a file there
  partywall link inspect --help             output and exit codes
  partywall link adopt --help               how to end a quarantine";
