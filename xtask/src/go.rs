// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask go`: tests the Go module, alone and with Rust programs as peers.
//!
//! ```text
//!   go          what the stage `go` runs
//!   go --full   each pair of implementations over each transport: every size, a million messages,
//!               199 streams, 600 kills, 20 stops, 1,000 connections; hostile peers; 100,000 calls
//!               and 200 kills during calls; it prints a table of the results
//! ```

use std::fs;
use std::path::Path;

use crate::builds;
use crate::command::Step;
use crate::stages;

/// Runs the stage `go`, or its long form `--full`.
///
/// # Errors
/// If the arguments are wrong, or a test failed; the message says how to repeat it.
pub fn main(arguments: &[String]) -> Result<(), String> {
    match arguments {
        [] => stages::main(&["--only".to_owned(), MODULE.to_owned()]),
        [argument] if argument == "--full" => full(),
        _ => Err("`go` takes one argument, --full, or none".into()),
    }
}

/// The directory of the first Go module, in which the other Go modules are nested.
pub const MODULE: &str = "go";

/// Makes a command `go` that runs in the directory of the first Go module, without cgo, because the
/// module needs no C compiler.
pub fn command(arguments: &str) -> Step {
    Step::new("go").args(arguments).directory(MODULE).variable("CGO_ENABLED", "0")
}

/// Makes the command that builds the Rust programs with which the Go module's tests exchange
/// messages.
pub fn build_of_peers() -> Step {
    builds::programs().args("--bin partywall --example peer --example calls_peer")
}

/// Adds to a command the environment variables that name the Rust peers of the Go module's tests.
///
/// # Errors
/// If there is no current directory.
pub fn with_peers(step: Step) -> Result<Step, String> {
    let program = absolute("target/debug/partywall")?;
    let peer = absolute("target/debug/examples/peer")?;
    let calls = absolute("target/debug/examples/calls_peer")?;
    Ok(step
        .variable("PARTYWALL_PROGRAM", &program)
        .variable("PARTYWALL_RUST_PEER", &peer)
        .variable("PARTYWALL_RUST_CALLS", &calls))
}

/// Makes the command that builds the Rust program with which the tests of the nested Go modules
/// exchange messages.
pub fn build_of_frameworks() -> Step {
    builds::programs().args("--example framework_peer")
}

/// Adds to a command the environment variable that names the Rust peer of the nested modules'
/// tests.
///
/// # Errors
/// If there is no current directory.
pub fn with_frameworks(step: Step) -> Result<Step, String> {
    let program = absolute("target/debug/examples/framework_peer")?;
    Ok(step.variable("PARTYWALL_RUST_FRAMEWORKS", &program))
}

fn full() -> Result<(), String> {
    let figures = absolute("target/go-figures")?;
    if Path::new(&figures).exists() {
        fs::remove_file(&figures).map_err(|error| format!("cannot remove {figures}: {error}"))?;
    }
    build_of_peers().run()?;
    let tests =
        command("test -count=1 -timeout 3h -p 1 -run").arg(FULL).args(". ./internal/wire ./calls");
    let tests = with_peers(tests)?
        .variable("PARTYWALL_TEST_FULL", "1")
        .variable("PARTYWALL_TEST_FIGURES", &figures);
    println!("$ {tests}");
    tests.run()?;
    let text = fs::read_to_string(&figures)
        .map_err(|error| format!("the tests have left no figures in {figures}: {error}"))?;
    println!("\n{HEADINGS}\n{text}");
    Ok(())
}

fn absolute(path: &str) -> Result<String, String> {
    let path =
        std::path::absolute(path).map_err(|error| format!("no current directory: {error}"))?;
    Ok(path.to_string_lossy().into_owned())
}

/// The pattern of the names of the tests that `--full` runs, in their long form.
const FULL: &str = "^(TestPairs|Test.*SurvivesRustHostilePeers|TestRustListenerSurvives.*)$";

/// The headings of the table whose rows the Go test `TestPairs` writes. The column `end` shows the
/// longest time from a kill of one process until the other process had ended.
const HEADINGS: &str = "pair         over     sizes  messages  streams  kills  of streams          \
                        end  stops  connections";
