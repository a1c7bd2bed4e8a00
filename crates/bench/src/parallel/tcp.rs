// SPDX-License-Identifier: MIT OR Apache-2.0
//! Baseline of `parallel`: a TCP connection over loopback per stream, with `TCP_NODELAY`.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use tokio::net::{TcpListener, TcpStream};

use super::super::cell::Cell;
use super::super::lane::Setup;
use super::framed::FramedLane;
use super::lane::{Client, Server, Transport};

/// The transport `tcp`.
pub struct Tcp;

/// A port on loopback.
pub struct TcpServer {
    listener: TcpListener,
    address: SocketAddr,
    size: usize,
}

/// Where to connect.
pub struct TcpClient {
    address: SocketAddr,
    size: usize,
}

impl Transport for Tcp {
    type Lane = FramedLane<TcpStream>;
    type Client = TcpClient;
    type Server = TcpServer;

    fn bind(cell: Cell, _: &Setup) -> Result<TcpServer> {
        let bound = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listener = bound.context("binding a port of 127.0.0.1")?;
        listener.set_nonblocking(true).context("making the listener non-blocking")?;
        let address = listener.local_addr().context("asking for the port that was bound")?;
        let listener = TcpListener::from_std(listener).context("handing the listener to tokio")?;
        Ok(TcpServer { listener, address, size: cell.size })
    }

    async fn connect(cell: Cell, _: &Setup, address: &str) -> Result<TcpClient> {
        Ok(TcpClient { address: address.parse().context("reading the address")?, size: cell.size })
    }
}

impl Server for TcpServer {
    type Lane = FramedLane<TcpStream>;

    fn address(&self) -> String {
        self.address.to_string()
    }

    async fn accept(&mut self) -> Result<Self::Lane> {
        let (stream, _) = self.listener.accept().await.context("accepting on TCP")?;
        lane(stream, self.size)
    }
}

impl Client for TcpClient {
    type Lane = FramedLane<TcpStream>;

    async fn open(&self) -> Result<Self::Lane> {
        let connected = TcpStream::connect(self.address).await;
        lane(connected.with_context(|| format!("connecting {}", self.address))?, self.size)
    }
}

fn lane(stream: TcpStream, size: usize) -> Result<FramedLane<TcpStream>> {
    stream.set_nodelay(true).context("setting TCP_NODELAY")?;
    FramedLane::new(stream, size)
}
