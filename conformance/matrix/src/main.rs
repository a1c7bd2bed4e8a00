// SPDX-License-Identifier: MIT OR Apache-2.0
//! The matrix of languages: starts the programs of `programs/` in pairs, each language with each
//! other one, and compares what both ends of a pair print.
//!
//! ```text
//! matrix [--short] [--sizes 0,1,…] [--only KIND] [--write PAGE] {--program LANGUAGE WORD…}…
//!
//! roster ─ programs ─▶ plan: jobs ─▶ two workers ─▶ outcomes ─▶ page
//!                             │
//!                             ├─ exchange   channels, sessions and links: every byte of every size
//!                             ├─ chain      links: kill -9 of either end
//!                             └─ causes     numbers of errors
//! ```
//!
//! `cargo xtask matrix` builds the programs, and starts this one.

mod causes;
mod chain;
mod exchange;
mod page;
mod place;
mod plan;
mod process;
mod roster;

use std::process::ExitCode;

use plan::Plan;
use roster::Roster;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("matrix: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<(), String> {
    let (options, programs) = split(arguments);
    let roster = Roster::parse(programs)?;
    let (plan, page) = parse(options)?;
    let outcomes = plan.run(&roster)?;
    let failures: Vec<_> = outcomes.iter().filter(|it| it.result.is_err()).collect();
    for failure in &failures {
        println!("{failure}");
    }
    println!("{} of {} passed", outcomes.len() - failures.len(), outcomes.len());
    if !failures.is_empty() {
        return Err(format!("{} of {} pairs failed", failures.len(), outcomes.len()));
    }
    match page {
        Some(path) => page::write(&path, &roster, &outcomes),
        None => Ok(()),
    }
}

fn split(arguments: &[String]) -> (&[String], &[String]) {
    let is_program = |word: &String| word == "--program";
    arguments.split_at(arguments.iter().position(is_program).unwrap_or(arguments.len()))
}

fn parse(options: &[String]) -> Result<(Plan, Option<String>), String> {
    let (mut plan, mut page) = (Plan::whole(), None);
    let mut rest = options.iter();
    while let Some(option) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("`{option}` needs a value"));
        match option.as_str() {
            "--short" => plan = Plan::short(),
            "--sizes" => plan.sizes = sizes(value()?)?,
            "--only" => plan.only(value()?)?,
            "--write" => page = Some(value()?.clone()),
            _ => return Err(format!("`matrix` does not know the argument `{option}`")),
        }
    }
    Ok((plan, page))
}

fn sizes(list: &str) -> Result<Vec<usize>, String> {
    let parsed = list.split(',').map(str::parse).collect::<Result<_, _>>();
    parsed.map_err(|error| format!("`{list}` is no list of sizes: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn options_end_at_the_first_program() {
        let all = words("--short --sizes 1,2 --program Rust a b --program C c");
        let (options, programs) = split(&all);
        assert_eq!(options, words("--short --sizes 1,2"));
        assert_eq!(programs, words("--program Rust a b --program C c"));
        assert_eq!(parse(options).unwrap().0.sizes, [1, 2]);
        assert!(parse(&words("--sizes 1,x")).is_err());
        assert!(parse(&words("--only nothing")).is_err());
        assert!(parse(&words("--write")).is_err());
    }
}
