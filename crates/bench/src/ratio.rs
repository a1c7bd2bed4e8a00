// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is quoted: the ratio of two cells, formed in each round and then the median, with its spread.
//!
//! Two cells of one round are measured within the same second or so, so what disturbs a machine for longer than
//! that disturbs both. Absolute times of different rounds are *not* compared.

use super::cell::{Cell, Scenario};
use super::json::TAIL_SAMPLES_MIN;
use super::measure::{Round, ratio};
use super::run::{Outcome, find};
use super::spread::Spread;

/// A number taken from a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Metric {
    /// Median latency.
    P50,
    /// 99th percentile of the latency.
    P99,
    /// CPU time of both processes per operation.
    CpuPerOp,
    /// Time per operation: the inverse of throughput.
    NsPerOp,
    /// Fraction of a core that the receiver takes.
    ReceiverCores,
}

impl Metric {
    /// Its value in `round`.
    pub fn of(self, round: &Round) -> f64 {
        match self {
            Self::P50 => ratio(round.latency.value_at_quantile(0.5), 1),
            Self::P99 => ratio(round.latency.value_at_quantile(0.99), 1),
            Self::CpuPerOp => round.cpu_per_op(),
            Self::NsPerOp => round.ns_per_op(),
            Self::ReceiverCores => ratio(round.cpu_child_ns, round.elapsed_ns),
        }
    }
}

impl Spread {
    /// Of one metric over the rounds of a cell.
    pub fn of_metric(outcome: &Outcome, metric: Metric) -> Option<Self> {
        Self::of(outcome.rounds.iter().map(|round| metric.of(round)))
    }

    /// Of the rate that streams keep beside others that nobody reads: theirs with over theirs without.
    ///
    /// `None` if `outcome` has no such others, or the same streams were not measured without them.
    pub fn of_rate_kept(outcome: &Outcome, outcomes: &[Outcome]) -> Option<Self> {
        let is_side_by_side = outcome.cell.unread > 0;
        let without =
            find(outcomes, Cell { unread: 0, ..outcome.cell }).filter(|_| is_side_by_side)?;
        Self::of_ratio((without, Metric::NsPerOp), (outcome, Metric::NsPerOp))
    }

    /// The same values, each changed by `change`.
    pub fn map(self, change: impl Fn(f64) -> f64) -> Self {
        Self { median: change(self.median), min: change(self.min), max: change(self.max) }
    }

    /// Of the ratio of two cells, round by round.
    ///
    /// A p99 of `rate` that no single round has samples enough for is taken from all rounds together; the spread
    /// still is that of the rounds. If even together they have too few, there is no ratio.
    pub fn of_ratio(above: (&Outcome, Metric), below: (&Outcome, Metric)) -> Option<Self> {
        let rounds = above.0.rounds.iter().zip(&below.0.rounds);
        let quotients = rounds.map(|(a, b)| above.1.of(a) / below.1.of(b));
        let spread = Self::of(quotients)?;
        if above.1 != Metric::P99 || above.0.cell.scenario != Scenario::Rate {
            return Some(spread);
        }
        let (a, b) = (above.0.pooled()?, below.0.pooled()?);
        let is_enough = a.latency.len().min(b.latency.len()) >= TAIL_SAMPLES_MIN;
        is_enough.then(|| Self { median: above.1.of(&a) / below.1.of(&b), ..spread })
    }
}
