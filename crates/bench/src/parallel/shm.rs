// SPDX-License-Identifier: MIT OR Apache-2.0
//! Our own transport: one session with all streams, over shared memory, without a copy on either side.
//!
//! ```text
//! send      reserve ─► filled in place, where the receiver will read it ─► commit
//! receive   recv ─► read in place ─► dropped: its place is free again
//! ```
//! Each side may have a message of every stream in flight at once; what lies unread of a stream is bounded as by
//! default. The policy is `SharedMemory`: where memory cannot be shared the measurement fails and says why, instead of
//! measuring a socket under our name.

use anyhow::{Context, Result, ensure};
use partywall::tokio::{Listener, Session, Stream, connect_with};
use partywall::{Config, Message, TransportPolicy};

use super::super::cell::Cell;
use super::super::lane::Setup;
use super::super::shm::wait_of;
use super::lane::{Client, Lane, Memory, Payload, Server, Transport};

/// The transport `shm`.
pub struct SharedMemory;

/// A listener at a socket file, and the one session once it is there.
pub struct ShmServer {
    listener: Listener,
    session: Option<Session>,
    address: String,
}

/// The one session.
pub struct ShmClient {
    session: Session,
    bytes_max: u64,
    unread_bytes_max: u64,
}

/// One end of one stream.
pub struct ShmLane {
    stream: Stream,
    held: Option<Message>,
}

impl Transport for SharedMemory {
    type Lane = ShmLane;
    type Client = ShmClient;
    type Server = ShmServer;

    fn bind(cell: Cell, setup: &Setup) -> Result<ShmServer> {
        let address = format!("unix:{}", setup.directory.join("parallel-wall.sock").display());
        let listener = Listener::bind_with(&address, &config(cell, setup))?;
        Ok(ShmServer { listener, session: None, address })
    }

    async fn connect(cell: Cell, setup: &Setup, address: &str) -> Result<ShmClient> {
        let session = connect_with(address, &config(cell, setup)).await?;
        // A single message may be longer than what may lie unread.
        let unread_bytes_max = STREAM_WINDOW.max(cell.size as u64);
        Ok(ShmClient { session, bytes_max: memory_max(cell), unread_bytes_max })
    }
}

impl Server for ShmServer {
    type Lane = ShmLane;

    fn address(&self) -> String {
        self.address.clone()
    }

    async fn accept(&mut self) -> Result<ShmLane> {
        let session = match &self.session {
            Some(session) => session,
            None => {
                let session = self.listener.accept().await.context("accepting a session")?;
                self.session.insert(session)
            }
        };
        let stream = session.accept().await.context("accepting a stream")?;
        Ok(ShmLane { stream, held: None })
    }
}

impl Client for ShmClient {
    type Lane = ShmLane;

    async fn open(&self) -> Result<ShmLane> {
        let stream = self.session.open(&[]).await.context("opening a stream")?;
        Ok(ShmLane { stream, held: None })
    }

    fn memory(&self) -> Option<Memory> {
        let stats = self.session.stats();
        Some(Memory {
            bytes: stats.memory_bytes,
            bytes_max: self.bytes_max,
            blocks_in_flight: stats.blocks_in_flight,
            unread_bytes_max: self.unread_bytes_max,
        })
    }
}

impl Lane for ShmLane {
    #[inline]
    async fn send(&mut self, payload: Payload) -> Result<()> {
        let reserved = self.stream.reserve(payload.size).await;
        let mut reserved = reserved.context("reserving a message")?;
        payload.fill(&mut reserved);
        reserved.commit().await.context("sending a message")
    }

    #[inline]
    async fn receive(&mut self, payload: Payload) -> Result<()> {
        self.take(payload).await.map(drop)
    }

    async fn receive_and_hold(&mut self, payload: Payload) -> Result<()> {
        self.held = Some(self.take(payload).await?);
        Ok(())
    }

    fn let_go(&mut self) {
        self.held = None;
    }
}

impl ShmLane {
    #[inline]
    async fn take(&mut self, payload: Payload) -> Result<Message> {
        let message = self.stream.recv().await.context("receiving a message")?;
        let (size, len) = (payload.size, message.len());
        ensure!(len == size, "received {len} bytes instead of {size}");
        payload.verify(&message)?;
        Ok(message)
    }
}

fn config(cell: Cell, setup: &Setup) -> Config {
    let streams = cell.streams + cell.unread;
    Config::default()
        .wait(wait_of(setup))
        .transport(TransportPolicy::SharedMemory)
        .stream_window(STREAM_WINDOW)
        .streams_max(u32::try_from(streams).unwrap_or(u32::MAX).max(STREAMS_MIN))
        .peer_blocks_max((RELEASE_FACTOR * streams as u64).next_power_of_two().max(RELEASE_MIN))
        .memory_max(memory_max(cell))
}

/// A message of every stream, each in a block of up to twice its size, and what may lie unread.
fn memory_max(cell: Cell) -> u64 {
    let (streams, unread, size) = (cell.streams as u64, cell.unread as u64, cell.size as u64);
    let unread_bytes = unread * (STREAM_WINDOW + 2 * size);
    (2 * streams * size + unread_bytes).max(MEMORY_MIN)
}

/// The library's default, here because it is shown beside what lies unread.
const STREAM_WINDOW: u64 = 256 << 10;

/// Never less than the library's defaults.
const STREAMS_MIN: u32 = 1024;
const RELEASE_MIN: u64 = 1024;
const MEMORY_MIN: u64 = 64 << 20;

/// A large message of every stream is held at once before anything is measured; twice that is room enough.
const RELEASE_FACTOR: u64 = 2;
