// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ping`: one message in flight between two processes, there and back; the latency is the round trip.
//!
//! ```text
//! parent   write n ── send ──►              receive ◄── … verify n|REPLY ┐
//! child               receive, verify n, write n|REPLY, send ───────────┘   next n
//! ```
//! The clock is read once per round trip: the end of one is the start of the next, so writing, checking and
//! bookkeeping are inside the measured time, for every transport alike. The same as `ping` of `partywall bench`.

mod iceoryx;
mod iceoryx_pubsub;
mod iceoryx_reqres;
mod lane;
mod shm;
mod uds;
mod shm;

use std::time::Instant;

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;

use crate::cell::Cell;
use crate::control::{Child, Control, Reply};
use crate::measure::{Round, histogram, nanoseconds, process_cpu_ns};
use crate::pattern::REPLY;
use crate::setup::Setup;
use lane::{Door, Lane, Transport, Work, dispatch};

/// Measures `cell` once: `amount` round trips, the first of them not recorded.
pub fn measure(cell: Cell, setup: &Setup, amount: u64, child: &mut Child) -> Result<Round> {
    dispatch(cell.transport, Measure { cell, setup, amount, child })
}

/// The child's part of the same.
pub fn serve(cell: Cell, setup: &Setup, amount: u64, control: &Control) -> Result<()> {
    dispatch(cell.transport, Serve { cell, setup, amount, control })
}

struct Measure<'a> {
    cell: Cell,
    setup: &'a Setup,
    amount: u64,
    child: &'a mut Child,
}

impl Work for Measure<'_> {
    type Output = Round;

    fn on<T: Transport>(self) -> Result<Round> {
        let Self { cell, setup, amount, child } = self;
        let address = child.open(cell, setup, amount)?;
        let mut lane = T::connect(setup, cell.size, &address)?;
        let mut latency = histogram()?;
        child.begin()?;
        let cpu_before_ns = process_cpu_ns();
        let start = Instant::now();
        ask(&mut lane, amount, &mut latency)?;
        let elapsed_ns = nanoseconds(start.elapsed());
        let cpu_ns = process_cpu_ns() - cpu_before_ns;
        let cpu_ns = cpu_ns + child.end()?;
        let bytes = 2 * amount * cell.size as u64;
        Ok(Round { latency, ops: amount, elapsed_ns, bytes, cpu_ns, over_socket: 0 })
    }
}

struct Serve<'a> {
    cell: Cell,
    setup: &'a Setup,
    amount: u64,
    control: &'a Control,
}

impl Work for Serve<'_> {
    type Output = ();

    fn on<T: Transport>(self) -> Result<()> {
        let Self { cell, setup, amount, control } = self;
        let door = T::bind(setup, cell.size)?;
        control.reply(&Reply::Bound { address: door.address() })?;
        let mut lane = door.accept()?;
        let cpu_before_ns = process_cpu_ns();
        control.wait_begin()?;
        for sequence in 0..amount {
            let received = lane.receive()?;
            ensure!(received == sequence, "message {received:#x} instead of {sequence:#x}");
            lane.send(sequence | REPLY)?;
        }
        let cpu_ns = process_cpu_ns() - cpu_before_ns;
        control.wait_end()?;
        drop(lane);
        control.reply(&Reply::Done { cpu_ns })
    }
}

/// `amount` round trips; what comes first finds cold caches and untouched pages, and is not recorded.
fn ask(lane: &mut impl Lane, amount: u64, latency: &mut Histogram<u64>) -> Result<()> {
    let unrecorded = (amount / LEAD_IN_FRACTION).min(LEAD_IN_MAX);
    for sequence in 0..unrecorded {
        round_trip(lane, sequence)?;
    }
    let mut start = Instant::now();
    for sequence in unrecorded..amount {
        round_trip(lane, sequence)?;
        let end = Instant::now();
        latency.saturating_record(nanoseconds(end - start));
        start = end;
    }
    Ok(())
}

#[inline]
fn round_trip(lane: &mut impl Lane, sequence: u64) -> Result<()> {
    lane.send(sequence)?;
    let reply = lane.receive()?;
    ensure!(reply == sequence | REPLY, "reply {reply:#x} instead of {:#x}", sequence | REPLY);
    Ok(())
}

/// How much of a measurement is not recorded: a tenth, or a thousand round trips if that is less.
const LEAD_IN_FRACTION: u64 = 10;
const LEAD_IN_MAX: u64 = 1000;
