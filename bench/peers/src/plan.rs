// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which cells a run measures, how long and how often.
//!
//! ```text
//! no scenario   parallel untouched at three sizes, ping at 48 B; under two minutes
//! SCENARIO      sizes × transports as asked for, or sensible ones
//! ```
//! Cells of one size stand together, so that those compared with each other are measured within seconds.

use std::time::Duration;

use anyhow::{Result, bail, ensure};

use super::arguments::Arguments;
use super::cell::{Cell, Processes, Scenario, TransportName};
use super::pattern::Touch;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Each cell once.
    pub cells: Vec<Cell>,
    /// How often all of them take turns.
    pub rounds: u32,
    /// For how long each cell in each round.
    pub duration: Duration,
    /// No round begins that would end later than this, on a machine slower than expected.
    pub time_max: Option<Duration>,
}

impl Plan {
    /// What `arguments` ask for.
    pub fn of(arguments: &Arguments) -> Result<Self> {
        let mut cells = Vec::new();
        match arguments.scenario {
            Some(scenario) => {
                check(scenario, arguments)?;
                add(&mut cells, scenario, all_sizes(scenario), arguments);
            }
            None => {
                add(&mut cells, Scenario::Parallel, &SELECTED_SIZES, arguments);
                add(&mut cells, Scenario::Ping, &PING_SIZES, arguments);
            }
        }
        ensure!(
            !cells.is_empty(),
            "none of these transports takes part; see --help for their names"
        );
        let is_selection = arguments.scenario.is_none();
        Ok(Self {
            cells,
            rounds: arguments.rounds,
            duration: arguments.duration,
            time_max: is_selection.then_some(SELECTION_TIME_MAX),
        })
    }
}

/// Refuses what would silently be something else.
fn check(scenario: Scenario, arguments: &Arguments) -> Result<()> {
    for transport in &arguments.transport {
        if !scenario.transports().contains(transport) {
            let names: Vec<_> = scenario.transports().iter().map(|t| t.name()).collect();
            bail!(
                "{} does not take part in {}; choose from {}",
                transport.name(),
                scenario.name(),
                names.join(", ")
            );
        }
    }
    if scenario == Scenario::Ping {
        ensure!(
            arguments.touch != Some(Touch::None),
            "ping always touches its payload; leave out --touch none"
        );
    }
    Ok(())
}

fn add(cells: &mut Vec<Cell>, scenario: Scenario, sizes: &[usize], arguments: &Arguments) {
    let sizes = if arguments.size.is_empty() { sizes } else { &arguments.size };
    let wants = |transport: &&TransportName| {
        arguments.transport.is_empty() || arguments.transport.contains(transport)
    };
    for &size in sizes {
        for &transport in scenario.transports().iter().filter(wants) {
            let cell = match scenario {
                Scenario::Parallel => Cell {
                    streams: arguments.streams,
                    touch: arguments.touch.unwrap_or(Touch::None),
                    processes: match arguments.two_processes {
                        true => Processes::Two,
                        false => Processes::One,
                    },
                    ..ping(transport, size)
                },
                Scenario::Ping => ping(transport, size),
            };
            cells.push(Cell { scenario, ..cell });
        }
    }
}

const fn ping(transport: TransportName, size: usize) -> Cell {
    Cell {
        scenario: Scenario::Ping,
        transport,
        size,
        streams: 1,
        touch: Touch::All,
        processes: Processes::Two,
    }
}

const fn all_sizes(scenario: Scenario) -> &'static [usize] {
    match scenario {
        Scenario::Parallel => &PARALLEL_SIZES,
        Scenario::Ping => &PING_SIZES,
    }
}

/// The rival's benchmark has these and a few in between.
const PARALLEL_SIZES: [usize; 6] = [64, 1 << 10, 4 << 10, 64 << 10, 1 << 20, 4 << 20];

/// The largest message that shares one cache line with a header of 16 bytes.
const PING_SIZES: [usize; 1] = [48];

/// A small, a middling and a large one.
const SELECTED_SIZES: [usize; 3] = [64, 4 << 10, 1 << 20];

/// The selection is promised in under two minutes.
const SELECTION_TIME_MAX: Duration = Duration::from_secs(110);
