// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends and receives messages of an agreed size over a blocking byte stream: a Unix socket, TCP or
//! a pipe.
//!
//! Each message takes one `write_all` and one `read_exact` on reused buffers, without a length
//! prefix. Small messages are *not* batched, because Partywall does not batch: it publishes each
//! message when it is sent.

use std::io::{Read, Write};

use anyhow::{Context, Result};

use super::Endpoint;
use crate::harness::round::Carrier;

/// One end of a connection that carries messages of a fixed size over a blocking byte stream.
pub struct ByteStreamEndpoint<S> {
    stream: S,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    carrier: Option<Carrier>,
}

impl<S> ByteStreamEndpoint<S> {
    /// Makes an endpoint of `stream` for messages of `size` bytes, with buffers of that size.
    pub fn new(stream: S, size: usize) -> Self {
        Self { stream, outgoing: vec![0; size], incoming: vec![0; size], carrier: None }
    }

    /// Makes an endpoint of the socket `stream` for messages of `size` bytes, with buffers of that
    /// size.
    pub fn over_socket(stream: S, size: usize) -> Self {
        Self { carrier: Some(Carrier::Socket), ..Self::new(stream, size) }
    }
}

impl<S: Read + Write + Send + 'static> Endpoint for ByteStreamEndpoint<S> {
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

    fn carrier(&self) -> Option<Carrier> {
        self.carrier
    }
}
