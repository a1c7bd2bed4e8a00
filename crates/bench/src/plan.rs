// SPDX-License-Identifier: MIT OR Apache-2.0
//! The plan of a run: the cells to measure, the duration of each and the number of rounds. A cell
//! is one combination of scenario, transport, wait strategy and size.
//!
//! ```text
//! no scenario   some cells of each scenario, under a minute, for the table and the plots
//! SCENARIO      sizes × transports × waits of the arguments, or defaults
//! targets       see report/targets.rs
//! ```

use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::arguments::{Arguments, Choice, STREAMS, UsageError};
use crate::harness::cell::{Cell, Processes, Scenario, TransportName, WaitName};
use crate::table::{TRANSPORTS, Transports};

/// The measurements of a run: the steps of each round, and the number of rounds.
#[derive(Clone)]
pub struct Plan {
    /// The measurements of a round in their order; each cell occurs once.
    pub steps: Vec<Step>,
    /// Number of rounds; each round performs every step, except a step that was already performed
    /// in its maximum number of rounds (`rounds_max`).
    pub rounds: u32,
    /// Maximum time of the run. A round begins only if it will probably end before this time;
    /// `None` sets no limit.
    pub time_max: Option<Duration>,
    /// Number of failures after which a step is skipped in later rounds. If it is 0, the first
    /// failure ends the run.
    pub failures_max: usize,
    transports: Transports,
}

/// One measurement that each round repeats: a cell, and its duration.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The cell to measure.
    pub cell: Cell,
    /// Duration of the measurement in each round.
    pub duration: Duration,
    /// Maximum number of rounds in which this step is performed, even if the run has more rounds.
    pub rounds_max: u32,
}

impl Plan {
    /// Makes a plan without measurements, to which only those cells can be added that the table
    /// `transports` offers.
    pub const fn new(rounds: u32, transports: Transports) -> Self {
        Self { steps: Vec::new(), rounds, time_max: None, failures_max: 0, transports }
    }

    /// Adds `cell`, unless the plan already has it or the table of transports does not offer it.
    pub fn add(&mut self, cell: Cell, duration: Duration) {
        let is_known = self.steps.iter().any(|step| step.cell == cell);
        if !is_known && self.transports.runner(cell).is_some() {
            let rounds_max = if cell.scenario == Scenario::Idle { 1 } else { u32::MAX };
            self.steps.push(Step { cell, duration, rounds_max });
        }
    }

    /// The number of measurements of the plan, in all rounds.
    pub fn measurements(&self) -> u64 {
        self.steps.iter().map(|step| u64::from(step.rounds_max.min(self.rounds))).sum()
    }

    /// Whether the plan measures a scenario of gRPC or HTTP.
    pub fn has_frameworks(&self) -> bool {
        self.steps.iter().any(|step| step.cell.scenario.is_of_frameworks())
    }

    /// The plan of a run without a scenario: some combinations of each scenario, in under a minute.
    pub fn selection(rounds: u32) -> Self {
        let mut plan = Self { time_max: Some(SELECTION_TIME_MAX), ..Self::new(rounds, TRANSPORTS) };
        for size in [TINY, PAGE, LARGE] {
            for cell in all_channels(Scenario::Ping, size, &WAITS) {
                plan.add(cell, ms(60));
            }
            plan.add(Cell::new(Scenario::Ping, TransportName::BASELINE_SPIN, size), ms(60));
        }
        plan.add(Cell::new(Scenario::Ping, TransportName::BASELINE_EVENTFD, EVENTFD_SIZE), ms(60));
        for size in [8, 512, 64 << 10, 4 << 20] {
            let others = [TransportName::UDS, TransportName::TCP, TransportName::BASELINE_SPIN];
            plan.add(Cell::shm(Scenario::Ping, size, WaitName::Adaptive), ms(30));
            for transport in others {
                plan.add(Cell::new(Scenario::Ping, transport, size), ms(30));
            }
        }
        for size in [TINY, BLOCK] {
            for cell in all_channels(Scenario::Throughput, size, &[WaitName::Adaptive]) {
                plan.add(cell, ms(75));
            }
        }
        let waits = [WaitName::Adaptive, WaitName::Park];
        for (rate, duration) in [(100, ms(350)), (1_000, ms(220)), (10_000, ms(120))] {
            for cell in sockets_and_shm(Scenario::Rate, TINY, &waits) {
                plan.add(cell.at_rate(rate), duration);
            }
        }
        for cell in sockets_and_shm(Scenario::Oversubscribe, TINY, &waits) {
            plan.add(cell.with_streams(default_pairs()), ms(130));
        }
        for cell in sockets_and_shm(Scenario::Parallel, TINY, &[WaitName::Adaptive]) {
            plan.add(cell.with_streams(STREAMS), ms(60));
        }
        for cell in sockets_and_sessions(Scenario::Connect) {
            plan.add(cell, ms(60));
        }
        for cell in sockets_and_sessions(Scenario::Idle) {
            plan.add(cell.with_streams(IDLE_CHANNELS), ms(1100));
        }
        plan
    }

