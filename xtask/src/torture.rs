// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask torture`: the test `link_torture` for longer than a run of all tests allows, and with faults built in.
//!
//! ```text
//!   torture                       20,000 kills, then the figures
//!   torture --minutes 60          as many as there are in that time
//!   torture --seed 7              the schedule of an earlier run (not its timing)
//!   torture --faults              each registered fault that it must notice, within two minutes
//! ```
//!
//! It is the build of the `test` stage, with assertions: a faster one would not help, because most of the time goes into
//! starting and ending processes.

use crate::command::Step;
use crate::faults;
use crate::stages::test_step;

/// Runs it.
///
/// # Errors
/// The arguments are wrong, or something was violated; the message says how to repeat it.
pub fn main(arguments: &[String]) -> Result<(), String> {
    let chosen = parse(arguments)?;
    if chosen.is_faults {
        return faults::tortured();
    }
    let mut step = step().variable("PARTYWALL_TORTURE_KILLS", &chosen.kills.to_string());
    for (name, number) in [("SEED", chosen.seed), ("MINUTES", chosen.minutes)] {
        if let Some(number) = number {
            step = step.variable(&format!("PARTYWALL_TORTURE_{name}"), &number.to_string());
        }
    }
    step.args("-- --nocapture").run()
}

/// The test, without what its length depends on.
pub fn step() -> Step {
    test_step().args("--test link_torture no_kill")
}

#[derive(Debug, PartialEq, Eq)]
struct Chosen {
    kills: u64,
    seed: Option<u64>,
    minutes: Option<u64>,
    is_faults: bool,
}

fn parse(arguments: &[String]) -> Result<Chosen, String> {
    let mut chosen = Chosen { kills: KILLS_DEFAULT, seed: None, minutes: None, is_faults: false };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "--faults" {
            chosen.is_faults = true;
            continue;
        }
        if !["--kills", "--seed", "--minutes"].contains(&argument.as_str()) {
            return Err(format!("`torture` does not know the argument `{argument}`"));
        }
        let number = rest.next().and_then(|text| text.parse().ok());
        let number = number.ok_or(format!("`{argument}` needs a number"))?;
        match argument.as_str() {
            "--kills" => chosen.kills = number,
            "--seed" => chosen.seed = Some(number),
            _ => chosen.minutes = Some(number),
        }
    }
    Ok(chosen)
}

/// What a release is not made without.
pub const KILLS_DEFAULT: u64 = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Chosen, String> {
        parse(&arguments.iter().map(|&a| a.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_come_in_any_order() {
        let chosen = parsed(&["--seed", "7", "--kills", "30"]).unwrap();
        assert_eq!((chosen.kills, chosen.seed, chosen.minutes), (30, Some(7), None));
        assert_eq!(parsed(&[]).unwrap().kills, KILLS_DEFAULT);
        assert!(parsed(&["--faults"]).unwrap().is_faults);
        assert_eq!(parsed(&["--minutes", "5"]).unwrap().minutes, Some(5));
    }

    #[test]
    fn wrong_arguments_are_refused() {
        for wrong in [&["--kills"][..], &["--kills", "x"], &["--forever"], &["7"]] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
    }
}
