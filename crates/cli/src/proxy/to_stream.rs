// SPDX-License-Identifier: MIT OR Apache-2.0
//! One direction of a connection: from the plain socket to the stream.
//!
//! ```text
//!   little came last time   read ─▶ [1 KiB of ours] ─▶ copied into the ring
//!   much                    readable ─▶ reserve ─▶ read straight into it ─▶ truncate, commit
//! ```
//! What is read and not sent yet is at most one chunk: while there is no credit, nothing is read, and the
//! program at the plain socket waits in the end. Memory is reserved only once there is something to read.

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
use super::counters::Counts;
use super::plain::PlainReader;

/// Why nothing more comes from the plain socket, or goes to the stream.
#[derive(Debug)]
pub enum Ended {
    /// The program wrote its last byte. The stream is still to be closed.
    Finished,
    /// The plain socket is broken.
    Broken,
    /// The other side will not have more.
    Stopped(u32),
    /// The session is over.
    Over,
}

/// Passes bytes on until the end.
pub async fn copy(reader: &mut PlainReader<'_>, send: &mut SendStream, counts: &Counts) -> Ended {
    let mut chunk = Chunk::default();
    loop {
        let copied = match chunk.long() {
            None => copy_short(reader, send).await,
            Some(room) => copy_long(reader, send, room).await,
        };
        match copied {
            Ok(0) => return Ended::Finished,
            Ok(count) => {
                chunk.came(count);
                counts.lock().from_plain_bytes += count as u64;
            }
            Err(ended) => return ended,
        }
    }
}

/// Reads into our own memory; what came goes through the ring.
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

/// Reads into the memory that the other side will look at.
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
            // Not readable after all; or others are to have their turn, which only shows in a new one.
            yield_now().await;
            continue;
        };
        let count = read?;
        if count >= room / WASTE_MAX {
            reserved.truncate(count);
            unless_broken(reader, reserved.commit()).await?;
        } else if count > 0 {
            // Little in a large block would keep all of it from others.
            let little = reserved[..count].to_vec();
            drop(reserved);
            unless_broken(reader, send.send(&little)).await?;
        }
        return Ok(count);
    }
}

/// What there is to read now, if anything.
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

/// Waits for room, unless the plain socket breaks meanwhile: nobody reads it then to notice.
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

/// A block that is used by less than one in so many bytes is too large.
const WASTE_MAX: usize = 4;
