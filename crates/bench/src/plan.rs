// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which cells a run measures, how long and how often.
//!
//! ```text
//! no scenario   a bit of everything, under a minute, for the table and the plots
//! SCENARIO      sizes × transports × waits as asked for, or sensible ones
//! targets       see targets.rs
//! ```

use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Result, bail};

use super::arguments::{Arguments, Choice, STREAMS};
use super::cell::{Cell, Processes, Scenario, TransportName, WaitName};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Each cell once.
    pub steps: Vec<Step>,
    /// How often all of them take turns.
    pub rounds: u32,
    /// No round begins that would end later than this, on a machine slower than expected.
    pub time_max: Option<Duration>,
}

/// One cell in the plan.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// What to measure.
    pub cell: Cell,
    /// For how long in each round.
    pub duration: Duration,
    /// In no more rounds than this.
    pub rounds_max: u32,
}

impl Plan {
    /// An empty plan.
    pub fn new(rounds: u32) -> Self {
        Self { steps: Vec::new(), rounds, time_max: None }
    }

    /// Adds `cell` unless it is there already or makes no sense.
    pub fn add(&mut self, cell: Cell, duration: Duration) {
        let is_known = self.steps.iter().any(|step| step.cell == cell);
        if !is_known && cell.is_possible() {
            let rounds_max = if cell.scenario == Scenario::Idle { 1 } else { u32::MAX };
            self.steps.push(Step { cell, duration, rounds_max });
        }
    }

    /// Measurements in all.
    pub fn measurements(&self) -> u64 {
        self.steps.iter().map(|step| u64::from(step.rounds_max.min(self.rounds))).sum()
    }

    /// A bit of everything, in under a minute.
    pub fn selection(rounds: u32) -> Self {
        let mut plan = Self { time_max: Some(SELECTION_TIME_MAX), ..Self::new(rounds) };
        for size in [TINY, PAGE, LARGE] {
            for cell in everyone(Scenario::Ping, size, &WAITS) {
                plan.add(cell, ms(60));
            }
            plan.add(Cell::new(Scenario::Ping, TransportName::FloorSpin, size), ms(60));
        }
        plan.add(Cell::new(Scenario::Ping, TransportName::FloorEventfd, EVENTFD_SIZE), ms(60));
        for size in [8, 512, 64 << 10, 4 << 20] {
            let others = [TransportName::Uds, TransportName::Tcp, TransportName::FloorSpin];
            plan.add(ours(Scenario::Ping, size, WaitName::Adaptive), ms(30));
            for transport in others {
                plan.add(Cell::new(Scenario::Ping, transport, size), ms(30));
            }
        }
        for size in [TINY, BLOCK] {
            for cell in everyone(Scenario::Flood, size, &[WaitName::Adaptive]) {
                plan.add(cell, ms(75));
            }
        }
        let waits = [WaitName::Adaptive, WaitName::Park];
        for (rate, duration) in [(100, ms(350)), (1_000, ms(220)), (10_000, ms(120))] {
            for cell in sockets_and_ours(Scenario::Rate, TINY, &waits) {
                plan.add(cell.at_rate(rate), duration);
            }
        }
        for cell in sockets_and_ours(Scenario::Crowd, TINY, &waits) {
            plan.add(cell.with_streams(default_pairs()), ms(130));
        }
        for cell in sockets_and_ours(Scenario::Parallel, TINY, &[WaitName::Adaptive]) {
            plan.add(cell.with_streams(STREAMS), ms(60));
        }
        for cell in sockets_and_ours(Scenario::Connect, TINY, &[WaitName::Adaptive]) {
            plan.add(cell, ms(60));
        }
        for cell in sockets_and_ours(Scenario::Idle, TINY, &[WaitName::Adaptive]) {
            plan.add(cell.with_streams(IDLE_CHANNELS), ms(1500));
        }
        plan
    }

