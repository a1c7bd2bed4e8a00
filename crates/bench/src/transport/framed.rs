// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends and receives messages on an asynchronous byte stream, each with a length prefix;
//! `parallel` uses it over sockets.
//!
//! ```text
//! | length u32, little-endian | payload |     one write, and one read if small, per message
//! ```
//! Each message carries its length, as a program on a socket needs it. Both directions share one
//! buffer, because only one message is in flight. The buffer stays in the cache, which favours the
//! sockets.

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{AsyncEndpoint, Payload};

/// One end of a stream of messages over any asynchronous byte stream, such as a socket.
pub struct FramedStream<S> {
    stream: S,
    frame: Vec<u8>,
}

impl<S> FramedStream<S> {
    /// Makes an endpoint of the byte stream `stream` for messages of `size` bytes.
    pub fn new(stream: S, size: usize) -> Result<Self> {
        let length = u32::try_from(size).context("messages of 4 GiB do not fit a frame")?;
        let mut frame = vec![0; LENGTH_SIZE + size];
        frame[..LENGTH_SIZE].copy_from_slice(&length.to_le_bytes());
        Ok(Self { stream, frame })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> AsyncEndpoint for FramedStream<S> {
    async fn send(&mut self, payload: Payload) -> Result<()> {
        payload.fill(&mut self.frame[LENGTH_SIZE..]);
        self.stream.write_all(&self.frame).await.context("writing a message")
    }

    async fn receive(&mut self, payload: Payload) -> Result<()> {
        let read = self.stream.read_exact(&mut self.frame).await;
        read.context("reading a message")?;
        let (length, message) = self.frame.split_at(LENGTH_SIZE);
        let expected = u32::try_from(payload.size).unwrap_or(u32::MAX).to_le_bytes();
        ensure!(length == expected, "a message of another length arrived");
        Ok(payload.verify(message)?)
    }
}

/// Size in bytes of the field that gives the length of a message.
const LENGTH_SIZE: usize = 4;
