// SPDX-License-Identifier: MIT OR Apache-2.0
//! The targets of this project, measured on this machine, each with PASS or MISS.
//!
//! ```text
//! target = (cell, metric) ÷ (cell, metric) ≤ limit (or ≥)     both measured in each of ≥ 5 rounds
//!        | (cell, metric)                  ≤ limit
//! ```
//! The median over the rounds is compared with the limit; the spread is only printed. p99 of `rate`
//! is taken from all rounds together and needs 1,000 samples. Comparisons with other libraries are
//! in `bench/peers`.

use std::fmt;
use std::time::Duration;

use crate::arguments::STREAMS;
use crate::figure::quantity::exact_size_name;
use crate::figure::spread::Spread;
use crate::figure::text_table::{TextTable, dash};
use crate::harness::cell::{Cell, Scenario, TransportName, WaitName};
use crate::harness::round::{SessionCost, ratio};
use crate::outcome::{Metric, Outcome, find};
use crate::plan::{BLOCK, IDLE_CHANNELS, LARGE, Plan, ROUNDS, TINY, default_pairs};
use crate::table::TRANSPORTS;

/// A target of the project: a number that is measured, and the limit that the number must meet.
struct Target {
    name: String,
    limit: Limit,
    number: Number,
}

/// The bound that a target sets for its number.
#[derive(Clone, Copy, Debug)]
enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

/// The number that a target compares with its limit.
enum Number {
    /// The ratio of a metric of one measured cell to a metric of another measured cell, formed
    /// within each round.
    Ratio((Cell, Metric), (Cell, Metric)),
    /// The value of a metric of one measured cell.
    Plain(Cell, Metric),
    /// A cost of one session that carries no messages, such as its memory.
    Session(Cell, fn(SessionCost) -> Option<f64>),
}

/// The verdict on one target.
pub struct Verdict {
    /// One row of the table of targets.
    pub line: Vec<String>,
    /// Whether the number meets the target's limit; `None` if the number was not measured.
    pub is_met: Option<bool>,
}

/// Makes the plan that measures each combination of scenario, transport and size that a target
/// needs.
pub fn plan(rounds: Option<u32>, duration: Option<Duration>) -> Plan {
    let mut plan = Plan::new(rounds.unwrap_or(ROUNDS).max(ROUNDS), TRANSPORTS);
    for cell in targets().iter().flat_map(Target::cells) {
        plan.add(cell, duration.unwrap_or_else(|| time_for(cell)));
    }
    plan
}

/// The verdicts on all targets.
pub fn judge(outcomes: &[Outcome]) -> Vec<Verdict> {
    targets().iter().map(|target| target.judge(outcomes)).collect()
}

/// The verdicts as a table.
pub fn table(verdicts: &[Verdict]) -> TextTable {
    let mut table = TextTable::new(&["target", "limit", "median", "spread", "verdict"]);
    for verdict in verdicts {
        table.push(verdict.line.clone());
    }
    table
}

/// All targets of the project, as code: each names its cells, its metric and its limit.
fn targets() -> Vec<Target> {
    [ping_targets(), flow_targets(), stream_targets(), idle_targets()]
        .into_iter()
        .flatten()
        .collect()
}

