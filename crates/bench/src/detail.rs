// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of one scenario: a line per cell, with the whole distribution and the ratios.

use super::cell::{Cell, Scenario, TransportName};
use super::json::percentile;
use super::measure::{Round, StreamMemory, ratio};
use super::ratio::Metric;
use super::run::{Outcome, find};
use super::spread::Spread;
use super::table::{Table, bandwidth_name, bytes_name, dash, rate_name, spread_name, time_name};

/// The table; without `idle`, which has none of these columns.
pub fn table(outcomes: &[Outcome]) -> Table {
    let mut table = Table::new(&HEADINGS);
    for outcome in outcomes.iter().filter(|outcome| outcome.cell.scenario != Scenario::Idle) {
        if let Some(round) = outcome.pooled() {
            table.push(line(outcome, &round, outcomes));
        }
    }
    table
}

/// What the columns mean.
pub const LEGEND: &str = "\
All rounds together; ratios are the median over the rounds [smallest–largest] of p50 (flood, duplex, crowd and parallel:
of time per operation) over floor-spin's round trip at that size and over the Unix socket. time/op: elapsed time over operations of
all streams, not a latency. CPU/op: both processes.
cores s+r: fraction of a core that sender and receiver take.";

/// What the table has no columns for, in words; empty if there is nothing.
pub fn notes(outcomes: &[Outcome]) -> String {
    [sessions(outcomes), streams(outcomes), links(outcomes)].concat()
}

/// What held and idle sessions cost.
fn sessions(outcomes: &[Outcome]) -> String {
    let lines = outcomes.iter().filter_map(|outcome| {
        let cell = outcome.cell;
        let cost = outcome.pooled()?.session?;
        Some(match (cost.wakeups, cost.idle_cpu_ns) {
            (Some(wakeups), Some(cpu_ns)) => {
                format!("{cell}: {wakeups} wake-ups and {cpu_ns} ns of CPU while nothing was sent\n")
            }
            _ => format!(
                "{cell}: an open session holds {} resident, {} shared of its own, {:.1} descriptors\n",
                bytes_name(cost.resident_bytes),
                bytes_name(cost.own_shared_bytes),
                cost.descriptors
            ),
        })
    });
    lines.collect()
}

/// What many streams of one session hold, and what they keep beside one that nobody reads.
fn streams(outcomes: &[Outcome]) -> String {
    let lines = outcomes.iter().filter_map(|outcome| {
        let Cell { unread, streams, .. } = outcome.cell;
        let kept = Spread::of_rate_kept(outcome, outcomes).map(|kept| {
            let kept = spread_name(Some(kept));
            format!(
                "the {streams} others keep {kept} of their rate beside {unread} that nobody reads"
            )
        });
        let memory = outcome.pooled()?.memory.map(memory_name);
        let parts: Vec<String> = [kept, memory].into_iter().flatten().collect();
        (!parts.is_empty()).then(|| format!("{}: {}\n", outcome.cell, parts.join("; ")))
    });
    lines.collect()
}

/// What a link costs beside what is not kept, and whether its directions need each other.
fn links(outcomes: &[Outcome]) -> String {
    use TransportName::{LinkShm, LinkTcp, LinkUds, SharedMemory, Tcp, Uds};
    let over = |outcome: &Outcome, below: Cell| {
        let metric = headline(below.scenario);
        let ratio = Spread::of_ratio((outcome, metric), (find(outcomes, below)?, metric));
        ratio.map(|ratio| spread_name(Some(ratio)))
    };
    let lines = outcomes.iter().filter_map(|outcome| {
        let cell = outcome.cell;
        let (transport, wait) = match cell.transport {
            LinkShm => (SharedMemory, cell.wait),
            LinkTcp => (Tcp, None),
            LinkUds => (Uds, None),
            _ => return None,
        };
        let plain = over(outcome, Cell { transport, wait, ..cell });
        let plain = plain.map(|ratio| format!("{ratio} times {}", transport.name()));
        let alone = (cell.scenario == Scenario::Duplex)
            .then(|| over(outcome, Cell { scenario: Scenario::Flood, ..cell }))
            .flatten()
            .map(|ratio| format!("one way alone {ratio} of this rate"));
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
            ", {} blocks out; unread {} ({} messages) of at most {}",
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
    let at = |quantile| {
        percentile(round, cell, quantile).map_or_else(dash, |ns| time_name(ratio(ns, 1)))
    };
    let metric = headline(cell.scenario);
    let against = |below: Option<&Outcome>, below_metric| {
        spread_name(below.and_then(|b| Spread::of_ratio((outcome, metric), (b, below_metric))))
    };
    let floor = Cell::new(Scenario::Ping, TransportName::FloorSpin, cell.size);
    let floor = find(outcomes, Cell { touch: cell.touch, ..floor });
    let has_floor = matches!(cell.scenario, Scenario::Ping | Scenario::Flood);
    let uds = Cell { transport: TransportName::Uds, wait: None, ..cell };
    let cores = |cpu_ns| ratio(cpu_ns, round.elapsed_ns);
    vec![
        cell.to_string(),
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.999),
        at(1.0),
        if metric == Metric::NsPerOp { time_name(round.ns_per_op()) } else { dash() },
        time_name(round.cpu_per_op()),
        format!("{:.2}+{:.2}", cores(round.cpu_parent_ns), cores(round.cpu_child_ns)),
        rate_name(1e9 * ratio(round.ops, round.elapsed_ns)),
        bandwidth_name(1e9 * ratio(round.bytes, round.elapsed_ns)),
        against(floor.filter(|_| has_floor), Metric::P50),
        against(find(outcomes, uds), metric),
    ]
}

/// What a scenario is compared by.
const fn headline(scenario: Scenario) -> Metric {
    match scenario {
        Scenario::Flood | Scenario::Duplex | Scenario::Crowd | Scenario::Parallel => {
            Metric::NsPerOp
        }
        Scenario::Ping | Scenario::Rate | Scenario::Connect | Scenario::Idle => Metric::P50,
    }
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
    "÷ floor",
    "÷ socket",
];
