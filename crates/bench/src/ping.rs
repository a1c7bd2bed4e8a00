// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ping`: one message in flight, there and back; the latency is the round trip.
//!
//! ```text
//! parent   fill n ── send ──►             receive ◄── … verify n|REPLY ┐
//! child              receive, verify n, fill n|REPLY, send ────────────┘   next n
//! ```
//! The clock is read once per round trip: the end of one is the start of the next, so writing, checking and
//! bookkeeping are inside the measured time, for every transport alike.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use hdrhistogram::Histogram;

use super::cell::Cell;
use super::control::{Control, Done, Request};
use super::lane::Lane;
use super::measure::{Round, histogram};
use super::parent::{Pair, nanoseconds};
use super::pattern::REPLY;

/// The parent's part.
pub fn measure(
    cell: Cell,
    mut lane: impl Lane,
    duration: Duration,
    pair: &mut Pair,
) -> Result<Round> {
    let mut next = 0;
    let mut latency = histogram()?;
    let ops =
        pair.calibrate(duration, |ops| ping(cell, &mut lane, &mut next, ops, &mut latency))?;
    latency.reset();
    let batch = pair.run(ops, || ping(cell, &mut lane, &mut next, ops, &mut latency))?;
    Ok(batch.round(ops, 2 * ops * cell.size as u64, latency))
}

/// The child's part.
pub fn echo(cell: Cell, mut lane: impl Lane, control: &Control) -> Result<()> {
    let mut next = 0;
    control.serve(|request| {
        let Request::Run { amount } = request else { bail!("ping only runs") };
        for _ in 0..amount {
            echo_one(cell, &mut lane, next)?;
            next += 1;
        }
        lane.settle()?;
        Ok(Done::default())
    })
}

/// Echoes message `sequence`, newly written.
pub fn echo_one(cell: Cell, lane: &mut impl Lane, sequence: u64) -> Result<()> {
    lane.receive(cell.size, |message| cell.touch.verify(message, sequence))??;
    lane.send(cell.size, |message| cell.touch.fill(message, sequence | REPLY))
}

/// Sends message `sequence` and waits for its echo.
pub fn ping_one(cell: Cell, lane: &mut impl Lane, sequence: u64) -> Result<()> {
    lane.send(cell.size, |message| cell.touch.fill(message, sequence))?;
    lane.receive(cell.size, |message| cell.touch.verify(message, sequence | REPLY))??;
    Ok(())
}

/// `ops` round trips; the first few are not recorded, because the child is only just awake.
fn ping(
    cell: Cell,
    lane: &mut impl Lane,
    next: &mut u64,
    ops: u64,
    latency: &mut Histogram<u64>,
) -> Result<()> {
    let unrecorded = LEAD_IN.min(ops / 2);
    for _ in 0..unrecorded {
        ping_one(cell, lane, *next)?;
        *next += 1;
    }
    let mut start = Instant::now();
    for _ in unrecorded..ops {
        ping_one(cell, lane, *next)?;
        *next += 1;
        let end = Instant::now();
        latency.saturating_record(nanoseconds(end - start));
        start = end;
    }
    Ok(())
}

/// Round trips at the start of a batch whose latency is not recorded.
const LEAD_IN: u64 = 4;
