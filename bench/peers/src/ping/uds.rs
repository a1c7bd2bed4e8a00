// SPDX-License-Identifier: MIT OR Apache-2.0
//! Baseline: a Unix stream socket, blocking, with the kernel's default buffers; it does *not* spin.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::lane::{Door, Lane, Transport};
use crate::pattern::{Inspection, Pattern};
use crate::setup::Setup;

/// The transport `uds`.
pub struct Uds;

/// A bound socket file.
pub struct UdsDoor {
    listener: UnixListener,
    path: PathBuf,
    size: usize,
}

/// One end; sizes are agreed beforehand, so nothing is framed.
pub struct UdsLane {
    stream: UnixStream,
    message: Vec<u8>,
}

impl Transport for Uds {
    type Asking = UdsLane;
    type Door = UdsDoor;

    fn bind(setup: &Setup, size: usize) -> Result<UdsDoor> {
        let path = setup.path("uds");
        let listener =
            UnixListener::bind(&path).with_context(|| format!("binding {}", path.display()))?;
        Ok(UdsDoor { listener, path, size })
    }

    fn connect(_: &Setup, size: usize, address: &str) -> Result<UdsLane> {
        let stream =
            UnixStream::connect(address).with_context(|| format!("connecting {address}"))?;
        Ok(UdsLane { stream, message: vec![0; size] })
    }
}

impl Door for UdsDoor {
    type Answering = UdsLane;

    fn address(&self) -> String {
        self.path.display().to_string()
    }

    fn accept(self) -> Result<UdsLane> {
        let (stream, _) = self.listener.accept().context("accepting on a Unix socket")?;
        Ok(UdsLane { stream, message: vec![0; self.size] })
    }
}

impl Lane for UdsLane {
    #[inline]
    fn send(&mut self, sequence: u64) -> Result<()> {
        Pattern::of(sequence).fill(&mut self.message, 0);
        self.stream.write_all(&self.message).context("writing a message")
    }

    #[inline]
    fn receive(&mut self) -> Result<u64> {
        self.stream.read_exact(&mut self.message).context("reading a message")?;
        let mut inspection = Inspection::new();
        inspection.look(&self.message);
        inspection.finish(self.message.len())
    }
}
