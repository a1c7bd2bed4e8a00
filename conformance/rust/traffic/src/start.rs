// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts a program of the conformance tests: parses its command line, runs its command with a
//! deadline, and makes its exit code.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;

use super::options::{Command, Program};

/// Reads the command line and performs its command, within its deadline.
pub fn start(perform: impl AsyncFnOnce(&Command) -> Result<u8>) -> ExitCode {
    let program = Program::parse();
    let (Command::Serve(options) | Command::Run(options)) = &program.command;
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("no runtime: {error}");
            return ExitCode::from(2);
        }
    };
    let deadline = Duration::from_secs(options.deadline);
    let outcome =
        runtime.block_on(async { tokio::time::timeout(deadline, perform(&program.command)).await });
    // A library's handshake may block a thread for ever; this process ends without it.
    runtime.shutdown_background();
    let code = match outcome {
        Ok(Ok(code)) => return ExitCode::from(code),
        Ok(Err(error)) => {
            eprintln!("{error:#}");
            1
        }
        Err(_) => {
            eprintln!("not done after {deadline:?}");
            3
        }
    };
    super::remove_leftovers(&options.prefix);
    ExitCode::from(code)
}
