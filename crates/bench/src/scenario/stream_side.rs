// SPDX-License-Identifier: MIT OR Apache-2.0
//! One side of `parallel`: that side's ends of all streams, and its part in a batch, with one task
//! per stream and all tasks at once.
//!
//! ```text
//! Run { amount }   client   task ×N   (send, receive) × amount
//!                  server   task ×N   (receive, send) × amount
//!
//! Gather           client   send ×N                               receive ×N, release all
//!                  server             receive ×N, release all, send ×N
//! ```
//! `Run` and `Gather` are requests of the parent process. During `Gather` every stream has a
//! message in flight at the same time, first in one direction and then in the other. Shared memory
//! thereby reaches its largest size before the measurement.
//!
//! Reading the clock for each short operation would slow the operations down. For messages below 64
//! KiB, and for longer ones whose bytes are not touched, one operation in 16 is timed, and a
//! different one on each stream.

use std::future::Future;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use tokio::task::JoinSet;

use crate::harness::cell::Cell;
use crate::harness::clock::nanoseconds;
use crate::harness::control::Request;
use crate::harness::pattern::{REPLY, Touch};
use crate::transport::{AsyncEndpoint, Payload};

/// One side of the scenario `parallel`: its ends of all streams, and their state.
pub struct Side<E> {
    cell: Cell,
    endpoints: Vec<E>,
    /// The number of the next operation on each stream; every stream has the same number, because
    /// all have performed equally many operations.
    next: u64,
}

impl<E: AsyncEndpoint> Side<E> {
    /// Makes one side of `parallel` from that side's ends of all streams, before the first
    /// operation.
    pub const fn new(cell: Cell, endpoints: Vec<E>) -> Self {
        Self { cell, endpoints, next: 0 }
    }

    /// Runs the client's operations of a batch on all streams; returns the recorded latencies in
    /// nanoseconds.
    pub async fn request(&mut self, request: &Request) -> Result<Vec<u64>> {
        let (cell, first) = (self.cell, self.next);
        match *request {
            Request::Run { amount } => {
                self.next += amount;
                self.each(|stream, endpoint| {
                    send_and_receive(cell, endpoint, stream, first, amount)
                })
                .await
            }
            Request::Gather => {
                self.next += 1;
                self.each(|stream, endpoint| send_and_hold(cell, endpoint, stream, first)).await?;
                self.endpoints.iter_mut().for_each(AsyncEndpoint::release);
                Ok(Vec::new())
            }
            _ => bail!("parallel has no other requests than run and gather"),
        }
    }

    /// Runs the server's operations of a batch: on each stream, receives each message and replies
    /// to it.
    pub async fn respond(&mut self, request: &Request) -> Result<()> {
        let (cell, first) = (self.cell, self.next);
        match *request {
            Request::Run { amount } => {
                self.next += amount;
                self.each(|stream, endpoint| {
                    receive_and_send(cell, endpoint, stream, first, amount)
                })
                .await?;
            }
            Request::Gather => {
                self.next += 1;
                self.each(|stream, endpoint| receive_and_hold(cell, endpoint, stream, first))
                    .await?;
                self.endpoints.iter_mut().for_each(AsyncEndpoint::release);
                self.each(|stream, endpoint| reply(cell, endpoint, stream, first)).await?;
            }
            _ => bail!("parallel has no other requests than run and gather"),
        }
        Ok(())
    }

    /// Ends all streams of the measurement on this side.
    pub async fn close(self) -> Result<()> {
        for endpoint in self.endpoints {
            endpoint.close().await?;
        }
        Ok(())
    }

    /// Calls `act` with the end of each stream, all at once and each in a task. Returns the results
    /// in the order of the streams.
    async fn each<R, F>(&mut self, act: impl Fn(u64, E) -> F) -> Result<Vec<R>>
    where
        R: Send + 'static,
        F: Future<Output = Result<(E, Vec<R>)>> + Send + 'static,
    {
        let count = self.endpoints.len();
        let mut tasks = JoinSet::new();
        for (stream, endpoint) in (0_u64..).zip(self.endpoints.drain(..)) {
            let acting = act(stream, endpoint);
            tasks.spawn(async move { acting.await.map(|done| (stream, done)) });
        }
        let mut ended = Vec::with_capacity(count);
        while let Some(task) = tasks.join_next().await {
            ended.push(task.context("a stream panicked")??);
        }
        ended.sort_unstable_by_key(|&(stream, _)| stream);
        let mut all = Vec::new();
        for (_, (endpoint, yielded)) in ended {
            self.endpoints.push(endpoint);
            all.extend(yielded);
        }
        Ok(all)
    }
}

