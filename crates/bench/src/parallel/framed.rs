// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages on a byte stream of tokio: the baselines of `parallel`.
//!
//! ```text
//! | length u32, little-endian | payload |        one buffer per lane, one write and (if it is small) one read each
//! ```
//! A length stands before each message, as any program on a socket would need it. One buffer serves both directions,
//! as only one message is ever in flight; that keeps it in the cache, which favours the baseline.

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::lane::{Lane, Payload};

/// A lane on any byte stream.
pub struct FramedLane<S> {
    stream: S,
    frame: Vec<u8>,
}

impl<S> FramedLane<S> {
    /// A lane for messages of `size` bytes.
    pub fn new(stream: S, size: usize) -> Result<Self> {
        let length = u32::try_from(size).context("messages of 4 GiB do not fit a frame")?;
        let mut frame = vec![0; LENGTH_SIZE + size];
        frame[..LENGTH_SIZE].copy_from_slice(&length.to_le_bytes());
        Ok(Self { stream, frame })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Lane for FramedLane<S> {
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

/// Bytes of the length before each message.
const LENGTH_SIZE: usize = 4;
