// SPDX-License-Identifier: MIT OR Apache-2.0
//! `parallel`: many streams at once on tokio, one message in flight on each; the time per
//! operation.
//!
//! ```text
//! client   open ×N     Gather (warm-up)   Run (calibration)   Run (measured)      stream_side.rs
//! server   accept ×N     "                  "                   "
//!
//! two processes   each with a runtime of as many threads as it has CPUs: one, if pinned
//! one process     both ends on one runtime, not pinned
//! ```
//! `Gather` and `Run` are requests of the parent process: in the warm-up each stream carries one
//! message, in the other steps many. Over shared memory all streams belong to one session; over
//! sockets each has a connection of its own. The time per operation is the elapsed time divided by
//! the operations of all streams. A latency is that of one operation among all others. Streams are
//! opened, and memory grows, before the clock starts.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::runtime::Runtime;

use super::stream_side::Side;
use super::unread::UnreadStreams;
use crate::harness::cell::{Cell, Processes};
use crate::harness::control::{Control, Done, Reply, Request};
use crate::harness::pair::{Batch, Pair, alone, calibrate};
use crate::harness::round::{Round, StreamMemory, histogram};
use crate::harness::workspace::Setup;
use crate::transport::{Client, Server, StreamTransport};

/// Measures `parallel` in the parent process, which has the client's ends of all streams, and
/// returns the measurements.
pub fn measure<T: StreamTransport>(
    cell: Cell,
    setup: &Setup,
    duration: Duration,
    pair: &mut Pair,
) -> Result<Round> {
    let mut ends = Ends::<T>::open(cell, setup, runtime()?, pair)?;
    ends.batch(pair, &Request::Gather)?;
    let amount = calibrate(1, duration, |amount| {
        Ok(ends.batch(pair, &Request::Run { amount })?.elapsed_ns)
    })?;
    let memory_before = ends.memory()?;
    let over_socket_before = ends.client.over_socket();
    let batch = ends.batch(pair, &Request::Run { amount })?;
    let over_socket = ends.client.over_socket().zip(over_socket_before);
    let memory = ends.memory()?.zip(memory_before).map(|(now, before)| StreamMemory {
        grown_bytes: now.memory_bytes.saturating_sub(before.memory_bytes),
        ..now
    });
    ends.close()?;
    if cell.processes.count() > 1 {
        pair.child.close()?;
    }
    let mut latency = histogram()?;
    batch.value.iter().for_each(|&ns| latency.saturating_record(ns));
    let ops = amount * cell.streams as u64;
    let bytes = 2 * ops * cell.size as u64;
    let over_socket = over_socket.map(|(now, before)| now - before);
    Ok(Round { memory, over_socket, ..batch.round(ops, bytes, latency) })
}

/// Runs the server of `parallel` in the child process, if client and server are in two processes.
pub fn serve<T: StreamTransport>(cell: Cell, setup: &Setup, control: &Control) -> Result<()> {
    let runtime = runtime()?;
    let mut server = runtime.block_on(T::bind(cell, setup))?;
    control.reply(&Reply::Bound { address: server.address() })?;
    let (mut side, unread) = runtime.block_on(accept_all(cell, &mut server))?;
    control.serve(|request| {
        runtime.block_on(side.respond(&request))?;
        Ok(Done::default())
    })?;
    runtime.block_on(async {
        side.close().await?;
        drop(unread);
        server.close().await
    })
}

/// The client's ends of all streams of a measurement, and the client itself. In a run with one
/// process, `Ends` also holds the server's ends.
///
/// The runtime is the last field, so that all other fields are dropped before the runtime ends.
struct Ends<T: StreamTransport> {
    client_side: Side<T::Endpoint>,
    served: Option<Served<T>>,
    unread: UnreadStreams,
    client: T::Client,
    cell: Cell,
    runtime: Runtime,
}

/// The server's ends of all streams and the server itself, if they are in the same process as the
/// client.
struct Served<T: StreamTransport> {
    side: Side<T::Endpoint>,
    /// Streams that the server has accepted and never receives from.
    unread: Vec<T::Endpoint>,
    server: T::Server,
}

impl<T: StreamTransport> Ends<T> {
    /// Opens all streams of the measurement: those with replies, and those that the server never
    /// reads.
    fn open(cell: Cell, setup: &Setup, runtime: Runtime, pair: &mut Pair) -> Result<Self> {
        let (client, mut endpoints, served) = match cell.processes {
            Processes::Two | Processes::TwoOnOneCpu => {
                let address = pair.child.open(cell, setup)?;
                let (client, endpoints) = runtime.block_on(open_all::<T>(cell, setup, &address))?;
                (client, endpoints, None)
            }
            Processes::One => runtime.block_on(async {
                let mut server = T::bind(cell, setup).await?;
                let address = server.address();
                let opening = open_all::<T>(cell, setup, &address);
                let ((client, endpoints), (side, unread)) =
                    tokio::try_join!(opening, accept_all(cell, &mut server))?;
                Ok::<_, anyhow::Error>((client, endpoints, Some(Served { side, unread, server })))
            })?,
        };
        let unread = endpoints.split_off(cell.streams);
        let unread = UnreadStreams::start(&runtime, cell, cell.streams, unread);
        let client_side = Side::new(cell, endpoints);
        Ok(Self { client_side, served, unread, client, cell, runtime })
    }

    /// Runs the client's operations of one batch, and also the server's, if the server is in this
    /// process.
    fn batch(&mut self, pair: &mut Pair, request: &Request) -> Result<Batch<Vec<u64>>> {
        let Self { client_side, served, runtime, .. } = self;
        match served {
            None => pair.batch(request, || runtime.block_on(client_side.request(request))),
            Some(Served { side, .. }) => alone(|| {
                let both =
                    async { tokio::try_join!(client_side.request(request), side.respond(request)) };
                Ok(runtime.block_on(both)?.0)
            }),
        }
    }

    /// The shared memory of the client's session; `None` for a transport without shared memory.
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

    fn close(self) -> Result<()> {
        let Self { client_side, served, unread, client, runtime, .. } = self;
        runtime.block_on(async {
            drop(unread);
            client_side.close().await?;
            if let Some(Served { side, unread, server }) = served {
                side.close().await?;
                drop(unread);
                server.close().await?;
            }
            client.close().await
        })
    }
}

async fn open_all<T: StreamTransport>(
    cell: Cell,
    setup: &Setup,
    address: &str,
) -> Result<(T::Client, Vec<T::Endpoint>)> {
    let client = T::connect(cell, setup, address).await?;
    let mut endpoints = Vec::with_capacity(cell.streams + cell.unread);
    for _ in 0..cell.streams + cell.unread {
        endpoints.push(client.open().await?);
    }
    Ok((client, endpoints))
}

/// Accepts the streams on which the server replies, and those that it never reads.
async fn accept_all<S: Server>(
    cell: Cell,
    server: &mut S,
) -> Result<(Side<S::Endpoint>, Vec<S::Endpoint>)> {
    let mut endpoints = Vec::with_capacity(cell.streams + cell.unread);
    for _ in 0..cell.streams + cell.unread {
        endpoints.push(server.accept().await?);
    }
    let unread = endpoints.split_off(cell.streams);
    Ok((Side::new(cell, endpoints), unread))
}

/// A runtime with as many threads as there are usable CPUs.
fn runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("starting the tokio runtime")
}
