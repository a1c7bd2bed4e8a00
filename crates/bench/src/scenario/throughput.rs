// SPDX-License-Identifier: MIT OR Apache-2.0
//! `throughput`: messages in one direction, as fast as back-pressure allows; the result is a rate.
//!
//! ```text
//! parent   send send send send …            ◄── one reply after all are verified stops the clock
//! child      receive receive receive … (verify each)
//! ```
//! Each 64th message carries its send time, so the latencies are those of messages in a full queue.
//! The inverse of the rate is *not* a latency, and is not reported as one.

use std::time::Duration;

use anyhow::{Result, bail};

use crate::harness::cell::Cell;
use crate::harness::clock::monotonic_ns;
use crate::harness::control::{Control, Done, Request};
use crate::harness::pair::Pair;
use crate::harness::pattern::REPLY;
use crate::harness::round::{Round, histogram, pack, unpack};
use crate::transport::Endpoint;

/// Runs the sender of the scenario `throughput` in the parent process, and returns the
/// measurements.
pub fn measure(
    cell: Cell,
    mut endpoint: impl Endpoint,
    duration: Duration,
    pair: &mut Pair,
) -> Result<Round> {
    let mut next = 0;
    let mut send = |ops| send_all(cell, &mut endpoint, &mut next, ops);
    let ops = pair.calibrate(duration, &mut send)?;
    let batch = pair.run(ops, || send(ops))?;
    Ok(batch.round(ops, ops * cell.size as u64, unpack(&batch.done.latency)?))
}

/// Runs the receiver of the scenario `throughput` in the child process, which verifies all messages
/// and then confirms them with one reply.
pub fn serve(cell: Cell, mut endpoint: impl Endpoint, control: &Control) -> Result<()> {
    let Cell { size, touch, .. } = cell;
    let mut next = 0;
    control.serve(|request| {
        let Request::Run { amount } = request else {
            bail!("throughput has no other request than run")
        };
        let mut latency = histogram()?;
        for _ in 0..amount {
            if is_stamped(next) {
                let sent_ns = endpoint.receive(size, |m| touch.verify_headed(m, next))??;
                latency.saturating_record(monotonic_ns().saturating_sub(sent_ns));
            } else {
                endpoint.receive(size, |m| touch.verify(m, next))??;
            }
            next += 1;
        }
        endpoint.send(size, |m| touch.fill(m, next | REPLY))?;
        endpoint.settle()?;
        Ok(Done { latency: pack(&latency), ..Done::default() })
    })
}

/// Sends `ops` messages, and waits for the reply that confirms all of them.
fn send_all(cell: Cell, endpoint: &mut impl Endpoint, next: &mut u64, ops: u64) -> Result<()> {
    let Cell { size, touch, .. } = cell;
    for _ in 0..ops {
        let sequence = *next;
        if is_stamped(sequence) {
            endpoint.send(size, |m| touch.fill_headed(m, monotonic_ns(), sequence))?;
        } else {
            endpoint.send(size, |m| touch.fill(m, sequence))?;
        }
        *next += 1;
    }
    endpoint.receive(size, |m| touch.verify(m, *next | REPLY))??;
    Ok(())
}

const fn is_stamped(sequence: u64) -> bool {
    sequence.is_multiple_of(STAMP_PERIOD)
}

/// One message in 64 carries its send time, from which its latency is computed. Reading the clock
/// for each message would slow the measured operations.
const STAMP_PERIOD: u64 = 64;
