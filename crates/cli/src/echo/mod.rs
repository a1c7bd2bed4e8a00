// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall echo`: messages there and back, counted and verified, over several kinds of wire.
//!
//! ```text
//!   run ──── send ───▶ serve          endpoint.rs  unix:/path   a Partywall channel
//!    ▲                   │                         plain:unix:/path  lines over a bare socket
//!    └─── verify ◀── the same bytes   wire.rs      one door to both, for the asking side
//! ```
//! It answers one question: how much faster is one kind of wire than another, for the same messages?
//! `bench` asks it more carefully; this is the experiment to try and to understand.

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

/// Send messages there and back, over Partywall and over bare sockets, and compare
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

/// Runs the side that was asked for.
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
  printf 'hi\\n' | nc -UN /tmp/p.sock               any line-echo client can talk to plain:";
