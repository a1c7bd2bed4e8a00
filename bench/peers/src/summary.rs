// SPDX-License-Identifier: MIT OR Apache-2.0
//! The result table of one scenario. Each row shows one transport and message size, with its time
//! divided by that of the reference transport and by that of the Unix socket.

use partywall_bench::figure::quantity::{
    decimal_bandwidth_name, exact_size_name, ns_name, rate_name,
};
use partywall_bench::figure::spread::Spread;
use partywall_bench::figure::text_table::{TextTable, dash, spread_name};
use partywall_bench::harness::cell::{Cell, Processes, Scenario, TransportName, WaitName};
use partywall_bench::harness::pattern::Touch;
use partywall_bench::harness::round::ratio;
use partywall_bench::outcome::{Metric, Outcome, find};

use crate::table::reference;

/// Returns the table of results of `scenario`: one row for each measured transport and size.
pub fn table(scenario: Scenario, outcomes: &[Outcome]) -> TextTable {
    let is_parallel = scenario == Scenario::Parallel;
    let headings: &[&str] = if is_parallel { &PARALLEL_HEADINGS } else { &PING_HEADINGS };
    let mut table = TextTable::new(headings);
    for outcome in outcomes.iter().filter(|outcome| outcome.cell.scenario == scenario) {
        table.push(match is_parallel {
            true => parallel_row(outcome, outcomes),
            false => ping_row(outcome, outcomes),
        });
    }
    table
}

/// Returns the text above the result table: the scenario of `cell`, the options of the run, and the
/// meaning of the columns.
pub fn legend(cell: Cell, placement: &str) -> String {
    let is_parallel = cell.scenario == Scenario::Parallel;
    if !is_parallel {
        return format!(
            "ping: one message there and back between two processes, {placement}; payloads written and \
             verified.\nAll spin except uds, which sleeps in the kernel. Percentiles are of all rounds."
        );
    }
    format!(
        "parallel: {} streams at once on tokio, one message in flight on each; {}; payloads {}.\n\
         time/op: elapsed time over operations, median over the rounds [smallest–largest]; not a latency.",
        cell.streams,
        match cell.processes {
            Processes::One => "both ends in one process, not pinned".to_owned(),
            Processes::Two | Processes::TwoOnOneCpu => format!("two processes, {placement}"),
        },
        match cell.touch {
            Touch::All => "written and verified",
            Touch::None => "NOT touched",
        }
    )
}

/// The text that explains the columns of the result table that contain ratios.
pub const RATIOS: &str = "\
÷ reference: time over that of shmipc v3 (parallel) or iceoryx2 publish-subscribe (ping) in the same round,
median [smallest–largest]; below 1 is faster. ÷ uds: the same over the Unix socket. CPU/op: both ends.";

/// The outcome of the reference transport, with which `outcome` is compared. `None` if the
/// reference was not measured, or if `outcome` is the reference.
pub fn reference_of<'a>(outcome: &Outcome, outcomes: &'a [Outcome]) -> Option<&'a Outcome> {
    let cell = Cell { transport: reference(outcome.cell.scenario), ..outcome.cell };
    // The reference transport of `ping` waits by spinning. A socket has no wait strategy, because
    // its receiver sleeps in the kernel. The socket's row is also divided by the time of the
    // spinning reference.
    let wait = (cell.scenario == Scenario::Ping).then_some(WaitName::Spin);
    let cell = Cell { wait, ..cell };
    find(outcomes, cell).filter(|_| cell != outcome.cell)
}

/// Returns a text about failed measurements and about messages that left shared memory; empty if
/// there are none.
pub fn notes(outcomes: &[Outcome]) -> String {
    let mut notes = String::new();
    for outcome in outcomes {
        let over_socket = outcome.pooled().and_then(|round| round.over_socket).unwrap_or(0);
        if over_socket > 0 {
            notes += &format!("{}: {over_socket} messages went over the socket\n", outcome.cell);
        }
        for why in &outcome.failures {
            notes += &format!("{} FAILED: {why}\n", outcome.cell);
        }
    }
    notes
}

fn parallel_row(outcome: &Outcome, outcomes: &[Outcome]) -> Vec<String> {
    let Some(round) = outcome.pooled() else { return vec![label(outcome.cell), dash()] };
    let time = outcome.spread(Metric::NsPerOp).map_or_else(dash, |Spread { median, min, max }| {
        format!("{} [{}–{}]", ns_name(median), ns_name(min), ns_name(max))
    });
    let mut row = vec![
        label(outcome.cell),
        time,
        ns_name(round.cpu_per_op()),
        rate_name(1e9 * ratio(round.ops, round.elapsed_ns)),
        match outcome.cell.touch {
            Touch::All => decimal_bandwidth_name(1e9 * ratio(round.bytes, round.elapsed_ns)),
            Touch::None => dash(), // no payload bytes were moved, so there is no rate
        },
    ];
    row.extend(ratios(outcome, outcomes));
    row
}