    /// The plan of the scenario `choice`, for the transports, sizes and times that the arguments
    /// give.
    pub fn scenario(choice: Choice, arguments: &Arguments) -> Result<Self> {
        let mut plan = Self::new(arguments.rounds.unwrap_or(ROUNDS), TRANSPORTS);
        let duration = arguments.duration;
        match choice {
            Choice::Ping => {
                let sizes = or(&arguments.size, &[8, 48, 64, 512, PAGE, 64 << 10, LARGE, 4 << 20]);
                plan.add_all(
                    Scenario::Ping,
                    &sizes,
                    &BASELINES,
                    arguments,
                    duration.unwrap_or(ms(150)),
                );
            }
            Choice::Throughput => plan.add_throughput(arguments, duration.unwrap_or(ms(200))),
            Choice::Rate => {
                let sizes = or(&arguments.size, &[TINY]);
                let time = duration.unwrap_or(ms(2000));
                plan.add_all(Scenario::Rate, &sizes, &[], arguments, time);
            }
            Choice::Oversubscribe => {
                let sizes = or(&arguments.size, &[TINY]);
                plan.add_all(
                    Scenario::Oversubscribe,
                    &sizes,
                    &[],
                    arguments,
                    duration.unwrap_or(ms(400)),
                );
            }
            Choice::Parallel => {
                let sizes = or(&arguments.size, &PARALLEL_SIZES);
                let time = duration.unwrap_or(ms(300));
                plan.add_all(Scenario::Parallel, &sizes, &[], arguments, time);
            }
            Choice::Grpc => plan.add_framework(Scenario::Grpc, Scenario::GrpcStream, arguments),
            Choice::Http => plan.add_framework(Scenario::Http, Scenario::HttpStream, arguments),
            Choice::Link => plan.add_links(arguments, duration.unwrap_or(ms(300))),
            Choice::Connect => {
                let sizes = or(&arguments.size, &[TINY]);
                let time = duration.unwrap_or(ms(200));
                plan.add_all(Scenario::Connect, &sizes, &MOVING, arguments, time);
                // The cost of an idle connection depends on neither `--messages` nor `--fresh`, so
                // `idle` is measured only without these flags.
                if arguments.messages.is_empty() && !arguments.fresh {
                    let observed = duration.unwrap_or(ms(2000));
                    plan.add_all(Scenario::Idle, &sizes, &[], arguments, observed);
                }
            }
            Choice::Targets => bail!("targets have a plan of their own"),
        }
        for step in &mut plan.steps {
            step.cell.touch = arguments.touch;
        }
        if plan.steps.is_empty() {
            let why =
                "this scenario runs on none of the chosen transports; see --help for --transport";
            return Err(UsageError(why.to_owned()).into());
        }
        Ok(plan)
    }

    /// Adds a measurement of `scenario` for each size, each transport and each wait strategy. If
    /// the arguments name transports or wait strategies, only these are added.
    fn add_all(
        &mut self,
        scenario: Scenario,
        sizes: &[usize],
        baselines: &[TransportName],
        arguments: &Arguments,
        duration: Duration,
    ) {
        let all = [&OTHERS[..], baselines].concat();
        let waits = or(&arguments.wait, waits_worth_trying(scenario));
        for &size in sizes {
            let shm = waits.iter().map(|&wait| Cell::shm(scenario, size, wait));
            let others = all.iter().map(|&transport| Cell::new(scenario, transport, size));
            for cell in shm.chain(others).filter(|cell| wants(arguments, cell.transport)) {
                self.add_variants(cell, arguments, duration);
            }
        }
    }

    /// Adds `throughput` for each size, and also the round trips over `baseline-spin`, with which
    /// the report compares the results.
    fn add_throughput(&mut self, arguments: &Arguments, time: Duration) {
        let sizes = or(&arguments.size, &[TINY, PAGE, BLOCK, LARGE]);
        self.add_all(Scenario::Throughput, &sizes, &[], arguments, time);
        if wants(arguments, TransportName::BASELINE_SPIN) {
            for &size in &sizes {
                self.add(Cell::new(Scenario::Ping, TransportName::BASELINE_SPIN, size), time);
            }
        }
    }

    /// Adds the measurements of a framework, gRPC or HTTP: `unary` for each size and each number of
    /// calls in flight, and `stream`, in which a single call carries all messages.
    fn add_framework(&mut self, unary: Scenario, stream: Scenario, arguments: &Arguments) {
        let time = arguments.duration.unwrap_or(ms(200));
        let sizes = or(&arguments.size, &[TINY, PAGE, BLOCK, LARGE]);
        self.add_all(unary, &sizes, &[], arguments, time);
        self.add_all(stream, &sizes, &[], arguments, time);
    }

