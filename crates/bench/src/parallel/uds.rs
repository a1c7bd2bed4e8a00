// SPDX-License-Identifier: MIT OR Apache-2.0
//! Baseline of `parallel`: a Unix stream socket per stream, with the kernel's default buffers.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::sleep;

use super::super::cell::Cell;
use super::super::lane::Setup;
use super::framed::FramedLane;
use super::lane::{Client, Server, Transport};

/// The transport `uds`.
pub struct Uds;

/// A bound socket file; removed when dropped.
pub struct UdsServer {
    listener: UnixListener,
    path: PathBuf,
    size: usize,
}

/// Where to connect.
pub struct UdsClient {
    path: PathBuf,
    size: usize,
}

impl Transport for Uds {
    type Lane = FramedLane<UnixStream>;
    type Client = UdsClient;
    type Server = UdsServer;

    fn bind(cell: Cell, setup: &Setup) -> Result<UdsServer> {
        let path = setup.directory.join("parallel-uds.sock");
        let listener =
            UnixListener::bind(&path).with_context(|| format!("binding {}", path.display()))?;
        Ok(UdsServer { listener, path, size: cell.size })
    }

    async fn connect(cell: Cell, _: &Setup, address: &str) -> Result<UdsClient> {
        Ok(UdsClient { path: address.into(), size: cell.size })
    }
}

impl Server for UdsServer {
    type Lane = FramedLane<UnixStream>;

    fn address(&self) -> String {
        self.path.display().to_string()
    }

    async fn accept(&mut self) -> Result<Self::Lane> {
        let (stream, _) = self.listener.accept().await.context("accepting on a Unix socket")?;
        FramedLane::new(stream, self.size)
    }
}

impl Drop for UdsServer {
    fn drop(&mut self) {
        // The directory is removed at the end in any case; this only frees the name for the next round.
        let _ = fs::remove_file(&self.path);
    }
}

impl Client for UdsClient {
    type Lane = FramedLane<UnixStream>;

    async fn open(&self) -> Result<Self::Lane> {
        for _ in 0..CONNECTS_MAX {
            match UnixStream::connect(&self.path).await {
                Ok(stream) => return FramedLane::new(stream, self.size),
                // The other side accepts more slowly than we connect, and its backlog is full.
                Err(error) if error.kind() == ErrorKind::WouldBlock => sleep(CONNECT_PAUSE).await,
                Err(error) => {
                    let path = self.path.display();
                    return Err(error).with_context(|| format!("connecting {path}"));
                }
            }
        }
        bail!("the other side does not accept; use fewer --streams")
    }
}

/// How often, and after what pause, a full backlog is tried again: for ten seconds or so.
const CONNECTS_MAX: u32 = 10_000;
const CONNECT_PAUSE: std::time::Duration = std::time::Duration::from_millis(1);