fn ping_row(outcome: &Outcome, outcomes: &[Outcome]) -> Vec<String> {
    let Some(round) = outcome.pooled() else { return vec![label(outcome.cell), dash()] };
    let at = |quantile| ns_name(ratio(round.latency.value_at_quantile(quantile), 1));
    let mut row = vec![label(outcome.cell)];
    row.extend([0.5, 0.9, 0.99, 0.999, 1.0].map(at));
    row.push(ns_name(round.cpu_per_op()));
    row.extend(ratios(outcome, outcomes));
    row
}

/// The first column of a table row: size and transport of `cell`. All sizes have the same width, so
/// that the transports are aligned.
fn label(cell: Cell) -> String {
    format!("{:<7} {}", exact_size_name(cell.size), cell.transport.name())
}

fn ratios(outcome: &Outcome, outcomes: &[Outcome]) -> [String; 2] {
    let metric = Metric::headline(outcome.cell);
    let uds = Cell { transport: TransportName::UDS, wait: None, ..outcome.cell };
    let uds = find(outcomes, uds).filter(|uds| uds.cell != outcome.cell);
    [reference_of(outcome, outcomes), uds]
        .map(|below| spread_name(below.and_then(|below| outcome.ratio(metric, below, metric))))
}

const PARALLEL_HEADINGS: [&str; 7] =
    ["", "time/op", "CPU/op", "ops", "bytes", "÷ reference", "÷ uds"];
const PING_HEADINGS: [&str; 9] =
    ["", "p50", "p90", "p99", "p99.9", "max", "CPU/op", "÷ reference", "÷ uds"];

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::table::SHMIPC_V3;
    use partywall_bench::harness::round::{Round, histogram};

    /// An outcome for tests: three rounds, each with one operation that took `ns` nanoseconds.
    pub fn outcome(transport: TransportName, ns: u64) -> Outcome {
        let round = Round {
            latency: histogram().unwrap(),
            ops: 1,
            elapsed_ns: ns,
            bytes: 128,
            cpu_parent_ns: ns,
            cpu_child_ns: 0,
            session: None,
            memory: None,
            over_socket: None,
            carrier: None,
        };
        let cell = Cell {
            touch: Touch::None,
            processes: Processes::One,
            ..Cell::new(Scenario::Parallel, transport, 64).with_streams(199)
        };
        Outcome { rounds: vec![Some(round); 3], ..Outcome::new(cell) }
    }

    #[test]
    fn ratio_is_formed_with_reference_and_socket_of_the_same_size() {
        let mut outcomes = vec![outcome(SHMIPC_V3, 800), outcome(TransportName::UDS, 1600)];
        let larger = Cell { size: 128, ..outcomes[1].cell };
        outcomes.push(Outcome { cell: larger, ..outcomes[1].clone() });
        let text = table(Scenario::Parallel, &outcomes).to_text();
        let ends: Vec<_> =
            text.lines().skip(2).map(|line| line.split("  ").last().unwrap().trim()).collect();
        assert_eq!(ends, ["0.50 [0.50–0.50]", "–", "–"]);
        assert!(text.contains("2.00 [2.00–2.00]"));
    }

    #[test]
    fn failed_round_is_noted_and_does_not_shift_the_others() {
        let mut failed = outcome(TransportName::UDS, 1600);
        failed.rounds[1] = None;
        failed.failures.push("the reason".to_owned());
        let outcomes = [outcome(SHMIPC_V3, 800), failed];
        let ratio = outcomes[1].ratio(Metric::NsPerOp, &outcomes[0], Metric::NsPerOp);
        assert_eq!(ratio.unwrap().max, 2.0);
        assert_eq!(notes(&outcomes), "parallel uds 64 B ×199 FAILED: the reason\n");
    }

    #[test]
    fn messages_over_the_socket_are_noted() {
        let mut outcome = outcome(SHMIPC_V3, 800);
        assert_eq!(notes(std::slice::from_ref(&outcome)), "");
        outcome.rounds[0].as_mut().unwrap().over_socket = Some(7);
        assert_eq!(
            notes(&[outcome]),
            "parallel shmipc-0.2.1-v3 64 B ×199: 7 messages went over the socket\n"
        );
    }
}
