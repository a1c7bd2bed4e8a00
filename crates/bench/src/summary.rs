// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one table of `partywall bench`: what a newcomer wants to know, one line each.
//!
//! Times are medians over the rounds. Ratios compare times, also where a rate is shown, so smaller is better
//! everywhere; they are formed per round, for our default way to wait.

use super::arguments::STREAMS;
use super::cell::{Cell, Scenario, TransportName, WaitName};
use super::measure::ratio;
use super::plan::{BLOCK, IDLE_CHANNELS, LARGE, PAGE, TINY, default_pairs, ours};
use super::ratio::Metric;
use super::run::{Outcome, find};
use super::spread::Spread;
use super::table::{Table, bandwidth_name, bytes_name, dash, rate_name, ratio_name, time_name};

/// One line: a scenario, and how its number is shown.
struct Row {
    what: String,
    /// The cell but for transport and wait.
    like: Cell,
    metric: Metric,
    show: fn(f64, usize) -> String,
    /// Whether the spinning floor of that size says anything about it.
    has_floor: bool,
}

/// The table.
pub fn table(outcomes: &[Outcome]) -> Table {
    let mut table = Table::new(&HEADINGS);
    for row in rows() {
        table.push(line(&row, outcomes));
    }
    for (what, show) in SESSION_ROWS {
        table.push(session_line(what, show, outcomes));
    }
    table
}

