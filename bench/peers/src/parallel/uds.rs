// SPDX-License-Identifier: MIT OR Apache-2.0
//! Baseline: a Unix stream socket per stream, with the kernel's default buffers.

use anyhow::{Context, Result};
use tokio::net::{UnixListener, UnixStream};

use super::framed::FramedLane;
use super::lane::{Client, Server, Shape, Transport};
use crate::setup::Setup;

/// The transport `uds`.
pub struct Uds;

/// A bound socket file.
pub struct UdsServer {
    listener: UnixListener,
    address: String,
    shape: Shape,
}

/// Where to connect.
#[derive(Clone)]
pub struct UdsClient {
    address: String,
    shape: Shape,
}

impl Transport for Uds {
    type Lane = FramedLane<UnixStream>;
    type Client = UdsClient;
    type Server = UdsServer;

    async fn bind(setup: &Setup, shape: Shape) -> Result<UdsServer> {
        let path = setup.path("uds");
        let listener =
            UnixListener::bind(&path).with_context(|| format!("binding {}", path.display()))?;
        Ok(UdsServer { listener, address: path.display().to_string(), shape })
    }

    async fn connect(_: &Setup, shape: Shape, address: &str) -> Result<UdsClient> {
        Ok(UdsClient { address: address.to_owned(), shape })
    }
}

impl Server for UdsServer {
    type Lane = FramedLane<UnixStream>;

    fn address(&self) -> String {
        self.address.clone()
    }

    async fn accept(&mut self) -> Result<Self::Lane> {
        let (stream, _) = self.listener.accept().await.context("accepting on a Unix socket")?;
        FramedLane::new(stream, self.shape)
    }

    async fn close(self) -> Result<()> {
        std::fs::remove_file(&self.address).context("removing the socket file")
    }
}

impl Client for UdsClient {
    type Lane = FramedLane<UnixStream>;

    async fn open(&self) -> Result<Self::Lane> {
        let connected = UnixStream::connect(&self.address).await;
        let stream = connected.with_context(|| format!("connecting {}", self.address))?;
        FramedLane::new(stream, self.shape)
    }

    async fn close(self) -> Result<()> {
        Ok(())
    }
}
