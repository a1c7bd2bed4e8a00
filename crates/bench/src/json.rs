// SPDX-License-Identifier: MIT OR Apache-2.0
//! One cell as one JSON object: what `--json` prints per line and `results.json` holds.
//!
//! The keys up to `touched` are always there, in this order. A percentile is `null` where it would mislead: without
//! samples, or p99 and beyond of `rate` from fewer than 1,000. Further keys follow only where a scenario has more
//! to say: `one_cpu` where both processes share one, `rate` its rate and cores, `connect` and `idle` the cost of a
//! session, `parallel` the time per operation over the rounds, its processes, its session's memory, and what the
//! streams keep beside one that nobody reads.

use serde::Serialize;

use super::cell::{Cell, Scenario, TransportName};
use super::measure::{Round, StreamMemory, ratio};
use super::pattern::Touch;
use super::ratio::Metric;
use super::run::Outcome;
use super::spread::Spread;

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
    #[serde(skip_serializing_if = "Option::is_none")]
    one_cpu: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sender_cores: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    receiver_cores: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resident_bytes_per_session: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    own_shared_bytes_per_session: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    descriptors_per_session: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idle_wakeups: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idle_cpu_ns: Option<u64>,
    #[serde(flatten)]
    parallel: Option<Parallel>,
}

/// What only `parallel` has to say.
#[derive(Clone, Debug, Serialize)]
struct Parallel {
    ns_per_op: Option<Spread>,
    rounds: usize,
    processes: usize,
    unread: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_kept: Option<Spread>,
    #[serde(flatten)]
    memory: Option<StreamMemory>,
}

impl Line {
    /// All rounds of one cell; `None` if there were none.
    pub fn of(outcome: &Outcome, outcomes: &[Outcome]) -> Option<Self> {
        let cell = outcome.cell;
        let round = outcome.pooled()?;
        let is_parallel = cell.scenario == Scenario::Parallel;
        let at = |quantile| percentile(&round, cell, quantile);
        let is_connect = cell.scenario == Scenario::Connect;
        let held = round.session.filter(|_| is_connect);
        let is_rate = cell.scenario == Scenario::Rate;
        Some(Self {
            scenario: cell.scenario.name(),
            transport: cell.transport.name(),
            wait: cell.wait.map_or("-", super::cell::WaitName::name),
            size: cell.size,
            streams: cell.streams,
            ops: round.ops,
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: at(1.0),
            mean_ns: (!round.latency.is_empty()).then(|| rounded(round.latency.mean())),
            cpu_ns_per_op: rounded(round.cpu_per_op()),
            ops_per_s: rounded(1e9 * ratio(round.ops, round.elapsed_ns)),
            bytes_per_s: rounded(1e9 * ratio(round.bytes, round.elapsed_ns)),
            touched: is_touched(cell),
            one_cpu: cell.is_on_one_cpu().then_some(true),
            rate: cell.rate,
            sender_cores: is_rate.then(|| cores(round.cpu_parent_ns, &round)),
            receiver_cores: is_rate.then(|| cores(round.cpu_child_ns, &round)),
            resident_bytes_per_session: held.map(|s| rounded(s.resident_bytes)),
            own_shared_bytes_per_session: held.map(|s| rounded(s.own_shared_bytes)),
            descriptors_per_session: held.map(|s| rounded(s.descriptors)),
            idle_wakeups: round.session.and_then(|s| s.wakeups),
            idle_cpu_ns: round.session.and_then(|s| s.idle_cpu_ns),
            parallel: is_parallel.then(|| Parallel::of(outcome, &round, outcomes)),
        })
    }
}

impl Parallel {
    fn of(outcome: &Outcome, round: &Round, outcomes: &[Outcome]) -> Self {
        let cell = outcome.cell;
        Self {
            ns_per_op: Spread::of_metric(outcome, Metric::NsPerOp).map(|s| s.map(rounded)),
            rounds: outcome.rounds.len(),
            processes: cell.processes.count(),
            unread: cell.unread,
            rate_kept: Spread::of_rate_kept(outcome, outcomes).map(|s| s.map(to_four_decimals)),
            memory: round.memory,
        }
    }
}

/// A percentile of the latency, if it may be quoted.
pub fn percentile(round: &Round, cell: Cell, quantile: f64) -> Option<u64> {
    let is_tail = (0.99..1.0).contains(&quantile);
    let samples_min = if is_tail && cell.scenario == Scenario::Rate { TAIL_SAMPLES_MIN } else { 1 };
    (round.latency.len() >= samples_min).then(|| round.latency.value_at_quantile(quantile))
}

/// Fraction of a core, to four decimals.
fn cores(cpu_ns: u64, round: &Round) -> f64 {
    to_four_decimals(ratio(cpu_ns, round.elapsed_ns))
}

/// An eventfd carries no payload, so none can have been touched.
fn is_touched(cell: Cell) -> bool {
    cell.touch == Touch::All && cell.transport != TransportName::FloorEventfd
}

/// One decimal is more than any of these numbers is good for.
fn rounded(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

fn to_four_decimals(number: f64) -> f64 {
    (number * 1e4).round() / 1e4
}

/// Fewer samples have no 99th percentile worth the name.
pub const TAIL_SAMPLES_MIN: u64 = 1000;
