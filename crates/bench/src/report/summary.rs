// SPDX-License-Identifier: MIT OR Apache-2.0
//! The summary table of a whole run; each row answers a question that a new user has.
//!
//! Times are medians over the rounds. Each ratio compares times, also in rows that show a rate, so
//! smaller is better. Ratios are formed in each round, for the adaptive wait strategy.

use crate::arguments::STREAMS;
use crate::figure::quantity::{bytes_name, decimal_bandwidth_name, ns_name, rate_name};
use crate::figure::text_table::{TextTable, dash, ratio_name};
use crate::harness::cell::{Cell, Scenario, TransportName, WaitName};
use crate::harness::round::ratio;
use crate::outcome::{Metric, Outcome, find};
use crate::plan::{BLOCK, IDLE_CHANNELS, LARGE, PAGE, TINY, default_pairs};

/// One row of the summary: a scenario, and the format of its number.
struct Row {
    name: String,
    /// The scenario, size, options and transport of Partywall that the row shows. Each column puts
    /// its wait strategy into a copy, and a column of another transport that transport too.
    like: Cell,
    metric: Metric,
    show: fn(f64, usize) -> String,
    /// Whether the row is compared with the round trip of the transport `baseline-spin`.
    has_baseline: bool,
}

/// Makes the summary table of a run from its outcomes.
pub fn table(outcomes: &[Outcome]) -> TextTable {
    let mut table = TextTable::new(&HEADINGS);
    for row in rows() {
        table.push(line(&row, outcomes));
    }
    for (name, show, transport) in SESSION_ROWS {
        table.push(session_line(name, show, transport, outcomes));
    }
    table
}

/// The text that explains the columns of the summary.
pub const LEGEND: &str = "\
spin, adaptive (the default), park: Partywall with this wait strategy. baseline: plain shared memory with one
flag. ÷ base and ÷ socket: time of adaptive over that of the baseline or the Unix socket; below 1 is faster.
(One way: time per message over the round trip of the baseline.) A session that is opened, or idle, begins on the
socket and shares memory once that pays, unless its row says otherwise. Each ratio is the median of the ratios of the
rounds. CPU: time of both processes per operation. Medians over the rounds; all payload bytes are written and
verified.";

fn rows() -> Vec<Row> {
    let ping = |name: &str, size| Row {
        name: name.to_owned(),
        like: Cell::new(Scenario::Ping, TransportName::SHM, size),
        metric: Metric::P50,
        show: |ns, _| ns_name(ns),
        has_baseline: true,
    };
    let throughput = |name: &str, size, show| Row {
        name: name.to_owned(),
        like: Cell::new(Scenario::Throughput, TransportName::SHM, size),
        metric: Metric::NsPerOp,
        show,
        has_baseline: size == TINY,
    };
    let rate = |rate: u64, name: &str| Row {
        name: format!("one way, at {name} messages per second"),
        like: Cell::new(Scenario::Rate, TransportName::SHM, TINY).at_rate(rate),
        metric: Metric::P50,
        show: |ns, _| ns_name(ns),
        has_baseline: false,
    };
    let opening = |name: &str, transport| Row {
        name: name.to_owned(),
        like: Cell::new(Scenario::Connect, transport, TINY),
        metric: Metric::P50,
        show: |ns, _| ns_name(ns),
        has_baseline: false,
    };
    let pairs = default_pairs();
    vec![
        ping("one small message there and back (64 B)", TINY),
        ping("one page there and back (4 KiB)", PAGE),
        ping("one large message there and back (1 MiB)", LARGE),
        throughput("one way, small messages (64 B)", TINY, |ns, _| rate_name(1e9 / ns)),
        throughput("one way, blocks (64 KiB)", BLOCK, |ns, size| {
            decimal_bandwidth_name(ratio(size as u64, 1) * 1e9 / ns)
        }),
        rate(100, "100"),
        rate(10_000, "10,000"),
        Row {
            name: format!("{pairs} pairs at once, all together (64 B)"),
            like: Cell::new(Scenario::Oversubscribe, TransportName::SHM, TINY).with_streams(pairs),
            metric: Metric::NsPerOp,
            show: |ns, _| rate_name(1e9 / ns),
            has_baseline: false,
        },
        Row {
            name: format!("{STREAMS} streams at once, per round trip (64 B)"),
            like: Cell::new(Scenario::Parallel, TransportName::SHM, TINY).with_streams(STREAMS),
            metric: Metric::NsPerOp,
            show: |ns, _| ns_name(ns),
            has_baseline: false,
        },
        opening("a session opened, used once, closed", TransportName::SHM_MOVE),
        opening("… that shares memory at once", TransportName::SHM),
    ]
}

