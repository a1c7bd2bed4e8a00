// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall bench targets`: the promises of this project, measured here and now, each with its verdict.
//!
//! ```text
//! target = (cell, number) ÷ (cell, number) ≤ limit (or ≥)        both cells measured in each of ≥ 5 rounds
//!        | (cell, number)                  ≤ limit
//! ```
//! The verdict is that of the median; the spread stands beside it. p99 of `rate` is taken from all rounds together,
//! and only from at least 1,000 samples. Comparisons with other libraries live in a workspace of their own.

use std::fmt;
use std::time::Duration;

use super::arguments::{STREAMS, size_name};
use super::cell::{Cell, Scenario, TransportName, WaitName};
use super::measure::{SessionCost, ratio};
use super::plan::{BLOCK, IDLE_CHANNELS, LARGE, Plan, ROUNDS, TINY, default_pairs, ours};
use super::ratio::Metric;
use super::run::{Outcome, find};
use super::spread::Spread;
use super::table::{Table, dash};

/// One promise.
struct Target {
    what: String,
    limit: Limit,
    number: Number,
}

/// How large a number may be, or has to be.
#[derive(Clone, Copy, Debug)]
enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

/// What is compared with the limit.
enum Number {
    /// A ratio of two cells of the same rounds.
    Ratio((Cell, Metric), (Cell, Metric)),
    /// A number that is good or bad by itself.
    Plain(Cell, Metric),
    /// Something about a session that is not in use.
    Session(Cell, fn(SessionCost) -> Option<f64>),
}

/// Whether a promise was kept; `None` if it could not be measured.
pub struct Verdict {
    /// One line of the table.
    pub line: Vec<String>,
    /// The answer.
    pub is_kept: Option<bool>,
}

/// A plan that measures what the promises need.
pub fn plan(rounds: Option<u32>, duration: Option<Duration>) -> Plan {
    let mut plan = Plan::new(rounds.unwrap_or(ROUNDS).max(ROUNDS));
    for cell in targets().iter().flat_map(Target::cells) {
        plan.add(cell, duration.unwrap_or_else(|| time_for(cell)));
    }
    plan
}

/// All verdicts.
pub fn judge(outcomes: &[Outcome]) -> Vec<Verdict> {
    targets().iter().map(|target| target.judge(outcomes)).collect()
}

/// The verdicts as a table.
pub fn table(verdicts: &[Verdict]) -> Table {
    let mut table = Table::new(&["target", "limit", "median", "spread", "verdict"]);
    for verdict in verdicts {
        table.push(verdict.line.clone());
    }
    table
}

/// Every promise.
fn targets() -> Vec<Target> {
    [ping_targets(), flow_targets(), stream_targets(), idle_targets()]
        .into_iter()
        .flatten()
        .collect()
}

fn ping_targets() -> Vec<Target> {
    let ping = |size, wait| ours(Scenario::Ping, size, wait);
    let floor = |size| (Cell::new(Scenario::Ping, TransportName::FloorSpin, size), Metric::P50);
    let uds = |size, metric| (Cell::new(Scenario::Ping, TransportName::Uds, size), metric);
    let park = |metric| (ping(TINY, WaitName::Park), metric);
    let spin = |size| (ping(size, WaitName::Spin), Metric::P50);
    let adaptive = |size| (ping(size, WaitName::Adaptive), Metric::P50);
    let parked = |name: &str, metric, limit| {
        let what = format!("ping 64 B, park: {name} ÷ uds");
        target(&what, limit, park(metric), uds(TINY, metric))
    };
    // Between two CPUs much of a wake-up is the machine's, and the same for both; what the system calls cost is seen on one.
    let on_one_cpu = |name: &str, metric, limit| {
        let what = format!("ping 64 B, park, one CPU: {name} ÷ uds");
        let [ours, uds] =
            [park(metric), uds(TINY, metric)].map(|(cell, metric)| (cell.on_one_cpu(), metric));
        target(&what, limit, ours, uds)
    };
    vec![
        target("ping 48 B, spin: p50 ÷ floor", 1.3, spin(48), floor(48)),
        target("ping 64 B, spin: p50 ÷ floor", 1.3, spin(64), floor(64)),
        target("ping 48 B, adaptive: p50 ÷ floor", 1.4, adaptive(48), floor(48)),
        parked("p50", Metric::P50, 1.05),
        parked("p99", Metric::P99, 1.2),
        parked("CPU per operation", Metric::CpuPerOp, 0.85),
        on_one_cpu("p50", Metric::P50, 1.05),
        on_one_cpu("CPU per operation", Metric::CpuPerOp, 0.85),
        target("ping 1 MiB, adaptive: p50 ÷ uds", 0.8, adaptive(LARGE), uds(LARGE, Metric::P50)),
    ]
}

