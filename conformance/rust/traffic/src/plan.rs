// SPDX-License-Identifier: MIT OR Apache-2.0
//! A plan: a message that announces the requests that follow it in a stream.
//!
//! ```text
//!  0         8      16     24         32        40       48
//!  PWCONF01 │ mode │ seed │ requests │ sizes n │ size 0 │ … │ size n-1        words big-endian
//! ```
//!
//! Requests have no header, so a request of one byte is one byte in shared memory: request `i` has
//! size `i mod n`.

use anyhow::{Context, Result, bail, ensure};

use super::stream::Receiver;

/// The side that sends the requests of a plan, and the server's answer to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The server answers each request with the same bytes.
    Echo,
    /// The client sends all requests and closes the stream right after them; the server counts
    /// whether all requests arrived.
    Upload,
    /// The server sends all requests and closes the stream right after them.
    Download,
    /// The server answers with three counts: uploads that arrived whole, uploads whose stream ended
    /// early, and open streams.
    Report,
}

/// A plan: it announces the requests that follow it in its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The direction in which the requests are sent.
    pub mode: Mode,
    /// The seed from which both programs compute the bytes of the requests.
    pub seed: u64,
    /// Number of requests that follow this plan in its stream.
    pub requests: u64,
    /// Sizes of the planned requests in bytes; they are used in turn.
    pub sizes: Vec<usize>,
}

impl Plan {
    /// The size in bytes of the planned request with number `request`.
    pub fn size(&self, request: u64) -> usize {
        self.sizes[(request % self.sizes.len() as u64) as usize]
    }

    /// Encodes the plan as a message, which is sent before the requests that it announces.
    pub fn encode(&self) -> Vec<u8> {
        let mut message = MAGIC.to_vec();
        let words = [self.mode as u64, self.seed, self.requests, self.sizes.len() as u64];
        let sizes = self.sizes.iter().map(|&size| size as u64);
        for word in words.into_iter().chain(sizes) {
            message.extend_from_slice(&word.to_be_bytes());
        }
        message
    }

    /// Reads the next plan of a stream. Returns `None` if the stream or its session ended before a
    /// plan.
    pub async fn read(receiver: &mut impl Receiver) -> Result<Option<Self>> {
        let mut head = Vec::new();
        if receiver.receive(FIXED_BYTES, &mut head).await.unwrap_or(0) == 0 {
            return Ok(None);
        }
        receiver.receive_exact(FIXED_BYTES - head.len(), &mut head).await.context("a cut plan")?;
        ensure!(head[..8] == *MAGIC, "a plan begins with {:x?}", &head[..8]);
        let words = words(&head[8..]);
        let mode = match words[0] {
            0 => Mode::Echo,
            1 => Mode::Upload,
            2 => Mode::Download,
            3 => Mode::Report,
            other => bail!("there is no mode {other}"),
        };
        ensure!((1..=SIZES_MAX).contains(&words[3]), "a plan has {} sizes", words[3]);
        let mut body = Vec::new();
        receiver.receive_exact(8 * words[3] as usize, &mut body).await.context("a cut plan")?;
        let sizes: Vec<usize> = self::words(&body).into_iter().map(|size| size as usize).collect();
        ensure!(sizes.iter().all(|size| (1..=REQUEST_MAX).contains(size)), "sizes {sizes:?}");
        Ok(Some(Self { mode, seed: words[1], requests: words[2], sizes }))
    }
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|&word| u64::from_be_bytes(word)).collect()
}

const MAGIC: &[u8; 8] = b"PWCONF01";
const FIXED_BYTES: usize = 40;
const SIZES_MAX: u64 = 1024;
const REQUEST_MAX: usize = 1 << 30;
