// SPDX-License-Identifier: MIT OR Apache-2.0
//! The transport `tcp`: TCP on loopback with `TCP_NODELAY`. Channels are blocking connections; for
//! `parallel` each stream is a connection of its own on tokio.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use anyhow::{Context, Result};
use tokio::net as asynchronous;

use super::byte_stream::ByteStreamEndpoint;
use super::framed::FramedStream;
use super::{Acceptor, ChannelTransport, Client, Server, StreamTransport};
use crate::harness::cell::Cell;
use crate::harness::workspace::Setup;

/// The transport `tcp` (TCP on loopback) as a type that the benchmark's scenarios can use.
pub struct Tcp;

/// The end of the child process over TCP: a listener at a port of loopback.
pub struct TcpAcceptor {
    listener: TcpListener,
    address: SocketAddr,
    size: usize,
}

impl ChannelTransport for Tcp {
    type Endpoint = ByteStreamEndpoint<TcpStream>;
    type Acceptor = TcpAcceptor;

    fn bind(setup: &Setup) -> Result<TcpAcceptor> {
        let (listener, address) = bind_loopback()?;
        Ok(TcpAcceptor { listener, address, size: setup.size })
    }

    fn connect(setup: &Setup, address: &str) -> Result<Self::Endpoint> {
        let stream =
            TcpStream::connect(address).with_context(|| format!("connecting to {address}"))?;
        endpoint(stream, setup.size)
    }
}

impl Acceptor for TcpAcceptor {
    type Endpoint = ByteStreamEndpoint<TcpStream>;

    fn address(&self) -> String {
        self.address.to_string()
    }

    fn accept(&mut self) -> Result<Self::Endpoint> {
        let (stream, _) = self.listener.accept().context("accepting on TCP")?;
        endpoint(stream, self.size)
    }
}

fn endpoint(stream: TcpStream, size: usize) -> Result<ByteStreamEndpoint<TcpStream>> {
    stream.set_nodelay(true).context("setting TCP_NODELAY")?;
    Ok(ByteStreamEndpoint::over_socket(stream, size))
}

/// The server's end of the transport `tcp` with streams: a listener at a port of loopback.
pub struct TcpServer {
    listener: asynchronous::TcpListener,
    address: SocketAddr,
    size: usize,
}

/// The client's end of the transport `tcp` with streams: the address to which it connects each
/// stream.
pub struct TcpClient {
    address: SocketAddr,
    size: usize,
}

impl StreamTransport for Tcp {
    type Endpoint = FramedStream<asynchronous::TcpStream>;
    type Client = TcpClient;
    type Server = TcpServer;

    async fn bind(cell: Cell, _: &Setup) -> Result<TcpServer> {
        let (listener, address) = bind_loopback()?;
        listener.set_nonblocking(true).context("making the listener non-blocking")?;
        let listener = asynchronous::TcpListener::from_std(listener)
            .context("registering the listener with tokio")?;
        Ok(TcpServer { listener, address, size: cell.size })
    }

    async fn connect(cell: Cell, _: &Setup, address: &str) -> Result<TcpClient> {
        Ok(TcpClient { address: address.parse().context("reading the address")?, size: cell.size })
    }
}

impl Server for TcpServer {
    type Endpoint = FramedStream<asynchronous::TcpStream>;

    fn address(&self) -> String {
        self.address.to_string()
    }

    async fn accept(&mut self) -> Result<Self::Endpoint> {
        let (stream, _) = self.listener.accept().await.context("accepting on TCP")?;
        framed(stream, self.size)
    }
}

impl Client for TcpClient {
    type Endpoint = FramedStream<asynchronous::TcpStream>;

    async fn open(&self) -> Result<Self::Endpoint> {
        let connected = asynchronous::TcpStream::connect(self.address).await;
        let stream = connected.with_context(|| format!("connecting to {}", self.address))?;
        framed(stream, self.size)
    }
}

fn framed(
    stream: asynchronous::TcpStream,
    size: usize,
) -> Result<FramedStream<asynchronous::TcpStream>> {
    stream.set_nodelay(true).context("setting TCP_NODELAY")?;
    FramedStream::new(stream, size)
}

fn bind_loopback() -> Result<(TcpListener, SocketAddr)> {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let listener = bound.context("binding a port of 127.0.0.1")?;
    let address = listener.local_addr().context("reading the bound port")?;
    Ok((listener, address))
}
