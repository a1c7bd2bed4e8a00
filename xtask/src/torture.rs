// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask torture`: tests of links in which processes at the ends are killed and connections
//! are cut. They run longer than the stage `test` allows. With `--faults` they run with seeded
//! faults, which break the code on purpose.
//!
//! ```text
//!   torture                  20,000 kills of the ends of links, then the measured figures
//!   torture --minutes 60     as many kills as there are in that time
//!   torture --seed 7         the schedule of an earlier run (not its timing)
//!   torture --faults         each seeded fault that its tests must notice, two minutes for each
//!   torture --cuts 10000     cuts of the network instead of kills; how soon messages arrive again
//!   torture --switches 10000 as many switches between shared memory and TCP, while messages flow
//!   torture --sweep          an end dies at each instruction; --kills: real kills per operation
//!   torture --idle           10,000 idle links: memory, wake-ups, and the cost of ten active links
//! ```
//!
//! The build is that of the stage `test`, with assertions, and for `--faults` that of the stage
//! `faults`. A faster build would not help, because starting and ending processes takes most of the
//! time.

use crate::builds;
use crate::command::Step;
use crate::faults;

/// Runs the torture that the arguments choose.
///
/// # Errors
/// If the arguments are wrong, or a link broke a promise, such as to lose no message; the message
/// says how to repeat the run.
pub fn main(arguments: &[String]) -> Result<(), String> {
    let chosen = parse(arguments)?;
    let mut step = match chosen.what {
        What::Faults => return faults::tortured(),
        What::Kills => {
            let kills = chosen.kills.unwrap_or(KILLS_DEFAULT);
            step("--test torture")
                .arg(faults::KILLS)
                .variable("PARTYWALL_TORTURE_KILLS", &kills.to_string())
        }
        What::Cuts(cuts) => {
            step("--test torture no_cut").variable("PARTYWALL_TORTURE_CUTS", &cuts.to_string())
        }
        What::Switches(switches) => step("--test links shared_memory::switch_to_another_transport")
            .variable("PARTYWALL_SWITCHES", &switches.to_string()),
        What::Sweep => {
            let kills = chosen.kills.unwrap_or(SWEEP_KILLS_DEFAULT);
            step("--test kill_sweep").variable("PARTYWALL_SWEEP_KILLS", &kills.to_string())
        }
        What::Idle => {
            step("--test idle_links").variable("PARTYWALL_IDLE_LINKS", &IDLE_LINKS.to_string())
        }
    };
    for (name, number) in [("SEED", chosen.seed), ("MINUTES", chosen.minutes)] {
        if let Some(number) = number {
            step = step.variable(&format!("PARTYWALL_TORTURE_{name}"), &number.to_string());
        }
    }
    step.args("-- --nocapture --test-threads=1").run()
}

/// The command that runs those tests of links which `tests` selects, from the build of the stage
/// `test`.
fn step(tests: &str) -> Step {
    builds::tests().args(tests)
}

#[derive(Debug, PartialEq, Eq)]
struct Chosen {
    what: What,
    kills: Option<u64>,
    seed: Option<u64>,
    minutes: Option<u64>,
}

/// The kind of test that the arguments of `cargo xtask torture` choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Kills,
    Cuts(u64),
    Switches(u64),
    Sweep,
    Idle,
    Faults,
}

fn parse(arguments: &[String]) -> Result<Chosen, String> {
    let mut chosen = Chosen { what: What::Kills, kills: None, seed: None, minutes: None };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut number = || {
            let number = rest.next().and_then(|text| text.parse().ok());
            number.ok_or(format!("`{argument}` needs a number"))
        };
        let what = match argument.as_str() {
            "--kills" => {
                chosen.kills = Some(number()?);
                continue;
            }
            "--seed" => {
                chosen.seed = Some(number()?);
                continue;
            }
            "--minutes" => {
                chosen.minutes = Some(number()?);
                continue;
            }
            "--cuts" => What::Cuts(number()?),
            "--switches" => What::Switches(number()?),
            "--sweep" => What::Sweep,
            "--idle" => What::Idle,
            "--faults" => What::Faults,
            _ => return Err(format!("`torture` does not know the argument `{argument}`")),
        };
        if chosen.what != What::Kills {
            return Err(format!("`{argument}` is a torture of its own: one at a time"));
        }
        chosen.what = what;
    }
    Ok(chosen)
}

/// Number of kills that the links of a release must survive without a broken promise, such as to
/// lose no message. It is the default of `--kills`.
pub const KILLS_DEFAULT: u64 = 20_000;
/// Number of processes that `torture --sweep` really kills in each operation, such as a send. At
/// all other instructions of the operation the test kills no process, and only judges the content
/// that the link file has at that instruction.
const SWEEP_KILLS_DEFAULT: u64 = 100;
const IDLE_LINKS: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Chosen, String> {
        parse(&arguments.iter().map(|&a| a.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_come_in_any_order() {
        let chosen = parsed(&["--seed", "7", "--kills", "30"]).unwrap();
        assert_eq!((chosen.kills, chosen.seed, chosen.minutes), (Some(30), Some(7), None));
        assert_eq!(parsed(&[]).unwrap().what, What::Kills);
        assert_eq!(parsed(&["--faults"]).unwrap().what, What::Faults);
        assert_eq!(parsed(&["--cuts", "10"]).unwrap().what, What::Cuts(10));
        assert_eq!(parsed(&["--switches", "10"]).unwrap().what, What::Switches(10));
        let swept = parsed(&["--kills", "9", "--sweep"]).unwrap();
        assert_eq!((swept.what, swept.kills), (What::Sweep, Some(9)));
        assert_eq!(parsed(&["--minutes", "5"]).unwrap().minutes, Some(5));
    }

    #[test]
    fn wrong_arguments_are_refused() {
        for wrong in [
            &["--kills"][..],
            &["--kills", "x"],
            &["--cuts"],
            &["--sweep", "--idle"],
            &["--forever"],
            &["7"],
        ] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
    }
}