    /// One scenario, as asked for.
    pub fn scenario(choice: Choice, arguments: &Arguments) -> Result<Self> {
        let mut plan = Self::new(arguments.rounds.unwrap_or(ROUNDS));
        let duration = arguments.duration;
        match choice {
            Choice::Ping => {
                let sizes = or(&arguments.size, &[8, 48, 64, 512, PAGE, 64 << 10, LARGE, 4 << 20]);
                plan.add_all(
                    Scenario::Ping,
                    &sizes,
                    &FLOORS,
                    arguments,
                    duration.unwrap_or(ms(150)),
                );
            }
            Choice::Flood => {
                let sizes = or(&arguments.size, &[TINY, PAGE, BLOCK, LARGE]);
                let time = duration.unwrap_or(ms(200));
                plan.add_all(Scenario::Flood, &sizes, &[], arguments, time);
                if wants(arguments, TransportName::FloorSpin) {
                    for &size in &sizes {
                        plan.add(Cell::new(Scenario::Ping, TransportName::FloorSpin, size), time);
                    }
                }
            }
            Choice::Rate => {
                let sizes = or(&arguments.size, &[TINY]);
                let time = duration.unwrap_or(ms(2000));
                plan.add_all(Scenario::Rate, &sizes, &[], arguments, time);
            }
            Choice::Crowd => {
                let sizes = or(&arguments.size, &[TINY]);
                plan.add_all(Scenario::Crowd, &sizes, &[], arguments, duration.unwrap_or(ms(400)));
            }
            Choice::Parallel => {
                let sizes = or(&arguments.size, &PARALLEL_SIZES);
                let time = duration.unwrap_or(ms(300));
                plan.add_all(Scenario::Parallel, &sizes, &[], arguments, time);
            }
            Choice::Link => plan.add_links(arguments, duration.unwrap_or(ms(300))),
            Choice::Connect => {
                let sizes = or(&arguments.size, &[TINY]);
                let time = duration.unwrap_or(ms(200));
                plan.add_all(Scenario::Connect, &sizes, &[], arguments, time);
                let watched = duration.unwrap_or(ms(2000));
                plan.add_all(Scenario::Idle, &sizes, &[], arguments, watched);
            }
            Choice::Targets => bail!("targets have a plan of their own"),
        }
        for step in &mut plan.steps {
            step.cell.touch = arguments.touch;
        }
        if plan.steps.is_empty() {
            bail!("nothing to measure: this scenario does not fit the transports asked for");
        }
        Ok(plan)
    }

    /// One scenario on the transports and with the waits asked for.
    fn add_all(
        &mut self,
        scenario: Scenario,
        sizes: &[usize],
        floors: &[TransportName],
        arguments: &Arguments,
        duration: Duration,
    ) {
        let all = [&OTHERS[..], floors].concat();
        let waits = or(&arguments.wait, waits_worth_trying(scenario));
        for &size in sizes {
            let ours = waits.iter().map(|&wait| ours(scenario, size, wait));
            let others = all.iter().map(|&transport| Cell::new(scenario, transport, size));
            for cell in ours.chain(others).filter(|cell| wants(arguments, cell.transport)) {
                self.add_variants(cell, arguments, duration);
            }
        }
    }

    /// Ping, flood and duplex over links, and over what they are compared with.
    fn add_links(&mut self, arguments: &Arguments, duration: Duration) {
        use TransportName::{LinkShm, LinkTcp, LinkUds, SharedMemory, Tcp, Uds};
        let waits = or(&arguments.wait, &[WaitName::Spin, WaitName::Park]);
        for scenario in [Scenario::Ping, Scenario::Flood, Scenario::Duplex] {
            for size in or(&arguments.size, &[48, PAGE]) {
                let waiting =
                    [SharedMemory, LinkShm, LinkTcp, LinkUds].into_iter().flat_map(|transport| {
                        waits
                            .iter()
                            .map(move |&wait| Cell::new(scenario, transport, size).waiting(wait))
                    });
                let others = [Tcp, Uds].map(|transport| Cell::new(scenario, transport, size));
                let cells = waiting.chain(others);
                for cell in cells.filter(|cell| wants(arguments, cell.transport)) {
                    self.add(cell, duration);
                }
            }
        }
    }

    /// The pairs or streams, rates and busy threads that belong to the scenario.
    fn add_variants(&mut self, cell: Cell, arguments: &Arguments, duration: Duration) {
        match cell.scenario {
            Scenario::Ping if cell.transport == TransportName::FloorEventfd => {
                self.add(Cell { size: EVENTFD_SIZE, ..cell }, duration);
            }
            Scenario::Rate => {
                for rate in or(&arguments.rate, &[1, 100, 1_000, 10_000, 100_000]) {
                    self.add(cell.at_rate(rate), duration);
                }
            }
            Scenario::Crowd => {
                let pairs = arguments.pairs.unwrap_or_else(default_pairs).max(1);
                self.add(Cell { busy: arguments.busy, ..cell.with_streams(pairs) }, duration);
            }
            Scenario::Parallel => {
                let streams = arguments.streams() - arguments.unread; // checked to leave some
                let processes = if arguments.one_process { Processes::One } else { Processes::Two };
                let cell = Cell { processes, ..cell.with_streams(streams) };
                self.add(cell, duration);
                self.add(Cell { unread: arguments.unread, ..cell }, duration);
            }
            Scenario::Idle => self.add(cell.with_streams(IDLE_CHANNELS), duration),
            Scenario::Ping | Scenario::Flood | Scenario::Duplex | Scenario::Connect => {
                self.add(cell, duration);
            }
        }
    }
}

