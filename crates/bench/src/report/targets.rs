// SPDX-License-Identifier: MIT OR Apache-2.0
//! The targets of this project, measured on this machine, each with PASS or MISS.
//!
//! ```text
//! target = row of targets.tsv (bar, aim) + measurement of the same name
//! measurement = (cell, metric) ÷ (cell, metric)     both measured in each of ≥ 5 rounds
//!             | (cell, metric)
//! ```
//! The bar is the bound that a number must meet, the aim a stricter one that it should meet. The
//! median over the rounds is compared with the bar; aim and spread are only printed. p99 of `rate`
//! is taken from all rounds together and needs 1,000 samples. Comparisons with other libraries are
//! measured by `bench/peers`, with the same table and the code of this file.

use std::time::Duration;

use super::bars::Bar;
use crate::arguments::STREAMS;
use crate::figure::quantity::exact_size_name;
use crate::figure::spread::Spread;
use crate::figure::text_table::{TextTable, dash};
use crate::harness::cell::{Cell, Scenario, TransportName, WaitName};
use crate::harness::round::{SessionCost, ratio};
use crate::machine::Pin;
use crate::outcome::{Metric, Outcome, find};
use crate::plan::{
    BLOCK, IDLE_CHANNELS, IN_FLIGHT, LARGE, PAGE, Plan, ROUNDS, TINY, default_pairs,
};
use crate::table::TRANSPORTS;

/// How the number of one target is measured.
pub struct Measurement {
    /// The name of the target in the table of targets.
    pub name: String,
    /// The number that is compared with the target's bar.
    pub number: Number,
    /// The CPUs of the two processes for which the target holds: any, two cores, or two
    /// hyperthreads of one core.
    pub cpus: Cpus,
}

/// The number that a target compares with its bar, and the cells in which it is measured.
#[derive(Clone, Copy)]
pub enum Number {
    /// A ratio: a metric of one cell divided by a metric of another cell, formed within each round.
    Ratio((Cell, Metric), (Cell, Metric)),
    /// The value of a metric of one cell.
    Plain(Cell, Metric),
    /// A cost of one session that carries no messages, such as its memory.
    Session(Cell, fn(SessionCost) -> Option<f64>),
}

/// The CPUs of the two processes for which a target holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cpus {
    /// The target holds on any two CPUs.
    Any,
    /// The target holds only if the two CPUs are separate cores, as far as the kernel shows.
    Cores,
    /// The target holds only if the two CPUs are hyperthreads of one core.
    Hyperthreads,
}

/// The targets of one program: the rows of the table, each with its measurement.
pub struct Targets(Vec<(Bar, Option<Measurement>)>);

/// The verdict on one target: whether the measured number meets its bar.
pub struct Verdict {
    /// One row of the table of targets.
    pub line: Vec<String>,
    /// Whether the number meets the target's bar; `None` if the number was not measured.
    pub is_met: Option<bool>,
}

impl Targets {
    /// The targets of `partywall bench`, each with its measurement.
    pub fn own() -> Self {
        Self::of("bench", measurements())
    }

    /// Makes the targets of `program` from the rows of the table and `measurements`.
    pub fn of(program: &str, mut measurements: Vec<Measurement>) -> Self {
        let row = |bar: Bar| {
            let found = measurements.iter().position(|measurement| measurement.name == bar.name);
            (bar, found.map(|index| measurements.swap_remove(index)))
        };
        Self(Bar::of_program(program).into_iter().map(row).collect())
    }

    /// Makes the plan that measures each cell that a target needs.
    pub fn plan(&self, rounds: Option<u32>, duration: Option<Duration>) -> Plan {
        let mut plan = Plan::new(rounds.unwrap_or(ROUNDS).max(ROUNDS), TRANSPORTS);
        for cell in self.cells() {
            plan.add(cell, duration.unwrap_or_else(|| time_for(cell)));
        }
        plan
    }

    /// The cells that the targets need, some of them twice.
    pub fn cells(&self) -> Vec<Cell> {
        let measurements = self.0.iter().filter_map(|(_, measurement)| measurement.as_ref());
        measurements.flat_map(|measurement| measurement.number.cells()).collect()
    }

    /// Compares the outcomes with all targets, and returns the verdicts. `pin` says on which CPUs
    /// they were measured.
    pub fn judge(&self, outcomes: &[Outcome], pin: Pin) -> Vec<Verdict> {
        let judge = |(bar, measurement): &(Bar, Option<Measurement>)| {
            Verdict::on(bar, measurement.as_ref(), outcomes, pin)
        };
        self.0.iter().map(judge).collect()
    }

    /// The names of the wrong rows in the table of targets. A right row has either a measurement or
    /// the reason why there is none; a wrong row has neither of them, or both.
    pub fn inconsistent(&self) -> Vec<&'static str> {
        let rows = self.0.iter();
        let wrong = rows.filter(|(bar, found)| bar.obstacle.is_none() != found.is_some());
        wrong.map(|(bar, _)| bar.name).collect()
    }
}

