// SPDX-License-Identifier: MIT OR Apache-2.0
//! One direction of a connection: from the plain socket to the stream.
//!
//! ```text
//!   after short reads   read ─▶ [1 KiB on the stack] ─▶ copied into the ring
//!   after long reads    readable ─▶ reserve ─▶ read into it ─▶ truncate, commit
//! ```
//! At most one chunk is read and not sent. Without credit nothing is read, so the program at the
//! plain socket has to wait. Memory is reserved only when the socket is readable.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;

use partywall::tokio::SendStream;
use partywall::{SessionError, StreamSendError};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::select;
use tokio::task::yield_now;

use super::chunk::{Chunk, SHORT_BYTES};
use super::counters::Counters;
use super::plain::PlainReader;

/// The end of this direction.
#[derive(Debug)]
pub enum Ended {
    /// The program has finished; the caller closes the stream.
    Finished,
    /// The plain socket is broken.
    Broken,
    /// The peer stopped the stream.
    Stopped(u32),
    /// The session has ended.
    Over,
}

/// Carries bytes until the end.
pub async fn copy(
    reader: &mut PlainReader<'_>,
    send: &mut SendStream,
    counters: &Counters,
) -> Ended {
    let mut chunk = Chunk::default();
    loop {
        let copied = match chunk.long() {
            None => copy_short(reader, send).await,
            Some(room) => copy_long(reader, send, room).await,
        };
        match copied {
            Ok(0) => return Ended::Finished,
            Ok(count) => {
                chunk.record(count);
                counters.lock().from_plain_bytes += count as u64;
            }
            Err(ended) => return ended,
        }
    }
}

/// Reads to the stack; the bytes go through the ring.
async fn copy_short(reader: &mut PlainReader<'_>, send: &mut SendStream) -> Result<usize, Ended> {
    let mut short = [0; SHORT_BYTES];
    let count = select! {
        biased;
        read = reader.read(&mut short) => read?,
        stopped = send.stopped() => return Err(stopped.into()),
    };
    if count > 0 {
        unless_broken(reader, send.send(&short[..count])).await?;
    }
    Ok(count)
}

/// Reads into shared memory, where the peer reads the bytes.
async fn copy_long(
    reader: &mut PlainReader<'_>,
    send: &mut SendStream,
    room: usize,
) -> Result<usize, Ended> {
    loop {
        select! {
            biased;
            readable = reader.readable() => readable?,
            stopped = send.stopped() => return Err(stopped.into()),
        }
        let mut reserved = unless_broken(reader, send.reserve(room)).await?;
        let Some(read) = read_now(reader, &mut reserved).await else {
            drop(reserved);
            // The socket was not readable, or the budget of this task is used up: yielding renews
            // it.
            yield_now().await;
            continue;
        };
        let count = read?;
        if count >= room / WASTE_MAX {
            reserved.truncate(count);
            unless_broken(reader, reserved.commit()).await?;
        } else if count > 0 {
            // A few bytes must not occupy a large block.
            let little = reserved[..count].to_vec();
            drop(reserved);
            unless_broken(reader, send.send(&little)).await?;
        }
        return Ok(count);
    }
}

/// Reads without waiting; `None` if nothing is readable.
async fn read_now(reader: &mut PlainReader<'_>, into: &mut [u8]) -> Option<io::Result<usize>> {
    poll_fn(|context| {
        let mut buffer = ReadBuf::new(into);
        let polled = Pin::new(&mut *reader).poll_read(context, &mut buffer);
        Poll::Ready(match polled {
            Poll::Ready(read) => Some(read.map(|()| buffer.filled().len())),
            Poll::Pending => None,
        })
    })
    .await
}

/// Waits for room or for a broken plain socket, which no reader would notice meanwhile.
async fn unless_broken<T>(
    reader: &PlainReader<'_>,
    sending: impl Future<Output = Result<T, StreamSendError>>,
) -> Result<T, Ended> {
    select! {
        biased;
        sent = sending => Ok(sent?),
        () = reader.broken() => Err(Ended::Broken),
    }
}

impl From<io::Error> for Ended {
    fn from(_: io::Error) -> Self {
        Self::Broken
    }
}

impl From<StreamSendError> for Ended {
    fn from(error: StreamSendError) -> Self {
        match error {
            StreamSendError::Stopped { code } => Self::Stopped(code),
            _ => Self::Over,
        }
    }
}

impl From<SessionError> for Ended {
    fn from(_: SessionError) -> Self {
        Self::Over
    }
}

/// A block is too large if less than one in this many bytes is used.
const WASTE_MAX: usize = 4;
