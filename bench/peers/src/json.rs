// SPDX-License-Identifier: MIT OR Apache-2.0
//! One cell as one JSON object: what `--json` prints per line.
//!
//! The keys up to `touched` are those of `partywall bench --json`, in that order. A percentile is `null` where no
//! operation was timed by itself. Then follow the cost per operation, where the two ends lived, what went wrong with
//! shared memory, and the ratio to the rival of the scenario, with its spread over the rounds.

use serde::Serialize;

use super::cell::TransportName;
use super::measure::ratio;
use super::pattern::Touch;
use super::run::Outcome;
use super::spread::Spread;
use super::table_rows::rival_of;

/// The object.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    scenario: &'static str,
    transport: &'static str,
    wait: &'static str,
    size: usize,
    streams: usize,
    ops: u64,
    p50_ns: Option<u64>,
    p90_ns: Option<u64>,
    p99_ns: Option<u64>,
    p999_ns: Option<u64>,
    max_ns: Option<u64>,
    mean_ns: Option<f64>,
    cpu_ns_per_op: f64,
    ops_per_s: f64,
    bytes_per_s: f64,
    touched: bool,
    ns_per_op: Option<Spread>,
    rounds: usize,
    processes: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failures: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    over_socket: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_to: Option<RatioTo>,
}

/// A ratio below 1 is faster than the rival.
#[derive(Clone, Debug, Serialize)]
struct RatioTo {
    transport: &'static str,
    #[serde(flatten)]
    ratio: Spread,
}

impl Line {
    /// All rounds of one cell; `None` if there were none.
    pub fn of(outcome: &Outcome, outcomes: &[Outcome]) -> Option<Self> {
        let cell = outcome.cell;
        let round = outcome.pooled()?;
        let rounds = || outcome.rounds.iter().flatten();
        let is_timed = !round.latency.is_empty();
        let at = |quantile| is_timed.then(|| round.latency.value_at_quantile(quantile));
        let is_shmipc = matches!(
            cell.transport,
            TransportName::ShmipcV3
                | TransportName::ShmipcV4Eventfd
                | TransportName::ShmipcOurs
                | TransportName::ShmipcOursTheirs
        );
        Some(Self {
            scenario: cell.scenario.name(),
            transport: cell.transport.name(),
            wait: cell.wait(),
            size: cell.size,
            streams: cell.streams,
            ops: round.ops,
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: at(1.0),
            mean_ns: is_timed.then(|| rounded(round.latency.mean(), 10.0)),
            cpu_ns_per_op: rounded(round.cpu_per_op(), 10.0),
            ops_per_s: rounded(1e9 * ratio(round.ops, round.elapsed_ns), 10.0),
            bytes_per_s: rounded(1e9 * ratio(round.bytes, round.elapsed_ns), 10.0),
            touched: cell.touch == Touch::All,
            ns_per_op: Spread::of(rounds().map(|r| rounded(r.ns_per_op(), 10.0))),
            rounds: rounds().count(),
            processes: cell.processes.count(),
            failures: outcome.failures.clone(),
            over_socket: is_shmipc.then_some(round.over_socket),
            ratio_to: rival_of(outcome, outcomes).and_then(|rival| {
                let Spread { median, min, max } = Spread::of_ratio(outcome, rival)?;
                let [median, min, max] = [median, min, max].map(|ratio| rounded(ratio, 1e4));
                let transport = rival.cell.transport.name();
                Some(RatioTo { transport, ratio: Spread { median, min, max } })
            }),
        })
    }
}

/// More digits than any of these numbers is good for are only noise to read.
fn rounded(number: f64, scale: f64) -> f64 {
    (number * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table_rows::tests::outcome;

    #[test]
    fn the_keys_are_those_of_our_own_bench() {
        let outcomes = [outcome(TransportName::ShmipcV3, 800), outcome(TransportName::Uds, 1600)];
        let line = serde_json::to_string(&Line::of(&outcomes[1], &outcomes)).unwrap();
        let keys = "scenario transport wait size streams ops p50_ns p90_ns p99_ns p999_ns max_ns \
                    mean_ns cpu_ns_per_op ops_per_s bytes_per_s touched";
        let mut from = 0;
        for key in keys.split(' ') {
            let at = line[from..].find(&format!("\"{key}\":"));
            from += at.unwrap_or_else(|| panic!("{key} is missing or out of order in {line}"));
        }
        assert!(line.contains("\"ratio_to\":{\"transport\":\"shmipc-0.2.1-v3\",\"median\":2.0"));
    }
}
