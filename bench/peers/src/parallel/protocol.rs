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
use partywall::Config;
use partywall_shmipc::{Shmipc, SizePercentPair};

use super::lane::{Client, Incoming, Lane, Outgoing, Server, Shape, Transport};
use super::shm::{STREAMS_MAX, ShmClient, ShmLane, ShmServer};
use super::shmipc::{ShmipcLane, ShmipcServer, ShmipcV3};
use super::shm::{STREAMS_MAX, ShmClient, ShmLane, ShmServer};
use crate::setup::Setup;

/// The transport `shmipc-ours`.
pub struct Ours;

/// The transport `shmipc-ours-theirs`.
pub struct OursTheirs;

/// One end of a stream between ours and theirs.
pub enum MixedLane {
    /// The client's.
    Ours(ShmLane),
    /// The server's.
    Theirs(ShmipcLane),
}

/// Our client, of the rival's server.
#[derive(Clone)]
pub struct MixedClient(ShmClient);

/// The rival's server, of our client.
pub struct MixedServer(ShmipcServer);

impl Transport for Ours {
    type Lane = ShmLane;
    type Client = ShmClient;
    type Server = ShmServer;

    async fn bind(setup: &Setup, shape: Shape) -> Result<ShmServer> {
        let address = format!("unix:{}", setup.path("protocol").display());
        let config = Config::default().streams_max(STREAMS_MAX);
        Ok(ShmServer::bind(address, &config)?.with_protocol(protocol(setup, shape)?))
    }

    async fn connect(setup: &Setup, shape: Shape, address: &str) -> Result<ShmClient> {
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

async fn connect(setup: &Setup, shape: Shape, address: &str) -> Result<ShmClient> {
    let config = Config::default().streams_max(STREAMS_MAX);
    ShmClient::connect_with_protocol(address, &config, protocol(setup, shape)?).await
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

fn protocol(setup: &Setup, shape: Shape) -> Result<Arc<Shmipc>> {
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
