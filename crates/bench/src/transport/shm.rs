// SPDX-License-Identifier: MIT OR Apache-2.0
//! The transport `shm`: Partywall over shared memory, with blocking channels, and with the streams
//! of one session on tokio for `parallel`.
//!
//! ```text
//! channel   send_with(size): filled in place       recv_ref ─► read in place ─► dropped
//! stream    reserve ─► filled in place ─► commit   recv ─► read in place ─► dropped
//! ```
//! Neither end copies a payload. The policy is `SharedMemory`: where memory cannot be shared, the
//! measurement fails with the reason, instead of measuring a socket under this name.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use partywall::protocol::Protocol;
use partywall::tokio as asynchronous;
use partywall::{
    Begin, Channel, Config, Listener, Message, StreamRecvError, Transport, TransportPolicy, Wait,
};

use super::{
    Acceptor, AsyncEndpoint, ChannelTransport, Client, Endpoint, Memory, Payload, Server,
    StreamTransport,
};
use crate::harness::cell::{Cell, WaitName};
use crate::harness::pattern::Touch;
use crate::harness::round::Carrier;
use crate::harness::workspace::Setup;

/// The transport `shm` (Partywall over shared memory) as a type that the benchmark's scenarios can
/// use.
pub struct Shm;

/// Makes channels of the transport `shm-move`: they begin on the socket, and move to shared memory.
pub struct ShmMove;

/// The end of the child process over shared memory: a listener for channels at a socket file.
pub struct ShmAcceptor {
    listener: Listener,
    address: String,
}

/// One end of a channel over shared memory, as an endpoint of the benchmark.
pub struct ShmEndpoint(Channel);

impl ChannelTransport for Shm {
    type Endpoint = ShmEndpoint;
    type Acceptor = ShmAcceptor;

    fn bind(setup: &Setup) -> Result<ShmAcceptor> {
        let address = format!("unix:{}", setup.path("shm").display());
        let listener = Listener::bind_with(&address, &channel_config(setup))?;
        Ok(ShmAcceptor { listener, address })
    }

    fn connect(setup: &Setup, address: &str) -> Result<ShmEndpoint> {
        Ok(ShmEndpoint(partywall::connect_with(address, &channel_config(setup))?))
    }
}

impl ChannelTransport for ShmMove {
    type Endpoint = ShmEndpoint;
    type Acceptor = ShmAcceptor;

    fn bind(setup: &Setup) -> Result<ShmAcceptor> {
        let address = format!("unix:{}", setup.path("shm-move").display());
        let listener = Listener::bind_with(&address, &moving_config(setup))?;
        Ok(ShmAcceptor { listener, address })
    }

    fn connect(setup: &Setup, address: &str) -> Result<ShmEndpoint> {
        Ok(ShmEndpoint(partywall::connect_with(address, &moving_config(setup))?))
    }
}

impl Acceptor for ShmAcceptor {
    type Endpoint = ShmEndpoint;

    fn address(&self) -> String {
        self.address.clone()
    }

    fn accept(&mut self) -> Result<ShmEndpoint> {
        Ok(ShmEndpoint(self.listener.accept()?))
    }
}

impl Endpoint for ShmEndpoint {
    #[inline]
    fn send(&mut self, size: usize, fill: impl FnOnce(&mut [u8])) -> Result<()> {
        self.0.sender().send_with(size, fill).context("sending a message")
    }

    #[inline]
    fn receive<R>(&mut self, size: usize, read: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let message = self.0.recv_ref().context("receiving a message")?;
        let message = message.context("the peer has finished")?;
        let bytes: &[u8] = &message;
        ensure!(bytes.len() == size, "received {} bytes instead of {size}", bytes.len());
        Ok(read(bytes))
    }

    fn carrier(&self) -> Option<Carrier> {
        match self.0.transport() {
            Transport::SharedMemory => Some(Carrier::SharedMemory),
            Transport::Socket(_) => Some(Carrier::Socket),
            _ => None,
        }
    }
}

/// The server's end of the transport `shm` with streams: a listener at a socket file, and the
/// single session once it is accepted.
pub struct ShmServer {
    listener: asynchronous::Listener,
    session: Option<asynchronous::Session>,
    address: String,
}