fn ping_targets() -> Vec<Target> {
    let ping = |size, wait| Cell::shm(Scenario::Ping, size, wait);
    let baseline =
        |size| (Cell::new(Scenario::Ping, TransportName::BASELINE_SPIN, size), Metric::P50);
    let uds = |size, metric| (Cell::new(Scenario::Ping, TransportName::UDS, size), metric);
    let park = |metric| (ping(TINY, WaitName::Park), metric);
    let spin = |size| (ping(size, WaitName::Spin), Metric::P50);
    let adaptive = |size| (ping(size, WaitName::Adaptive), Metric::P50);
    let parked = |metric_name: &str, metric, limit| {
        let name = format!("ping 64 B, park: {metric_name} ÷ uds");
        target(&name, limit, park(metric), uds(TINY, metric))
    };
    // Between two CPUs the machine's wake-up time dominates. On one CPU the cost of the system
    // calls shows.
    let on_one_cpu = |metric_name: &str, metric, limit| {
        let name = format!("ping 64 B, park, one CPU: {metric_name} ÷ uds");
        let [shm, uds] =
            [park(metric), uds(TINY, metric)].map(|(cell, metric)| (cell.on_one_cpu(), metric));
        target(&name, limit, shm, uds)
    };
    vec![
        target("ping 48 B, spin: p50 ÷ baseline", 1.3, spin(48), baseline(48)),
        target("ping 64 B, spin: p50 ÷ baseline", 1.3, spin(64), baseline(64)),
        target("ping 48 B, adaptive: p50 ÷ baseline", 1.4, adaptive(48), baseline(48)),
        parked("p50", Metric::P50, 1.05),
        parked("p99", Metric::P99, 1.2),
        parked("CPU per operation", Metric::CpuPerOp, 0.85),
        on_one_cpu("p50", Metric::P50, 1.05),
        on_one_cpu("CPU per operation", Metric::CpuPerOp, 0.85),
        target("ping 1 MiB, adaptive: p50 ÷ uds", 0.8, adaptive(LARGE), uds(LARGE, Metric::P50)),
    ]
}

fn flow_targets() -> Vec<Target> {
    let baseline = Cell::new(Scenario::Ping, TransportName::BASELINE_SPIN, TINY);
    let throughput = Cell::shm(Scenario::Throughput, TINY, WaitName::Adaptive);
    let mut targets = vec![target(
        "throughput 64 B, adaptive: time per message ÷ round trip of the baseline",
        0.12,
        (throughput, Metric::NsPerOp),
        (baseline, Metric::P50),
    )];
    let rate = |transport, rate| Cell::new(Scenario::Rate, transport, TINY).at_rate(rate);
    for per_second in RATES {
        let park = rate(TransportName::SHM, per_second).waiting(WaitName::Park);
        let uds = rate(TransportName::UDS, per_second);
        for (metric_name, metric, limit) in [("p50", Metric::P50, 1.1), ("p99", Metric::P99, 1.3)] {
            let name = format!("rate {per_second}/s, park: {metric_name} ÷ uds");
            targets.push(target(&name, limit, (park, metric), (uds, metric)));
        }
    }
    let adaptive = rate(TransportName::SHM, RATES[0]).waiting(WaitName::Adaptive);
    targets.push(Target {
        name: format!("rate {}/s, adaptive: receiver's share of a core", RATES[0]),
        limit: Limit::AtMost(0.05),
        number: Number::Plain(adaptive, Metric::ReceiverCores),
    });
    let oversubscribe = |wait| {
        let cell = Cell::shm(Scenario::Oversubscribe, TINY, wait).with_streams(default_pairs());
        (cell, Metric::NsPerOp)
    };
    let (adaptive, park) = (oversubscribe(WaitName::Adaptive), oversubscribe(WaitName::Park));
    targets.push(target("oversubscribe: time per operation, adaptive ÷ park", 1.2, adaptive, park));
    targets
}

fn stream_targets() -> Vec<Target> {
    let kept = |size| {
        let without =
            Cell::shm(Scenario::Parallel, size, WaitName::Adaptive).with_streams(STREAMS - 1);
        let with = Cell { unread: 1, ..without };
        Target {
            name: format!(
                "parallel {}: rate of {} streams while one is never read ÷ without it",
                exact_size_name(size),
                STREAMS - 1
            ),
            limit: Limit::AtLeast(0.9),
            // Time per operation is the inverse of a rate, so the ratio of the rates swaps the two
            // times.
            number: Number::Ratio((without, Metric::NsPerOp), (with, Metric::NsPerOp)),
        }
    };
    [TINY, BLOCK].map(kept).into()
}

