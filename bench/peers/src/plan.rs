// SPDX-License-Identifier: MIT OR Apache-2.0
//! The plan of a run of `bench-peers`: the cells to measure, in their order.
//!
//! ```text
//! no scenario   parallel untouched at three sizes, ping at 48 B; under two minutes
//! SCENARIO      sizes × transports of the arguments, or defaults
//! targets       the cells of targets.rs
//! ```
//! A cell is one combination of scenario, transport and size. Untouched messages are neither
//! written nor read. Cells of one size follow each other, so cells that are compared are measured
//! within seconds.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use partywall_bench::harness::cell::{Cell, Processes, Scenario, TransportName, WaitName};
use partywall_bench::harness::pattern::Touch;
use partywall_bench::plan::Plan;

use crate::arguments::Arguments;
use crate::table::{self, TRANSPORTS};
use crate::targets;

/// Makes the plan of the run of `bench-peers` that the arguments describe.
pub fn of(arguments: &Arguments) -> Result<Plan> {
    let mut plan = Plan::new(arguments.rounds, TRANSPORTS);
    plan.failures_max = FAILURES_MAX;
    match arguments.scenario {
        Some(choice) => match choice.scenario() {
            Some(scenario) => {
                check(scenario, arguments)?;
                add(&mut plan, scenario, all_sizes(scenario), arguments);
            }
            None => add_targets(&mut plan, arguments)?,
        },
        None => {
            plan.time_max = Some(SELECTION_TIME_MAX);
            add(&mut plan, Scenario::Parallel, &SELECTED_SIZES, arguments);
            add(&mut plan, Scenario::Ping, &PING_SIZES, arguments);
        }
    }
    ensure!(
        !plan.steps.is_empty(),
        "the scenario runs on none of these transports; see --help for their names"
    );
    Ok(plan)
}

/// Rejects arguments that the scenario `choice` cannot honour: a transport that the scenario does
/// not run on, or `--touch none` in `ping`.
fn check(scenario: Scenario, arguments: &Arguments) -> Result<()> {
    let names: Vec<_> = table::of_scenario(scenario).map(TransportName::name).collect();
    for transport in &arguments.transport {
        if !names.contains(&transport.name()) {
            let (name, scenario) = (transport.name(), scenario.name());
            bail!("{scenario} does not run on {name}; choose from {}", names.join(", "));
        }
    }
    ensure!(
        scenario != Scenario::Ping || arguments.touch != Some(Touch::None),
        "ping always writes and verifies its payload; leave out --touch none"
    );
    Ok(())
}

fn add(plan: &mut Plan, scenario: Scenario, sizes: &[usize], arguments: &Arguments) {
    let sizes = if arguments.size.is_empty() { sizes } else { &arguments.size };
    let is_wanted = |transport: &TransportName| {
        arguments.transport.is_empty() || arguments.transport.contains(transport)
    };
    for &size in sizes {
        for transport in table::of_scenario(scenario).filter(is_wanted) {
            let cell = Cell::new(scenario, transport, size);
            let cell = match scenario {
                Scenario::Parallel => Cell {
                    touch: arguments.touch.unwrap_or(Touch::None),
                    processes: match arguments.two_processes {
                        true => Processes::Two,
                        false => Processes::One,
                    },
                    ..cell.with_streams(arguments.streams)
                },
                _ if transport == TransportName::UDS => cell,
                _ => cell.waiting(WaitName::Spin),
            };
            plan.add(cell, arguments.duration);
        }
    }
}

fn add_targets(plan: &mut Plan, arguments: &Arguments) -> Result<()> {
    let is_plain = arguments.size.is_empty()
        && arguments.transport.is_empty()
        && arguments.touch.is_none()
        && !arguments.two_processes;
    ensure!(is_plain, "targets choose sizes, transports, touch and processes themselves");
    for cell in targets::all().cells() {
        plan.add(cell, arguments.duration);
    }
    Ok(())
}

const fn all_sizes(scenario: Scenario) -> &'static [usize] {
    match scenario {
        Scenario::Ping => &PING_SIZES,
        _ => &PARALLEL_SIZES,
    }
}

/// Number of failed rounds of one cell, after which later rounds leave the cell out.
const FAILURES_MAX: usize = 2;

/// Message sizes of `parallel` in bytes. They are the sizes of `shmipc`'s own benchmark, without
/// some of its intermediate sizes.
pub const PARALLEL_SIZES: [usize; 6] = [64, 1 << 10, 4 << 10, 64 << 10, 1 << 20, 4 << 20];

/// The message size of `ping` in bytes: the largest size that fits one cache line of 64 bytes
/// together with a header of 16 bytes.
const PING_SIZES: [usize; 1] = [48];

/// Message sizes in bytes of a run without a scenario: a small, a middling and a large one.
const SELECTED_SIZES: [usize; 3] = [64, 4 << 10, 1 << 20];

/// Maximum time of a run without a scenario: the help promises under two minutes.
const SELECTION_TIME_MAX: Duration = Duration::from_secs(110);
