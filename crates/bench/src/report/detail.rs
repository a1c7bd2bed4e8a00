// SPDX-License-Identifier: MIT OR Apache-2.0
//! The result table of one scenario. Each row shows one transport, wait strategy and size, with
//! percentiles of the latency and ratios to other transports.

use crate::figure::quantity::{bytes_name, decimal_bandwidth_name, ns_name, rate_name};
use crate::figure::text_table::{TextTable, dash, spread_name};
use crate::harness::cell::{Cell, Scenario, TransportName};
use crate::harness::round::{Round, StreamMemory, ratio};
use crate::outcome::{Metric, Outcome, find, percentile};

/// Makes the result table: one row for each outcome except those of `idle`, for which no column has
/// a value.
pub fn table(outcomes: &[Outcome]) -> TextTable {
    let is_connect = |outcome: &Outcome| outcome.cell.scenario == Scenario::Connect;
    let has_connect = outcomes.iter().any(is_connect);
    let carrier_heading = has_connect.then_some(CARRIER_HEADING);
    let headings: Vec<&str> = HEADINGS.into_iter().chain(carrier_heading).collect();
    let mut table = TextTable::new(&headings);
    for outcome in outcomes.iter().filter(|outcome| outcome.cell.scenario != Scenario::Idle) {
        if let Some(round) = outcome.pooled() {
            let mut line = line(outcome, &round, outcomes);
            let carrier = || round.carrier.map_or_else(dash, |carrier| carrier.name().to_owned());
            line.extend(is_connect(outcome).then(carrier));
            table.push(line);
        }
    }
    let is_connect_alone = outcomes
        .iter()
        .all(|outcome| matches!(outcome.cell.scenario, Scenario::Connect | Scenario::Idle));
    table.drop_columns(if is_connect_alone { &NOT_OF_CONNECT } else { &[] });
    table
}

/// The text that explains the columns of the result table.
pub const LEGEND: &str = "\
Percentiles are of all rounds together. Ratios are medians over the rounds [smallest–largest] of p50, or of
time/op where that is given. ÷ base: over the round trip of baseline-spin at that size. ÷ socket: over the Unix
socket. time/op: elapsed time over all operations that run at once, not a latency. CPU/op: both processes. cores s+r: CPU time of sender and receiver over elapsed time.";

/// Returns the text below the table: those results in `outcomes` that have no column in the table.
/// It is empty if there are none.
pub fn notes(outcomes: &[Outcome]) -> String {
    [sessions(outcomes), streams(outcomes), links(outcomes)].concat()
}

/// Returns the notes on `connect` and `idle`: the memory, descriptors and CPU time that an open
/// session without messages costs.
fn sessions(outcomes: &[Outcome]) -> String {
    let lines = outcomes.iter().filter_map(|outcome| {
        let cell = outcome.cell;
        let cost = outcome.pooled()?.session?;
        Some(match (cost.wakeups, cost.idle_cpu_ns) {
            (Some(wakeups), Some(cpu_ns)) => {
                format!("{cell}: {wakeups} wake-ups and {cpu_ns} ns of CPU time without a message\n")
            }
            _ => format!(
                "{cell}: a session holds {} resident, {} writable shared memory, {:.1} descriptors\n",
                bytes_name(cost.resident_bytes),
                bytes_name(cost.own_shared_bytes),
                cost.descriptors
            ),
        })
    });
    lines.collect()
}

/// Returns the notes on `parallel`: the memory of the session, and the share of their rate that
/// streams keep while other streams are never read.
fn streams(outcomes: &[Outcome]) -> String {
    let lines = outcomes.iter().filter_map(|outcome| {
        let Cell { unread, streams, .. } = outcome.cell;
        let kept = outcome.rate_kept(outcomes).map(|kept| {
            let kept = spread_name(Some(kept));
            format!(
                "{streams} streams keep {kept} of their rate while {unread} others are never read"
            )
        });
        let memory = outcome.pooled()?.memory.map(memory_name);
        let parts: Vec<String> = [kept, memory].into_iter().flatten().collect();
        (!parts.is_empty()).then(|| format!("{}: {}\n", outcome.cell, parts.join("; ")))
    });
    lines.collect()
}

/// Returns the notes on links: a link's time divided by that of its transport alone, and a link's
/// time in both directions at once divided by that in one direction.
fn links(outcomes: &[Outcome]) -> String {
    use TransportName as T;
    let over = |outcome: &Outcome, below: Cell| {
        let metric = Metric::headline(below);
        let ratio = outcome.ratio(metric, find(outcomes, below)?, metric);
        ratio.map(|ratio| spread_name(Some(ratio)))
    };
    let lines = outcomes.iter().filter_map(|outcome| {
        let cell = outcome.cell;
        let (transport, wait) = match cell.transport {
            T::LINK_SHM => (T::SHM, cell.wait),
            T::LINK_TCP => (T::TCP, None),
            T::LINK_UDS => (T::UDS, None),
            _ => return None,
        };
        let plain = over(outcome, Cell { transport, wait, ..cell });
        let plain = plain.map(|ratio| format!("{ratio} times the time of {}", transport.name()));
        let alone = (cell.scenario == Scenario::Duplex)
            .then(|| over(outcome, Cell { scenario: Scenario::Throughput, ..cell }))
            .flatten()
            .map(|ratio| format!("one direction alone: {ratio} times this rate"));
        let parts: Vec<String> = [plain, alone].into_iter().flatten().collect();
        (!parts.is_empty()).then(|| format!("{cell}: {}\n", parts.join("; ")))
    });
    lines.collect()
}

