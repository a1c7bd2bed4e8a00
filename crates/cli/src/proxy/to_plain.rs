// SPDX-License-Identifier: MIT OR Apache-2.0
//! One direction of a proxied connection: from the stream to the plain socket.
//!
//! ```text
//!   recv one message, then take all queued ones ─▶ one writev from shared memory ─▶ release
//! ```
//! At most one batch ([`BATCH_BYTES`]) and one message are received but not written. While the
//! program does not read, no message is received, so the peer runs out of credit and stops reading
//! its own socket.

use std::io::{self, ErrorKind, IoSlice};

use partywall::tokio::RecvStream;
use partywall::{Message, StreamRecvError};
use tokio::io::AsyncWriteExt;
use tokio::select;

use super::counters::Counters;
use super::plain::PlainWriter;

/// How one direction of a connection, from the stream to the plain socket, ended.
#[derive(Debug)]
pub enum Ended {
    /// The other proxy has finished its direction of the stream; the plain socket is shut down for
    /// writing.
    Finished,
    /// The plain socket has failed or was reset, so no more bytes can be written to it.
    Broken,
    /// The program at the plain socket reads no more, but may still write.
    ReadsNoMore,
    /// The other proxy reset the stream, with the code in this variant.
    Reset(u32),
    /// The session that carries the stream has ended.
    Over,
}

/// Carries bytes from the stream to the plain socket until the direction ends.
pub async fn copy(
    writer: &mut PlainWriter<'_>,
    recv: &mut RecvStream,
    counters: &Counters,
) -> Ended {
    match copy_all(writer, recv, counters).await {
        Err(Ended::Finished) => match writer.shutdown().await {
            Ok(()) => Ended::Finished,
            // The program has closed its socket already, so shutting the socket down has no effect.
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
    counters: &Counters,
) -> Result<std::convert::Infallible, Ended> {
    let mut batch = Vec::new();
    loop {
        let first = select! {
            biased;
            received = recv.recv() => received?.ok_or(Ended::Finished)?,
            () = writer.broken() => return Err(Ended::Broken),
        };
        batch.push(first);
        receive_queued(&mut batch, recv);
        let bytes: u64 = batch.iter().map(|message| message.len() as u64).sum();
        if let Err(error) = write_all(writer, &batch).await {
            let reads_no_more = writer.reads_no_more(&error);
            return Err(if reads_no_more { Ended::ReadsNoMore } else { Ended::Broken });
        }
        counters.lock().to_plain_bytes += bytes;
        batch.clear();
    }
}

/// Receives into `batch` the messages that have arrived already, without waiting, until the batch
/// has its maximum size.
fn receive_queued(batch: &mut Vec<Message>, recv: &mut RecvStream) {
    let mut bytes: usize = batch.iter().map(|message| message.len()).sum();
    while batch.len() < BATCH_MESSAGES && bytes < BATCH_BYTES {
        // An error or the end of the stream is not handled here, because the next `recv` reports it
        // again. So the batch is written first.
        let Ok(Some(message)) = recv.try_recv() else { return };
        bytes += message.len();
        batch.push(message);
    }
}

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

/// Finds the byte that lies `offset` bytes after the start of message `index`. Returns the index of
/// the message with the byte, and the byte's offset in that message.
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

/// Maximum number of messages that are written with one vectored write.
const BATCH_MESSAGES: usize = 16;

/// Number of bytes of queued messages at which a batch is complete and is written. It bounds the
/// memory that the peer's messages occupy in one batch.
const BATCH_BYTES: usize = 256 << 10;
