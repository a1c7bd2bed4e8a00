// SPDX-License-Identifier: MIT OR Apache-2.0
//! `duplex`: messages in both directions at once, as fast as possible. One operation is one message
//! of each direction.
//!
//! ```text
//! parent   send × window, then:  receive, send, receive, send …      last window: only received
//! child    the same
//! ```
//! A window is the number of messages that an end sends before it first receives one. Compared with
//! `throughput`, the scenario shows whether messages of one direction delay those of the other
//! (SPEC 12.5). At most two windows are in flight per direction. Plain sockets would deadlock if
//! both ends blocked on sending, so one window fits the buffers of each socket. No latency is
//! measured, because the queues are always full.

use std::time::Duration;

use anyhow::{Result, bail};

use crate::harness::cell::Cell;
use crate::harness::control::{Control, Done, Request};
use crate::harness::pair::Pair;
use crate::harness::pattern::REPLY;
use crate::harness::round::{Round, histogram};
use crate::transport::Endpoint;

/// Runs one end of the scenario `duplex` in the parent process, and returns the measurements.
pub fn measure(
    cell: Cell,
    mut endpoint: impl Endpoint,
    duration: Duration,
    pair: &mut Pair,
) -> Result<Round> {
    let mut next = 0;
    let mut run = |ops| exchange(cell, &mut endpoint, &mut next, ops, (0, REPLY));
    let ops = pair.calibrate(duration, &mut run)?;
    let batch = pair.run(ops, || run(ops))?;
    Ok(batch.round(ops, 2 * ops * cell.size as u64, histogram()?))
}

/// Runs the other end of the scenario `duplex` in the child process, whose peer is the parent.
pub fn serve(cell: Cell, mut endpoint: impl Endpoint, control: &Control) -> Result<()> {
    let mut next = 0;
    control.serve(|request| {
        let Request::Run { amount } = request else {
            bail!("duplex has no other request than run")
        };
        exchange(cell, &mut endpoint, &mut next, amount, (REPLY, 0))?;
        Ok(Done::default())
    })
}

/// Sends `ops` messages and receives as many. Before it receives the first message, it sends at
/// most as many as the function `window` returns. `outgoing` and `incoming` are bits of the
/// sequence numbers that differ per direction.
fn exchange(
    cell: Cell,
    endpoint: &mut impl Endpoint,
    next: &mut u64,
    ops: u64,
    (outgoing, incoming): (u64, u64),
) -> Result<()> {
    let Cell { size, touch, .. } = cell;
    let (first, end) = (*next, *next + ops);
    let mut sent = first;
    let mut send = |endpoint: &mut _, limit: u64| -> Result<()> {
        while sent < limit.min(end) {
            Endpoint::send(endpoint, size, |message| touch.fill(message, sent | outgoing))?;
            sent += 1;
        }
        Ok(())
    };
    send(endpoint, first + window(size))?;
    for sequence in first..end {
        endpoint.receive(size, |message| touch.verify(message, sequence | incoming))??;
        send(endpoint, sequence + 1 + window(size))?;
    }
    *next = end;
    endpoint.settle()
}

/// Number of messages of `size` bytes that an end sends before it receives its first message.
fn window(size: usize) -> u64 {
    (WINDOW_BYTES / size.max(1) as u64).clamp(1, WINDOW_MAX)
}

/// Number of bytes that an end sends before it receives its first message. The buffers of each
/// plain socket hold at least as many, with the headers. With more, both ends would block on
/// sending.
pub const WINDOW_BYTES: u64 = 32 << 10;
const WINDOW_MAX: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_of_any_size_fits_the_smallest_buffer() {
        assert_eq!([0, 48, 4096, 64 << 10, 1 << 20].map(window), [64, 64, 8, 1, 1]);
    }
}