    /// Adds `ping`, `throughput` and `duplex` over links, and over the channels and sockets with
    /// which links are compared.
    fn add_links(&mut self, arguments: &Arguments, duration: Duration) {
        use TransportName as T;
        let waits = or(&arguments.wait, &[WaitName::Spin, WaitName::Park]);
        for scenario in [Scenario::Ping, Scenario::Throughput, Scenario::Duplex] {
            for size in or(&arguments.size, &[48, PAGE]) {
                let waiting = [T::SHM, T::LINK_SHM, T::LINK_TCP, T::LINK_UDS];
                let waiting = waiting.into_iter().flat_map(|transport| {
                    let cell = Cell::new(scenario, transport, size);
                    waits.iter().map(move |&wait| cell.waiting(wait))
                });
                let others = [T::TCP, T::UDS].map(|name| Cell::new(scenario, name, size));
                let cells = waiting.chain(others);
                for cell in cells.filter(|cell| wants(arguments, cell.transport)) {
                    self.add(cell, duration);
                }
            }
        }
    }

    /// Adds the variants of `cell` that its scenario asks for. In `rate`, there is one for each
    /// rate, in `connect` one for each number of messages. In `oversubscribe` and `parallel`,
    /// pairs, streams and busy threads come from the arguments.
    fn add_variants(&mut self, cell: Cell, arguments: &Arguments, duration: Duration) {
        match cell.scenario {
            Scenario::Ping if cell.transport == TransportName::BASELINE_EVENTFD => {
                self.add(Cell { size: EVENTFD_SIZE, ..cell }, duration);
            }
            Scenario::Rate => {
                for rate in or(&arguments.rate, &[1, 100, 1_000, 10_000, 100_000]) {
                    self.add(cell.at_rate(rate), duration);
                }
            }
            Scenario::Oversubscribe => {
                let pairs = arguments.pairs.unwrap_or_else(default_pairs).max(1);
                self.add(Cell { busy: arguments.busy, ..cell.with_streams(pairs) }, duration);
            }
            Scenario::Parallel => {
                // The difference is at least 1: `Arguments::check` rejects arguments that leave no
                // stream to read.
                let streams = arguments.streams() - arguments.unread;
                let processes = if arguments.one_process { Processes::One } else { Processes::Two };
                let cell = Cell { processes, ..cell.with_streams(streams) };
                self.add(cell, duration);
                self.add(Cell { unread: arguments.unread, ..cell }, duration);
            }
            Scenario::Connect => {
                for messages in or(&arguments.messages, &[1]) {
                    let cell = cell.with_messages(messages);
                    self.add(Cell { is_fresh: arguments.fresh, ..cell }, duration);
                }
            }
            Scenario::Idle => self.add(cell.with_streams(IDLE_CHANNELS), duration),
            Scenario::Grpc | Scenario::Http => {
                for in_flight in or(&arguments.in_flight, &IN_FLIGHT) {
                    self.add(cell.with_streams(in_flight), duration);
                }
            }
            Scenario::Ping
            | Scenario::Throughput
            | Scenario::Duplex
            | Scenario::GrpcStream
            | Scenario::HttpStream => self.add(cell, duration),
        }
    }
}

/// The number of pairs of `oversubscribe`: one more than twice the usable CPUs. The CPUs are
/// counted only once, before any thread is pinned.
pub fn default_pairs() -> usize {
    static PAIRS: OnceLock<usize> = OnceLock::new();
    *PAIRS.get_or_init(|| 2 * partywall_sys::cpu::affinity().map_or(1, |cpus| cpus.len()) + 1)
}

fn all_channels(scenario: Scenario, size: usize, waits: &[WaitName]) -> Vec<Cell> {
    let others = OTHERS.iter().map(|&transport| Cell::new(scenario, transport, size));
    waits.iter().map(|&wait| Cell::shm(scenario, size, wait)).chain(others).collect()
}

fn sockets_and_shm(scenario: Scenario, size: usize, waits: &[WaitName]) -> Vec<Cell> {
    let mut cells = all_channels(scenario, size, waits);
    cells.retain(|cell| cell.transport != TransportName::PIPE);
    cells
}

/// The cells of `scenario` over sockets, over shared memory, and over connections that begin on the
/// socket, as sessions do by default.
fn sockets_and_sessions(scenario: Scenario) -> Vec<Cell> {
    let mut cells = sockets_and_shm(scenario, TINY, &[WaitName::Adaptive]);
    let moving = Cell::new(scenario, TransportName::SHM_MOVE, TINY);
    cells.push(moving.waiting(WaitName::Adaptive));
    cells
}

