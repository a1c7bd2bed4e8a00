// SPDX-License-Identifier: MIT OR Apache-2.0
//! Baseline: a TCP connection over loopback per stream, with `TCP_NODELAY`.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use tokio::net::{TcpListener, TcpStream};

use super::framed::FramedLane;
use super::lane::{Client, Server, Shape, Transport};
use crate::setup::Setup;

/// The transport `tcp`.
pub struct Tcp;

/// A port on loopback.
pub struct TcpServer {
    listener: TcpListener,
    address: SocketAddr,
    shape: Shape,
}

/// Where to connect.
#[derive(Clone)]
pub struct TcpClient {
    address: SocketAddr,
    shape: Shape,
}

impl Transport for Tcp {
    type Lane = FramedLane<TcpStream>;
    type Client = TcpClient;
    type Server = TcpServer;

    async fn bind(_: &Setup, shape: Shape) -> Result<TcpServer> {
        let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = bound.context("binding a port on loopback")?;
        let address = listener.local_addr().context("asking for the port")?;
        Ok(TcpServer { listener, address, shape })
    }

    async fn connect(_: &Setup, shape: Shape, address: &str) -> Result<TcpClient> {
        Ok(TcpClient { address: address.parse().context("reading the address")?, shape })
    }
}

impl Server for TcpServer {
    type Lane = FramedLane<TcpStream>;

    fn address(&self) -> String {
        self.address.to_string()
    }

    async fn accept(&mut self) -> Result<Self::Lane> {
        let (stream, _) = self.listener.accept().await.context("accepting on loopback")?;
        lane(stream, self.shape)
    }

    async fn close(self) -> Result<()> {
        Ok(())
    }
}

impl Client for TcpClient {
    type Lane = FramedLane<TcpStream>;

    async fn open(&self) -> Result<Self::Lane> {
        let connected = TcpStream::connect(self.address).await;
        lane(connected.with_context(|| format!("connecting {}", self.address))?, self.shape)
    }

    async fn close(self) -> Result<()> {
        Ok(())
    }
}

fn lane(stream: TcpStream, shape: Shape) -> Result<FramedLane<TcpStream>> {
    stream.set_nodelay(true).context("setting TCP_NODELAY")?;
    FramedLane::new(stream, shape)
}