/// The client's end of the transport `shm` with streams: the session that carries all streams.
pub struct ShmClient {
    session: asynchronous::Session,
    memory_max: u64,
    unread_bytes_max: u64,
}

/// One end of one stream of the session, as an endpoint of the benchmark.
pub struct ShmStream {
    stream: asynchronous::Stream,
    held: Option<Message>,
}

impl ShmServer {
    /// Makes the server's end, which listens at `address` for the client of the streams.
    pub fn bind(address: String, config: &Config) -> Result<Self> {
        let listener = asynchronous::Listener::bind_with(&address, config)?;
        Ok(Self { listener, session: None, address })
    }

    /// Makes the server accept sessions in `protocol` in addition to Partywall's own protocol.
    pub fn with_protocol(self, protocol: Arc<dyn Protocol>) -> Self {
        Self { listener: self.listener.with_protocol(protocol), ..self }
    }
}

impl ShmClient {
    /// Makes the client's end: connects the session to the server at `address`.
    pub async fn connect(address: &str, config: &Config) -> Result<Self> {
        let session = asynchronous::connect_with(address, config).await?;
        Ok(Self { session, memory_max: MEMORY_MIN, unread_bytes_max: STREAM_WINDOW })
    }

    /// Makes the client's end: connects the session to the server at `address`, in the protocol
    /// `protocol`.
    pub async fn connect_with_protocol(
        address: &str,
        config: &Config,
        protocol: Arc<dyn Protocol>,
    ) -> Result<Self> {
        let connected = asynchronous::connect_with_protocol(address, config, protocol).await;
        Ok(Self { session: connected?, memory_max: MEMORY_MIN, unread_bytes_max: STREAM_WINDOW })
    }

    /// Number of overflows of the session: messages of another protocol that took the socket for
    /// lack of shared memory.
    pub fn overflows(&self) -> u64 {
        self.session.stats().overflows
    }
}

impl StreamTransport for Shm {
    type Endpoint = ShmStream;
    type Client = ShmClient;
    type Server = ShmServer;

    async fn bind(cell: Cell, setup: &Setup) -> Result<ShmServer> {
        let address = format!("unix:{}", setup.path("shm").display());
        ShmServer::bind(address, &session_config(cell, setup))
    }

    async fn connect(cell: Cell, setup: &Setup, address: &str) -> Result<ShmClient> {
        let client = ShmClient::connect(address, &session_config(cell, setup)).await?;
        // A stream accepts a message that is longer than its window if no other message is unread,
        // so a single long message may exceed the window.
        let unread_bytes_max = STREAM_WINDOW.max(cell.size as u64);
        Ok(ShmClient { memory_max: memory_max(cell), unread_bytes_max, ..client })
    }
}

impl Server for ShmServer {
    type Endpoint = ShmStream;

    fn address(&self) -> String {
        self.address.clone()
    }

    async fn accept(&mut self) -> Result<ShmStream> {
        let session = match &self.session {
            Some(session) => session,
            None => {
                let session = self.listener.accept().await.context("accepting a session")?;
                self.session.insert(session)
            }
        };
        let stream = session.accept().await.context("accepting a stream")?;
        let stream = stream.context("the session ended before a stream came")?;
        Ok(ShmStream { stream, held: None })
    }
}

impl Client for ShmClient {
    type Endpoint = ShmStream;

    async fn open(&self) -> Result<ShmStream> {
        let stream = self.session.open(&[]).await.context("opening a stream")?;
        Ok(ShmStream { stream, held: None })
    }

    fn memory(&self) -> Option<Memory> {
        let stats = self.session.stats();
        Some(Memory {
            bytes: stats.memory_bytes,
            bytes_max: self.memory_max,
            blocks_in_flight: stats.blocks_in_flight,
            unread_bytes_max: self.unread_bytes_max,
        })
    }
}

// An `async fn` would move its arguments once more, in its first poll (decision 0064).
#[expect(clippy::manual_async_fn, reason = "an async block uses its arguments where they are")]
impl AsyncEndpoint for ShmStream {
    #[inline]
    fn send(&mut self, payload: Payload) -> impl Future<Output = Result<()>> + Send {
        async move {
            let reserved = self.stream.reserve(payload.size).await;
            let mut reserved = reserved.context("reserving a message")?;
            payload.fill(&mut reserved);
            reserved.commit().await.context("sending a message")
        }
    }

