// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall echo`: messages that a server sends back, counted and verified, over channels and
//! plain sockets.
//!
//! ```text
//!   run ──── send ───▶ serve          endpoint.rs    unix:/path        a Partywall channel
//!    ▲                   │                           plain:unix:/path  lines over a plain socket
//!    └─── verify ◀── the same bytes   connection.rs   the client's end of either protocol
//!                                     listener.rs     the server's end of either protocol
//! ```
//! The command compares the time of the same messages over several transports. `partywall bench`
//! measures more carefully.

mod connection;
mod endpoint;
mod listener;
mod outcome;
mod payload;
mod run;
mod serve;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

/// Send messages there and back, over Partywall and over plain sockets, and compare the times
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    side: Side,
}

#[derive(Clone, Debug, Subcommand)]
enum Side {
    Serve(serve::Arguments),
    Run(run::Arguments),
}

/// Runs `echo run` or `echo serve`, as the arguments say.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.side {
        Side::Serve(arguments) => serve::run(arguments),
        Side::Run(arguments) => run::run(arguments),
    }
}

const EXAMPLES: &str = "\
Examples:
  partywall echo serve --listen unix:/tmp/e.sock plain:unix:/tmp/p.sock plain:tcp:127.0.0.1:4001
  partywall echo run --connect unix:/tmp/e.sock plain:unix:/tmp/p.sock plain:tcp:127.0.0.1:4001
  printf 'hi\\n' | nc -UN /tmp/p.sock               any line-echo client can use plain:";
