// SPDX-License-Identifier: MIT OR Apache-2.0
//! Our own transport: one session with all streams, over shared memory, without a copy on either side.
//!
//! ```text
//! send      reserve ─► filled in place, where the receiver will read it ─► commit
//! receive   recv ─► read in place ─► dropped: its place is free again
//! ```
//! Each side may use as much memory as the rival's one pool has. The policy is `SharedMemory`: where memory cannot be shared
//! the measurement fails and says why, instead of measuring a socket under our name.

use std::sync::Arc;

use anyhow::{Context, Result};
use partywall::protocol::Protocol;
use partywall::tokio::{Listener, Session, Stream, connect_with};
use partywall::{Config, SessionError, StreamRecvError, TransportPolicy};

use super::lane::{Client, Incoming, Lane, Outgoing, Server, Shape, Transport};
use crate::setup::Setup;

/// The transport `shm`.
pub struct SharedMemory;

/// A listener at a socket file, and the one session once it is there.
pub struct ShmServer {
    listener: Listener,
    session: Option<Session>,
    address: String,
}

/// The one session.
#[derive(Clone)]
pub struct ShmClient {
    session: Session,
}

/// One end of one stream.
pub struct ShmLane {
    stream: Stream,
}

impl ShmServer {
    /// Listens at `address`, which begins with its kind.
    pub fn bind(address: String, config: &Config) -> Result<Self> {
        let listener = Listener::bind_with(&address, config)?;
        Ok(Self { listener, session: None, address })
    }

    /// Also serves another protocol.
    pub fn with_protocol(self, protocol: Arc<dyn Protocol>) -> Self {
        Self { listener: self.listener.with_protocol(protocol), ..self }
    }
}

impl ShmClient {
    /// The one session.
    pub async fn connect(address: &str, config: &Config) -> Result<Self> {
        Ok(Self { session: connect_with(address, config).await? })
    }

    /// The one session, in another protocol.
    pub async fn connect_with_protocol(
        address: &str,
        config: &Config,
        protocol: Arc<dyn Protocol>,
    ) -> Result<Self> {
        let session = partywall::tokio::connect_with_protocol(address, config, protocol).await?;
        Ok(Self { session })
    }
}

impl Transport for SharedMemory {
    type Lane = ShmLane;
    type Client = ShmClient;
    type Server = ShmServer;

    async fn bind(setup: &Setup, shape: Shape) -> Result<ShmServer> {
        ShmServer::bind(format!("unix:{}", setup.path("shm").display()), &config(shape))
    }

    async fn connect(_: &Setup, shape: Shape, address: &str) -> Result<ShmClient> {
        ShmClient::connect(address, &config(shape)).await
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
        match session.accept().await {
            Ok(stream) => Ok(ShmLane { stream }),
            // The client is done before the server is told to stop: there are just no more streams.
            // In another protocol nobody says whether that was in good order.
            Err(SessionError::Closed(_)) => std::future::pending().await,
            Err(error) => Err(error).context("accepting a stream"),
        }
    }

    async fn close(self) -> Result<()> {
        if let Some(session) = self.session {
            session.close(0, "");
        }
        Ok(())
    }
}

impl Client for ShmClient {
    type Lane = ShmLane;

    async fn open(&self) -> Result<ShmLane> {
        Ok(ShmLane { stream: self.session.open(&[]).await.context("opening a stream")? })
    }

    fn over_socket(&self) -> u64 {
        self.session.stats().overflows
    }

    async fn close(self) -> Result<()> {
        self.session.close(0, "");
        Ok(())
    }
}

impl Lane for ShmLane {
    #[inline]
    async fn send(&mut self, message: Outgoing) -> Result<()> {
        let reserved = self.stream.reserve(message.shape.size).await;
        let mut reserved = reserved.context("reserving a message")?;
        message.fill(&mut reserved, 0);
        reserved.commit().await.context("sending a message")
    }

    #[inline]
    async fn receive(&mut self, shape: Shape) -> Result<Option<Incoming>> {
        let received = self.stream.recv().await.context("receiving a message")?;
        received.map(|message| shape.inspect(&message)).transpose()
    }

    async fn close(self) -> Result<()> {
        // Dropped, both directions end, as every protocol has it.
        Ok(())
    }
}

fn config(shape: Shape) -> Config {
    Config::default()
        .transport(TransportPolicy::SharedMemory)
        .streams_max(STREAMS_MAX)
        .memory_max(if shape.size >= 4 << 20 { 1 << 30 } else { 256 << 20 })
}

/// As many as `--streams` may ask for.
pub const STREAMS_MAX: u32 = 4096;