fn line(row: &Row, outcomes: &[Outcome]) -> Vec<String> {
    let lookup = |transport, wait| find(outcomes, Cell { transport, wait, ..row.like });
    let value =
        |outcome: Option<&Outcome>, metric| outcome?.spread(metric).map(|spread| spread.median);
    let text = |outcome| {
        value(outcome, row.metric).map_or_else(dash, |median| (row.show)(median, row.like.size))
    };
    let by_wait = |wait| lookup(row.like.transport, Some(wait));
    let shm = by_wait(WaitName::Adaptive);
    let uds = lookup(TransportName::UDS, None);
    // The baseline is always the round trip of `ping` over `baseline-spin`; rows of other scenarios
    // are also compared with that round trip.
    let baseline_cell = Cell::new(Scenario::Ping, TransportName::BASELINE_SPIN, row.like.size);
    let baseline = find(outcomes, baseline_cell).filter(|_| row.has_baseline);
    let against = |below: Option<&Outcome>, metric| {
        let ratio = shm.zip(below).and_then(|(shm, below)| shm.ratio(row.metric, below, metric));
        ratio_name(ratio)
    };
    let cpu = |outcome| value(outcome, Metric::CpuPerOp).map_or_else(dash, ns_name);
    vec![
        row.name.clone(),
        text(by_wait(WaitName::Spin)),
        text(shm),
        text(by_wait(WaitName::Park)),
        text(uds),
        text(lookup(TransportName::TCP, None)),
        value(baseline.filter(|_| row.metric == Metric::P50), Metric::P50)
            .map_or_else(dash, ns_name),
        against(baseline, Metric::P50),
        against(uds, row.metric),
        cpu(shm),
        cpu(uds),
    ]
}

/// A function that formats the number of one table row from the outcomes of `connect` and `idle`;
/// `None` if the number was not measured.
type ShowSession = fn(connect: &Outcome, idle: &Outcome) -> Option<String>;

fn show_memory(connect: &Outcome, _: &Outcome) -> Option<String> {
    let cost = connect.pooled()?.session?;
    Some(bytes_name(cost.resident_bytes.max(cost.own_shared_bytes)))
}

fn show_wakeups(_: &Outcome, idle: &Outcome) -> Option<String> {
    Some(idle.pooled()?.session?.wakeups?.to_string())
}

/// The rows that show the cost of an idle session, each with the transport of Partywall that it
/// shows: a session begins on the socket, unless it is configured to share memory at once.
const SESSION_ROWS: [(&str, ShowSession, TransportName); 4] = [
    ("memory of an idle session, per side", show_memory, TransportName::SHM_MOVE),
    ("… that shares memory at once", show_memory, TransportName::SHM),
    ("wake-ups of an idle session", show_wakeups, TransportName::SHM_MOVE),
    ("… that shares memory at once", show_wakeups, TransportName::SHM),
];

fn session_line(
    name: &str,
    show: ShowSession,
    transport: TransportName,
    outcomes: &[Outcome],
) -> Vec<String> {
    let show = |idle: Cell| {
        let connect = Cell { scenario: Scenario::Connect, streams: 1, ..idle };
        let both = find(outcomes, connect).zip(find(outcomes, idle.with_streams(IDLE_CHANNELS)));
        both.and_then(|(connect, idle)| show(connect, idle)).unwrap_or_else(dash)
    };
    let mut line = vec![
        name.to_owned(),
        dash(),
        show(Cell::new(Scenario::Idle, transport, TINY).waiting(WaitName::Adaptive)),
        dash(),
        show(Cell::new(Scenario::Idle, TransportName::UDS, TINY)),
        show(Cell::new(Scenario::Idle, TransportName::TCP, TINY)),
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
    "baseline",
    "÷ base",
    "÷ socket",
    "CPU shm",
    "CPU socket",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::round::{Round, histogram};

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
            over_socket: None,
            carrier: None,
        };
        Outcome { rounds: vec![Some(round); 5], ..Outcome::new(cell) }
    }

    #[test]
    fn table_of_fixed_numbers_has_this_row() {
        let ping = |transport| Cell::new(Scenario::Ping, transport, TINY);
        let outcomes = [
            outcome(Cell::shm(Scenario::Ping, TINY, WaitName::Spin), 290),
            outcome(Cell::shm(Scenario::Ping, TINY, WaitName::Adaptive), 300),
            outcome(Cell::shm(Scenario::Ping, TINY, WaitName::Park), 700),
            outcome(ping(TransportName::UDS), 750),
            outcome(ping(TransportName::TCP), 900),
            outcome(ping(TransportName::BASELINE_SPIN), 250),
        ];
        let text = table(&outcomes).to_text();
        let expected = "one small message there and back (64 B)     290 ns    300 ns  700 ns       \
                        750 ns  900 ns    250 ns   1.20×     0.40×   600 ns     1.50 µs";
        assert_eq!(text.lines().nth(2), Some(expected));
    }

    #[test]
    fn row_of_a_session_shows_the_default_and_the_next_one_memory_at_once() {
        let connect =
            |transport| Cell::new(Scenario::Connect, transport, TINY).waiting(WaitName::Adaptive);
        let socket = Cell::new(Scenario::Connect, TransportName::UDS, TINY);
        let outcomes = [
            outcome(connect(TransportName::SHM_MOVE), 200),
            outcome(connect(TransportName::SHM), 1000),
            outcome(socket, 100),
        ];
        let table = table(&outcomes);
        let begins = |row: &&Vec<String>| row[0].starts_with("a session opened");
        let index = table.rows().iter().position(|row| begins(&row)).unwrap();
        let ratios = [index, index + 1].map(|index| table.rows()[index][8].clone());
        assert_eq!(ratios, ["2.00×", "10.00×"]);
    }

    #[test]
    fn rows_of_the_table_have_all_columns() {
        assert!(table(&[]).rows().iter().all(|row| row.len() == HEADINGS.len()));
    }
}
