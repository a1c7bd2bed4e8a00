// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `partywall` command: a thin dispatcher, one file (or folder) per command.
#![forbid(unsafe_code)]

mod bench;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Local IPC over single-writer shared memory: measure it, try it, look into it.
#[derive(Parser)]
#[command(name = "partywall", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure Partywall against sockets, pipes and the machine's own floor
    Bench(bench::Arguments),
    /// The second process of a measurement; started by `bench`, never by hand
    #[command(hide = true)]
    BenchChild(bench::ChildArguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Bench(arguments) => bench::run(&arguments),
        Command::BenchChild(arguments) => bench::run_child(&arguments),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("partywall: {error:#}");
            ExitCode::FAILURE
        }
    }
}
