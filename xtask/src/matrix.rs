// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask matrix`: tests every language against every other. It builds one program for each
//! language (`programs.rs`), and runs `conformance/matrix`, which starts the programs in all pairs.
//! The stage `matrix` runs the short form.

use crate::builds::{self, FAULT};
use crate::command::Step;
use crate::programs::Programs;

/// Runs the whole matrix and writes its page of the guide, or runs only one kind of exchange.
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

/// Runs the short form of the matrix, and returns which languages were left out and why.
///
/// # Errors
/// If a pair fails.
pub fn short() -> Result<String, String> {
    Step::cargo("fmt --check").args(MANIFEST).run()?;
    Step::cargo("test --quiet --target-dir target").args(MANIFEST).run()?;
    let missing = run(&["--short"])?;
    if !missing.contains("Go (") {
        notice_faults()?;
    }
    Ok(missing)
}

/// Takes the same rule out of the Rust code and then out of the Go code, and requires that a pair
/// of Rust and Go fails. Without the rule, a record is published without a 0 in the slot after it,
/// where old bytes may lie.
fn notice_faults() -> Result<(), String> {
    let programs = programs();
    builds::guarded_programs()?.args("--example matrix_peer").run()?;
    let guarded = format!("{}-with-guards", programs.rust_program);
    std::fs::copy(programs.rust_program, &guarded)
        .map_err(|error| format!("cannot copy the program with guards: {error}"))?;
    programs.rust.run()?;
    let (go, tagged) = (programs.go_program("")?, programs.go_program("pwfault")?);
    require_failure("Rust", &guarded, &go)?;
    require_failure("Go", programs.rust_program, &tagged)
}

/// Runs the pairs of a Rust and a Go program, one of which has the seeded fault, and requires that
/// they fail.
fn require_failure(language: &str, rust: &str, go: &str) -> Result<(), String> {
    let step = harness()
        .args("--only channel --sizes")
        // The records of 300 messages of 1,000 bytes fill the ring several times, so old bytes lie
        // in it.
        .arg(&["1000"; 300].join(","))
        .args("--program Rust")
        .arg(rust)
        .args("--program Go")
        .arg(go);
    step.clone().capture().and_then(|sound| {
        let text = String::from_utf8_lossy(&sound.stdout).into_owned();
        if sound.status.success() { Ok(()) } else { Err(format!("without a fault: {text}")) }
    })?;
    let output = step.variable(FAULT, ZERO_RULE).capture()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let of_both = ["Rust → Go, channel over shared: ", "Go → Rust, channel over shared: "];
    let is_noticed = |line: &str| {
        of_both.iter().any(|pair| line.starts_with(pair)) && !line.ends_with(": passed")
    };
    match text.lines().find(|line| is_noticed(line)) {
        Some(line) if !output.status.success() => {
            let pair = line.split(':').next().unwrap_or_default();
            println!("fault {ZERO_RULE} of {language} noticed by {pair}");
            Ok(())
        }
        _ => Err(format!("the fault {ZERO_RULE} of {language} is not noticed:\n{text}")),
    }
}

fn harness() -> Step {
    Step::cargo("run --quiet --target-dir target").args(MANIFEST).arg("--")
}

fn run(options: &[&str]) -> Result<String, String> {
    programs().run_with(options.iter().fold(harness(), |step, option| step.arg(option)))
}

fn programs() -> Programs {
    Programs {
        directory: "conformance/matrix/programs",
        name: "peer",
        class: "Peer",
        rust: builds::programs().args("--example matrix_peer"),
        rust_program: "target/debug/examples/matrix_peer",
        // The Java programs of the matrix are short, so these options shorten their start, not a
        // long run.
        java_options: &["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
    }
}

/// The seeded fault that publishes a record without a 0 in the slot after it, in Rust and in Go.
const ZERO_RULE: &str = "no_zero_next_slot";
const MANIFEST: &str = "--manifest-path conformance/matrix/Cargo.toml";
/// The page of the guide that a run of the whole matrix writes.
const PAGE: &str = "docs/guide/src/matrix.md";
