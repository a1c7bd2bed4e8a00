// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rate`: one way at a fixed rate, whatever the receiver does (open loop).
//!
//! ```text
//! intended   t0      t0+p     t0+2p    t0+3p        p = 1 s / rate
//! sender     ├send   │ ├send  ├send    ├send        may be late: the message still carries its *intended* time
//! receiver      └─────────latency = now - intended  so lateness anywhere counts (no coordinated omission)
//! ```
//! Both processes read `CLOCK_MONOTONIC`, which is one clock for the whole machine.
//!
//! The sender sleeps while more than 100 µs remain and spins the rest, so below 10,000 msg/s it mostly sleeps
//! and from there on it only spins: its CPU time is mostly that of pacing, the same for every transport. The
//! receiver's CPU time is what waiting costs.

use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};

use super::cell::Cell;
use super::control::{Control, Done, Request};
use super::lane::Lane;
use super::measure::{Round, histogram, pack, unpack};
use super::parent::Pair;
use super::system::{self, monotonic_ns};

/// The parent's part.
pub fn measure(
    cell: Cell,
    mut lane: impl Lane,
    duration: Duration,
    pair: &mut Pair,
) -> Result<Round> {
    system::sleep_precisely();
    let period_ns = NS_PER_SECOND / cell.rate.unwrap_or(1).max(1);
    let ops = u64::try_from(duration.as_nanos() / u128::from(period_ns)).unwrap_or(u64::MAX).max(1);
    let mut next = 0;
    let warm_up = || send_paced(cell, &mut lane, &mut next, WARM_UP_OPS, WARM_UP_PERIOD_NS);
    pair.run(WARM_UP_OPS, warm_up)?;
    let batch = pair.run(ops, || send_paced(cell, &mut lane, &mut next, ops, period_ns))?;
    Ok(batch.round(ops, ops * cell.size as u64, unpack(&batch.done.latency)?))
}

/// The child's part.
pub fn drain(cell: Cell, mut lane: impl Lane, control: &Control) -> Result<()> {
    let mut next = 0;
    control.serve(|request| {
        let Request::Run { amount } = request else { bail!("rate only runs") };
        let mut latency = histogram()?;
        for _ in 0..amount {
            let intended_ns = lane.receive(cell.size, |m| cell.touch.verify_headed(m, next))??;
            latency.saturating_record(monotonic_ns().saturating_sub(intended_ns));
            next += 1;
        }
        Ok(Done { latency: pack(&latency), ..Done::default() })
    })
}

fn send_paced(
    cell: Cell,
    lane: &mut impl Lane,
    next: &mut u64,
    ops: u64,
    period_ns: u64,
) -> Result<()> {
    let start_ns = monotonic_ns();
    for index in 0..ops {
        // The first message is one period away: the receiver is asleep by then.
        let intended_ns = start_ns + (index + 1) * period_ns;
        wait_until(intended_ns);
        lane.send(cell.size, |m| cell.touch.fill_headed(m, intended_ns, *next))?;
        *next += 1;
    }
    lane.settle()
}

fn wait_until(due_ns: u64) {
    let remaining_ns = due_ns.saturating_sub(monotonic_ns());
    if remaining_ns > SPIN_NS {
        thread::sleep(Duration::from_nanos(remaining_ns - SPIN_NS));
    }
    while monotonic_ns() < due_ns {
        std::hint::spin_loop();
    }
}

/// The last part of a pause, spun through because a timer is late by tens of microseconds.
const SPIN_NS: u64 = 100_000;

const NS_PER_SECOND: u64 = 1_000_000_000;

/// Messages sent before the measurement, and the pause between them.
const WARM_UP_OPS: u64 = 20;
const WARM_UP_PERIOD_NS: u64 = 1_000_000;
