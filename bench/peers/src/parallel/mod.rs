// SPDX-License-Identifier: MIT OR Apache-2.0
//! `parallel`: many streams at once on tokio, one message in flight on each; the cost per operation.
//!
//! ```text
//! client   open ×199   task ×199   warm-up   (send, receive) × amount   close ×199
//! server               task ×199   (receive, send) until the stream ends
//!                                            ◄── the clock runs ──►
//! ```
//! This is how `shmipc` measures itself: one session, both ends in one process on tokio's multi-threaded runtime
//! with its default number of threads, a fresh session for each measurement, and no clock read in between. So there
//! is no distribution of latencies, only elapsed time over operations. Opening, warming up (all streams at once, a quarter
//! of what is measured) and closing stay outside; there they are inside, but criterion fits a line through measurements of many lengths and quotes its slope, so they fall out
//! all the same. With two processes each end has its own runtime.

mod protocol;
mod framed;
mod lane;
mod shm;
mod shmipc;
mod tcp;
mod uds;
mod shm;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use crate::cell::{Cell, Processes};
use crate::control::{Child, Control, Reply};
use crate::measure::{Round, histogram, nanoseconds, process_cpu_ns};
use crate::pattern::REPLY;
use crate::setup::Setup;
use lane::{Client, Lane, Outgoing, Server, Shape, Transport, Work, dispatch};

/// Measures `cell` once: `amount` round trips on each stream.
pub fn measure(cell: Cell, setup: &Setup, amount: u64, child: &mut Child) -> Result<Round> {
    dispatch(cell.transport, Measure { cell, setup, amount, child })
}

/// The child's part of the same, if there are two processes.
pub fn serve(cell: Cell, setup: &Setup, control: &Control) -> Result<()> {
    dispatch(cell.transport, Serve { cell, setup, control })
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
        let runtime = runtime()?;
        if cell.processes == Processes::Two {
            let address = child.open(cell, setup, amount)?;
            let mut asking = runtime.block_on(Asking::<T>::start(cell, setup, &address, amount))?;
            child.begin()?;
            let round = runtime.block_on(asking.measure(amount))?;
            runtime.block_on(asking.close())?; // the child ends only once its streams have
            return Ok(Round { cpu_ns: round.cpu_ns + child.end()?, ..round });
        }
        runtime.block_on(async {
            let mut serving = Serving::start::<T>(cell, setup).await?;
            let address = serving.address.clone();
            let driven = tokio::select! {
                driven = drive::<T>(cell, setup, &address, amount) => driven,
                ended = &mut serving.task => {
                    ended.context("the server panicked")??;
                    bail!("the server ended too early")
                }
            };
            match (driven, serving.stop().await) {
                (Ok(round), Ok(())) => Ok(round),
                (Err(error), Err(why)) => Err(error.context(format!("the server says: {why:#}"))),
                (Err(error), Ok(())) | (Ok(_), Err(error)) => Err(error),
            }
        })
    }
}

struct Serve<'a> {
    cell: Cell,
    setup: &'a Setup,
    control: &'a Control,
}

impl Work for Serve<'_> {
    type Output = ();

    fn on<T: Transport>(self) -> Result<()> {
        let Self { cell, setup, control } = self;
        let runtime = runtime()?;
        let serving = runtime.block_on(Serving::start::<T>(cell, setup))?;
        control.reply(&Reply::Bound { address: serving.address.clone() })?;
        control.wait_begin()?;
        let cpu_before_ns = process_cpu_ns();
        control.wait_end()?;
        let cpu_ns = process_cpu_ns() - cpu_before_ns;
        runtime.block_on(serving.stop())?;
        control.reply(&Reply::Done { cpu_ns })
    }
}

/// A server at work.
struct Serving {
    address: String,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<()>>,
}

impl Serving {
    async fn start<T: Transport>(cell: Cell, setup: &Setup) -> Result<Self> {
        let shape = Shape::of(&cell);
        let server = T::bind(setup, shape).await?;
        let address = server.address();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(accept_all(server, shape, stopped));
        Ok(Self { address, stop, task })
    }

    /// Ends it; an error of any stream is returned.
    async fn stop(self) -> Result<()> {
        let _ = self.stop.send(()); // if it has ended by itself, the task says why
        self.task.await.context("the server panicked")?
    }
}

/// Accepts streams and echoes on each until told to stop.
async fn accept_all<S: Server>(
    mut server: S,
    shape: Shape,
    mut stopped: oneshot::Receiver<()>,
) -> Result<()> {
    let mut streams = JoinSet::new();
    loop {
        tokio::select! {
            lane = server.accept() => { streams.spawn(echo(lane?, shape)); }
            _ = &mut stopped => break,
        }
    }
    let all = async {
        while let Some(ended) = streams.join_next().await {
            ended.context("a stream of the server panicked")??;
        }
        Ok::<(), anyhow::Error>(())
    };
    let ended = tokio::time::timeout(STREAMS_END_TIMEOUT, all).await;
    ended.map_err(|_| anyhow!("the server does not see its streams end"))??;
    server.close().await
}

/// Echoes each message, newly written, until the stream ends; checks that none is missing.
async fn echo(mut lane: impl Lane, shape: Shape) -> Result<()> {
    let echoed = echo_until_end(&mut lane, shape).await;
    let closed = lane.close().await; // also after a failure: the other end is waiting
    echoed?;
    closed.or_else(|error| if is_gone(&error) { Ok(()) } else { Err(error) })
}

