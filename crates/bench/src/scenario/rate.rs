// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rate`: messages in one direction at a fixed rate. The sender does not slow down for a receiver
//! that cannot keep up (open loop).
//!
//! ```text
//! intended   t0      t0+p     t0+2p    t0+3p        p = 1 s / rate
//! sender     ├send   │ ├send  ├send    ├send       a late message carries its *intended* time
//! receiver      └─────────latency = now - intended  so each delay counts (no coordinated omission)
//! ```
//! Both processes read `CLOCK_MONOTONIC`, one clock for the whole machine.
//!
//! The sender sleeps while more than 100 µs remain, and spins for the rest. Below 10,000 messages
//! per second it mostly sleeps; above, it only spins. Its CPU time is mostly that of pacing, which
//! is equal for all transports. The receiver's CPU time is the cost of waiting.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::harness::cell::Cell;
use crate::harness::clock::monotonic_ns;
use crate::harness::control::{Control, Done, Request};
use crate::harness::pair::Pair;
use crate::harness::round::{Round, histogram, pack, unpack};
use crate::transport::Endpoint;

/// Runs the sender of the scenario `rate` in the parent process, and returns the measurements.
pub fn measure(
    cell: Cell,
    mut endpoint: impl Endpoint,
    duration: Duration,
    pair: &mut Pair,
) -> Result<Round> {
    sleep_precisely();
    let period_ns = NS_PER_SECOND / cell.rate.unwrap_or(1).max(1);
    let ops = u64::try_from(duration.as_nanos() / u128::from(period_ns)).unwrap_or(u64::MAX).max(1);
    let mut next = 0;
    let warm_up = || send_paced(cell, &mut endpoint, &mut next, WARM_UP_OPS, WARM_UP_PERIOD_NS);
    pair.run(WARM_UP_OPS, warm_up)?;
    let batch = pair.run(ops, || send_paced(cell, &mut endpoint, &mut next, ops, period_ns))?;
    Ok(batch.round(ops, ops * cell.size as u64, unpack(&batch.done.latency)?))
}

/// Runs the receiver of the scenario `rate` in the child process, which measures the latencies.
pub fn serve(cell: Cell, mut endpoint: impl Endpoint, control: &Control) -> Result<()> {
    let mut next = 0;
    control.serve(|request| {
        let Request::Run { amount } = request else { bail!("rate has no other request than run") };
        let mut latency = histogram()?;
        for _ in 0..amount {
            let intended_ns =
                endpoint.receive(cell.size, |m| cell.touch.verify_headed(m, next))??;
            latency.saturating_record(monotonic_ns().saturating_sub(intended_ns));
            next += 1;
        }
        Ok(Done { latency: pack(&latency), ..Done::default() })
    })
}

fn send_paced(
    cell: Cell,
    endpoint: &mut impl Endpoint,
    next: &mut u64,
    ops: u64,
    period_ns: u64,
) -> Result<()> {
    let start_ns = monotonic_ns();
    for index in 0..ops {
        // The first message of a batch is due one period after the batch's start, so that the
        // receiver already sleeps when the message arrives.
        let intended_ns = start_ns + (index + 1) * period_ns;
        wait_until(intended_ns);
        endpoint.send(cell.size, |m| cell.touch.fill_headed(m, intended_ns, *next))?;
        *next += 1;
    }
    endpoint.settle()
}

/// Sets the timer slack of the calling thread to the minimum; the default lets the kernel delay
/// timers by 50 µs.
///
/// If the kernel refuses, pauses end later and the sender spins less. The latencies remain correct.
fn sleep_precisely() {
    let thread = std::fs::read_link("/proc/thread-self").ok();
    if let Some(id) = thread.as_ref().and_then(|path| path.file_name()) {
        let _ = std::fs::write(Path::new("/proc").join(id).join("timerslack_ns"), "1");
    }
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

/// Length in nanoseconds of the last part of a pause between two messages. In this part the sender
/// polls the clock, because a timer would wake it tens of microseconds late.
const SPIN_NS: u64 = 100_000;

const NS_PER_SECOND: u64 = 1_000_000_000;

/// Number of messages of the warm-up, and the time between two of these messages, in nanoseconds.
const WARM_UP_OPS: u64 = 20;
const WARM_UP_PERIOD_NS: u64 = 1_000_000;
