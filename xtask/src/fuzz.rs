// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask fuzz`: runs each fuzz target for some minutes, and prints which targets found an
//! input that fails.

use std::time::Instant;

use crate::command::Step;

/// Time in minutes for which each fuzz target runs by default.
pub const MINUTES_DEFAULT: u64 = 10;

/// Runs the fuzz targets that the arguments name; without names, runs all of them.
///
/// # Errors
/// If the arguments are wrong, a tool is missing, or a target found an input that fails.
pub fn main(arguments: &[String]) -> Result<(), String> {
    let (minutes, mut targets) = parse(arguments)?;
    if !Step::cargo("+nightly --version").works() {
        return Err("fuzzing needs a nightly toolchain: rustup toolchain install nightly".into());
    }
    if !Step::cargo("+nightly fuzz --version").works() {
        return Err("fuzzing needs cargo-fuzz: cargo install --locked cargo-fuzz".into());
    }
    if targets.is_empty() {
        targets = all_targets()?;
    }
    let mut found = Vec::new();
    let mut summary = Vec::new();
    for target in &targets {
        let start = Instant::now();
        println!("\n== fuzz {target}, {minutes} min");
        let outcome = Step::cargo("+nightly fuzz run")
            .arg(target)
            .arg("--")
            .arg(&format!("-max_total_time={}", minutes * 60))
            .run();
        summary.push((target, outcome.is_ok(), start.elapsed().as_secs()));
        if let Err(error) = outcome {
            found.push(format!("{target}: {error}"));
        }
    }
    println!("\n== fuzz targets");
    for (target, clean, seconds) in summary {
        println!("{target:<24} {:<8} {seconds:>6} s", if clean { "clean" } else { "FAILED" });
    }
    if found.is_empty() { Ok(()) } else { Err(found.join("\n")) }
}

fn parse(arguments: &[String]) -> Result<(u64, Vec<String>), String> {
    let mut minutes = MINUTES_DEFAULT;
    let mut targets = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "--minutes" {
            let number = rest.next().and_then(|text| text.parse().ok());
            minutes = number
                .filter(|number| (1..=MINUTES_MAX).contains(number))
                .ok_or(format!("`--minutes` needs a number from 1 to {MINUTES_MAX}"))?;
        } else if argument.starts_with('-') {
            return Err(format!("`fuzz` does not know the argument `{argument}`"));
        } else {
            targets.push(argument.clone());
        }
    }
    Ok((minutes, targets))
}

fn all_targets() -> Result<Vec<String>, String> {
    let output = Step::cargo("+nightly fuzz list").capture()?;
    if !output.status.success() {
        return Err(format!("cargo fuzz list: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

/// Longest time that the arguments can choose for a fuzz target: a week, in minutes.
const MINUTES_MAX: u64 = 7 * 24 * 60;

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<(u64, Vec<String>), String> {
        parse(&arguments.iter().map(|&a| a.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn minutes_and_targets_come_in_any_order() {
        assert_eq!(parsed(&["hello"]), Ok((MINUTES_DEFAULT, vec!["hello".to_owned()])));
        assert_eq!(
            parsed(&["hello", "--minutes", "3", "record"]),
            Ok((3, vec!["hello".to_owned(), "record".to_owned()]))
        );
    }

    #[test]
    fn wrong_arguments_are_refused() {
        for wrong in [&["--minutes"][..], &["--minutes", "0"], &["--minutes", "x"], &["--forever"]]
        {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
    }
}
