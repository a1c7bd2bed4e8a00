// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `partywall` command: a thin dispatcher, one file (or folder) per command.
//!
//! ```text
//!   listen connect   pipe.rs pipe_input.rs …_summary.rs channel_options.rs   what they have in common
//!   echo             echo/                             exit.rs              how commands end
//!   doctor           doctor/                           quantity.rs          64k, 5s, 0600
//!                                                      advice.rs signals.rs errors, with our flags; Ctrl-C
//!   bench            (crates/bench)                         manual.rs            completions, man pages
//!   proxy            proxy/
//!   shmipc           shmipc/
//!   link             link/
//! ```
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::cast_possible_truncation))]
#![forbid(unsafe_code)]

mod channel;
mod command;
mod doctor;
mod echo;
mod link;
mod manual;
mod proxy;
mod shmipc;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use partywall_bench::VERSION;

use channel::{connect, listen};
use command::report;

/// Local IPC over single-writer shared memory: measure it, try it, look into it.
#[derive(Parser)]
#[command(name = "partywall", version = VERSION, max_term_width = 100, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure Partywall against sockets, pipes and the machine's own floor
    Bench(partywall_bench::Arguments),
    Listen(listen::Arguments),
    Connect(connect::Arguments),
    Echo(echo::Arguments),
    Proxy(proxy::Arguments),
    Doctor(doctor::Arguments),
    Shmipc(shmipc::Arguments),
    Link(link::Arguments),
    Completions(manual::CompletionArguments),
    Man(manual::ManArguments),
    /// The second process of a measurement; started by `bench`, never by hand
    #[command(hide = true)]
    BenchChild(partywall_bench::ChildArguments),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return explain(&error),
    };
    let result = match arguments.command {
        Command::Bench(arguments) => partywall_bench::run(&arguments),
        Command::Listen(arguments) => listen::run(&arguments),
        Command::Connect(arguments) => connect::run(&arguments),
        Command::Echo(arguments) => echo::run(&arguments),
        Command::Proxy(arguments) => proxy::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Shmipc(arguments) => shmipc::run(&arguments),
        Command::Link(arguments) => link::run(&arguments),
        Command::Completions(arguments) => manual::completions(&arguments),
        Command::Man(arguments) => manual::man(&arguments),
        Command::BenchChild(arguments) => partywall_bench::run_child(&arguments),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("partywall: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Help and version are no mistake; wrong usage is a failure like any other.
fn explain(error: &clap::Error) -> ExitCode {
    // If nobody reads the explanation, nothing is lost.
    let _ = error.print();
    match error.use_stderr() {
        false => ExitCode::SUCCESS,
        // There, 1 is an answer.
        true if has_answers() => report::UNREADABLE.into(),
        true => ExitCode::FAILURE,
    }
}

fn has_answers() -> bool {
    let words: Vec<_> = std::env::args_os().skip(1).take(2).collect();
    let is = |name: &str| words.first().is_some_and(|command| command == name);
    is("shmipc") || (is("link") && link::answers_with_one(words.get(1).map(AsRef::as_ref)))
}

const EXAMPLES: &str = "\
Examples:
  partywall doctor                                   what does this machine allow?
  partywall bench                                    how fast is it here? in under a minute
  partywall listen unix:/tmp/wall.sock > copy        a stream from one terminal …
  partywall connect unix:/tmp/wall.sock < file       … to another
  partywall proxy --listen tcp:127.0.0.1:7000 --to unix:/run/redis.wall    TCP programs, too
  partywall echo serve --listen unix:/tmp/e.sock     there and back …
  partywall echo run --connect unix:/tmp/e.sock      … counted, verified and timed
  partywall shmipc dump 4242                         what is in the shared memory of shmipc?
  partywall link send --dir links --name a --peer b unix:/tmp/l.sock < lines    messages that survive kill -9
  partywall link inspect --dir links                 what have named streams left behind?

`partywall COMMAND --help` has more examples for each.";
