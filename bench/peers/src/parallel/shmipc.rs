// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rival `shmipc`, configured and used as its own benchmark does (`benches/bench.rs` of the crate, 0.2.1).
//!
//! ```text
//! session   1 for all streams      queue 65,536 slots      shared memory 256 MiB (1 GiB from 4 MiB messages on)
//! slices    70 % of message size + 256      20 % of 16 KiB + 256      10 % of 64 KiB + 256
//! client    claim a slice, flush | receive, release and reuse the slice received for the next message
//! server    receive, release | claim a slice, flush
//! ```
//! Untouched, a message is claimed but not written, and discarded without being read; that is what the rival
//! publishes. Touched, it is written into the claimed slices and read out of them, without a copy on either side.
//! When no slice of its own size is left, a message takes several smaller ones, so pieces may be many.
//!
//! Two things differ from the rival's code, neither in the measured path: protocol v4 may not fall back to v3 (it
//! would be measured under a wrong name), and a full queue is retried a bounded number of times.

use std::marker::PhantomData;
use std::os::unix::net::SocketAddr;
use std::time::Duration;

use ::shmipc::buffer::{BufferReader, LinkedBuffer};
use ::shmipc::config::{Config, ProtocolMode, SizePercentPair};
use ::shmipc::consts::MemMapType;
use ::shmipc::session::{SessionManager, SessionManagerConfig};
use ::shmipc::stream::Stream;
use ::shmipc::transport::{DefaultUnixConnect, DefaultUnixListen};
use ::shmipc::{Error, Listener};
use anyhow::{Context, Result, bail, ensure};

use super::lane::{Client, Incoming, Lane, Outgoing, Server, Shape, Transport};
use crate::pattern::{Inspection, Touch};
use crate::setup::Setup;

/// A protocol of the rival.
pub trait Protocol: Send + Sync + 'static {
    /// The rival's configuration before the sizes are set.
    fn config() -> Config;
}

/// Its default for memory from memfd.
pub struct V3;

/// The latest, with wake-ups by eventfd.
pub struct V4Eventfd;

/// The transport `shmipc-0.2.1-v3`.
pub type ShmipcV3 = Shmipc<V3>;

/// The transport `shmipc-0.2.1-v4-eventfd`.
pub type ShmipcV4Eventfd = Shmipc<V4Eventfd>;

/// The rival with one of its protocols.
pub struct Shmipc<P>(PhantomData<P>);

/// A bound socket, over which sessions agree on their memory.
pub struct ShmipcServer {
    listener: Listener,
    address: String,
}

/// The one session.
#[derive(Clone)]
pub struct ShmipcClient {
    sessions: SessionManager<DefaultUnixConnect>,
}

/// One end of one stream.
pub struct ShmipcLane {
    stream: Stream,
    side: Side,
}

/// The two ends give received slices back differently.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

impl Protocol for V3 {
    fn config() -> Config {
        Config::default()
    }
}

impl Protocol for V4Eventfd {
    fn config() -> Config {
        let mut config = Config::default().with_v4_eventfd();
        config.protocol.mode = ProtocolMode::V4 { fallback: false };
        config
    }
}

impl<P: Protocol> Transport for Shmipc<P> {
    type Lane = ShmipcLane;
    type Client = ShmipcClient;
    type Server = ShmipcServer;

    async fn bind(setup: &Setup, shape: Shape) -> Result<ShmipcServer> {
        let address = setup.path("shmipc").display().to_string();
        let config = benchmark_config::<P>(setup, shape)?;
        let socket = SocketAddr::from_pathname(&address).context("making a socket address")?;
        let listener = Listener::new(DefaultUnixListen, socket, config)
            .await
            .with_context(|| format!("binding {address}"))?;
        Ok(ShmipcServer { listener, address })
    }

    async fn connect(setup: &Setup, shape: Shape, address: &str) -> Result<ShmipcClient> {
        let config = SessionManagerConfig::new()
            .with_config(benchmark_config::<P>(setup, shape)?)
            .with_session_num(1);
        let socket = SocketAddr::from_pathname(address).context("making a socket address")?;
        let sessions = SessionManager::new(config, DefaultUnixConnect, socket)
            .await
            .with_context(|| format!("opening a session at {address}"))?;
        Ok(ShmipcClient { sessions })
    }
}

impl Server for ShmipcServer {
    type Lane = ShmipcLane;

    fn address(&self) -> String {
        self.address.clone()
    }

    async fn accept(&mut self) -> Result<ShmipcLane> {
        let stream = self.listener.accept().await.context("accepting a stream")?;
        Ok(ShmipcLane { stream, side: Side::Server })
    }

    async fn close(self) -> Result<()> {
        self.listener.close().await;
        Ok(())
    }
}

impl Client for ShmipcClient {
    type Lane = ShmipcLane;

    async fn open(&self) -> Result<ShmipcLane> {
        let stream = self.sessions.get_stream().context("opening a stream")?;
        Ok(ShmipcLane { stream, side: Side::Client })
    }

    fn over_socket(&self) -> u64 {
        let stats = self.sessions.stats_snapshot();
        stats.fallback_write_count + stats.fallback_read_count
    }

