// SPDX-License-Identifier: MIT OR Apache-2.0
//! Partywall speaks the protocol of `shmipc`, in two transports: one with Partywall at both ends,
//! one with a Partywall client and a server of the crate `shmipc`.
//!
//! ```text
//! shmipc-ours          our client ─► our server
//! shmipc-ours-theirs   our client ─► the server of the crate `shmipc`
//! send      reserve: a slice ─► filled in place ─► commit
//! receive   recv ─► read in place ─► dropped: the slice returns to its list
//! ```
//! Queue, region and slice classes are those of the benchmark of `shmipc`. If two
//! classes have equal size, they become one class with the sum of their shares of the region.

use std::sync::Arc;

use anyhow::{Context, Result};
use partywall::Config;
use partywall_bench::harness::cell::Cell;
use partywall_bench::harness::workspace::Setup;
use partywall_bench::transport::shm::{ShmClient, ShmServer, ShmStream};
use partywall_bench::transport::{AsyncEndpoint, Client, Payload, Server, StreamTransport};
use partywall_shmipc::{Shmipc, SizePercentPair};

use super::shmipc::{ShmipcServer, ShmipcStream, ShmipcV3};

/// The transport `shmipc-ours`: Partywall at both ends, with a session in the protocol of `shmipc`.
pub struct Own;

/// The transport `shmipc-ours-theirs`: a Partywall client, and a server of the crate `shmipc`.
pub struct OwnAndPeer;

/// The client's end of a Partywall session in the protocol of `shmipc`.
pub struct OwnClient(ShmClient);

/// A Partywall client, connected to the server of the crate `shmipc`.
pub struct MixedClient(OwnClient);

/// The server of the crate `shmipc`, for a Partywall client.
pub struct MixedServer(ShmipcServer);

/// One end of a stream between a Partywall client and a server of the crate `shmipc`.
#[expect(clippy::large_enum_variant, reason = "a few hundred values, and a box would add a load")]
pub enum MixedStream {
    /// The client's end of the stream, which belongs to Partywall.
    Own(ShmStream),
    /// The server's end of the stream, which belongs to the crate `shmipc`.
    Peer(ShmipcStream),
}

impl StreamTransport for Own {
    type Endpoint = ShmStream;
    type Client = OwnClient;
    type Server = ShmServer;

    async fn bind(cell: Cell, setup: &Setup) -> Result<ShmServer> {
        let address = format!("unix:{}", setup.path("shmipc-ours").display());
        Ok(ShmServer::bind(address, &config())?.with_protocol(protocol(cell, setup)?))
    }

    async fn connect(cell: Cell, setup: &Setup, address: &str) -> Result<OwnClient> {
        OwnClient::connect(cell, setup, address).await
    }
}

impl StreamTransport for OwnAndPeer {
    type Endpoint = MixedStream;
    type Client = MixedClient;
    type Server = MixedServer;

    async fn bind(cell: Cell, setup: &Setup) -> Result<MixedServer> {
        Ok(MixedServer(ShmipcV3::bind(cell, setup).await?))
    }

    async fn connect(cell: Cell, setup: &Setup, address: &str) -> Result<MixedClient> {
        let address = format!("unix:{address}");
        Ok(MixedClient(OwnClient::connect(cell, setup, &address).await?))
    }
}

impl OwnClient {
    async fn connect(cell: Cell, setup: &Setup, address: &str) -> Result<Self> {
        let protocol = protocol(cell, setup)?;
        Ok(Self(ShmClient::connect_with_protocol(address, &config(), protocol).await?))
    }
}

impl Client for OwnClient {
    type Endpoint = ShmStream;

    async fn open(&self) -> Result<ShmStream> {
        self.0.open().await
    }

    fn over_socket(&self) -> Option<u64> {
        Some(self.0.overflows())
    }
}

impl Client for MixedClient {
    type Endpoint = MixedStream;

    async fn open(&self) -> Result<MixedStream> {
        Ok(MixedStream::Own(self.0.open().await?))
    }

    fn over_socket(&self) -> Option<u64> {
        self.0.over_socket()
    }
}

impl Server for MixedServer {
    type Endpoint = MixedStream;

    fn address(&self) -> String {
        self.0.address()
    }

    async fn accept(&mut self) -> Result<MixedStream> {
        Ok(MixedStream::Peer(self.0.accept().await?))
    }

    async fn close(self) -> Result<()> {
        self.0.close().await
    }
}

impl AsyncEndpoint for MixedStream {
    async fn send(&mut self, payload: Payload) -> Result<()> {
        match self {
            Self::Own(stream) => stream.send(payload).await,
            Self::Peer(stream) => stream.send(payload).await,
        }
    }

    async fn receive(&mut self, payload: Payload) -> Result<()> {
        match self {
            Self::Own(stream) => stream.receive(payload).await,
            Self::Peer(stream) => stream.receive(payload).await,
        }
    }

    async fn close(self) -> Result<()> {
        match self {
            Self::Own(stream) => stream.close().await,
            Self::Peer(stream) => stream.close().await,
        }
    }
}

fn config() -> Config {
    Config::default().streams_max(STREAMS_MAX)
}

fn protocol(cell: Cell, setup: &Setup) -> Result<Arc<Shmipc>> {
    let size = u32::try_from(cell.size).context("messages of 4 GiB are too large")?;
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

/// Number of bytes that the benchmark of `shmipc` adds to the size of each slice class; Partywall
/// gets the same value here, so that both libraries use equally large memory.
const SLICE_MARGIN: u32 = 256;

/// Maximum number of streams at once, which is the largest number that `--streams` accepts.
const STREAMS_MAX: u32 = 4096;