/// Our transport, waiting as `wait` says.
pub const fn ours(scenario: Scenario, size: usize, wait: WaitName) -> Cell {
    Cell::new(scenario, TransportName::SharedMemory, size).waiting(wait)
}

/// Twice the CPUs we may use and one: never enough of them. Asked once, before we are pinned to one of them.
pub fn default_pairs() -> usize {
    static PAIRS: OnceLock<usize> = OnceLock::new();
    *PAIRS.get_or_init(|| 2 * partywall_sys::cpu::affinity().map_or(1, |cpus| cpus.len()) + 1)
}

fn everyone(scenario: Scenario, size: usize, waits: &[WaitName]) -> Vec<Cell> {
    let others = OTHERS.iter().map(|&transport| Cell::new(scenario, transport, size));
    waits.iter().map(|&wait| ours(scenario, size, wait)).chain(others).collect()
}

fn sockets_and_ours(scenario: Scenario, size: usize, waits: &[WaitName]) -> Vec<Cell> {
    let mut cells = everyone(scenario, size, waits);
    cells.retain(|cell| cell.transport != TransportName::Pipe);
    cells
}

/// Spinning makes no sense where threads outnumber cores or nothing happens for long.
const fn waits_worth_trying(scenario: Scenario) -> &'static [WaitName] {
    match scenario {
        Scenario::Ping => &[WaitName::Spin, WaitName::Adaptive, WaitName::Park, WaitName::Timed],
        Scenario::Rate => &[WaitName::Adaptive, WaitName::Park, WaitName::Timed],
        Scenario::Flood | Scenario::Duplex | Scenario::Crowd => {
            &[WaitName::Adaptive, WaitName::Park]
        }
        Scenario::Parallel | Scenario::Connect | Scenario::Idle => &[WaitName::Adaptive],
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

/// Rounds unless told otherwise: the fewest that have a median worth quoting.
pub const ROUNDS: u32 = 5;

/// A selection of everything is promised in under a minute.
const SELECTION_TIME_MAX: Duration = Duration::from_secs(52);

/// The sizes of the table.
pub const TINY: usize = 64;
/// A page of text.
pub const PAGE: usize = 4 << 10;
/// What a file is copied in.
pub const BLOCK: usize = 64 << 10;
/// A picture.
pub const LARGE: usize = 1 << 20;
/// The counter of an eventfd.
pub const EVENTFD_SIZE: usize = 8;
/// A pair of channels, one watched on each side.
pub const IDLE_CHANNELS: usize = 2;

/// Of the streams at once; from one line of the cache to more than any cache.
const PARALLEL_SIZES: [usize; 6] = [TINY, 1 << 10, PAGE, BLOCK, LARGE, 4 << 20];

const WAITS: [WaitName; 3] = [WaitName::Spin, WaitName::Adaptive, WaitName::Park];
const OTHERS: [TransportName; 3] = [TransportName::Uds, TransportName::Tcp, TransportName::Pipe];
const FLOORS: [TransportName; 2] = [TransportName::FloorSpin, TransportName::FloorEventfd];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selection_leaves_time_for_everything_around_it() {
        let plan = Plan::selection(ROUNDS);
        let total: Duration =
            plan.steps.iter().map(|step| step.duration * step.rounds_max.min(plan.rounds)).sum();
        assert!(total < Duration::from_secs(35), "{total:?} without warming up and connecting");
    }

    #[test]
    fn streams_are_measured_with_and_without_those_nobody_reads() {
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
        let shm = "bench parallel --size 64 --transport wall";
        let alone = steps(&format!("{shm} --one-process"));
        assert_eq!(alone.len(), 1);
        assert_eq!((alone[0].cell.streams, alone[0].cell.processes), (199, Processes::One));
        let both = steps(&format!("{shm} --unread 1"));
        let counts: Vec<_> = both.iter().map(|s| (s.cell.streams, s.cell.unread)).collect();
        assert_eq!(counts, [(198, 0), (198, 1)]);
        assert_eq!(steps("bench parallel").len(), 18, "six sizes, and pipes have no streams");
    }

    #[test]
    fn no_cell_is_measured_twice() {
        let plan = Plan::selection(ROUNDS);
        for (index, step) in plan.steps.iter().enumerate() {
            assert!(plan.steps[..index].iter().all(|other| other.cell != step.cell));
        }
    }
}
