// SPDX-License-Identifier: MIT OR Apache-2.0
//! One cell as one JSON object: a line of `--json`.
//!
//! A cell is one combination of scenario, transport and size. The first keys are those of
//! `partywall bench --json`. The time per operation and the numbers of rounds and processes follow,
//! for `ping`, too. The last keys are the failures, the number of messages that left shared memory,
//! and the ratio to the time of the scenario's reference transport.

use partywall_bench::figure::spread::Spread;
use partywall_bench::harness::cell::Scenario;
use partywall_bench::outcome::{Metric, Outcome};
use partywall_bench::report::json;
use serde::Serialize;

use crate::summary::reference_of;
use crate::table::counts_over_socket;

/// The JSON object that `--json` prints for one cell.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    #[serde(flatten)]
    line: json::Line,
    #[serde(flatten)]
    rounds: Option<Rounds>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failures: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    over_socket: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_to: Option<RatioTo>,
}

/// The keys about time per operation, rounds and processes. `partywall bench` prints them only for
/// `parallel`; `bench-peers` adds them for `ping`, too.
#[derive(Clone, Debug, Serialize)]
struct Rounds {
    ns_per_op: Option<Spread>,
    rounds: usize,
    processes: usize,
}

/// The measured time divided by the time of the reference transport. Below 1, the measured
/// transport is faster than the reference.
#[derive(Clone, Debug, Serialize)]
struct RatioTo {
    transport: &'static str,
    #[serde(flatten)]
    ratio: Spread,
}

impl Line {
    /// Returns the JSON object of one cell, computed from all rounds of `outcome` together. The
    /// result is `None` if no round succeeded.
    pub fn of(outcome: &Outcome, outcomes: &[Outcome]) -> Option<Self> {
        let cell = outcome.cell;
        let metric = Metric::headline(cell);
        let counts = counts_over_socket(cell.transport);
        Some(Self {
            line: json::Line::of(outcome, outcomes)?,
            rounds: (cell.scenario != Scenario::Parallel).then(|| Rounds {
                ns_per_op: outcome.spread(Metric::NsPerOp).map(|s| s.map(|ns| rounded(ns, 10.0))),
                rounds: outcome.rounds().count(),
                processes: cell.processes.count(),
            }),
            failures: outcome.failures.clone(),
            over_socket: outcome.pooled()?.over_socket.filter(|_| counts),
            ratio_to: reference_of(outcome, outcomes).and_then(|reference| {
                let ratio = outcome.ratio(metric, reference, metric)?;
                let transport = reference.cell.transport.name();
                Some(RatioTo { transport, ratio: ratio.map(|ratio| rounded(ratio, 1e4)) })
            }),
        })
    }
}

/// Rounds `number` to the nearest multiple of 1 / `scale`, which is finer than any measurement.
fn rounded(number: f64, scale: f64) -> f64 {
    (number * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::tests::outcome;
    use crate::table::SHMIPC_V3;
    use partywall_bench::harness::cell::TransportName;

    #[test]
    fn line_begins_with_the_keys_of_partywall_bench() {
        let outcomes = [outcome(SHMIPC_V3, 800), outcome(TransportName::UDS, 1600)];
        let line = serde_json::to_string(&Line::of(&outcomes[1], &outcomes)).unwrap();
        let keys = "scenario transport wait size streams ops p50_ns p90_ns p99_ns p999_ns max_ns \
                    mean_ns cpu_ns_per_op ops_per_s bytes_per_s touched ns_per_op rounds processes";
        let mut from = 0;
        for key in keys.split(' ') {
            let at = line[from..].find(&format!("\"{key}\":"));
            from += at.unwrap_or_else(|| panic!("{key} is missing or out of order in {line}"));
        }
        assert!(line.contains("\"ratio_to\":{\"transport\":\"shmipc-0.2.1-v3\",\"median\":2.0"));
    }
}