    async fn close(self) -> Result<()> {
        self.sessions.close().await;
        Ok(())
    }
}

impl Lane for ShmipcLane {
    async fn send(&mut self, message: Outgoing) -> Result<()> {
        place(self.stream.send_buf(), message)?;
        for _ in 0..QUEUE_FULL_RETRIES_MAX {
            match self.stream.flush(false).await {
                Ok(()) => return Ok(()),
                Err(Error::QueueFull) => tokio::time::sleep(QUEUE_FULL_PAUSE).await,
                Err(error) => return Err(error).context("sending a message"),
            }
        }
        bail!("the queue stayed full; use fewer --streams")
    }

    async fn receive(&mut self, shape: Shape) -> Result<Option<Incoming>> {
        let received = match shape.touch {
            Touch::All => self.read(shape.size).await?,
            Touch::None => self.discard(shape.size).await?,
        };
        match self.side {
            Side::Client => self.stream.release_read_and_reuse(),
            Side::Server => self.stream.recv_buf().release_previous_read(),
        }
        Ok(received)
    }

    async fn close(mut self) -> Result<()> {
        self.stream.close().await.context("closing a stream")
    }
}

impl ShmipcLane {
    /// Waits for a whole message and drops it unread.
    async fn discard(&mut self, size: usize) -> Result<Option<Incoming>> {
        match self.stream.discard(size).await {
            Ok(_) => Ok(Some(Incoming { sequence: None })),
            Err(Error::StreamClosed | Error::EndOfStream) => Ok(None),
            Err(error) => Err(error).context("receiving a message"),
        }
    }

    /// Waits for a message and verifies it slice by slice, in place.
    async fn read(&mut self, size: usize) -> Result<Option<Incoming>> {
        let mut inspection = Inspection::new();
        let mut seen = 0;
        while seen < size {
            match self.stream.read_chunk().await {
                Ok(piece) => {
                    inspection.look(&piece);
                    seen += piece.len();
                }
                Err(Error::StreamClosed | Error::EndOfStream) if seen == 0 => return Ok(None),
                Err(error) => return Err(error).context("receiving a message"),
            }
        }
        Ok(Some(Incoming { sequence: Some(inspection.finish(size)?) }))
    }
}

/// Claims room for `message` in the slices of `buffer`, taking more of them as needed, and fills it.
fn place(buffer: &mut LinkedBuffer, message: Outgoing) -> Result<()> {
    let size = message.shape.size;
    let mut placed = 0;
    while placed < size {
        let slice = slice_with_room(buffer, size - placed)?;
        let piece = slice.reserve(slice.remain().min(size - placed)).context("claiming a slice")?;
        ensure!(!piece.is_empty(), "the rival gave a slice without room");
        message.fill(piece, placed);
        placed += piece.len();
    }
    *buffer.len_mut() += size;
    Ok(())
}

/// The slice to write next, with `wanted` more bytes to come.
fn slice_with_room(
    buffer: &mut LinkedBuffer,
    wanted: usize,
) -> Result<&mut ::shmipc::buffer::BufferSlice> {
    let wanted = u32::try_from(wanted).context("messages of 4 GiB are too large")?;
    let current = buffer.slice_list().write();
    let (is_first, is_full) = (current.is_none(), current.is_some_and(|slice| slice.remain() == 0));
    if is_first {
        buffer.alloc(wanted);
        buffer.slice_list_mut().write_slice = buffer.slice_list().front_slice;
    } else if is_full {
        if current.is_some_and(|slice| slice.next().is_none()) {
            buffer.alloc(wanted);
        }
        let next = buffer.slice_list().write().and_then(|slice| slice.next_slice);
        buffer.slice_list_mut().write_slice = next;
    }
    buffer.slice_list().write_mut().context("the rival gave no slice")
}

/// The configuration of the rival's own benchmark.
fn benchmark_config<P: Protocol>(setup: &Setup, shape: Shape) -> Result<Config> {
    let size = u32::try_from(shape.size).context("messages of 4 GiB are too large")?;
    let slices = [(size, 70), (16 << 10, 20), (64 << 10, 10)];
    let mut config = Config {
        queue_cap: 65_536,
        connection_write_timeout: Duration::from_secs(1),
        share_memory_buffer_cap: if size >= 4 << 20 { 1 << 30 } else { 256 << 20 },
        mem_map_type: MemMapType::MemMapTypeMemFd,
        buffer_slice_sizes: slices
            .map(|(size, percent)| SizePercentPair { size: size + SLICE_MARGIN, percent })
            .to_vec(),
        ..P::config()
    };
    config.share_memory_path_prefix.push_str(&format!("-{}-{}", setup.run_name, setup.number));
    config.verify().context("the rival does not take this configuration; use a smaller --size")?;
    Ok(config)
}

/// What the rival's benchmark adds to each slice, in bytes.
const SLICE_MARGIN: u32 = 256;

/// The pause of the rival's benchmark when the queue is full.
const QUEUE_FULL_PAUSE: Duration = Duration::from_micros(1);

/// Ten seconds or so; each attempt waits up to 100 ms by itself.
const QUEUE_FULL_RETRIES_MAX: u32 = 100;
