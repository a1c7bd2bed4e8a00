// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ours in the rival's protocol: with ourselves, and with the rival as server.
//!
//! ```text
//! shmipc-ours          our client ─▶ our server
//! shmipc-ours-theirs   our client ─▶ the rival's server
//! send      reserve: a slice ─▶ filled in place ─▶ commit
//! receive   recv ─▶ read in place ─▶ dropped: the slice goes back to its list
//! ```
//! Queue, region and classes are those of the rival's benchmark, but for two classes of one size, which the rival
//! takes for two and we for one of both shares.

use std::sync::Arc;

use anyhow::{Context, Result};
use partywall::tokio::{Listener, Session, Stream, connect_with};
use partywall::{Config, SessionError, StreamRecvError};
use partywall_shmipc::{Shmipc, SizePercentPair};

use super::lane::{Client, Incoming, Lane, Outgoing, Server, Shape, Transport};
use super::shmipc::{ShmipcLane, ShmipcServer, ShmipcV3};
use crate::setup::Setup;

/// The transport `shmipc-ours`.
pub struct Ours;

/// The transport `shmipc-ours-theirs`.
pub struct OursTheirs;

/// A listener at a socket file, and the one session once it is there.
pub struct OurServer {
    listener: Listener,
    session: Option<Session>,
    address: String,
}

/// The one session.
#[derive(Clone)]
pub struct OurClient {
    session: Session,
}

/// One end of one stream of ours.
pub struct OurLane {
    stream: Stream,
}

/// One end of a stream between ours and theirs.
pub enum MixedLane {
    /// The client's.
    Ours(OurLane),
    /// The server's.
    Theirs(ShmipcLane),
}

/// Our client, of the rival's server.
#[derive(Clone)]
pub struct MixedClient(OurClient);

/// The rival's server, of our client.
pub struct MixedServer(ShmipcServer);

impl Transport for Ours {
    type Lane = OurLane;
    type Client = OurClient;
    type Server = OurServer;

    async fn bind(setup: &Setup, shape: Shape) -> Result<OurServer> {
        let address = format!("unix:{}", setup.path("dialect").display());
        let config = Config::default().streams_max(STREAMS_MAX).dialect(dialect(setup, shape)?);
        let listener = Listener::bind_with(&address, &config)?;
        Ok(OurServer { listener, session: None, address })
    }

    async fn connect(setup: &Setup, shape: Shape, address: &str) -> Result<OurClient> {
        connect(setup, shape, address).await
    }
}

impl Transport for OursTheirs {
    type Lane = MixedLane;
    type Client = MixedClient;
    type Server = MixedServer;

    async fn bind(setup: &Setup, shape: Shape) -> Result<MixedServer> {
        Ok(MixedServer(ShmipcV3::bind(setup, shape).await?))
    }

    async fn connect(setup: &Setup, shape: Shape, address: &str) -> Result<MixedClient> {
        let address = format!("unix:{address}");
        Ok(MixedClient(connect(setup, shape, &address).await?))
    }
}

async fn connect(setup: &Setup, shape: Shape, address: &str) -> Result<OurClient> {
    let config = Config::default().streams_max(STREAMS_MAX).speak(dialect(setup, shape)?);
    Ok(OurClient { session: connect_with(address, &config).await? })
}

impl Server for OurServer {
    type Lane = OurLane;

    fn address(&self) -> String {
        self.address.clone()
    }

    async fn accept(&mut self) -> Result<OurLane> {
        let session = match &self.session {
            Some(session) => session,
            None => {
                let session = self.listener.accept().await.context("accepting a session")?;
                self.session.insert(session)
            }
        };
        match session.accept().await {
            Ok(stream) => Ok(OurLane { stream }),
            // The client is done before the server is told to stop: there are just no more streams.
            Err(SessionError::Closed(_)) => std::future::pending().await,
            Err(error) => Err(error).context("accepting a stream"),
        }
    }

