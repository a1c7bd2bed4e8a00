// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of one scenario: a line per cell, with the ratios that are quoted.

use super::cell::{Cell, Processes, Scenario, TransportName, size_name};
use super::measure::ratio;
use super::pattern::Touch;
use super::run::Outcome;
use super::spread::Spread;
use super::table::{Table, bandwidth_name, dash, rate_name, spread_name, time_name};

/// The table of the cells of `scenario`; `None` if the run had none.
pub fn table(scenario: Scenario, outcomes: &[Outcome]) -> Option<Table> {
    let of_scenario = |outcome: &&Outcome| outcome.cell.scenario == scenario;
    let mut rows = outcomes.iter().filter(of_scenario).peekable();
    rows.peek()?;
    let mut table = Table::new(match scenario {
        Scenario::Parallel => &PARALLEL_HEADINGS,
        Scenario::Ping => &PING_HEADINGS,
    });
    for outcome in rows {
        table.push(match scenario {
            Scenario::Parallel => parallel_row(outcome, outcomes),
            Scenario::Ping => ping_row(outcome, outcomes),
        });
    }
    Some(table)
}

/// What was measured and what the columns mean, for the cells like `cell`.
pub fn legend(cell: Cell, placement: &str) -> String {
    match cell.scenario {
        Scenario::Parallel => format!(
            "parallel: {} streams at once on tokio, one message in flight on each; {}; payloads {}.\n\
             time/op: elapsed time over operations, median over the rounds [smallest–largest]; not a latency.",
            cell.streams,
            match cell.processes {
                Processes::One => "both ends in one process, not pinned".to_owned(),
                Processes::Two => format!("two processes {placement}"),
            },
            match cell.touch {
                Touch::All => "written and verified",
                Touch::None => "NOT touched",
            }
        ),
        Scenario::Ping => format!(
            "ping: one message there and back between two processes {placement}; payloads written and verified.\n\
             All spin but uds, which sleeps in the kernel. Percentiles are over all rounds."
        ),
    }
}

/// What the ratios mean.
pub const RATIOS: &str = "\
÷ rival: time over that of shmipc v3 (parallel) or iceoryx2 publish-subscribe (ping) in the same round, median
[smallest–largest]; below 1 is faster. ÷ uds: the same over the Unix socket. CPU/op: both ends.";

/// The rival's cell to compare with, if it was measured and is not this one.
pub fn rival_of<'a>(outcome: &Outcome, outcomes: &'a [Outcome]) -> Option<&'a Outcome> {
    let rival = Cell { transport: outcome.cell.scenario.rival(), ..outcome.cell };
    find(outcomes, rival).filter(|_| rival != outcome.cell)
}

/// What went wrong, in words: failures, and messages that did not go through shared memory. Empty if nothing did.
pub fn notes(outcomes: &[Outcome]) -> String {
    let mut notes = String::new();
    for outcome in outcomes {
        let over_socket = outcome.pooled().map_or(0, |round| round.over_socket);
        if over_socket > 0 {
            let note = format!("{}: {over_socket} messages went over the socket\n", outcome.cell);
            notes.push_str(&note);
        }
        for why in &outcome.failures {
            notes.push_str(&format!("{} FAILED: {why}\n", outcome.cell));
        }
    }
    notes
}

fn parallel_row(outcome: &Outcome, outcomes: &[Outcome]) -> Vec<String> {
    let Some(round) = outcome.pooled() else { return vec![label(outcome.cell), dash()] };
    let time = Spread::of_headline(outcome).map_or_else(dash, |Spread { median, min, max }| {
        format!("{} [{}–{}]", time_name(median), time_name(min), time_name(max))
    });
    let mut row = vec![
        label(outcome.cell),
        time,
        time_name(round.cpu_per_op()),
        rate_name(1e9 * ratio(round.ops, round.elapsed_ns)),
        match outcome.cell.touch {
            Touch::All => bandwidth_name(1e9 * ratio(round.bytes, round.elapsed_ns)),
            Touch::None => dash(), // no bytes were moved, so they had no speed
        },
    ];
    row.extend(ratios(outcome, outcomes));
    row
}

