// SPDX-License-Identifier: MIT OR Apache-2.0
//! The crate `shmipc`, configured and used as in its own benchmark (`benches/bench.rs`, 0.2.1).
//!
//! ```text
//! session   1 for all streams      queue 65,536 slots      memory 256 MiB, 1 GiB from 4 MiB on
//! slices    70 % of message size + 256      20 % of 16 KiB + 256      10 % of 64 KiB + 256
//! client    claim a slice, flush | receive, release, reuse the received slice for the next message
//! server    receive, release | claim a slice, flush
//! ```
//! A flush tells the peer of a message. An untouched message is claimed without writing and
//! discarded without reading, as in the crate's own benchmark. A touched message is written into
//! the claimed slices and read from them, without a copy at either end. If no slice of the
//! message's size is free, the message takes several smaller slices, so it may have many pieces.
//!
//! The code differs from that benchmark in two points, neither of them in the measured path.
//! Protocol v4 may not fall back to v3, which would be measured under a wrong name. A full queue is
//! retried only a bounded number of times.

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

use partywall_bench::harness::cell::Cell;
use partywall_bench::harness::pattern::Touch;
use partywall_bench::harness::workspace::Setup;
use partywall_bench::transport::{AsyncEndpoint, Client, Payload, Server, StreamTransport};

/// A version of the protocol of the crate `shmipc`.
pub trait Protocol: Send + Sync + 'static {
    /// Returns the settings of the crate `shmipc` for the version of its protocol that the
    /// implementing type stands for. The caller then sets the sizes of the shared memory.
    fn config() -> Config;
}

/// Version 3 of the protocol, the default of the crate `shmipc` for memory in memfds.
pub struct V3;

/// Version 4 of the protocol, the latest of the crate `shmipc`, with wake-ups by eventfd.
pub struct V4Eventfd;

/// The transport `shmipc-0.2.1-v3`: the crate `shmipc` with version 3 of its protocol.
pub type ShmipcV3 = Shmipc<V3>;

/// The transport `shmipc-0.2.1-v4-eventfd`: the crate `shmipc` with version 4 of its protocol.
pub type ShmipcV4Eventfd = Shmipc<V4Eventfd>;

/// The transport that measures the crate `shmipc` with version `P` of its protocol.
pub struct Shmipc<P>(PhantomData<P>);

/// The server: a bound socket, over which client and server exchange the descriptors of their
/// memory.
pub struct ShmipcServer {
    listener: Listener,
    address: String,
}

/// The client of a measurement: its single session, which carries all streams.
pub struct ShmipcClient {
    sessions: SessionManager<DefaultUnixConnect>,
}

/// One end of one stream of the crate `shmipc`.
pub struct ShmipcStream {
    stream: Stream,
    side: Side,
}

/// The side of a stream: client and server return received slices in different ways.
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

impl<P: Protocol> StreamTransport for Shmipc<P> {
    type Endpoint = ShmipcStream;
    type Client = ShmipcClient;
    type Server = ShmipcServer;

    async fn bind(cell: Cell, setup: &Setup) -> Result<ShmipcServer> {
        let address = setup.path("shmipc").display().to_string();
        let config = benchmark_config::<P>(cell, setup)?;
        let socket = SocketAddr::from_pathname(&address).context("making a socket address")?;
        let listener = Listener::new(DefaultUnixListen, socket, config)
            .await
            .with_context(|| format!("binding {address}"))?;
        Ok(ShmipcServer { listener, address })
    }

    async fn connect(cell: Cell, setup: &Setup, address: &str) -> Result<ShmipcClient> {
        let config = SessionManagerConfig::new()
            .with_config(benchmark_config::<P>(cell, setup)?)
            .with_session_num(1);
        let socket = SocketAddr::from_pathname(address).context("making a socket address")?;
        let sessions = SessionManager::new(config, DefaultUnixConnect, socket)
            .await
            .with_context(|| format!("opening a session at {address}"))?;
        Ok(ShmipcClient { sessions })
    }
}

impl Server for ShmipcServer {
    type Endpoint = ShmipcStream;

    fn address(&self) -> String {
        self.address.clone()
    }

    async fn accept(&mut self) -> Result<ShmipcStream> {
        let stream = self.listener.accept().await.context("accepting a stream")?;
        Ok(ShmipcStream { stream, side: Side::Server })
    }

    async fn close(self) -> Result<()> {
        self.listener.close().await;
        Ok(())
    }
}