fn flow_targets() -> Vec<Target> {
    let floor = Cell::new(Scenario::Ping, TransportName::FloorSpin, TINY);
    let flood = ours(Scenario::Flood, TINY, WaitName::Adaptive);
    let mut targets = vec![target(
        "flood 64 B, adaptive: time per message ÷ floor's round trip",
        0.12,
        (flood, Metric::NsPerOp),
        (floor, Metric::P50),
    )];
    let rate = |transport, rate| Cell::new(Scenario::Rate, transport, TINY).at_rate(rate);
    for per_second in RATES {
        let park = rate(TransportName::SharedMemory, per_second).waiting(WaitName::Park);
        let uds = rate(TransportName::Uds, per_second);
        for (name, metric, limit) in [("p50", Metric::P50, 1.1), ("p99", Metric::P99, 1.3)] {
            let what = format!("rate {per_second}/s, park: {name} ÷ uds");
            targets.push(target(&what, limit, (park, metric), (uds, metric)));
        }
    }
    let adaptive = rate(TransportName::SharedMemory, RATES[0]).waiting(WaitName::Adaptive);
    targets.push(Target {
        what: format!("rate {}/s, adaptive: receiver's share of a core", RATES[0]),
        limit: Limit::AtMost(0.05),
        number: Number::Plain(adaptive, Metric::ReceiverCores),
    });
    let crowd = |wait| {
        let cell = ours(Scenario::Crowd, TINY, wait).with_streams(default_pairs());
        (cell, Metric::NsPerOp)
    };
    let (adaptive, park) = (crowd(WaitName::Adaptive), crowd(WaitName::Park));
    targets.push(target("crowd: time per operation, adaptive ÷ park", 1.2, adaptive, park));
    targets
}

fn stream_targets() -> Vec<Target> {
    let kept = |size| {
        let without = ours(Scenario::Parallel, size, WaitName::Adaptive).with_streams(STREAMS - 1);
        let with = Cell { unread: 1, ..without };
        Target {
            what: format!(
                "parallel {}: rate that {} streams keep beside one unread",
                size_name(size),
                STREAMS - 1
            ),
            limit: Limit::AtLeast(0.9),
            // The rate with over the rate without: times per operation the other way round.
            number: Number::Ratio((without, Metric::NsPerOp), (with, Metric::NsPerOp)),
        }
    };
    [TINY, BLOCK].map(kept).into()
}

fn idle_targets() -> Vec<Target> {
    let idle = ours(Scenario::Idle, TINY, WaitName::Adaptive).with_streams(IDLE_CHANNELS);
    let connect = ours(Scenario::Connect, TINY, WaitName::Adaptive);
    let session = |what: &str, limit, cell, number| Target {
        what: what.to_owned(),
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

fn target(what: &str, limit: f64, above: (Cell, Metric), below: (Cell, Metric)) -> Target {
    let limit = Limit::AtMost(limit);
    Target { what: what.to_owned(), limit, number: Number::Ratio(above, below) }
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
        let is_kept = measured.map(|spread| self.limit.holds(spread.median));
        let line = vec![
            self.what.clone(),
            self.limit.to_string(),
            measured.map_or_else(dash, |spread| format!("{:.2}", spread.median)),
            measured.map_or_else(dash, |spread| format!("{:.2}–{:.2}", spread.min, spread.max)),
            match is_kept {
                Some(true) => "PASS".to_owned(),
                Some(false) => "MISS".to_owned(),
                None => "not measured".to_owned(),
            },
        ];
        Verdict { line, is_kept }
    }

    fn measured(&self, outcomes: &[Outcome]) -> Option<Spread> {
        match self.number {
            Number::Ratio((above, above_metric), (below, below_metric)) => Spread::of_ratio(
                (find(outcomes, above)?, above_metric),
                (find(outcomes, below)?, below_metric),
            ),
            Number::Plain(cell, metric) => Spread::of_metric(find(outcomes, cell)?, metric),
            Number::Session(cell, number) => {
                let rounds = &find(outcomes, cell)?.rounds;
                Spread::of(rounds.iter().filter_map(|round| number(round.session?)))
            }
        }
    }
}

/// Long enough per round for the percentiles that are quoted: five rounds at 100 msg/s give 1,050 samples.
fn time_for(cell: Cell) -> Duration {
    Duration::from_millis(match cell.scenario {
        Scenario::Ping | Scenario::Flood | Scenario::Duplex => 300,
        Scenario::Rate if cell.rate == Some(RATES[0]) => 2100,
        Scenario::Rate | Scenario::Crowd | Scenario::Parallel => 500,
        Scenario::Connect => 100,
        Scenario::Idle => 2000,
    })
}

/// Messages per second at which promises are made.
const RATES: [u64; 2] = [100, 10_000];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_that_cannot_be_measured_are_neither_kept_nor_broken() {
        assert!(judge(&[]).iter().all(|verdict| verdict.is_kept.is_none()));
    }

    #[test]
    fn limits_hold_on_their_side_and_at_the_edge() {
        assert!(Limit::AtMost(1.3).holds(1.3) && !Limit::AtMost(1.3).holds(1.31));
        assert!(Limit::AtLeast(0.9).holds(0.9) && !Limit::AtLeast(0.9).holds(0.89));
        assert!(!Limit::AtLeast(0.9).holds(f64::NAN));
    }

    #[test]
    fn fewer_than_five_rounds_are_no_median() {
        assert_eq!(plan(Some(2), None).rounds, ROUNDS);
    }
}