/// The default wait strategies of a scenario. `spin` is left out where threads outnumber cores or
/// messages are rare, because a spinning thread then wastes the CPU time of others.
const fn waits_worth_trying(scenario: Scenario) -> &'static [WaitName] {
    match scenario {
        Scenario::Ping => &[WaitName::Spin, WaitName::Adaptive, WaitName::Park, WaitName::Poll],
        Scenario::Rate => &[WaitName::Adaptive, WaitName::Park, WaitName::Poll],
        Scenario::Throughput | Scenario::Duplex | Scenario::Oversubscribe => {
            &[WaitName::Adaptive, WaitName::Park]
        }
        Scenario::Parallel
        | Scenario::Connect
        | Scenario::Idle
        | Scenario::Grpc
        | Scenario::GrpcStream
        | Scenario::Http
        | Scenario::HttpStream => &[WaitName::Adaptive],
    }
}

fn wants(arguments: &Arguments, transport: TransportName) -> bool {
    arguments.transport.is_empty() || arguments.transport.contains(&transport)
}

fn or<T: Clone>(asked: &[T], default: &[T]) -> Vec<T> {
    if asked.is_empty() { default.to_vec() } else { asked.to_vec() }
}

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// The default number of rounds: the smallest number with a meaningful median.
pub const ROUNDS: u32 = 5;

/// Maximum time of a run without a scenario, with a margin below the minute that the help promises.
const SELECTION_TIME_MAX: Duration = Duration::from_secs(52);

/// The smallest message size in the summary table, in bytes.
pub const TINY: usize = 64;
/// A message size of the default plans: the size of a page, in bytes.
pub const PAGE: usize = 4 << 10;
/// A message size of the default plans: the block size of a file copy, in bytes.
pub const BLOCK: usize = 64 << 10;
/// The largest message size in the summary table, in bytes.
pub const LARGE: usize = 1 << 20;
/// The message size of the transport `baseline-eventfd`: the size of an eventfd's counter, in
/// bytes.
pub const EVENTFD_SIZE: usize = 8;
/// The number of channels that the scenario `idle` opens, which counts the wake-ups of waiting
/// receivers: on each of two channels another of the two processes waits.
pub const IDLE_CHANNELS: usize = 2;

/// Numbers of calls in flight with which `grpc` and `http` are measured by default and for their
/// targets.
pub const IN_FLIGHT: [usize; 2] = [1, 64];

/// Message sizes of `parallel`, from one cache line to more than most caches hold.
const PARALLEL_SIZES: [usize; 6] = [TINY, 1 << 10, PAGE, BLOCK, LARGE, 4 << 20];

const WAITS: [WaitName; 3] = [WaitName::Spin, WaitName::Adaptive, WaitName::Park];
const OTHERS: [TransportName; 3] = [TransportName::UDS, TransportName::TCP, TransportName::PIPE];
/// Transports that only `connect` measures by default: their connections begin on the socket and
/// move to shared memory.
const MOVING: [TransportName; 1] = [TransportName::SHM_MOVE];
const BASELINES: [TransportName; 2] =
    [TransportName::BASELINE_SPIN, TransportName::BASELINE_EVENTFD];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selection_leaves_time_to_warm_up_and_connect() {
        let plan = Plan::selection(ROUNDS);
        let total: Duration =
            plan.steps.iter().map(|step| step.duration * step.rounds_max.min(plan.rounds)).sum();
        assert!(total < Duration::from_secs(35), "{total:?} without warming up and connecting");
    }

    #[test]
    fn parallel_with_unread_streams_is_measured_with_and_without_them() {
        use clap::Parser;
        #[derive(Parser)]
        struct Program {
            #[command(flatten)]
            bench: Arguments,
        }
        let steps = |line: &str| {
            let program = Program::parse_from(line.split(' '));
            Plan::scenario(Choice::Parallel, &program.bench).unwrap().steps
        };
        let shm = "bench parallel --size 64 --transport shm";
        let alone = steps(&format!("{shm} --one-process"));
        assert_eq!(alone.len(), 1);
        assert_eq!((alone[0].cell.streams, alone[0].cell.processes), (199, Processes::One));
        let both = steps(&format!("{shm} --unread 1"));
        let counts: Vec<_> = both.iter().map(|s| (s.cell.streams, s.cell.unread)).collect();
        assert_eq!(counts, [(198, 0), (198, 1)]);
        assert_eq!(steps("bench parallel").len(), 18, "six sizes, and pipes have no streams");
    }

    #[test]
    fn selection_has_each_cell_once() {
        let plan = Plan::selection(ROUNDS);
        for (index, step) in plan.steps.iter().enumerate() {
            assert!(plan.steps[..index].iter().all(|other| other.cell != step.cell));
        }
    }
}