impl Client for ShmipcClient {
    type Endpoint = ShmipcStream;

    async fn open(&self) -> Result<ShmipcStream> {
        let stream = self.sessions.get_stream().context("opening a stream")?;
        Ok(ShmipcStream { stream, side: Side::Client })
    }

    fn over_socket(&self) -> Option<u64> {
        let stats = self.sessions.stats_snapshot();
        Some(stats.fallback_write_count + stats.fallback_read_count)
    }

    async fn close(self) -> Result<()> {
        self.sessions.close().await;
        Ok(())
    }
}

// As Partywall's own endpoint: an `async fn` would move its arguments once more.
#[expect(clippy::manual_async_fn, reason = "an async block uses its arguments where they are")]
impl AsyncEndpoint for ShmipcStream {
    fn send(&mut self, payload: Payload) -> impl Future<Output = Result<()>> + Send {
        async move {
            place(self.stream.send_buf(), payload)?;
            for _ in 0..QUEUE_FULL_RETRIES_MAX {
                match self.stream.flush(false).await {
                    Ok(()) => return Ok(()),
                    Err(Error::QueueFull) => tokio::time::sleep(QUEUE_FULL_PAUSE).await,
                    Err(error) => return Err(error).context("sending a message"),
                }
            }
            bail!("the queue stayed full; use fewer --streams")
        }
    }

    fn receive(&mut self, payload: Payload) -> impl Future<Output = Result<()>> + Send {
        async move {
            match payload.touch {
                Touch::All => self.read(payload).await?,
                Touch::None => {
                    let discarded = self.stream.discard(payload.size).await;
                    discarded.context("receiving a message")?;
                }
            }
            match self.side {
                Side::Client => self.stream.release_read_and_reuse(),
                Side::Server => self.stream.recv_buf().release_previous_read(),
            }
            Ok(())
        }
    }

    async fn close(mut self) -> Result<()> {
        let closed = self.stream.close().await;
        match self.side {
            Side::Client => closed.context("closing a stream"),
            // At the server an error of the close is ignored: the client may have ended the whole
            // session already.
            Side::Server => Ok(()),
        }
    }
}

impl ShmipcStream {
    /// Waits for a message, and verifies its bytes in place, slice by slice.
    async fn read(&mut self, payload: Payload) -> Result<()> {
        let mut offset = 0;
        while offset < payload.size {
            let piece = self.stream.read_chunk().await.context("receiving a message")?;
            payload.touch.verify_piece(&piece, payload.sequence, offset)?;
            offset += piece.len();
        }
        ensure!(offset == payload.size, "received {offset} bytes instead of {}", payload.size);
        Ok(())
    }
}

/// Claims slices of `buffer` for a message, and writes the message's bytes into them.
fn place(buffer: &mut LinkedBuffer, payload: Payload) -> Result<()> {
    let size = payload.size;
    let mut placed = 0;
    while placed < size {
        let slice = slice_with_room(buffer, size - placed)?;
        let piece = slice.reserve(slice.remain().min(size - placed)).context("claiming a slice")?;
        ensure!(!piece.is_empty(), "shmipc returned a full slice");
        payload.touch.fill_piece(piece, payload.sequence, placed);
        placed += piece.len();
    }
    *buffer.len_mut() += size;
    Ok(())
}

/// Returns the slice into which the next bytes of a message are written: the present slice, or the
/// next one if the present slice is full. If no slice follows, slices for `wanted` more bytes are
/// allocated.
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
    buffer.slice_list().write_mut().context("shmipc returned no slice")
}

/// Returns the configuration of the crate's own benchmark, with slice sizes for the messages of
/// `cell`.
fn benchmark_config<P: Protocol>(cell: Cell, setup: &Setup) -> Result<Config> {
    let size = u32::try_from(cell.size).context("messages of 4 GiB are too large")?;
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
    config.verify().context("shmipc rejects this configuration; use a smaller --size")?;
    Ok(config)
}

/// Number of bytes by which each slice is larger than the message for which it is made, as in the
/// benchmark of `shmipc`.
const SLICE_MARGIN: u32 = 256;

/// Pause before a retry when the queue is full, as in the benchmark of `shmipc`.
const QUEUE_FULL_PAUSE: Duration = Duration::from_micros(1);

/// Maximum number of retries at a full queue. Each waits for up to 100 ms, so that all take about
/// ten seconds.
const QUEUE_FULL_RETRIES_MAX: u32 = 100;
