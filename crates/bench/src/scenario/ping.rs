// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ping`: one message in flight, sent there and back; the latency is the time of the round trip.
//!
//! ```text
//! parent   fill n ── send ──►             receive ◄── … verify n|REPLY ┐
//! child              receive, verify n, fill n|REPLY, send ────────────┘   next n
//! ```
//! n is the number of a message, from which its bytes are made; a reply has the bit `REPLY` set in
//! its number. The clock is read once per round trip: the end of one round trip is the start of the
//! next. The measured time therefore contains writing, verifying and the loop itself, equally for
//! each transport.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use hdrhistogram::Histogram;

use crate::harness::cell::Cell;
use crate::harness::clock::nanoseconds;
use crate::harness::control::{Control, Done, Request};
use crate::harness::pair::Pair;
use crate::harness::pattern::REPLY;
use crate::harness::round::{Round, histogram};
use crate::transport::Endpoint;

/// Measures `ping` in the parent process, which sends each message and waits for its reply. Returns
/// the measurements.
pub fn measure(
    cell: Cell,
    mut endpoint: impl Endpoint,
    duration: Duration,
    pair: &mut Pair,
) -> Result<Round> {
    let mut next = 0;
    let mut latency = histogram()?;
    let ops =
        pair.calibrate(duration, |ops| ping(cell, &mut endpoint, &mut next, ops, &mut latency))?;
    latency.reset();
    let batch = pair.run(ops, || ping(cell, &mut endpoint, &mut next, ops, &mut latency))?;
    Ok(batch.round(ops, 2 * ops * cell.size as u64, latency))
}

/// Runs the scenario `ping` in the child process, which replies to each message of the parent.
pub fn serve(cell: Cell, mut endpoint: impl Endpoint, control: &Control) -> Result<()> {
    let mut next = 0;
    control.serve(|request| {
        let Request::Run { amount } = request else { bail!("ping only runs") };
        for _ in 0..amount {
            echo_one(cell, &mut endpoint, next)?;
            next += 1;
        }
        endpoint.settle()?;
        Ok(Done::default())
    })
}

/// Receives message `sequence`, and sends a reply with a payload of its own.
fn echo_one(cell: Cell, endpoint: &mut impl Endpoint, sequence: u64) -> Result<()> {
    endpoint.receive(cell.size, |message| cell.touch.verify(message, sequence))??;
    endpoint.send(cell.size, |message| cell.touch.fill(message, sequence | REPLY))
}

fn ping_one(cell: Cell, endpoint: &mut impl Endpoint, sequence: u64) -> Result<()> {
    endpoint.send(cell.size, |message| cell.touch.fill(message, sequence))?;
    endpoint.receive(cell.size, |message| cell.touch.verify(message, sequence | REPLY))??;
    Ok(())
}

/// Performs `ops` round trips. The first few are not recorded, because the child has just been
/// woken.
fn ping(
    cell: Cell,
    endpoint: &mut impl Endpoint,
    next: &mut u64,
    ops: u64,
    latency: &mut Histogram<u64>,
) -> Result<()> {
    let unrecorded = UNRECORDED_MAX.min(ops / 2);
    for _ in 0..unrecorded {
        ping_one(cell, endpoint, *next)?;
        *next += 1;
    }
    let mut start = Instant::now();
    for _ in unrecorded..ops {
        ping_one(cell, endpoint, *next)?;
        *next += 1;
        let end = Instant::now();
        latency.saturating_record(nanoseconds(end - start));
        start = end;
    }
    Ok(())
}

/// Number of round trips at the start of a batch that are not recorded, because the child process
/// has just been woken.
const UNRECORDED_MAX: u64 = 4;