/// The payload of message `operation` on `stream`, from the client to the server.
pub const fn payload(cell: Cell, stream: u64, operation: u64) -> Payload {
    let sequence = stream << STREAM_SHIFT | operation;
    Payload { size: cell.size, touch: cell.touch, sequence }
}

const fn reply_payload(cell: Cell, stream: u64, operation: u64) -> Payload {
    let request = payload(cell, stream, operation);
    Payload { sequence: request.sequence | REPLY, ..request }
}

async fn send_and_receive<E: AsyncEndpoint>(
    cell: Cell,
    mut endpoint: E,
    stream: u64,
    first: u64,
    amount: u64,
) -> Result<(E, Vec<u64>)> {
    let is_long = cell.size >= SIZE_OF_EACH_TIMED && cell.touch == Touch::All;
    let period = if is_long { 1 } else { SAMPLE_PERIOD };
    let samples = usize::try_from(amount / period + 1).unwrap_or(usize::MAX);
    let mut latencies_ns = Vec::with_capacity(samples.min(SAMPLES_MAX));
    for operation in first..first + amount {
        let is_timed = (operation + stream).is_multiple_of(period);
        let start = if is_timed { Some(Instant::now()) } else { None };
        endpoint.send(payload(cell, stream, operation)).await?;
        endpoint.receive(reply_payload(cell, stream, operation)).await?;
        if let Some(start) = start {
            latencies_ns.push(nanoseconds(start.elapsed()));
        }
    }
    Ok((endpoint, latencies_ns))
}

async fn receive_and_send<E: AsyncEndpoint>(
    cell: Cell,
    mut endpoint: E,
    stream: u64,
    first: u64,
    amount: u64,
) -> Result<(E, Vec<()>)> {
    for operation in first..first + amount {
        endpoint.receive(payload(cell, stream, operation)).await?;
        endpoint.send(reply_payload(cell, stream, operation)).await?;
    }
    Ok((endpoint, Vec::new()))
}

async fn send_and_hold<E: AsyncEndpoint>(
    cell: Cell,
    mut endpoint: E,
    stream: u64,
    operation: u64,
) -> Result<(E, Vec<()>)> {
    endpoint.send(payload(cell, stream, operation)).await?;
    endpoint.receive_and_hold(reply_payload(cell, stream, operation)).await?;
    Ok((endpoint, Vec::new()))
}

async fn receive_and_hold<E: AsyncEndpoint>(
    cell: Cell,
    mut endpoint: E,
    stream: u64,
    operation: u64,
) -> Result<(E, Vec<()>)> {
    endpoint.receive_and_hold(payload(cell, stream, operation)).await?;
    Ok((endpoint, Vec::new()))
}

async fn reply<E: AsyncEndpoint>(
    cell: Cell,
    mut endpoint: E,
    stream: u64,
    operation: u64,
) -> Result<(E, Vec<()>)> {
    endpoint.send(reply_payload(cell, stream, operation)).await?;
    Ok((endpoint, Vec::new()))
}

/// Number of bits of a sequence number that hold the number of the operation. The higher bits hold
/// the number of the stream. The highest bit marks replies.
const STREAM_SHIFT: u32 = 40;

/// Message size in bytes from which on each operation is timed, if its bytes are written and read:
/// such an operation takes so long that reading the clock does not matter.
const SIZE_OF_EACH_TIMED: usize = 64 << 10;

/// One in this many operations is timed, if the operations are so short that reading the clock for
/// each would slow them.
const SAMPLE_PERIOD: u64 = 16;

/// Maximum number of latencies per stream for which memory is reserved before the clock starts, so
/// that recording a latency does not allocate.
const SAMPLES_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::cell::{Scenario, TransportName};

    #[test]
    fn sequence_numbers_of_different_messages_differ() {
        let cell = Cell::new(Scenario::Parallel, TransportName::SHM, 64);
        let numbers = [
            payload(cell, 0, 0).sequence,
            payload(cell, 0, 1).sequence,
            payload(cell, 1, 0).sequence,
            reply_payload(cell, 0, 0).sequence,
            reply_payload(cell, 1, 0).sequence,
            payload(cell, 4095, (1 << STREAM_SHIFT) - 1).sequence,
        ];
        for (index, number) in numbers.iter().enumerate() {
            assert!(!numbers[..index].contains(number), "{number:#x}");
        }
    }
}