/// What the columns mean.
pub const LEGEND: &str = "\
spin, adaptive (the default), park: Partywall, by how it waits. floor: bare shared memory with one flag.
÷ floor and ÷ socket: time of adaptive over time of the floor or the Unix socket; below 1 is faster. (Streams:
time per message over the floor's round trip.) Each is the median of what the rounds gave, not the ratio of two medians.
CPU: time of both processes per operation. Medians over the rounds; every payload byte written and verified.";

fn rows() -> Vec<Row> {
    let ping = |what: &str, size| Row {
        what: what.to_owned(),
        like: Cell::new(Scenario::Ping, TransportName::SharedMemory, size),
        metric: Metric::P50,
        show: |ns, _| time_name(ns),
        has_floor: true,
    };
    let flood = |what: &str, size, show| Row {
        what: what.to_owned(),
        like: Cell::new(Scenario::Flood, TransportName::SharedMemory, size),
        metric: Metric::NsPerOp,
        show,
        has_floor: size == TINY,
    };
    let rate = |rate: u64, name: &str| Row {
        what: format!("one way, at {name} messages a second"),
        like: Cell::new(Scenario::Rate, TransportName::SharedMemory, TINY).at_rate(rate),
        metric: Metric::P50,
        show: |ns, _| time_name(ns),
        has_floor: false,
    };
    let pairs = default_pairs();
    vec![
        ping("one small message there and back (64 B)", TINY),
        ping("one page there and back (4 KiB)", PAGE),
        ping("one large message there and back (1 MiB)", LARGE),
        flood("a stream of small messages (64 B)", TINY, |ns, _| rate_name(1e9 / ns)),
        flood("a stream of blocks (64 KiB)", BLOCK, |ns, size| {
            bandwidth_name(ratio(size as u64, 1) * 1e9 / ns)
        }),
        rate(100, "100"),
        rate(10_000, "10,000"),
        Row {
            what: format!("{pairs} pairs at once, all together (64 B)"),
            like: Cell::new(Scenario::Crowd, TransportName::SharedMemory, TINY).with_streams(pairs),
            metric: Metric::NsPerOp,
            show: |ns, _| rate_name(1e9 / ns),
            has_floor: false,
        },
        Row {
            what: format!("{STREAMS} streams at once, a round trip (64 B)"),
            like: Cell::new(Scenario::Parallel, TransportName::SharedMemory, TINY)
                .with_streams(STREAMS),
            metric: Metric::NsPerOp,
            show: |ns, _| time_name(ns),
            has_floor: false,
        },
        Row {
            what: "a session opened, used once, closed".to_owned(),
            like: Cell::new(Scenario::Connect, TransportName::SharedMemory, TINY),
            metric: Metric::P50,
            show: |ns, _| time_name(ns),
            has_floor: false,
        },
    ]
}

fn line(row: &Row, outcomes: &[Outcome]) -> Vec<String> {
    let lookup = |transport, wait| find(outcomes, Cell { transport, wait, ..row.like });
    let value = |outcome: Option<&Outcome>, metric| {
        Spread::of_metric(outcome?, metric).map(|spread| spread.median)
    };
    let shown = |outcome| {
        value(outcome, row.metric).map_or_else(dash, |median| (row.show)(median, row.like.size))
    };
    let by_wait = |wait| lookup(TransportName::SharedMemory, Some(wait));
    let ours = by_wait(WaitName::Adaptive);
    let uds = lookup(TransportName::Uds, None);
    // The floor's round trip, whatever the row measures.
    let floor_cell = Cell::new(Scenario::Ping, TransportName::FloorSpin, row.like.size);
    let floor = find(outcomes, floor_cell).filter(|_| row.has_floor);
    let against = |below: Option<&Outcome>, metric| {
        ratio_name(
            ours.zip(below).and_then(|(a, b)| Spread::of_ratio((a, row.metric), (b, metric))),
        )
    };
    let cpu = |outcome| value(outcome, Metric::CpuPerOp).map_or_else(dash, time_name);
    vec![
        row.what.clone(),
        shown(by_wait(WaitName::Spin)),
        shown(ours),
        shown(by_wait(WaitName::Park)),
        shown(uds),
        shown(lookup(TransportName::Tcp, None)),
        value(floor.filter(|_| row.metric == Metric::P50), Metric::P50)
            .map_or_else(dash, time_name),
        against(floor, Metric::P50),
        against(uds, row.metric),
        cpu(ours),
        cpu(uds),
    ]
}

/// A number out of the outcomes of `connect` and `idle`.
type ShowSession = fn(connect: &Outcome, idle: &Outcome) -> Option<String>;

const SESSION_ROWS: [(&str, ShowSession); 2] = [
    ("memory of an idle session, per side", |connect, _| {
        let cost = connect.pooled()?.session?;
        Some(bytes_name(cost.resident_bytes.max(cost.own_shared_bytes)))
    }),
    ("wake-ups of an idle session", |_, idle| Some(idle.pooled()?.session?.wakeups?.to_string())),
];

fn session_line(what: &str, show: ShowSession, outcomes: &[Outcome]) -> Vec<String> {
    let show = |idle: Cell| {
        let connect = Cell { scenario: Scenario::Connect, streams: 1, ..idle };
        let both = find(outcomes, connect).zip(find(outcomes, idle.with_streams(IDLE_CHANNELS)));
        both.and_then(|(connect, idle)| show(connect, idle)).unwrap_or_else(dash)
    };
    let mut line = vec![
        what.to_owned(),
        dash(),
        show(ours(Scenario::Idle, TINY, WaitName::Adaptive)),
        dash(),
        show(Cell::new(Scenario::Idle, TransportName::Uds, TINY)),
        show(Cell::new(Scenario::Idle, TransportName::Tcp, TINY)),
    ];
    line.resize_with(HEADINGS.len(), dash);
    line
}

const HEADINGS: [&str; 11] = [
    "",
    "spin",
    "adaptive",
    "park",
    "Unix socket",
    "TCP",
    "floor",
    "÷ floor",
    "÷ socket",
    "CPU ours",
    "CPU socket",
];

#[cfg(test)]
mod tests {
    use super::super::measure::{Round, histogram};
    use super::*;

    fn outcome(cell: Cell, ns: u64) -> Outcome {
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
        };
        Outcome { cell, rounds: vec![round; 5] }
    }

    #[test]
    fn fixed_numbers_make_this_line() {
        let ping = |transport| Cell::new(Scenario::Ping, transport, TINY);
        let outcomes = [
            outcome(ours(Scenario::Ping, TINY, WaitName::Spin), 290),
            outcome(ours(Scenario::Ping, TINY, WaitName::Adaptive), 300),
            outcome(ours(Scenario::Ping, TINY, WaitName::Park), 700),
            outcome(ping(TransportName::Uds), 750),
            outcome(ping(TransportName::Tcp), 900),
            outcome(ping(TransportName::FloorSpin), 250),
        ];
        let text = table(&outcomes).to_text();
        let expected = "one small message there and back (64 B)   290 ns    300 ns  700 ns       \
                        750 ns  900 ns  250 ns    1.20×     0.40×    600 ns     1.50 µs";
        assert_eq!(text.lines().nth(2), Some(expected));
    }

    #[test]
    fn every_line_fits_the_headings() {
        assert!(table(&[]).rows().iter().all(|row| row.len() == HEADINGS.len()));
    }
}
