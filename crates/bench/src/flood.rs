// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flood`: one way, as fast as back-pressure allows; the result is a rate.
//!
//! ```text
//! parent   send send send send …                   ◄── one reply when all are verified: the clock stops here
//! child      receive receive receive … (verify each)
//! ```
//! Every 64th message carries the time it was sent, so the latencies shown are those of messages in a full
//! queue. The inverse of the rate is *not* a latency and is not shown as one.

use std::time::Duration;

use anyhow::{Result, bail};

use super::cell::Cell;
use super::control::{Control, Done, Request};
use super::lane::Lane;
use super::measure::{Round, histogram, pack, unpack};
use super::parent::Pair;
use super::pattern::REPLY;
use super::system::monotonic_ns;

/// The parent's part.
pub fn measure(
    cell: Cell,
    mut lane: impl Lane,
    duration: Duration,
    pair: &mut Pair,
) -> Result<Round> {
    let mut next = 0;
    let mut flood = |ops| flood(cell, &mut lane, &mut next, ops);
    let ops = pair.calibrate(duration, &mut flood)?;
    let batch = pair.run(ops, || flood(ops))?;
    Ok(batch.round(ops, ops * cell.size as u64, unpack(&batch.done.latency)?))
}

/// The child's part.
pub fn drain(cell: Cell, mut lane: impl Lane, control: &Control) -> Result<()> {
    let Cell { size, touch, .. } = cell;
    let mut next = 0;
    control.serve(|request| {
        let Request::Run { amount } = request else { bail!("flood only runs") };
        let mut latency = histogram()?;
        for _ in 0..amount {
            if is_stamped(next) {
                let sent_ns = lane.receive(size, |m| touch.verify_headed(m, next))??;
                latency.saturating_record(monotonic_ns().saturating_sub(sent_ns));
            } else {
                lane.receive(size, |m| touch.verify(m, next))??;
            }
            next += 1;
        }
        lane.send(size, |m| touch.fill(m, next | REPLY))?;
        lane.settle()?;
        Ok(Done { latency: pack(&latency), ..Done::default() })
    })
}

fn flood(cell: Cell, lane: &mut impl Lane, next: &mut u64, ops: u64) -> Result<()> {
    let Cell { size, touch, .. } = cell;
    for _ in 0..ops {
        let sequence = *next;
        if is_stamped(sequence) {
            lane.send(size, |m| touch.fill_headed(m, monotonic_ns(), sequence))?;
        } else {
            lane.send(size, |m| touch.fill(m, sequence))?;
        }
        *next += 1;
    }
    lane.receive(size, |m| touch.verify(m, *next | REPLY))??;
    Ok(())
}

const fn is_stamped(sequence: u64) -> bool {
    sequence.is_multiple_of(STAMP_PERIOD)
}

/// One message in so many carries its send time; reading the clock for each would slow what is measured.
const STAMP_PERIOD: u64 = 64;
