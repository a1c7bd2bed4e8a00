// SPDX-License-Identifier: MIT OR Apache-2.0
//! The outcome of one cell: the results of all its rounds, and the ratios to other cells that the
//! report quotes.
//!
//! The ratio of two cells is formed within each round. The report quotes its median over the
//! rounds, with the spread. Two cells of one round are measured within about a second, so a longer
//! disturbance affects both. Absolute times of different rounds are *not* compared.

use crate::figure::spread::Spread;
use crate::harness::cell::{Cell, Scenario};
use crate::harness::round::{Round, pool, ratio};

/// All rounds of one cell.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The measured cell.
    pub cell: Cell,
    /// The rounds in the order of measurement; an element is `None` if its round failed.
    pub rounds: Vec<Option<Round>>,
    /// The reasons for which rounds failed, one for each failed round.
    pub failures: Vec<String>,
}

/// A number that is computed from a round. The report shows such numbers, and compares them between
/// transports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Metric {
    /// The median of a round's latencies, in nanoseconds.
    P50,
    /// The 99th percentile of a round's latencies, in nanoseconds.
    P99,
    /// CPU time of both processes in a round per operation, in nanoseconds.
    CpuPerOp,
    /// Elapsed time of a round per operation, in nanoseconds: the inverse of throughput.
    NsPerOp,
    /// CPU time of the receiver in a round divided by the round's elapsed time: the share of a
    /// core.
    ReceiverCores,
}

impl Metric {
    /// The value of this metric in `round`.
    pub fn of(self, round: &Round) -> f64 {
        match self {
            Self::P50 => ratio(round.latency.value_at_quantile(0.5), 1),
            Self::P99 => ratio(round.latency.value_at_quantile(0.99), 1),
            Self::CpuPerOp => round.cpu_per_op(),
            Self::NsPerOp => round.ns_per_op(),
            Self::ReceiverCores => ratio(round.cpu_child_ns, round.elapsed_ns),
        }
    }

    /// The metric by which the report compares transports in the measurement `cell`. It is not the
    /// latency if several calls are in flight, because a call then mostly waits for the other
    /// calls.
    pub const fn headline(cell: Cell) -> Self {
        match cell.scenario {
            Scenario::Grpc | Scenario::Http if cell.streams == 1 => Self::P50,
            Scenario::Throughput
            | Scenario::Duplex
            | Scenario::Oversubscribe
            | Scenario::Parallel
            | Scenario::Grpc
            | Scenario::GrpcStream
            | Scenario::Http
            | Scenario::HttpStream => Self::NsPerOp,
            Scenario::Ping | Scenario::Rate | Scenario::Connect | Scenario::Idle => Self::P50,
        }
    }
}

impl Outcome {
    /// Makes an outcome without rounds for `cell`; the run adds each round that it has measured.
    pub const fn new(cell: Cell) -> Self {
        Self { cell, rounds: Vec::new(), failures: Vec::new() }
    }

    /// The rounds of this outcome that did not fail.
    pub fn rounds(&self) -> impl Iterator<Item = &Round> {
        self.rounds.iter().flatten()
    }

    /// All successful rounds, added up to one round; `None` if no round succeeded.
    pub fn pooled(&self) -> Option<Round> {
        pool(self.rounds())
    }

    /// The median of a metric over the rounds, with its smallest and largest value.
    pub fn spread(&self, metric: Metric) -> Option<Spread> {
        Spread::of(self.rounds().map(|round| metric.of(round)))
    }

    /// Returns the ratio of `metric` in this outcome to `below_metric` in `below`, formed in each
    /// round.
    ///
    /// A single round of the scenario `rate` may have too few samples for a p99. So for the p99 of
    /// `rate`, the median of the result is computed from the samples of all rounds in one
    /// histogram, and is the only value of the result that is not a round's own. The result is
    /// `None` if all rounds together have too few samples.
    pub fn ratio(&self, metric: Metric, below: &Self, below_metric: Metric) -> Option<Spread> {
        let rounds = self.rounds.iter().zip(&below.rounds);
        let both = rounds.filter_map(|(a, b)| a.as_ref().zip(b.as_ref()));
        let spread = Spread::of(both.map(|(a, b)| metric.of(a) / below_metric.of(b)))?;
        if metric != Metric::P99 || self.cell.scenario != Scenario::Rate {
            return Some(spread);
        }
        let (a, b) = (self.pooled()?, below.pooled()?);
        let is_enough = a.latency.len().min(b.latency.len()) >= TAIL_SAMPLES_MIN;
        is_enough.then(|| Spread { median: metric.of(&a) / below_metric.of(&b), ..spread })
    }

    /// Returns the rate of streams that are read while other streams stay unread, divided by the
    /// rate of the same streams without unread ones.
    ///
    /// The result is `None` if this outcome was measured without unread streams. It is also `None`
    /// if `outcomes` lacks the same measurement without unread streams.
    pub fn rate_kept(&self, outcomes: &[Self]) -> Option<Spread> {
        let has_unread = self.cell.unread > 0;
        let without = find(outcomes, Cell { unread: 0, ..self.cell }).filter(|_| has_unread)?;
        without.ratio(Metric::NsPerOp, self, Metric::NsPerOp)
    }
}

/// Finds the outcome of `cell` among `outcomes`; `None` if `cell` was not measured.
pub fn find(outcomes: &[Outcome], cell: Cell) -> Option<&Outcome> {
    outcomes.iter().find(|outcome| outcome.cell == cell)
}

/// A percentile of a round's latency; `None` if the round has too few samples for it.
pub fn percentile(round: &Round, cell: Cell, quantile: f64) -> Option<u64> {
    let is_tail = (0.99..1.0).contains(&quantile);
    let samples_min = if is_tail && cell.scenario == Scenario::Rate { TAIL_SAMPLES_MIN } else { 1 };
    (round.latency.len() >= samples_min).then(|| round.latency.value_at_quantile(quantile))
}

/// Minimum number of latency samples in `rate` for a 99th percentile: with so many samples, ten lie
/// above the percentile.
const TAIL_SAMPLES_MIN: u64 = 1000;
