// SPDX-License-Identifier: MIT OR Apache-2.0
//! `duplex`: both ways at once, as fast as possible; one operation is a message of each direction.
//!
//! ```text
//! parent   send × window, then:  receive, send, receive, send …      the last window: only received
//! child    the same
//! ```
//! Beside `flood`: whether messages of one direction need those of the other to flow (SPEC 12.5). Two windows at most are under way in
//! each direction, and both sides wait for room at once only where less than one lies in a buffer: the window is small enough for
//! every socket's. No latency is measured: the queues are full.

use std::time::Duration;

use anyhow::{Result, bail};

use super::cell::{Cell, TransportName};
use super::control::{Control, Done, Request};
use super::lane::Lane;
use super::measure::{Round, histogram};
use super::parent::Pair;
use super::pattern::REPLY;

/// The parent's part.
pub fn measure(
    cell: Cell,
    mut lane: impl Lane,
    duration: Duration,
    pair: &mut Pair,
) -> Result<Round> {
    let mut next = 0;
    let mut run = |ops| exchange(cell, &mut lane, &mut next, ops, (0, REPLY));
    let ops = pair.calibrate(duration, &mut run)?;
    let batch = pair.run(ops, || run(ops))?;
    Ok(batch.round(ops, 2 * ops * cell.size as u64, histogram()?))
}

/// The child's part.
pub fn answer(cell: Cell, mut lane: impl Lane, control: &Control) -> Result<()> {
    let mut next = 0;
    control.serve(|request| {
        let Request::Run { amount } = request else { bail!("duplex only runs") };
        exchange(cell, &mut lane, &mut next, amount, (REPLY, 0))?;
        Ok(Done::default())
    })
}

/// Sends `ops` messages and receives as many, sending no more than a window ahead. Those that go and those that come bear
/// marks of their own.
fn exchange(
    cell: Cell,
    lane: &mut impl Lane,
    next: &mut u64,
    ops: u64,
    (going, coming): (u64, u64),
) -> Result<()> {
    let Cell { size, touch, .. } = cell;
    let (first, end) = (*next, *next + ops);
    let mut sent = first;
    let mut send = |lane: &mut _, limit: u64| -> Result<()> {
        while sent < limit.min(end) {
            Lane::send(lane, size, |message| touch.fill(message, sent | going))?;
            sent += 1;
        }
        Ok(())
    };
    send(lane, first + window(size))?;
    for sequence in first..end {
        lane.receive(size, |message| touch.verify(message, sequence | coming))??;
        send(lane, sequence + 1 + window(size))?;
    }
    *next = end;
    lane.settle()
}

/// Whether both sides can send before they receive: through plain sockets only what lies in their buffers.
pub fn fits(transport: TransportName, size: usize) -> bool {
    let is_plain =
        matches!(transport, TransportName::Pipe | TransportName::Tcp | TransportName::Uds);
    !is_plain || size as u64 <= WINDOW_BYTES
}

/// How many messages are under way in each direction.
fn window(size: usize) -> u64 {
    (WINDOW_BYTES / size.max(1) as u64).clamp(1, WINDOW_MAX)
}

/// No socket's buffers hold less, with what a protocol adds to each message.
const WINDOW_BYTES: u64 = 32 << 10;
const WINDOW_MAX: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_fits_the_smallest_buffer() {
        assert_eq!([0, 48, 4096, 64 << 10, 1 << 20].map(window), [64, 64, 8, 1, 1]);
        assert!(fits(TransportName::Tcp, 32 << 10) && fits(TransportName::SharedMemory, 1 << 20));
        assert!(!fits(TransportName::Uds, (32 << 10) + 1));
    }
}