fn ping_row(outcome: &Outcome, outcomes: &[Outcome]) -> Vec<String> {
    let Some(round) = outcome.pooled() else { return vec![label(outcome.cell), dash()] };
    let at = |quantile| time_name(ratio(round.latency.value_at_quantile(quantile), 1));
    let mut row = vec![
        label(outcome.cell),
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.999),
        at(1.0),
        time_name(round.cpu_per_op()),
    ];
    row.extend(ratios(outcome, outcomes));
    row
}

/// Size and transport, one below the other in every row.
fn label(cell: Cell) -> String {
    format!("{:<7} {}", size_name(cell.size), cell.transport.name())
}

fn ratios(outcome: &Outcome, outcomes: &[Outcome]) -> [String; 2] {
    let uds = find(outcomes, Cell { transport: TransportName::Uds, ..outcome.cell });
    [rival_of(outcome, outcomes), uds].map(|below| {
        let below = below.filter(|below| below.cell != outcome.cell);
        spread_name(below.and_then(|below| Spread::of_ratio(outcome, below)))
    })
}

fn find(outcomes: &[Outcome], cell: Cell) -> Option<&Outcome> {
    outcomes.iter().find(|outcome| outcome.cell == cell)
}

const PARALLEL_HEADINGS: [&str; 7] = ["", "time/op", "CPU/op", "ops", "bytes", "÷ rival", "÷ uds"];
const PING_HEADINGS: [&str; 9] =
    ["", "p50", "p90", "p99", "p99.9", "max", "CPU/op", "÷ rival", "÷ uds"];

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::measure::{Round, histogram};

    /// Three rounds of one operation that took `ns`.
    pub fn outcome(transport: TransportName, ns: u64) -> Outcome {
        let round = Round {
            latency: histogram().unwrap(),
            ops: 1,
            elapsed_ns: ns,
            bytes: 128,
            cpu_ns: ns,
            over_socket: 0,
        };
        let cell = Cell {
            scenario: Scenario::Parallel,
            transport,
            size: 64,
            streams: 199,
            touch: Touch::None,
            processes: Processes::One,
        };
        Outcome { rounds: vec![Some(round); 3], ..Outcome::new(cell) }
    }

    #[test]
    fn a_ratio_is_formed_with_the_rival_and_the_socket_of_the_same_size() {
        let mut outcomes =
            vec![outcome(TransportName::ShmipcV3, 800), outcome(TransportName::Uds, 1600)];
        outcomes
            .push(Outcome { cell: Cell { size: 128, ..outcomes[1].cell }, ..outcomes[1].clone() });
        let text = table(Scenario::Parallel, &outcomes).unwrap().to_text();
        let ends: Vec<_> =
            text.lines().skip(2).map(|line| line.split("  ").last().unwrap().trim()).collect();
        assert_eq!(ends, ["0.50 [0.50–0.50]", "–", "–"]);
        assert!(text.contains("2.00 [2.00–2.00]"));
        assert!(table(Scenario::Ping, &outcomes).is_none());
    }

    #[test]
    fn a_round_that_failed_is_told_and_does_not_shift_the_others() {
        let mut failed = outcome(TransportName::Uds, 1600);
        failed.rounds[1] = None;
        failed.failures.push("the reason".to_owned());
        let outcomes = [outcome(TransportName::ShmipcV3, 800), failed];
        assert_eq!(Spread::of_ratio(&outcomes[1], &outcomes[0]).unwrap().max, 2.0);
        assert_eq!(notes(&outcomes), "parallel uds 64 B FAILED: the reason\n");
    }

    #[test]
    fn messages_beside_shared_memory_are_told() {
        let mut beside = outcome(TransportName::ShmipcV3, 800);
        assert_eq!(notes(std::slice::from_ref(&beside)), "");
        beside.rounds[0].as_mut().unwrap().over_socket = 7;
        assert_eq!(
            notes(&[beside]),
            "parallel shmipc-0.2.1-v3 64 B: 7 messages went over the socket\n"
        );
    }
}
