// SPDX-License-Identifier: MIT OR Apache-2.0
//! One side of all streams, and what it does in a batch: a task per stream, all at once.
//!
//! ```text
//! Run { amount }   client   task ×N   (send, receive) × amount
//!                  server   task ×N   (receive, send) × amount
//!
//! Gather           client   send ×N                               receive ×N, let go of all
//!                  server             receive ×N, let go of all, send ×N
//! ```
//! After `Gather` every stream has had a message in flight at once, in each direction: shared memory is as large as
//! it will ever have to be.
//!
//! Reading the clock for each operation would slow what is measured where operations are short; there one in 16 is
//! timed, and not the same one on every stream.

use std::future::Future;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use tokio::task::JoinSet;

use super::super::cell::Cell;
use super::super::control::Request;
use super::super::parent::nanoseconds;
use super::super::pattern::REPLY;
use super::lane::{Lane, Payload};

/// One end of each stream.
pub struct Side<L> {
    cell: Cell,
    lanes: Vec<L>,
    /// The number of the next operation on each stream.
    next: u64,
}

impl<L: Lane> Side<L> {
    /// Nothing done yet.
    pub const fn new(cell: Cell, lanes: Vec<L>) -> Self {
        Self { cell, lanes, next: 0 }
    }

    /// The client's part of a batch; returns the latencies that were taken, in nanoseconds.
    pub async fn ask(&mut self, request: &Request) -> Result<Vec<u64>> {
        let (cell, first) = (self.cell, self.next);
        match *request {
            Request::Run { amount } => {
                self.next += amount;
                self.each(|stream, lane| ask(cell, lane, stream, first, amount)).await
            }
            Request::Gather => {
                self.next += 1;
                self.each(|stream, lane| ask_and_hold(cell, lane, stream, first)).await?;
                self.lanes.iter_mut().for_each(Lane::let_go);
                Ok(Vec::new())
            }
            _ => bail!("parallel only runs and gathers"),
        }
    }

    /// The server's part.
    pub async fn answer(&mut self, request: &Request) -> Result<()> {
        let (cell, first) = (self.cell, self.next);
        match *request {
            Request::Run { amount } => {
                self.next += amount;
                self.each(|stream, lane| answer(cell, lane, stream, first, amount)).await?;
            }
            Request::Gather => {
                self.next += 1;
                self.each(|stream, lane| receive_and_hold(cell, lane, stream, first)).await?;
                self.lanes.iter_mut().for_each(Lane::let_go);
                self.each(|stream, lane| reply(cell, lane, stream, first)).await?;
            }
            _ => bail!("parallel only runs and gathers"),
        }
        Ok(())
    }

    /// Does `act` on every stream at once, each in a task; puts together what they yield.
    async fn each<R, F>(&mut self, act: impl Fn(u64, L) -> F) -> Result<Vec<R>>
    where
        R: Send + 'static,
        F: Future<Output = Result<(L, Vec<R>)>> + Send + 'static,
    {
        let count = self.lanes.len();
        let mut tasks = JoinSet::new();
        for (stream, lane) in (0_u64..).zip(self.lanes.drain(..)) {
            let acting = act(stream, lane);
            tasks.spawn(async move { acting.await.map(|done| (stream, done)) });
        }
        let mut ended = Vec::with_capacity(count);
        while let Some(task) = tasks.join_next().await {
            ended.push(task.context("a stream panicked")??);
        }
        ended.sort_unstable_by_key(|&(stream, _)| stream);
        let mut all = Vec::new();
        for (_, (lane, yielded)) in ended {
            self.lanes.push(lane);
            all.extend(yielded);
        }
        Ok(all)
    }
}

/// What message `operation` on `stream` holds, on its way to the server.
pub const fn payload(cell: Cell, stream: u64, operation: u64) -> Payload {
    let sequence = stream << STREAM_SHIFT | operation;
    Payload { size: cell.size, touch: cell.touch, sequence }
}

/// The same on its way back.
const fn payload_back(cell: Cell, stream: u64, operation: u64) -> Payload {
    let there = payload(cell, stream, operation);
    Payload { sequence: there.sequence | REPLY, ..there }
}

async fn ask<L: Lane>(
    cell: Cell,
    mut lane: L,
    stream: u64,
    first: u64,
    amount: u64,
) -> Result<(L, Vec<u64>)> {
    let period = if cell.size >= POLL_SIZE_MIN { 1 } else { SAMPLE_PERIOD };
    let samples = usize::try_from(amount / period + 1).unwrap_or(usize::MAX);
    let mut latencies_ns = Vec::with_capacity(samples.min(SAMPLES_MAX));
    for operation in first..first + amount {
        let is_timed = (operation + stream).is_multiple_of(period);
        let start = if is_timed { Some(Instant::now()) } else { None };
        lane.send(payload(cell, stream, operation)).await?;
        lane.receive(payload_back(cell, stream, operation)).await?;
        if let Some(start) = start {
            latencies_ns.push(nanoseconds(start.elapsed()));
        }
    }
    Ok((lane, latencies_ns))
}

async fn answer<L: Lane>(
    cell: Cell,
    mut lane: L,
    stream: u64,
    first: u64,
    amount: u64,
) -> Result<(L, Vec<()>)> {
    for operation in first..first + amount {
        lane.receive(payload(cell, stream, operation)).await?;
        lane.send(payload_back(cell, stream, operation)).await?;
    }
    Ok((lane, Vec::new()))
}

async fn ask_and_hold<L: Lane>(
    cell: Cell,
    mut lane: L,
    stream: u64,
    operation: u64,
) -> Result<(L, Vec<()>)> {
    lane.send(payload(cell, stream, operation)).await?;
    lane.receive_and_hold(payload_back(cell, stream, operation)).await?;
    Ok((lane, Vec::new()))
}

async fn receive_and_hold<L: Lane>(
    cell: Cell,
    mut lane: L,
    stream: u64,
    operation: u64,
) -> Result<(L, Vec<()>)> {
    lane.receive_and_hold(payload(cell, stream, operation)).await?;
    Ok((lane, Vec::new()))
}

async fn reply<L: Lane>(
    cell: Cell,
    mut lane: L,
    stream: u64,
    operation: u64,
) -> Result<(L, Vec<()>)> {
    lane.send(payload_back(cell, stream, operation)).await?;
    Ok((lane, Vec::new()))
}

/// How the sequence number is divided; the highest bit is that of a reply.
const STREAM_SHIFT: u32 = 40;

/// From this size on an operation takes so long that each can be timed.
const POLL_SIZE_MIN: usize = 64 << 10;

/// One operation in so many is timed where they are shorter.
const SAMPLE_PERIOD: u64 = 16;

/// Room for so many latencies per stream is made before the first; more are welcome.
const SAMPLES_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::super::super::cell::{Scenario, TransportName};
    use super::*;

    #[test]
    fn no_two_messages_have_the_same_number() {
        let cell = Cell::new(Scenario::Parallel, TransportName::SharedMemory, 64);
        let numbers = [
            payload(cell, 0, 0).sequence,
            payload(cell, 0, 1).sequence,
            payload(cell, 1, 0).sequence,
            payload_back(cell, 0, 0).sequence,
            payload_back(cell, 1, 0).sequence,
            payload(cell, 4095, (1 << STREAM_SHIFT) - 1).sequence,
        ];
        for (index, number) in numbers.iter().enumerate() {
            assert!(!numbers[..index].contains(number), "{number:#x}");
        }
    }
}