fn idle_targets() -> Vec<Target> {
    let idle = Cell::shm(Scenario::Idle, TINY, WaitName::Adaptive).with_streams(IDLE_CHANNELS);
    let connect = Cell::shm(Scenario::Connect, TINY, WaitName::Adaptive);
    let session = |name: &str, limit, cell, number| Target {
        name: name.to_owned(),
        limit: Limit::AtMost(limit),
        number: Number::Session(cell, number),
    };
    vec![
        session("idle channel: wake-ups", 0.0, idle, |cost| Some(ratio(cost.wakeups?, 1))),
        session("idle channel: CPU time, ns", 0.0, idle, |cost| Some(ratio(cost.idle_cpu_ns?, 1))),
        session("idle channel: KiB resident per side", 256.0, connect, |cost| {
            Some(cost.resident_bytes.max(cost.own_shared_bytes) / 1024.0)
        }),
    ]
}

fn target(name: &str, limit: f64, above: (Cell, Metric), below: (Cell, Metric)) -> Target {
    let limit = Limit::AtMost(limit);
    Target { name: name.to_owned(), limit, number: Number::Ratio(above, below) }
}

impl Limit {
    fn holds(self, number: f64) -> bool {
        match self {
            Self::AtMost(limit) => number <= limit,
            Self::AtLeast(limit) => number >= limit,
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(limit) => write!(f, "≤ {limit}"),
            Self::AtLeast(limit) => write!(f, "≥ {limit}"),
        }
    }
}

impl Target {
    fn cells(&self) -> Vec<Cell> {
        match self.number {
            Number::Ratio((above, _), (below, _)) => vec![above, below],
            Number::Plain(cell, _) | Number::Session(cell, _) => vec![cell],
        }
    }

    fn judge(&self, outcomes: &[Outcome]) -> Verdict {
        let measured = self.measured(outcomes);
        let is_met = measured.map(|spread| self.limit.holds(spread.median));
        let line = vec![
            self.name.clone(),
            self.limit.to_string(),
            measured.map_or_else(dash, |spread| format!("{:.2}", spread.median)),
            measured.map_or_else(dash, |spread| format!("{:.2}–{:.2}", spread.min, spread.max)),
            match is_met {
                Some(true) => "PASS".to_owned(),
                Some(false) => "MISS".to_owned(),
                None => "not measured".to_owned(),
            },
        ];
        Verdict { line, is_met }
    }

    fn measured(&self, outcomes: &[Outcome]) -> Option<Spread> {
        match self.number {
            Number::Ratio((above, above_metric), (below, below_metric)) => {
                let below = find(outcomes, below)?;
                find(outcomes, above)?.ratio(above_metric, below, below_metric)
            }
            Number::Plain(cell, metric) => find(outcomes, cell)?.spread(metric),
            Number::Session(cell, number) => {
                let outcome = find(outcomes, cell)?;
                Spread::of(outcome.rounds().filter_map(|round| number(round.session?)))
            }
        }
    }
}

/// Returns the duration of each round that gives enough samples for the targets of `cell`. For
/// example, five rounds at 100 messages/s give 1,050 samples.
fn time_for(cell: Cell) -> Duration {
    Duration::from_millis(match cell.scenario {
        Scenario::Ping | Scenario::Throughput | Scenario::Duplex => 300,
        Scenario::Rate if cell.rate == Some(RATES[0]) => 2100,
        Scenario::Rate | Scenario::Oversubscribe | Scenario::Parallel => 500,
        Scenario::Connect => 100,
        Scenario::Idle => 2000,
    })
}

/// The rates for which there are targets, in messages per second.
const RATES: [u64; 2] = [100, 10_000];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_without_outcome_is_neither_met_nor_missed() {
        assert!(judge(&[]).iter().all(|verdict| verdict.is_met.is_none()));
    }

    #[test]
    fn limit_holds_on_its_side_and_at_the_edge() {
        assert!(Limit::AtMost(1.3).holds(1.3) && !Limit::AtMost(1.3).holds(1.31));
        assert!(Limit::AtLeast(0.9).holds(0.9) && !Limit::AtLeast(0.9).holds(0.89));
        assert!(!Limit::AtLeast(0.9).holds(f64::NAN));
    }

    #[test]
    fn plan_of_two_rounds_has_five() {
        assert_eq!(plan(Some(2), None).rounds, ROUNDS);
    }
}