/// The names of those `measurements` that have no row of `program` in the table.
pub fn without_row(program: &str, measurements: &[Measurement]) -> Vec<String> {
    let bars = Bar::of_program(program);
    let has_row = |name: &str| bars.iter().any(|bar| bar.name == name);
    let names = measurements.iter().map(|measurement| measurement.name.clone());
    names.filter(|name| !has_row(name)).collect()
}

/// Makes a table of the verdicts on all targets.
pub fn table(verdicts: &[Verdict]) -> TextTable {
    let mut table = TextTable::new(&["target", "bar", "aim", "median", "spread", "verdict"]);
    for verdict in verdicts {
        table.push(verdict.line.clone());
    }
    table
}

/// All measurements for the targets of `partywall bench`. Each has the name of its target, the
/// cells to measure, and the metric.
fn measurements() -> Vec<Measurement> {
    let groups = [pings(), flows(), streams(), connections(), links(), frameworks(), idle()];
    groups.into_iter().flatten().collect()
}

fn pings() -> Vec<Measurement> {
    let ping = |size, wait| Cell::shm(Scenario::Ping, size, wait);
    let baseline =
        |size| (Cell::new(Scenario::Ping, TransportName::BASELINE_SPIN, size), Metric::P50);
    let uds = |size, metric| (Cell::new(Scenario::Ping, TransportName::UDS, size), metric);
    let park = |metric| (ping(TINY, WaitName::Park), metric);
    let spin = |size| (ping(size, WaitName::Spin), Metric::P50);
    let adaptive = |size| (ping(size, WaitName::Adaptive), Metric::P50);
    let parked = |metric_name: &str, metric| {
        let name = format!("ping 64 B, park: {metric_name} ÷ uds");
        quotient(&name, park(metric), uds(TINY, metric))
    };
    // These targets measure both processes on one CPU, where the cost of the system calls shows.
    // Between two CPUs the time in which the machine wakes a CPU would dominate.
    let on_one_cpu = |metric_name: &str, metric| {
        let name = format!("ping 64 B, park, one CPU: {metric_name} ÷ uds");
        let [shm, uds] =
            [park(metric), uds(TINY, metric)].map(|(cell, metric)| (cell.on_one_cpu(), metric));
        quotient(&name, shm, uds)
    };
    let to_baseline = |wait_name: &str, above, cpus| {
        let place = if cpus == Cpus::Hyperthreads { ", two hyperthreads" } else { "" };
        let name = format!("ping 48 B, {wait_name}{place}: p50 ÷ baseline");
        Measurement { cpus, ..quotient(&name, above, baseline(48)) }
    };
    vec![
        to_baseline("spin", spin(48), Cpus::Cores),
        quotient("ping 64 B, spin: p50 ÷ baseline", spin(64), baseline(64)),
        to_baseline("adaptive", adaptive(48), Cpus::Cores),
        to_baseline("spin", spin(48), Cpus::Hyperthreads),
        to_baseline("adaptive", adaptive(48), Cpus::Hyperthreads),
        parked("p50", Metric::P50),
        parked("p99", Metric::P99),
        parked("CPU per operation", Metric::CpuPerOp),
        on_one_cpu("p50", Metric::P50),
        on_one_cpu("CPU per operation", Metric::CpuPerOp),
        quotient("ping 1 MiB, adaptive: p50 ÷ uds", adaptive(LARGE), uds(LARGE, Metric::P50)),
    ]
}

fn flows() -> Vec<Measurement> {
    let baseline = Cell::new(Scenario::Ping, TransportName::BASELINE_SPIN, TINY);
    let throughput = Cell::shm(Scenario::Throughput, TINY, WaitName::Adaptive);
    let mut all = vec![quotient(
        "throughput 64 B, adaptive: time per message ÷ round trip of the baseline",
        (throughput, Metric::NsPerOp),
        (baseline, Metric::P50),
    )];
    let rate = |transport, rate| Cell::new(Scenario::Rate, transport, TINY).at_rate(rate);
    for per_second in RATES {
        let park = rate(TransportName::SHM, per_second).waiting(WaitName::Park);
        let uds = rate(TransportName::UDS, per_second);
        for (metric_name, metric) in [("p50", Metric::P50), ("p99", Metric::P99)] {
            let name = format!("rate {per_second}/s, park: {metric_name} ÷ uds");
            all.push(quotient(&name, (park, metric), (uds, metric)));
        }
    }
    let adaptive = rate(TransportName::SHM, RATES[0]).waiting(WaitName::Adaptive);
    let name = format!("rate {}/s, adaptive: receiver's share of a core", RATES[0]);
    all.push(measurement(&name, Number::Plain(adaptive, Metric::ReceiverCores)));
    let oversubscribe = |wait| {
        let cell = Cell::shm(Scenario::Oversubscribe, TINY, wait).with_streams(default_pairs());
        (cell, Metric::NsPerOp)
    };
    let (adaptive, park) = (oversubscribe(WaitName::Adaptive), oversubscribe(WaitName::Park));
    all.push(quotient("oversubscribe: time per operation, adaptive ÷ park", adaptive, park));
    all
}