    async fn close(self) -> Result<()> {
        if let Some(session) = self.session {
            session.close();
        }
        Ok(())
    }
}

impl Client for OurClient {
    type Lane = OurLane;

    async fn open(&self) -> Result<OurLane> {
        Ok(OurLane { stream: self.session.open(&[]).await.context("opening a stream")? })
    }

    fn over_socket(&self) -> u64 {
        self.session.stats().overflows
    }

    async fn close(self) -> Result<()> {
        self.session.close();
        Ok(())
    }
}

impl Lane for OurLane {
    #[inline]
    async fn send(&mut self, message: Outgoing) -> Result<()> {
        let reserved = self.stream.reserve(message.shape.size).await;
        let mut reserved = reserved.context("reserving a message")?;
        message.fill(&mut reserved, 0);
        reserved.commit().await.context("sending a message")
    }

    #[inline]
    async fn receive(&mut self, shape: Shape) -> Result<Option<Incoming>> {
        match self.stream.recv().await {
            Ok(message) => shape.inspect(&message).map(Some),
            Err(StreamRecvError::Finished) => Ok(None),
            Err(error) => Err(error).context("receiving a message"),
        }
    }

    async fn close(self) -> Result<()> {
        Ok(())
    }
}

impl Server for MixedServer {
    type Lane = MixedLane;

    fn address(&self) -> String {
        self.0.address()
    }

    async fn accept(&mut self) -> Result<MixedLane> {
        Ok(MixedLane::Theirs(self.0.accept().await?))
    }

    async fn close(self) -> Result<()> {
        self.0.close().await
    }
}

impl Client for MixedClient {
    type Lane = MixedLane;

    async fn open(&self) -> Result<MixedLane> {
        Ok(MixedLane::Ours(self.0.open().await?))
    }

    fn over_socket(&self) -> u64 {
        self.0.over_socket()
    }

    async fn close(self) -> Result<()> {
        self.0.close().await
    }
}

impl Lane for MixedLane {
    async fn send(&mut self, message: Outgoing) -> Result<()> {
        match self {
            Self::Ours(lane) => lane.send(message).await,
            Self::Theirs(lane) => lane.send(message).await,
        }
    }

    async fn receive(&mut self, shape: Shape) -> Result<Option<Incoming>> {
        match self {
            Self::Ours(lane) => lane.receive(shape).await,
            Self::Theirs(lane) => lane.receive(shape).await,
        }
    }

    async fn close(self) -> Result<()> {
        match self {
            Self::Ours(lane) => lane.close().await,
            Self::Theirs(lane) => lane.close().await,
        }
    }
}

fn dialect(setup: &Setup, shape: Shape) -> Result<Arc<Shmipc>> {
    let size = u32::try_from(shape.size).context("messages of 4 GiB are too large")?;
    let mut classes: Vec<SizePercentPair> = Vec::new();
    for (size, percent) in [(size, 70), (16 << 10, 20), (64 << 10, 10)] {
        let size = (size + SLICE_MARGIN).next_multiple_of(4);
        match classes.iter_mut().find(|class| class.size == size) {
            Some(class) => class.percent += percent,
            None => classes.push(SizePercentPair { size, percent }),
        }
    }
    let region_bytes = if size >= 4 << 20 { 1 << 30 } else { 256 << 20 };
    let config = partywall_shmipc::Config::default()
        .share_memory_path_prefix(format!("/dev/shm/ours-{}-{}", setup.run_name, setup.number))
        .queue_cap(65_536)
        .share_memory_buffer_cap(region_bytes)
        .buffer_slice_sizes(classes);
    Ok(Arc::new(Shmipc::new(config)?))
}

/// What the rival's benchmark adds to each slice, in bytes.
const SLICE_MARGIN: u32 = 256;
/// As many as `--streams` may ask for.
const STREAMS_MAX: u32 = 4096;
