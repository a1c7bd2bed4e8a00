// SPDX-License-Identifier: MIT OR Apache-2.0
//! The other direction of a connection: from the stream to the plain socket.
//!
//! ```text
//!   recv, and what else is there ─▶ one writev straight from the messages ─▶ their memory goes back
//! ```
//! What is taken and not written yet is at most [`BATCH_BYTES`] and one message. While the program does not
//! read, no more is taken, so that the other side runs out of credit and stops reading its own socket.

use std::io::{self, ErrorKind, IoSlice};

use partywall::tokio::RecvStream;
use partywall::{Message, StreamRecvError};
use tokio::io::AsyncWriteExt;
use tokio::select;

use super::counters::Counts;
use super::plain::PlainWriter;

/// Why nothing more comes from the stream, or goes to the plain socket.
#[derive(Debug)]
pub enum Ended {
    /// The other side sent its last byte; the plain socket was told.
    Finished,
    /// The plain socket is broken.
    Broken,
    /// The program reads no more; it may still write.
    ReadsNoMore,
    /// The other side gave up.
    Reset(u32),
    /// The session is over.
    Over,
}

/// Passes bytes on until the end.
pub async fn copy(writer: &mut PlainWriter<'_>, recv: &mut RecvStream, counts: &Counts) -> Ended {
    match copy_all(writer, recv, counts).await {
        Err(Ended::Finished) => match writer.shutdown().await {
            Ok(()) => Ended::Finished,
            // The program has closed it already, and is owed nothing.
            Err(error) if error.kind() == ErrorKind::NotConnected => Ended::Finished,
            Err(_) => Ended::Broken,
        },
        Err(ended) => ended,
        Ok(never) => match never {},
    }
}

async fn copy_all(
    writer: &mut PlainWriter<'_>,
    recv: &mut RecvStream,
    counts: &Counts,
) -> Result<std::convert::Infallible, Ended> {
    let mut batch = Vec::new();
    loop {
        let first = select! {
            biased;
            received = recv.recv() => received?.ok_or(Ended::Finished)?,
            () = writer.broken() => return Err(Ended::Broken),
        };
        batch.push(first);
        take_more(&mut batch, recv);
        let bytes: u64 = batch.iter().map(|message| message.len() as u64).sum();
        if let Err(error) = write_all(writer, &batch).await {
            let reads_no_more = writer.reads_no_more(&error);
            return Err(if reads_no_more { Ended::ReadsNoMore } else { Ended::Broken });
        }
        counts.lock().to_plain_bytes += bytes;
        batch.clear();
    }
}

/// Takes what else is there already.
fn take_more(batch: &mut Vec<Message>, recv: &mut RecvStream) {
    let mut bytes: usize = batch.iter().map(|message| message.len()).sum();
    while batch.len() < BATCH_MESSAGES && bytes < BATCH_BYTES {
        // The end, whatever it is, comes again when we next ask.
        let Ok(Some(message)) = recv.try_recv() else { return };
        bytes += message.len();
        batch.push(message);
    }
}

/// Writes all messages, as many as possible at a time.
async fn write_all(writer: &mut PlainWriter<'_>, batch: &[Message]) -> io::Result<()> {
    let (mut index, mut offset) = (0, 0);
    loop {
        while index < batch.len() && offset == batch[index].len() {
            (index, offset) = (index + 1, 0);
        }
        let left = &batch[index..];
        let count = match left {
            [] => return Ok(()),
            [last] => writer.write(&last[offset..]).await?,
            _ => {
                let mut slices = [IoSlice::new(&[]); BATCH_MESSAGES];
                for (slice, message) in slices.iter_mut().zip(left) {
                    *slice = IoSlice::new(message);
                }
                slices[0] = IoSlice::new(&left[0][offset..]);
                writer.write_vectored(&slices[..left.len()]).await?
            }
        };
        if count == 0 {
            return Err(ErrorKind::WriteZero.into());
        }
        (index, offset) = advanced(batch, index, offset + count);
    }
}

/// Where the byte lies that is `offset` after the beginning of message `index`.
fn advanced(batch: &[Message], mut index: usize, mut offset: usize) -> (usize, usize) {
    while index < batch.len() && offset > batch[index].len() {
        offset -= batch[index].len();
        index += 1;
    }
    (index, offset)
}

impl From<StreamRecvError> for Ended {
    fn from(error: StreamRecvError) -> Self {
        match error {
            StreamRecvError::Reset { code } => Self::Reset(code),
            _ => Self::Over,
        }
    }
}

/// So many messages are written at a time.
const BATCH_MESSAGES: usize = 16;

/// No more messages are taken once there are so many bytes.
const BATCH_BYTES: usize = 256 << 10;
