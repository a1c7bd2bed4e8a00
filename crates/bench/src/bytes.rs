// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of an agreed size over a blocking byte stream: the fast and fair way, for Unix sockets, TCP and pipes.
//!
//! One `write_all` and one `read_exact` per message, into buffers that are used again, no length prefix. It does
//! *not* batch small messages: each is handed over when it is sent, as Partywall does it.

use std::io::{Read, Write};

use anyhow::{Context, Result};

use super::lane::Lane;

/// A lane over any blocking stream.
pub struct ByteLane<S> {
    stream: S,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
}

impl<S> ByteLane<S> {
    /// Wraps `stream`; buffers are of `size` bytes.
    pub fn new(stream: S, size: usize) -> Self {
        Self { stream, outgoing: vec![0; size], incoming: vec![0; size] }
    }
}

impl<S: Read + Write + Send + 'static> Lane for ByteLane<S> {
    fn send(&mut self, size: usize, fill: impl FnOnce(&mut [u8])) -> Result<()> {
        let message = &mut self.outgoing[..size];
        fill(message);
        self.stream.write_all(message).context("writing to the other process")
    }

    fn receive<R>(&mut self, size: usize, read: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let message = &mut self.incoming[..size];
        self.stream.read_exact(message).context("reading from the other process")?;
        Ok(read(message))
    }
}
