// SPDX-License-Identifier: MIT OR Apache-2.0
//! The connections over which hyper and tonic run: byte streams on tokio, over `shm` and `uds`.
//!
//! ```text
//! shm   one session; each connection is one of its streams, by into_io
//! uds   each connection is a Unix stream socket
//! ```
//! Configurations are the library's defaults, as a user of a framework has them. The one exception
//! is the policy `SharedMemory`, under which a connection without shared memory fails: a socket
//! must not be measured under the name of shared memory.

use std::fs;
use std::future::Future;
use std::path::PathBuf;

use anyhow::{Context, Result};
use partywall::tokio::{Incoming, Listener, Session, StreamIo, connect_with};
use partywall::{Config, TransportPolicy};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{UnixListener, UnixStream};
use tonic::transport::server::Connected;

use crate::harness::workspace::Setup;
use crate::transport::shm::{Shm, wait_strategy};
use crate::transport::uds::Uds;

/// A transport whose connections are asynchronous byte streams.
pub trait ByteTransport: 'static {
    /// One end of one connection of this transport of byte streams.
    type Connection: AsyncRead
        + AsyncWrite
        + Connected<ConnectInfo: Clone + Send + Sync>
        + Unpin
        + Send
        + 'static;
    /// The type of the transport's client, which opens connections.
    type Client: ByteClient<Connection = Self::Connection>;
    /// The type of the transport's server, which accepts connections.
    type Server: ByteServer<Connection = Self::Connection>;

    /// Makes a server of the transport at an address that no other listener uses.
    fn bind(setup: &Setup) -> impl Future<Output = Result<Self::Server>> + Send;

    /// Makes a client of the transport for the server at `address`.
    fn connect(setup: &Setup, address: &str) -> impl Future<Output = Result<Self::Client>> + Send;
}

/// The client's end of a transport of byte streams.
pub trait ByteClient: Clone + Send + Sync + 'static {
    /// The client's end of one connection of the transport.
    type Connection;

    /// Opens one more connection to the server.
    fn open(&self) -> impl Future<Output = Result<Self::Connection>> + Send;
}

/// The server's end of a transport of byte streams.
pub trait ByteServer: Send + 'static {
    /// The server's end of one connection of the transport.
    type Connection;

    /// The address of this server, to which the client connects.
    fn address(&self) -> String;

    /// Waits for the next connection that the client opens to this server.
    fn accept(&mut self) -> impl Future<Output = Result<Self::Connection>> + Send;
}

/// The server's end over shared memory: the streams of all sessions that its listener accepts.
pub struct ShmServer {
    incoming: Incoming,
    address: String,
}

impl ByteTransport for Shm {
    type Connection = StreamIo;
    type Client = Session;
    type Server = ShmServer;

    async fn bind(setup: &Setup) -> Result<ShmServer> {
        let address = format!("unix:{}", setup.path("shm").display());
        let listener = Listener::bind_with(&address, &config(setup))?;
        Ok(ShmServer { incoming: Incoming::new(listener), address })
    }

    async fn connect(setup: &Setup, address: &str) -> Result<Session> {
        Ok(connect_with(address, &config(setup)).await?)
    }
}

impl ByteClient for Session {
    type Connection = StreamIo;

    async fn open(&self) -> Result<StreamIo> {
        let stream = Self::open(self, &[]).await.context("opening a stream")?;
        Ok(stream.into_io())
    }
}

impl ByteServer for ShmServer {
    type Connection = StreamIo;

    fn address(&self) -> String {
        self.address.clone()
    }

    async fn accept(&mut self) -> Result<StreamIo> {
        Ok(self.incoming.accept().await.0)
    }
}

/// The server's end over Unix sockets: a bound socket file.
pub struct UdsServer {
    listener: UnixListener,
    path: PathBuf,
}

/// The client's end over Unix sockets: the socket file to which it connects each time.
#[derive(Clone)]
pub struct UdsClient {
    path: PathBuf,
}

impl ByteTransport for Uds {
    type Connection = UnixStream;
    type Client = UdsClient;
    type Server = UdsServer;

    async fn bind(setup: &Setup) -> Result<UdsServer> {
        let path = setup.path("uds");
        let listener =
            UnixListener::bind(&path).with_context(|| format!("binding {}", path.display()))?;
        Ok(UdsServer { listener, path })
    }

    async fn connect(_: &Setup, address: &str) -> Result<UdsClient> {
        Ok(UdsClient { path: address.into() })
    }
}

impl ByteClient for UdsClient {
    type Connection = UnixStream;

    async fn open(&self) -> Result<UnixStream> {
        let connected = UnixStream::connect(&self.path).await;
        connected.with_context(|| format!("connecting to {}", self.path.display()))
    }
}

impl ByteServer for UdsServer {
    type Connection = UnixStream;

    fn address(&self) -> String {
        self.path.display().to_string()
    }

    async fn accept(&mut self) -> Result<UnixStream> {
        let (stream, _) = self.listener.accept().await.context("accepting on a Unix socket")?;
        Ok(stream)
    }
}

impl Drop for UdsServer {
    fn drop(&mut self) {
        // An error of the removal is ignored: if the socket file remains, the workspace removes its
        // directory at the end of the run.
        let _ = fs::remove_file(&self.path);
    }
}

fn config(setup: &Setup) -> Config {
    Config::default().wait(wait_strategy(setup.wait)).transport(TransportPolicy::SharedMemory)
}
