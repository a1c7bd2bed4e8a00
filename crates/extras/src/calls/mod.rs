// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls and answers over one stream: many in flight, answered in any order.
//!
//! `Client` and `Server` run on tokio (feature `calls`); those of [`blocking`] need no runtime.
//!
//! ```text
//!   Client ── call 1 ── call 2 ── call 3 ──▶  Server      one stream, one task of the client's,
//!          ◀─ answer 2 ── error 3 ── answer 1 ─           one task per call that runs
//! ```
//!
//! # What is copied
//!
//! A payload is copied once, into the memory where the peer reads it. The receiver gets the message
//! without its header. A large message is read where the peer wrote it, as on streams, and its
//! payload begins at a multiple of 16.
//!
//! # Giving up
//!
//! Dropping the future of a call before its answer cancels the call: the server drops its handler,
//! or never starts it. A call carries its deadline, as the time left. When the stream or the
//! session ends, every call in flight immediately fails with [`CallError::Lost`].
//!
//! # Limits
//!
//! [`CallsConfig`] lists the limits. A call waits for room in the stream as any message does. Under
//! [`BackPressure::Error`](partywall::BackPressure::Error) a call without room fails with
//! [`CallError::Full`], and a server without room for an answer ends: use another policy for a
//! server.
//!
//! The bytes are specified in `spec/CALLS.md`.

pub mod blocking;
#[cfg(feature = "calls")]
mod client;
mod frame;
mod pending;
#[cfg(feature = "calls")]
mod server;
mod serving;

#[cfg(feature = "calls")]
pub use client::Client;
pub use frame::{ABORTED, BUSY, CODES_RESERVED, DEADLINE, VIOLATION};
#[cfg(feature = "calls")]
pub use server::{Failure, Request, Server};
pub use serving::CallViolation;

use bytes::Bytes;
#[cfg(feature = "calls")]
use frame::{Frame, HEADER_BYTES};
#[cfg(feature = "calls")]
use partywall::tokio::SendStream;
use partywall::{StreamRecvError, StreamSendError, TooLarge};

/// Limits of a client or a server of calls. Each has a default.
#[derive(Clone, Copy, Debug)]
pub struct CallsConfig {
    in_flight_max: usize,
    running_max: usize,
    waiting_max: usize,
}

impl Default for CallsConfig {
    fn default() -> Self {
        Self { in_flight_max: 1024, running_max: 64, waiting_max: 1024 }
    }
}

impl CallsConfig {
    /// For a client: sets the most calls in flight, at least 1. Further calls wait. Default: 1,024.
    ///
    /// A cancelled call counts until the server has been told of it by the message CANCEL.
    #[must_use]
    pub const fn in_flight_max(mut self, count: usize) -> Self {
        self.in_flight_max = count;
        self
    }

    /// For a server: sets the most handlers that run at a time, at least 1. Default: 64.
    #[must_use]
    pub const fn running_max(mut self, count: usize) -> Self {
        self.running_max = count;
        self
    }

    /// For a server: sets the most calls that wait for a handler. Further calls fail with
    /// [`CallError::Busy`]. Default: 1,024.
    #[must_use]
    pub const fn waiting_max(mut self, count: usize) -> Self {
        self.waiting_max = count;
        self
    }
}

/// Returns how the error text of a failed call shows the detail that the server sent: the detail
/// itself if it is a short text, otherwise its size. Control characters of the peer never reach a
/// terminal.
fn said(detail: &[u8]) -> String {
    match std::str::from_utf8(detail) {
        Ok(text) if !text.is_empty() && text.len() <= 200 && !text.contains(char::is_control) => {
            format!(": {text}")
        }
        _ => format!(" ({} bytes of detail)", detail.len()),
    }
}

/// The reason why a call has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The server's handler of the call returned a failure.
    #[error("the call failed with code {code}{}", said(detail))]
    Failed {
        /// The error code that the handler chose.
        code: u32,
        /// The detail that the handler returned, as bytes.
        detail: Bytes,
    },
    /// The server's queue of waiting calls is full. The server did not start the call: try again
    /// later.
    #[error("the server is busy: try again later, or raise CallsConfig::waiting_max there")]
    Busy,
    /// The server aborted the call: its handler panicked, or its answer was too long to send.
    #[error("the server aborted the call: see its log")]
    Aborted,
    /// The deadline passed before an answer came. The handler may have done its work, or part of
    /// it.
    #[error("no answer came before the deadline")]
    DeadlineExceeded,
    /// The payload is longer than this session can ever send.
    #[error("{0}")]
    TooLarge(TooLarge),
    /// There is no room to send the call, and under the policy
    /// [`BackPressure::Error`](partywall::BackPressure::Error) the client does not wait for room.
    #[error("there is no room now")]
    Full,
    /// The stream or the session has ended. The handler may have done its work, or part of it.
    #[error(transparent)]
    Lost(#[from] Lost),
}

/// Why no more calls can be made over a stream.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Lost {
    /// The server has finished the stream in good order, so no more answers will arrive.
    #[error("no answers will come: the server has finished the stream")]
    Finished,
    /// Receiving from the stream failed, so no more answers will arrive.
    #[error("no answers will come: {0}")]
    Recv(StreamRecvError),
    /// Sending over the stream failed, so no more calls can be sent.
    #[error("no calls can be sent: {0}")]
    Send(StreamSendError),
    /// The server violated the call protocol.
    #[error(transparent)]
    Violation(CallViolation),
}

/// Why a server ended early.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The client has gone or has reset the stream. All handlers were dropped.
    #[error("no more calls will come: {0}")]
    Recv(#[from] StreamRecvError),
    /// Answers cannot be sent. The error is [`StreamSendError::Full`] under the policy
    /// [`BackPressure::Error`](partywall::BackPressure::Error), which does not suit a server.
    #[error("answers cannot be sent: {0}")]
    Send(#[from] StreamSendError),
    /// The client violated the call protocol; the stream was reset.
    #[error(transparent)]
    Violation(#[from] CallViolation),
}

impl From<StreamSendError> for CallError {
    fn from(error: StreamSendError) -> Self {
        match error {
            StreamSendError::TooLarge(limit) => Self::TooLarge(limit),
            StreamSendError::Full => Self::Full,
            StreamSendError::TimedOut => Self::DeadlineExceeded,
            error => Self::Lost(Lost::Send(error)),
        }
    }
}

/// Longest message in bytes, header included, that is assembled on the stack and sent as a copy; a
/// longer one is written where the peer reads it.
const SHORT_MAX: usize = 512;

/// Sends a header and its payload as one message, whole or not at all.
#[cfg(feature = "calls")]
async fn send_frame(
    stream: &mut SendStream,
    frame: Frame,
    payload: &[u8],
) -> Result<(), StreamSendError> {
    let (header, len) = (frame.encode(), HEADER_BYTES + payload.len());
    if len <= SHORT_MAX {
        let mut short = [0; SHORT_MAX];
        short[..HEADER_BYTES].copy_from_slice(&header);
        short[HEADER_BYTES..len].copy_from_slice(payload);
        return stream.send(&short[..len]).await;
    }
    let mut memory = stream.reserve(len).await?;
    memory[..HEADER_BYTES].copy_from_slice(&header);
    memory[HEADER_BYTES..].copy_from_slice(payload);
    memory.commit().await
}
