// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask matrix`: every language against every other. Builds one program a language
//! (`programs.rs`), and has `conformance/matrix` start them in all pairs. The stage `matrix` runs
//! the short form.

use crate::builds;
use crate::command::Step;
use crate::programs::Programs;

/// Runs the whole matrix, and writes its page of the guide; or runs one kind of task alone.
///
/// # Errors
/// If the arguments are wrong, a pair fails, or the page would lack a language.
pub fn main(arguments: &[String]) -> Result<(), String> {
    match arguments {
        [] => {}
        [kind] => return run(&["--only", kind]).map(drop),
        _ => return Err("`matrix` takes at most one argument, a kind of task".into()),
    }
    let missing = run(&["--write", PAGE])?;
    if missing.is_empty() { Ok(()) } else { Err(format!("{PAGE} lacks languages: {missing}")) }
}

/// Runs the short form, and returns the languages that were left out, with the reasons.
///
/// # Errors
/// If a pair fails.
pub fn short() -> Result<String, String> {
    Step::cargo("fmt --check").args(MANIFEST).run()?;
    Step::cargo("test --quiet --target-dir target").args(MANIFEST).run()?;
    run(&["--short"])
}

fn run(options: &[&str]) -> Result<String, String> {
    let programs = Programs {
        directory: "conformance/matrix/programs",
        name: "peer",
        class: "Peer",
        rust: builds::programs().args("--example matrix_peer"),
        rust_program: "target/debug/examples/matrix_peer",
        // The time to start counts here, not that of a long run.
        java_options: &["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
    };
    let harness = Step::cargo("run --quiet --target-dir target").args(MANIFEST).arg("--");
    programs.run_with(options.iter().fold(harness, |step, option| step.arg(option)))
}

const MANIFEST: &str = "--manifest-path conformance/matrix/Cargo.toml";
/// The page that the whole matrix writes.
const PAGE: &str = "docs/guide/src/matrix.md";
