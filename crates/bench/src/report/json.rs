// SPDX-License-Identifier: MIT OR Apache-2.0
//! One cell as one JSON object: a line of `--json`, an element of `results.json`.
//!
//! A cell is one combination of scenario, transport and size. The keys up to `touched` are always
//! present, in this order. A percentile is `null` without samples, and p99 of `rate` is `null` also
//! below 1,000 samples. Further keys follow for some cells:
//!
//! - `one_cpu` if both processes share one CPU;
//! - in `rate`, the rate, and the shares of a core that sender and receiver used;
//! - in `connect`, the number of messages on a connection, whether each client process was new, and
//!   the transport that carried the last message (`shm`, `socket` or `mixed`);
//! - in `connect` and `idle`, the cost of a session;
//! - in `parallel`, the time per operation over the rounds, the number of processes, the memory of
//!   the session, and the rate that streams keep next to unread streams.

use serde::Serialize;

use crate::figure::spread::Spread;
use crate::harness::cell::{Cell, Scenario, TransportName};
use crate::harness::pattern::Touch;
use crate::harness::round::{Carrier, Round, StreamMemory, ratio};
use crate::outcome::{Metric, Outcome, percentile};

/// The result of one cell as a JSON object.
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
    connect: Option<Connect>,
    #[serde(flatten)]
    parallel: Option<Parallel>,
}

/// The JSON keys that only results of `connect` have.
#[derive(Clone, Debug, Serialize)]
struct Connect {
    messages: u64,
    fresh: bool,
    last_message_over: Option<Carrier>,
}

/// The JSON keys that only results of `parallel` have.
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
    /// Returns the JSON object of one cell, computed from all rounds of `outcome` together. The
    /// result is `None` if no round succeeded.
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
            wait: cell.wait.map_or("-", crate::harness::cell::WaitName::name),
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
            connect: is_connect.then_some(Connect {
                messages: cell.messages,
                fresh: cell.is_fresh,
                last_message_over: round.carrier,
            }),
            parallel: is_parallel.then(|| Parallel::of(outcome, &round, outcomes)),
        })
    }
}

impl Parallel {
    fn of(outcome: &Outcome, round: &Round, outcomes: &[Outcome]) -> Self {
        let cell = outcome.cell;
        Self {
            ns_per_op: outcome.spread(Metric::NsPerOp).map(|s| s.map(rounded)),
            rounds: outcome.rounds().count(),
            processes: cell.processes.count(),
            unread: cell.unread,
            rate_kept: outcome.rate_kept(outcomes).map(|s| s.map(to_four_decimals)),
            memory: round.memory,
        }
    }
}

/// The share of one core that a process used: its CPU time `cpu_ns` divided by the round's elapsed
/// time, rounded to four decimals.
fn cores(cpu_ns: u64, round: &Round) -> f64 {
    to_four_decimals(ratio(cpu_ns, round.elapsed_ns))
}

/// Whether the sender wrote the payloads of `cell` and the receiver verified them. It is false over
/// `baseline-eventfd`, because an eventfd carries no payload.
fn is_touched(cell: Cell) -> bool {
    cell.touch == Touch::All && cell.transport != TransportName::BASELINE_EVENTFD
}

/// Rounds `number` to one decimal. This changes a measured number by less than the error of any
/// measurement.
fn rounded(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

fn to_four_decimals(number: f64) -> f64 {
    (number * 1e4).round() / 1e4
}
