// SPDX-License-Identifier: MIT OR Apache-2.0
//! One direction of a proxied connection: from the plain socket to the stream.
//!
//! ```text
//!   after short reads   read ─▶ [1 KiB on the stack] ─▶ copied into the ring
//!   after long reads    readable ─▶ reserve ─▶ read into it ─▶ truncate, commit
//! ```
//! At most the bytes of one read (a chunk) are held and not yet sent. Without credit no bytes are
//! read, so the program at the plain socket has to wait. Memory is reserved only when the socket is
//! readable.

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

/// How one direction of a connection, from the plain socket to the stream, ended.
#[derive(Debug)]
pub enum Ended {
    /// The program has shut down its writing direction; the caller finishes the stream's sending
    /// direction.
    Finished,
    /// The plain socket has failed or was reset, so no more bytes can be read from it.
    Broken,
    /// The other proxy receives no more of this stream; the variant holds the code that it sent.
    Stopped(u32),
    /// The session that carries the stream has ended.
    Over,
}

/// Carries bytes from the plain socket to the stream until the direction ends.
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

/// Reads up to 1 KiB from the plain socket into a buffer on the stack, and sends the bytes through
/// the ring.
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

/// Reads from the plain socket directly into reserved shared memory, from which the other proxy
/// reads the bytes.
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
            // The socket was not readable, or tokio's budget of this task is used up: yielding
            // renews the budget.
            yield_now().await;
            continue;
        };
        let count = read?;
        if count >= room / WASTE_MAX {
            reserved.truncate(count);
            unless_broken(reader, reserved.commit()).await?;
        } else if count > 0 {
            // The few bytes of a short read must not occupy a large block of shared memory. So the
            // proxy copies the bytes, frees the block, and sends the copy.
            let little = reserved[..count].to_vec();
            drop(reserved);
            unless_broken(reader, send.send(&little)).await?;
        }
        return Ok(count);
    }
}

/// Reads from the plain socket without waiting; `None` if the socket has no bytes now.
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

/// Waits until `sending` has found room in the stream, or until the plain socket is broken. Nothing
/// reads the socket while the stream has no room, so the wait must check the socket.
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

/// A read that fills less than one part in this number of its reserved block of shared memory would
/// waste the rest. So its bytes are copied, and the block is freed.
const WASTE_MAX: usize = 4;