fn memory_name(memory: StreamMemory) -> String {
    let bytes = |count| bytes_name(ratio(count, 1));
    let mut name = format!(
        "shared memory {} of at most {}",
        bytes(memory.memory_bytes),
        bytes(memory.memory_bytes_max)
    );
    if memory.grown_bytes > 0 {
        name += &format!(", {} of it while the clock ran", bytes(memory.grown_bytes));
    }
    if memory.unread_bytes_max > 0 {
        name += &format!(
            ", {} blocks in flight; unread {} ({} messages) of at most {}",
            memory.blocks_in_flight,
            bytes(memory.unread_bytes),
            memory.unread_messages,
            bytes(memory.unread_bytes_max)
        );
    }
    name
}

fn line(outcome: &Outcome, round: &Round, outcomes: &[Outcome]) -> Vec<String> {
    let cell = outcome.cell;
    let at =
        |quantile| percentile(round, cell, quantile).map_or_else(dash, |ns| ns_name(ratio(ns, 1)));
    let metric = Metric::headline(cell);
    let against = |below: Option<&Outcome>, below_metric| {
        spread_name(below.and_then(|below| outcome.ratio(metric, below, below_metric)))
    };
    let baseline = Cell::new(Scenario::Ping, TransportName::BASELINE_SPIN, cell.size);
    let baseline = find(outcomes, Cell { touch: cell.touch, ..baseline });
    let has_baseline = matches!(cell.scenario, Scenario::Ping | Scenario::Throughput);
    let uds = Cell { transport: TransportName::UDS, wait: None, ..cell };
    let cores = |cpu_ns| ratio(cpu_ns, round.elapsed_ns);
    vec![
        cell.to_string(),
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.999),
        at(1.0),
        if metric == Metric::NsPerOp { ns_name(round.ns_per_op()) } else { dash() },
        ns_name(round.cpu_per_op()),
        format!("{:.2}+{:.2}", cores(round.cpu_parent_ns), cores(round.cpu_child_ns)),
        rate_name(1e9 * ratio(round.ops, round.elapsed_ns)),
        decimal_bandwidth_name(1e9 * ratio(round.bytes, round.elapsed_ns)),
        against(baseline.filter(|_| has_baseline), Metric::P50),
        against(find(outcomes, uds), metric),
    ]
}

const HEADINGS: [&str; 13] = [
    "",
    "p50",
    "p90",
    "p99",
    "p99.9",
    "max",
    "time/op",
    "CPU/op",
    "cores s+r",
    "ops",
    "bytes",
    "÷ base",
    "÷ socket",
];

/// The heading of a further column of `connect`: the transport of a connection's last message.
const CARRIER_HEADING: &str = "over";

/// Columns that the table of `connect` leaves out, so that it fits 120 columns. `--json` has all
/// values.
const NOT_OF_CONNECT: [&str; 5] = ["p90", "p99.9", "max", "cores s+r", "bytes"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::cell::WaitName;
    use crate::harness::round::{Carrier, histogram};

    #[test]
    fn table_of_connect_fits_120_columns() {
        let fresh = |cell: Cell| Cell { is_fresh: true, ..cell.with_messages(100) };
        let outcome = |cell: Cell, ns: u64| {
            let mut latency = histogram().unwrap();
            latency.record(ns).unwrap();
            let round = Round {
                latency,
                ops: 1,
                elapsed_ns: ns,
                bytes: 128,
                cpu_parent_ns: ns,
                cpu_child_ns: ns,
                session: None,
                memory: None,
                over_socket: None,
                carrier: Some(Carrier::SharedMemory),
            };
            Outcome { rounds: vec![Some(round); 5], ..Outcome::new(cell) }
        };
        let shm = fresh(Cell::shm(Scenario::Connect, 64, WaitName::Adaptive));
        let uds = fresh(Cell::new(Scenario::Connect, TransportName::UDS, 64));
        let text = table(&[outcome(shm, 17_345_678), outcome(uds, 123_456)]).to_text();
        for line in text.lines() {
            assert!(line.chars().count() <= 120, "{line}");
        }
        assert!(text.contains("connect shm adaptive 64 B, 100 messages, fresh"), "{text}");
        assert!(text.contains("÷ socket") && !text.contains("÷ base"), "{text}");
    }
}
