// SPDX-License-Identifier: MIT OR Apache-2.0
//! `parallel`: many streams at once on tokio, one message in flight on each; the cost per operation.
//!
//! ```text
//! client   open ×N   Gather (warm-up)   Run (how many?)   Run (measured)      play.rs
//! server   accept ×N     "                 "                 "
//!
//! two processes   each with a runtime of as many threads as it has CPUs: one, if pinned
//! one process     both ends on one runtime, not pinned (--one-process)
//! ```
//! On the wall all streams belong to one session; the sockets have one connection each. The cost is the time that
//! all operations of all streams took, divided by their number; a latency is that of one operation amid the others.
//! Streams are opened before the clock starts, and memory has grown before, too.

mod framed;
mod lane;
mod play;
mod shm;
mod tcp;
mod uds;
mod unread;

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::runtime::Runtime;

use super::cell::{Cell, Processes};
use super::control::{Control, Done, Reply, Request};
use super::lane::Setup;
use super::measure::{Round, StreamMemory, histogram};
use super::parent::{Batch, Pair, alone, calibrate};
use lane::{Client, Server, Transport, Work, dispatch};
use play::Side;
use unread::Unread;

/// Measures `cell` once, for about `duration`.
pub fn measure(cell: Cell, setup: &Setup, duration: Duration, pair: &mut Pair) -> Result<Round> {
    dispatch(cell.transport, Measure { cell, setup, duration, pair })
}

/// The child's part, if there are two processes.
pub fn answer(cell: Cell, setup: &Setup, control: &Control) -> Result<()> {
    dispatch(cell.transport, Answer { cell, setup, control })
}

struct Measure<'a> {
    cell: Cell,
    setup: &'a Setup,
    duration: Duration,
    pair: &'a mut Pair,
}

impl Work for Measure<'_> {
    type Output = Round;

    fn on<T: Transport>(self) -> Result<Round> {
        let Self { cell, setup, duration, pair } = self;
        let runtime = runtime()?;
        let mut ends = Ends::<T>::meet(cell, setup, runtime, pair)?;
        ends.batch(pair, &Request::Gather)?;
        let amount = calibrate(1, duration, |amount| {
            Ok(ends.batch(pair, &Request::Run { amount })?.elapsed_ns)
        })?;
        let memory_before = ends.memory()?;
        let batch = ends.batch(pair, &Request::Run { amount })?;
        let memory = ends.memory()?.zip(memory_before).map(|(now, before)| StreamMemory {
            grown_bytes: now.memory_bytes.saturating_sub(before.memory_bytes),
            ..now
        });
        if cell.processes.count() > 1 {
            pair.child.close()?;
        }
        let mut latency = histogram()?;
        batch.value.iter().for_each(|&ns| latency.saturating_record(ns));
        let ops = amount * cell.streams as u64;
        let bytes = 2 * ops * cell.size as u64;
        Ok(Round { memory, ..batch.round(ops, bytes, latency) })
    }
}

struct Answer<'a> {
    cell: Cell,
    setup: &'a Setup,
    control: &'a Control,
}

impl Work for Answer<'_> {
    type Output = ();

    fn on<T: Transport>(self) -> Result<()> {
        let Self { cell, setup, control } = self;
        let runtime = runtime()?;
        let mut server = runtime.block_on(async { T::bind(cell, setup) })?;
        control.reply(&Reply::Bound { address: server.address() })?;
        let (mut side, _unread) = runtime.block_on(accept_all(cell, &mut server))?;
        control.serve(|request| {
            runtime.block_on(side.answer(&request))?;
            Ok(Done::default())
        })
    }
}

/// The client's ends of all streams; in one process also the server's.
///
/// The runtime comes last, so that all others end within it.
struct Ends<T: Transport> {
    asking: Side<T::Lane>,
    answering: Option<Answering<T>>,
    unread: Unread,
    client: T::Client,
    cell: Cell,
    runtime: Runtime,
}

/// The server's ends, if they are here too.
struct Answering<T: Transport> {
    side: Side<T::Lane>,
    /// Accepted, and never received from.
    _unread: Vec<T::Lane>,
    _server: T::Server,
}

impl<T: Transport> Ends<T> {
    /// Opens all streams.
    fn meet(cell: Cell, setup: &Setup, runtime: Runtime, pair: &mut Pair) -> Result<Self> {
        let (client, mut lanes, answering) = match cell.processes {
            Processes::Two | Processes::TwoOnOneCpu => {
                let address = pair.child.open(cell, setup)?;
                let (client, lanes) = runtime.block_on(open_all::<T>(cell, setup, &address))?;
                (client, lanes, None)
            }
            Processes::One => runtime.block_on(async {
                let mut server = T::bind(cell, setup)?;
                let address = server.address();
                let opening = open_all::<T>(cell, setup, &address);
                let ((client, lanes), (side, unread)) =
                    tokio::try_join!(opening, accept_all(cell, &mut server))?;
                let answering = Answering { side, _unread: unread, _server: server };
                Ok::<_, anyhow::Error>((client, lanes, Some(answering)))
            })?,
        };
        let unread = lanes.split_off(cell.streams);
        let unread = Unread::start(&runtime, cell, cell.streams, unread);
        Ok(Self { asking: Side::new(cell, lanes), answering, unread, client, cell, runtime })
    }

    /// Both sides' parts of one batch.
    fn batch(&mut self, pair: &mut Pair, request: &Request) -> Result<Batch<Vec<u64>>> {
        let Self { asking, answering, runtime, .. } = self;
        match answering {
            None => pair.batch(request, || runtime.block_on(asking.ask(request))),
            Some(Answering { side, .. }) => alone(|| {
                let both = async { tokio::try_join!(asking.ask(request), side.answer(request)) };
                Ok(runtime.block_on(both)?.0)
            }),
        }
    }

    /// What the session holds now; `None` for sockets.
    fn memory(&mut self) -> Result<Option<StreamMemory>> {
        let messages = self.unread.messages()?;
        Ok(self.client.memory().map(|memory| StreamMemory {
            memory_bytes: memory.bytes,
            memory_bytes_max: memory.bytes_max,
            grown_bytes: 0,
            blocks_in_flight: memory.blocks_in_flight,
            unread_messages: messages,
            unread_bytes: messages * self.cell.size as u64,
            unread_bytes_max: memory.unread_bytes_max * self.cell.unread as u64,
        }))
    }
}

async fn open_all<T: Transport>(
    cell: Cell,
    setup: &Setup,
    address: &str,
) -> Result<(T::Client, Vec<T::Lane>)> {
    let client = T::connect(cell, setup, address).await?;
    let mut lanes = Vec::with_capacity(cell.streams + cell.unread);
    for _ in 0..cell.streams + cell.unread {
        lanes.push(client.open().await?);
    }
    Ok((client, lanes))
}

/// Those that are answered, and those that nobody reads.
async fn accept_all<S: Server>(
    cell: Cell,
    server: &mut S,
) -> Result<(Side<S::Lane>, Vec<S::Lane>)> {
    let mut lanes = Vec::with_capacity(cell.streams + cell.unread);
    for _ in 0..cell.streams + cell.unread {
        lanes.push(server.accept().await?);
    }
    let unread = lanes.split_off(cell.streams);
    Ok((Side::new(cell, lanes), unread))
}

/// As many threads as there are CPUs to run on.
fn runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("starting the tokio runtime")
}
