// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `partywall` command: a thin dispatcher with one folder per command.
//!
//! ```text
//!   listen connect   channel/         one channel joined to stdin and stdout
//!   echo             echo/            command/   shared: flags of a channel, exit codes, signals,
//!   proxy            proxy/                      texts of errors
//!   link             link/
//!   inspect          inspect/
//!   shmipc           shmipc/
//!   doctor           doctor/
//!   bench            crates/bench     manual.rs  completions, man pages
//! ```
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::cast_possible_truncation))]
#![forbid(unsafe_code)]

mod channel;
mod command;
mod doctor;
mod echo;
mod inspect;
mod link;
mod manual;
mod proxy;
mod shmipc;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use partywall_bench::VERSION;

use channel::{connect, listen};
use command::exit::Exit;
use command::report;

/// Messages between local processes over shared memory or sockets
#[derive(Parser)]
#[command(name = "partywall", version = VERSION, max_term_width = 100, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure latency and throughput, compared with sockets, pipes and plain shared memory
    Bench(partywall_bench::Arguments),
    Listen(listen::Arguments),
    Connect(connect::Arguments),
    Echo(echo::Arguments),
    Proxy(proxy::Arguments),
    Doctor(doctor::Arguments),
    Inspect(inspect::Arguments),
    Shmipc(shmipc::Arguments),
    Link(link::Arguments),
    Completions(manual::CompletionArguments),
    Man(manual::ManArguments),
    /// Run as the second process of a measurement, which `bench` starts
    #[command(hide = true)]
    BenchChild(partywall_bench::ChildArguments),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return explain(&error),
    };
    let is_json = match &arguments.command {
        Command::Bench(arguments) => arguments.json,
        Command::Doctor(arguments) => arguments.json,
        _ => false, // the commands that inspect print their errors themselves
    };
    let result = match arguments.command {
        Command::Bench(arguments) => partywall_bench::run(&arguments),
        Command::Listen(arguments) => listen::run(&arguments),
        Command::Connect(arguments) => connect::run(&arguments),
        Command::Echo(arguments) => echo::run(&arguments),
        Command::Proxy(arguments) => proxy::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Inspect(arguments) => Ok(inspect::run(&arguments)),
        Command::Shmipc(arguments) => shmipc::run(&arguments),
        Command::Link(arguments) => link::run(&arguments),
        Command::Completions(arguments) => manual::completions(&arguments),
        Command::Man(arguments) => manual::man(&arguments),
        Command::BenchChild(arguments) => partywall_bench::run_child(&arguments),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            let exit = Exit::from(&error);
            let error = report::line(&format!("{error:#}"));
            eprintln!("partywall: {error}");
            if is_json {
                report::print_failure(&error);
            }
            exit.into()
        }
    }
}

fn explain(error: &clap::Error) -> ExitCode {
    // An error of printing is ignored: if stderr is closed, no error can be reported.
    let _ = error.print();
    match error.use_stderr() {
        false => ExitCode::SUCCESS,
        true => {
            if std::env::args_os().any(|argument| argument == "--json") {
                let text = error.to_string();
                let reason = text.lines().next().unwrap_or_default();
                report::print_failure(reason.trim_start_matches("error: "));
            }
            Exit::Usage.into()
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  partywall doctor                                   does shared memory work on this machine?
  partywall bench                                    how fast is it here? in under a minute
  partywall listen unix:/tmp/demo.sock > copy        a stream from one terminal …
  partywall connect unix:/tmp/demo.sock < file       … to another
  partywall proxy --listen tcp:127.0.0.1:7000 --to unix:/run/redis.shm    for programs that use TCP
  partywall echo serve --listen unix:/tmp/e.sock     messages there and back …
  partywall echo run --connect unix:/tmp/e.sock      … counted, verified and timed
  partywall link send --dir links --name a --peer b unix:/tmp/l.sock < lines    survives kill -9
  partywall link inspect --dir links                 the contents of the files of links
  partywall inspect 4242                             the connections and links of a process
  partywall shmipc dump 4242                         the shared memory of a program that uses shmipc

`partywall COMMAND --help` has more examples for each.";