fn streams() -> Vec<Measurement> {
    let kept = |size| {
        let without =
            Cell::shm(Scenario::Parallel, size, WaitName::Adaptive).with_streams(STREAMS - 1);
        let with = Cell { unread: 1, ..without };
        let name = format!(
            "parallel {}: rate of {} streams while one is never read ÷ without it",
            exact_size_name(size),
            STREAMS - 1
        );
        // The target compares two rates. The time per operation is the inverse of a rate, so the
        // ratio of the rates is the ratio of the two times, exchanged.
        quotient(&name, (without, Metric::NsPerOp), (with, Metric::NsPerOp))
    };
    [TINY, BLOCK].map(kept).into()
}

fn connections() -> Vec<Measurement> {
    let begun_in_memory = Cell::shm(Scenario::Connect, TINY, WaitName::Adaptive);
    let begun_on_socket = Cell::new(Scenario::Connect, TransportName::SHM_MOVE, TINY);
    let mut measurements = connections_of("connect", begun_in_memory);
    measurements.extend(connections_of("connect from the socket", begun_on_socket));
    measurements
}

/// The measurements for the targets on opening connections. Each divides the median time of `cell`
/// by that of a Unix socket. `cell` also says how many messages a connection carries, and whether
/// each connection has a new client process.
fn connections_of(prefix: &str, cell: Cell) -> Vec<Measurement> {
    let to_uds = |name: &str, change: fn(Cell) -> Cell| {
        let uds = Cell::new(Scenario::Connect, TransportName::UDS, TINY);
        let name = format!("{prefix}, {name}: p50 ÷ uds");
        quotient(&name, (change(cell), Metric::P50), (change(uds), Metric::P50))
    };
    vec![
        to_uds("1 message, close", |cell| cell),
        to_uds("fresh client, 1 message", Cell::fresh),
        to_uds("fresh client, 100 messages", |cell| cell.fresh().with_messages(100)),
        to_uds("fresh client, 10000 messages", |cell| cell.fresh().with_messages(10_000)),
    ]
}

fn links() -> Vec<Measurement> {
    let to_channel = |name, scenario, metric| {
        let over = |transport| Cell::new(scenario, transport, 48).waiting(WaitName::Spin);
        let (link, channel) = (over(TransportName::LINK_SHM), over(TransportName::SHM));
        quotient(name, (link, metric), (channel, metric))
    };
    let both_ways = "link 48 B, spin, both directions at once: time per message ÷ channel";
    vec![
        to_channel("link 48 B, spin: p50 ÷ channel", Scenario::Ping, Metric::P50),
        to_channel(both_ways, Scenario::Duplex, Metric::NsPerOp),
    ]
}

fn frameworks() -> Vec<Measurement> {
    let names = [("gRPC unary (tonic)", Scenario::Grpc), ("HTTP/1.1 (hyper)", Scenario::Http)];
    let mut all = Vec::new();
    for (name, scenario) in names {
        for size in [TINY, PAGE, BLOCK, LARGE] {
            for in_flight in IN_FLIGHT {
                let shm = Cell::shm(scenario, size, WaitName::Adaptive).with_streams(in_flight);
                let uds = Cell::new(scenario, TransportName::UDS, size).with_streams(in_flight);
                let metric = Metric::headline(shm);
                let metric_name = if metric == Metric::P50 { "p50" } else { "time per call" };
                let size = exact_size_name(size);
                let name = format!("{name} {size}, {in_flight} in flight: {metric_name} ÷ uds");
                all.push(quotient(&name, (shm, metric), (uds, metric)));
            }
        }
    }
    all
}

fn idle() -> Vec<Measurement> {
    let idle = Cell::shm(Scenario::Idle, TINY, WaitName::Adaptive).with_streams(IDLE_CHANNELS);
    let connect = Cell::shm(Scenario::Connect, TINY, WaitName::Adaptive);
    let session = |name: &str, cell, number| measurement(name, Number::Session(cell, number));
    vec![
        session("idle channel: wake-ups", idle, |cost| Some(ratio(cost.wakeups?, 1))),
        session("idle channel: CPU time, ns", idle, |cost| Some(ratio(cost.idle_cpu_ns?, 1))),
        session("idle channel: KiB resident per side", connect, |cost| {
            Some(cost.resident_bytes.max(cost.own_shared_bytes) / 1024.0)
        }),
    ]
}

