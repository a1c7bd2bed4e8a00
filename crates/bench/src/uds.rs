// SPDX-License-Identifier: MIT OR Apache-2.0
//! Baseline: a Unix stream socket, blocking, with the kernel's default buffers.

use std::fs;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::bytes::ByteLane;
use super::lane::{Door, Setup, Transport};

/// The transport `uds`.
pub struct Uds;

/// A bound socket file; removed when dropped.
pub struct UdsDoor {
    listener: UnixListener,
    path: PathBuf,
    size: usize,
}

impl Transport for Uds {
    type Lane = ByteLane<UnixStream>;
    type Door = UdsDoor;

    fn bind(setup: &Setup) -> Result<UdsDoor> {
        let path = setup.directory.join("uds.sock");
        let listener =
            UnixListener::bind(&path).with_context(|| format!("binding {}", path.display()))?;
        Ok(UdsDoor { listener, path, size: setup.size })
    }

    fn connect(setup: &Setup, address: &str) -> Result<Self::Lane> {
        let stream =
            UnixStream::connect(address).with_context(|| format!("connecting {address}"))?;
        Ok(ByteLane::new(stream, setup.size))
    }
}

impl Door for UdsDoor {
    type Lane = ByteLane<UnixStream>;

    fn address(&self) -> String {
        self.path.display().to_string()
    }

    fn accept(&mut self) -> Result<Self::Lane> {
        let (stream, _) = self.listener.accept().context("accepting on a Unix socket")?;
        Ok(ByteLane::new(stream, self.size))
    }
}

impl Drop for UdsDoor {
    fn drop(&mut self) {
        // The directory is removed at the end in any case; this only frees the name for the next round.
        let _ = fs::remove_file(&self.path);
    }
}
