// SPDX-License-Identifier: MIT OR Apache-2.0
//! The transport `uds`: Unix stream sockets with the kernel's default buffers. Channels are
//! blocking connections; for `parallel` each stream is a connection of its own on tokio.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::net as asynchronous;

use super::byte_stream::ByteStreamEndpoint;
use super::framed::FramedStream;
use super::{Acceptor, ChannelTransport, Client, Server, StreamTransport};
use crate::harness::cell::Cell;
use crate::harness::workspace::Setup;

/// The transport `uds` (Unix stream sockets) as a type that the benchmark's scenarios can use.
pub struct Uds;

/// The end of the child process over Unix sockets: a bound socket file, at which the child accepts
/// connections.
pub struct UdsAcceptor {
    listener: UnixListener,
    path: PathBuf,
    size: usize,
}

impl ChannelTransport for Uds {
    type Endpoint = ByteStreamEndpoint<UnixStream>;
    type Acceptor = UdsAcceptor;

    fn bind(setup: &Setup) -> Result<UdsAcceptor> {
        let path = setup.path("uds");
        let listener =
            UnixListener::bind(&path).with_context(|| format!("binding {}", path.display()))?;
        Ok(UdsAcceptor { listener, path, size: setup.size })
    }

    fn connect(setup: &Setup, address: &str) -> Result<Self::Endpoint> {
        let stream =
            UnixStream::connect(address).with_context(|| format!("connecting to {address}"))?;
        Ok(ByteStreamEndpoint::over_socket(stream, setup.size))
    }
}

impl Acceptor for UdsAcceptor {
    type Endpoint = ByteStreamEndpoint<UnixStream>;

    fn address(&self) -> String {
        self.path.display().to_string()
    }

    fn accept(&mut self) -> Result<Self::Endpoint> {
        let (stream, _) = self.listener.accept().context("accepting on a Unix socket")?;
        Ok(ByteStreamEndpoint::over_socket(stream, self.size))
    }
}

impl Drop for UdsAcceptor {
    fn drop(&mut self) {
        // An error of the removal is ignored: if the socket file remains, the workspace removes its
        // directory at the end of the run.
        let _ = fs::remove_file(&self.path);
    }
}

/// The server's end of the transport `uds` with streams: a bound socket file, at which connections
/// are accepted on tokio.
pub struct UdsServer {
    listener: asynchronous::UnixListener,
    path: PathBuf,
    size: usize,
}

/// The client's end of the transport `uds` with streams: the socket file to which it connects each
/// stream.
pub struct UdsClient {
    path: PathBuf,
    size: usize,
}

impl StreamTransport for Uds {
    type Endpoint = FramedStream<asynchronous::UnixStream>;
    type Client = UdsClient;
    type Server = UdsServer;

    async fn bind(cell: Cell, setup: &Setup) -> Result<UdsServer> {
        let path = setup.path("uds");
        let listener = asynchronous::UnixListener::bind(&path)
            .with_context(|| format!("binding {}", path.display()))?;
        Ok(UdsServer { listener, path, size: cell.size })
    }

    async fn connect(cell: Cell, _: &Setup, address: &str) -> Result<UdsClient> {
        Ok(UdsClient { path: address.into(), size: cell.size })
    }
}

impl Server for UdsServer {
    type Endpoint = FramedStream<asynchronous::UnixStream>;

    fn address(&self) -> String {
        self.path.display().to_string()
    }

    async fn accept(&mut self) -> Result<Self::Endpoint> {
        let (stream, _) = self.listener.accept().await.context("accepting on a Unix socket")?;
        FramedStream::new(stream, self.size)
    }
}

impl Drop for UdsServer {
    fn drop(&mut self) {
        // An error of the removal is ignored: if the socket file remains, the workspace removes its
        // directory at the end of the run.
        let _ = fs::remove_file(&self.path);
    }
}

impl Client for UdsClient {
    type Endpoint = FramedStream<asynchronous::UnixStream>;

    async fn open(&self) -> Result<Self::Endpoint> {
        for _ in 0..CONNECTS_MAX {
            match asynchronous::UnixStream::connect(&self.path).await {
                Ok(stream) => return FramedStream::new(stream, self.size),
                // The listen backlog of the server's socket is full, because the server accepts
                // more slowly than the client connects. The client tries again after a pause.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    tokio::time::sleep(CONNECT_PAUSE).await;
                }
                Err(error) => {
                    let path = self.path.display();
                    return Err(error).with_context(|| format!("connecting to {path}"));
                }
            }
        }
        bail!("the server does not accept connections; use fewer --streams")
    }
}

/// Maximum number of attempts to connect while the backlog is full, and the pause between two
/// attempts: ten seconds in total.
const CONNECTS_MAX: u32 = 10_000;
const CONNECT_PAUSE: Duration = Duration::from_millis(1);