/// The measurement of the target `name`: the ratio of two numbers, on any CPUs.
pub fn quotient(name: &str, above: (Cell, Metric), below: (Cell, Metric)) -> Measurement {
    measurement(name, Number::Ratio(above, below))
}

fn measurement(name: &str, number: Number) -> Measurement {
    Measurement { name: name.to_owned(), number, cpus: Cpus::Any }
}

impl Cpus {
    /// Whether the CPUs `pin` of the two processes are those for which the target holds.
    fn fits(self, pin: Pin) -> bool {
        match self {
            Self::Any => true,
            Self::Cores => !pin.is_on_hyperthreads(),
            Self::Hyperthreads => pin.is_on_hyperthreads(),
        }
    }
}

impl Verdict {
    fn on(bar: &Bar, measurement: Option<&Measurement>, outcomes: &[Outcome], pin: Pin) -> Self {
        let fitting = measurement.filter(|measurement| measurement.cpus.fits(pin));
        let measured = fitting.and_then(|measurement| measurement.number.measured(outcomes));
        let is_met = measured.map(|spread| bar.bar.holds(spread.median));
        let why_not = match (bar.obstacle, measurement, fitting) {
            (Some(why), ..) => format!("not measured: {why}"),
            (None, Some(_), None) => "not measured: other CPUs".to_owned(),
            (None, Some(measurement), _) if !measurement.number.is_built() => {
                "not measured: built without `--features frameworks`".to_owned()
            }
            _ => "not measured".to_owned(),
        };
        let line = vec![
            bar.name.to_owned(),
            bar.bar.to_string(),
            bar.aim.map_or_else(dash, |aim| aim.to_string()),
            measured.map_or_else(dash, |spread| format!("{:.2}", spread.median)),
            measured.map_or_else(dash, |spread| format!("{:.2}–{:.2}", spread.min, spread.max)),
            match is_met {
                Some(true) => "PASS".to_owned(),
                Some(false) => "MISS".to_owned(),
                None => why_not,
            },
        ];
        Self { line, is_met }
    }
}

impl Number {
    fn cells(self) -> Vec<Cell> {
        match self {
            Self::Ratio((above, _), (below, _)) => vec![above, below],
            Self::Plain(cell, _) | Self::Session(cell, _) => vec![cell],
        }
    }

    /// Whether this build of the program has the scenarios with which the number is measured.
    fn is_built(self) -> bool {
        self.cells().iter().all(|cell| cell.scenario.is_built())
    }

    fn measured(self, outcomes: &[Outcome]) -> Option<Spread> {
        match self {
            Self::Ratio((above, above_metric), (below, below_metric)) => {
                let below = find(outcomes, below)?;
                find(outcomes, above)?.ratio(above_metric, below, below_metric)
            }
            Self::Plain(cell, metric) => find(outcomes, cell)?.spread(metric),
            Self::Session(cell, number) => {
                let outcome = find(outcomes, cell)?;
                Spread::of(outcome.rounds().filter_map(|round| number(round.session?)))
            }
        }
    }
}

/// Returns the duration of each round that gives enough samples for those targets that measure
/// `cell`. For example, five rounds at 100 messages/s give 1,050 samples.
fn time_for(cell: Cell) -> Duration {
    Duration::from_millis(match cell.scenario {
        Scenario::Ping
        | Scenario::Throughput
        | Scenario::Duplex
        | Scenario::Grpc
        | Scenario::GrpcStream
        | Scenario::Http
        | Scenario::HttpStream => 300,
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
    fn each_row_of_the_table_is_measured_or_says_why_not() {
        assert_eq!(Targets::own().inconsistent(), [""; 0]);
        assert_eq!(without_row("bench", &measurements()), [""; 0]);
    }

    #[test]
    fn every_measured_cell_is_offered_by_the_table_of_transports() {
        for cell in Targets::own().cells() {
            assert_eq!(TRANSPORTS.runner(cell).is_some(), cell.scenario.is_built(), "{cell}");
        }
    }

    #[test]
    fn target_without_outcome_is_neither_met_nor_missed() {
        let verdicts = Targets::own().judge(&[], Pin::None);
        assert!(verdicts.iter().all(|verdict| verdict.is_met.is_none()));
        let last = |verdict: &Verdict| verdict.line.last().cloned().unwrap();
        let text = verdicts.iter().map(last).collect::<Vec<_>>().join("\n");
        assert!(text.contains("other CPUs"), "{text}");
        assert_eq!(text.contains("--features frameworks"), !Scenario::Grpc.is_built(), "{text}");
    }

    #[test]
    fn plan_of_two_rounds_has_five() {
        assert_eq!(Targets::own().plan(Some(2), None).rounds, ROUNDS);
    }
}
