// SPDX-License-Identifier: MIT OR Apache-2.0
//! Our implementation in the conformance tests, behind the same two subcommands as the peers.
//!
//! It does *not* speak yet: it says so and exits with 2. The table of `../../tests` does not list it before it does.

use std::process::ExitCode;

use clap::Parser;
use conformance_traffic::Program;

fn main() -> ExitCode {
    let program = Program::parse();
    eprintln!("not yet: {program:?}");
    ExitCode::from(2)
}