    #[inline]
    fn receive(&mut self, payload: Payload) -> impl Future<Output = Result<()>> + Send {
        async move { check(payload, &self.stream.recv().await) }
    }

    async fn receive_and_hold(&mut self, payload: Payload) -> Result<()> {
        let received = self.stream.recv().await;
        check(payload, &received)?;
        self.held = received?;
        Ok(())
    }

    fn release(&mut self) {
        self.held = None;
    }
}

/// Verifies that a message was received, its length and its payload.
#[inline]
fn check(payload: Payload, received: &Result<Option<Message>, StreamRecvError>) -> Result<()> {
    let message = match received {
        Ok(Some(message)) => message,
        Ok(None) => bail!("the peer finished before a message came"),
        Err(error) => return Err(error.clone()).context("receiving a message"),
    };
    let (size, len) = (payload.size, message.len());
    ensure!(len == size, "received {len} bytes instead of {size}");
    if payload.touch == Touch::All {
        payload.verify(message)?;
    }
    Ok(())
}

fn channel_config(setup: &Setup) -> Config {
    let memory_max = (setup.size as u64 * MESSAGES_IN_FLIGHT).max(MEMORY_MIN);
    Config::default()
        .wait(wait_strategy(setup.wait))
        .transport(TransportPolicy::SharedMemory)
        .memory_max(memory_max)
}

/// The configuration of channels that begin on the socket. If memory cannot be shared, the report
/// shows the socket as the transport of the last message.
fn moving_config(setup: &Setup) -> Config {
    channel_config(setup).transport(TransportPolicy::Auto).begin(Begin::Socket)
}

fn session_config(cell: Cell, setup: &Setup) -> Config {
    let streams = cell.streams + cell.unread;
    Config::default()
        .wait(wait_strategy(setup.wait))
        .transport(TransportPolicy::SharedMemory)
        .stream_window(STREAM_WINDOW)
        .streams_max(u32::try_from(streams).unwrap_or(u32::MAX).max(STREAMS_MIN))
        .peer_blocks_max((BLOCKS_PER_STREAM * streams as u64).next_power_of_two().max(BLOCKS_MIN))
        .memory_max(memory_max(cell))
}

/// Maximum memory of the session: one message of each stream, in blocks of up to twice the
/// message's size, and the unread messages.
fn memory_max(cell: Cell) -> u64 {
    let (streams, unread, size) = (cell.streams as u64, cell.unread as u64, cell.size as u64);
    let unread_bytes = unread * (STREAM_WINDOW + 2 * size);
    (2 * streams * size + unread_bytes).max(MEMORY_MIN)
}

/// Returns the library's wait strategy that `wait` names; the adaptive strategy if `wait` is
/// `None`.
pub const fn wait_strategy(wait: Option<WaitName>) -> Wait {
    match wait {
        Some(WaitName::Spin) => Wait::Spin,
        Some(WaitName::Park) => Wait::Park,
        Some(WaitName::Poll) => Wait::Poll(POLL_PERIOD),
        Some(WaitName::Adaptive) | None => Wait::Adaptive,
    }
}

/// The pause between two polls under the wait strategy `poll`.
const POLL_PERIOD: Duration = Duration::from_micros(100);

/// Number of large messages that may be in flight at once in `throughput`.
const MESSAGES_IN_FLIGHT: u64 = 8;

/// Minimum of the configured shared memory in bytes. It is set explicitly, so that a changed
/// default of the library does not change the results.
const MEMORY_MIN: u64 = 64 << 20;

/// Configured window of each stream in bytes: the library's default, repeated here because the
/// report shows the window as a bound on unread bytes.
const STREAM_WINDOW: u64 = 256 << 10;

/// The least number of streams, and of memory blocks, that the benchmark configures, however few
/// streams a run has. Each is at least the library's default.
const STREAMS_MIN: u32 = 1024;
const BLOCKS_MIN: u64 = 1024;

/// Number of memory blocks per stream. A block holds one large message; the warm-up holds one
/// message of each stream, and the factor 2 is a margin.
const BLOCKS_PER_STREAM: u64 = 2;
