// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages on a byte stream: the baselines of `parallel`.
//!
//! ```text
//! | length u32, little-endian | payload |        one buffer per lane, one write and (if it is small) one read each
//! ```
//! One buffer serves both directions, as only one message is ever in flight; that keeps it in the cache, which
//! favours the baseline.

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::lane::{Incoming, Lane, Outgoing, Shape};

/// A lane on any byte stream.
pub struct FramedLane<S> {
    stream: S,
    frame: Vec<u8>,
}

impl<S> FramedLane<S> {
    /// A lane for messages of one size.
    pub fn new(stream: S, shape: Shape) -> Result<Self> {
        let length = u32::try_from(shape.size).context("messages of 4 GiB do not fit a frame")?;
        let mut frame = vec![0; LENGTH_SIZE + shape.size];
        frame[..LENGTH_SIZE].copy_from_slice(&length.to_le_bytes());
        Ok(Self { stream, frame })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Lane for FramedLane<S> {
    async fn send(&mut self, message: Outgoing) -> Result<()> {
        message.fill(&mut self.frame[LENGTH_SIZE..], 0);
        self.stream.write_all(&self.frame).await.context("writing a message")
    }

    async fn receive(&mut self, shape: Shape) -> Result<Option<Incoming>> {
        let mut filled = 0;
        while filled < self.frame.len() {
            let count = self.stream.read(&mut self.frame[filled..]).await;
            match count.context("reading a message")? {
                0 if filled == 0 => return Ok(None),
                0 => bail!("the stream ended within a message"),
                count => filled += count,
            }
        }
        let (length, payload) = self.frame.split_at(LENGTH_SIZE);
        let expected = u32::try_from(shape.size).unwrap_or(u32::MAX).to_le_bytes();
        ensure!(length == expected, "a message of another size arrived");
        shape.inspect(payload).map(Some)
    }

    async fn close(mut self) -> Result<()> {
        self.stream.shutdown().await.context("closing a stream")
    }
}

const LENGTH_SIZE: usize = 4;