async fn echo_until_end(lane: &mut impl Lane, shape: Shape) -> Result<()> {
    let mut expected = None;
    let mut count: u64 = 0;
    while let Some(message) = lane.receive(shape).await? {
        let sequence = message.sequence.unwrap_or(0);
        if message.sequence.is_some() {
            let is_next = expected.map_or(sequence & OPERATION == 0, |next| sequence == next);
            ensure!(is_next, "message {sequence:#x} arrived instead of {expected:#x?}");
            expected = Some(sequence + 1);
        }
        lane.send(Outgoing { shape, sequence: sequence | REPLY }).await?;
        count += 1;
    }
    ensure!(count > 0, "a stream ended before its first message");
    Ok(())
}

/// The client's end: all of it.
async fn drive<T: Transport>(
    cell: Cell,
    setup: &Setup,
    address: &str,
    amount: u64,
) -> Result<Round> {
    let mut asking = Asking::<T>::start(cell, setup, address, amount).await?;
    let round = asking.measure(amount).await?;
    asking.close().await?;
    Ok(round)
}

/// The client's ends of all streams.
struct Asking<T: Transport> {
    cell: Cell,
    client: T::Client,
    lanes: Vec<T::Lane>,
    /// The next operation on each stream.
    next: u64,
}

impl<T: Transport> Asking<T> {
    /// Opens the streams and warms them up: shared memory grows and caches fill before the clock starts, for every
    /// transport alike.
    async fn start(cell: Cell, setup: &Setup, address: &str, amount: u64) -> Result<Self> {
        let client = T::connect(setup, Shape::of(&cell), address).await?;
        let mut lanes = Vec::with_capacity(cell.streams);
        for _ in 0..cell.streams {
            lanes.push(client.open().await?);
        }
        let mut asking = Self { cell, client, lanes, next: 0 };
        asking.run((amount / WARM_UP_FRACTION).max(WARM_UP_MIN)).await?;
        Ok(asking)
    }

    /// `amount` round trips on each stream, by the clock.
    async fn measure(&mut self, amount: u64) -> Result<Round> {
        let over_socket_before = self.client.over_socket();
        let cpu_before_ns = process_cpu_ns();
        let start = Instant::now();
        self.run(amount).await?;
        let elapsed_ns = nanoseconds(start.elapsed());
        let cpu_ns = process_cpu_ns() - cpu_before_ns;
        let over_socket = self.client.over_socket() - over_socket_before;
        let ops = amount * self.cell.streams as u64;
        let bytes = 2 * ops * self.cell.size as u64;
        Ok(Round { latency: histogram()?, ops, elapsed_ns, bytes, cpu_ns, over_socket })
    }

    /// `amount` round trips on each stream, all streams at once.
    async fn run(&mut self, amount: u64) -> Result<()> {
        let (shape, first) = (Shape::of(&self.cell), self.next);
        let mut streams = JoinSet::new();
        for (stream, lane) in (0..).zip(self.lanes.drain(..)) {
            let first = stream << STREAM_SHIFT | first;
            streams.spawn(async move { Ok((stream, ask(lane, shape, first, amount).await?)) });
        }
        let mut ended: Vec<(u64, T::Lane)> = Vec::with_capacity(self.cell.streams);
        while let Some(stream) = streams.join_next().await {
            let done: Result<_> = stream.context("a stream of the client panicked")?;
            ended.push(done?);
        }
        ended.sort_unstable_by_key(|&(stream, _)| stream);
        self.lanes.extend(ended.into_iter().map(|(_, lane)| lane));
        self.next += amount;
        Ok(())
    }

    async fn close(self) -> Result<()> {
        for lane in self.lanes {
            lane.close().await?;
        }
        self.client.close().await
    }
}

/// `amount` round trips on one stream; gives the lane back.
async fn ask<L: Lane>(mut lane: L, shape: Shape, first: u64, amount: u64) -> Result<L> {
    for sequence in first..first + amount {
        round_trip(&mut lane, shape, sequence).await?;
    }
    Ok(lane)
}

#[inline]
async fn round_trip(lane: &mut impl Lane, shape: Shape, sequence: u64) -> Result<()> {
    lane.send(Outgoing { shape, sequence }).await?;
    let Some(reply) = lane.receive(shape).await? else {
        bail!("the other end closed the stream before it answered");
    };
    let expected = sequence | REPLY;
    let is_right = reply.sequence.is_none_or(|sequence| sequence == expected);
    ensure!(is_right, "reply {:#x?} arrived instead of {expected:#x}", reply.sequence);
    Ok(())
}

/// The runtime that the rival's benchmark uses: as many threads as there are CPUs to run on.
fn runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("starting the tokio runtime")
}

/// Whether closing failed only because the other end has closed already.
fn is_gone(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| {
        matches!(error.kind(), std::io::ErrorKind::NotConnected | std::io::ErrorKind::BrokenPipe)
    })
}

/// How the sequence number is divided.
const STREAM_SHIFT: u32 = 32;
const OPERATION: u64 = (1 << STREAM_SHIFT) - 1;

/// The warm-up is this part of what is measured, and never less than a few round trips on each stream.
const WARM_UP_FRACTION: u64 = 4;
const WARM_UP_MIN: u64 = 4;

/// All streams have been closed by the client when this begins.
const STREAMS_END_TIMEOUT: Duration = Duration::from_secs(10);
