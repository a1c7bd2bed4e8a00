// SPDX-License-Identifier: MIT OR Apache-2.0
//! Other protocols behind the same sessions: the traits that such a protocol implements.
//!
//! ```text
//!   listener ── first bytes ─▶ Protocol::recognise ── yes ─▶ accept ┐
//!   connect_with_protocol ────────────────────────────────▶ connect ┴▶ Negotiation ─▶ Connection
//!
//!   Session, Stream ─▶ transport/protocol/ ─▶ ConnectionSender     one thread at a time sends
//!                                         ◀─ ConnectionReceiver    the driver receives
//! ```
//!
//! A protocol knows its frames, its memory and its quirks. It does *not* know sessions. It reports
//! that a stream was opened, received a message, or was closed; `transport/protocol/` derives
//! credit, the end of each direction and the reuse of stream numbers from that. A protocol starts
//! no thread and never blocks.
//!
//! [`Listener::with_protocol`](crate::blocking::Listener::with_protocol) adds a protocol to a
//! listener. [`connect_with_protocol`](crate::blocking::connect_with_protocol) speaks one instead
//! of ours.
//!
//! # What a protocol does not support
//!
//! - **Half-close.** A stream is closed as a whole. When we finish sending, the close is sent only
//!   after we have stopped receiving as well. When the peer closes, its messages are received, then
//!   `None`; sending fails with [`Stopped`](crate::StreamSendError::Stopped) and code 0.
//! - **Codes, metadata, pings.** The code of a reset is lost. Opening with metadata fails, and so
//!   does a ping.
//! - **Credit.** The protocol's own memory bounds the unread bytes, for all streams together.

mod driver_waker;
mod stream_id;

use crate::config::Config;
use crate::error::Closed;
pub use crate::error::ProtocolError;
use crate::message::Message;
pub use crate::message::RecvBuffer;
use crate::peer::Trust;
use crate::stats::{ReceiverStats, SenderStats};
pub use driver_waker::DriverWaker;
use partywall_sys::{Credentials, Socket};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
pub use stream_id::{StreamIdHasher, StreamIdMap, StreamIdSecrets};

/// A protocol other than our own.
pub trait Protocol: fmt::Debug + Send + Sync {
    /// Its name, for error texts and logs.
    fn name(&self) -> &'static str;

    /// Whether a connection that begins with these bytes uses this protocol.
    fn recognise(&self, first: &[u8]) -> Recognition;

    /// Begins the server's handshake. The peer connected and sent `handshake.first`.
    ///
    /// # Errors
    /// See [`ProtocolError`]; the connection is closed then.
    fn accept(&self, handshake: Handshake) -> Result<Box<dyn Negotiation>, ProtocolError>;

    /// Begins the client's handshake. Nothing has been sent on the connection yet.
    ///
    /// # Errors
    /// See [`ProtocolError`].
    fn connect(&self, handshake: Handshake) -> Result<Box<dyn Negotiation>, ProtocolError>;
}

/// What the first bytes of a connection say about its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recognition {
    /// It is this protocol.
    Yes,
    /// It is another protocol.
    No,
    /// More bytes are needed. Never returned for 8 bytes or more.
    Incomplete,
}

/// A fresh connection, before the two sides have agreed on anything.
#[derive(Debug)]
#[non_exhaustive]
pub struct Handshake {
    /// The connection's socket. Each of its calls takes whether it may block; a protocol never lets
    /// it block.
    pub socket: Socket,
    /// The bytes that were already read from the socket.
    pub first: Vec<u8>,
    /// The peer's credentials, if the kernel reports them. The peer was admitted.
    pub credentials: Option<Credentials>,
    /// How far the peer is trusted.
    pub trust: Trust,
    /// The application's configuration.
    pub config: Config,
    /// Wakes the session's driver.
    pub driver_waker: DriverWaker,
}

/// A handshake in progress. The owner of the connection enforces the deadline.
pub trait Negotiation: fmt::Debug + Send {
    /// Continues as far as possible without blocking; returns the connection once both sides are
    /// ready. The owner calls it again whenever the socket is readable.
    ///
    /// # Errors
    /// See [`ProtocolError`]. The handshake has failed; dropping it releases what it allocated.
    fn progress(&mut self) -> Result<Option<Connection>, ProtocolError>;
}

/// An established connection.
#[derive(Debug)]
pub struct Connection {
    /// The sending end.
    pub sender: Box<dyn ConnectionSender>,
    /// The receiving end.
    pub receiver: Box<dyn ConnectionReceiver>,
    /// The most streams that we may have open at a time; 0 if only the peer opens streams.
    pub streams_max: u32,
    /// Whether the peer may open streams. If not, accepting one is an error.
    pub peer_opens: bool,
    /// The variant of the protocol, as [`Transport::Protocol`](crate::Transport::Protocol) displays
    /// it: `"shmipc v3, memfd"`.
    pub description: &'static str,
}

/// The sending end of a connection. One thread at a time calls it; no call blocks.
pub trait ConnectionSender: fmt::Debug + Send {
    /// Opens a stream; returns the protocol's id of it, which no open stream of this connection
    /// has.
    ///
    /// # Errors
    /// See [`TrySendError`].
    fn open(&mut self) -> Result<u32, TrySendError>;

    /// Sends a whole message of at least one byte, or nothing of it. Bytes that the system does not
    /// accept at once are buffered and written by [`flush`](Self::flush).
    ///
    /// # Errors
    /// See [`TrySendError`].
    fn send(&mut self, stream: u32, payload: &[u8]) -> Result<(), TrySendError>;

    /// Shared memory for a message of `len` bytes, at least 1; `None` if the message will be
    /// copied.
    ///
    /// # Errors
    /// See [`TrySendError`].
    fn reserve(&mut self, len: usize) -> Result<Option<Box<dyn SendBuffer>>, TrySendError>;

    /// Sends the message in `buffer`, and takes the buffer on success.
    ///
    /// # Errors
    /// See [`TrySendError`]: `buffer` still holds the memory then.
    fn commit(
        &mut self,
        stream: u32,
        buffer: &mut Option<Box<dyn SendBuffer>>,
    ) -> Result<(), TrySendError>;

    /// Closes a stream that the peer has not closed.
    ///
    /// # Errors
    /// See [`TrySendError`].
    fn close(&mut self, stream: u32) -> Result<(), TrySendError>;

    /// Writes the bytes that earlier calls have buffered.
    ///
    /// # Errors
    /// See [`TrySendError`]: `Full` if some are still buffered.
    fn flush(&mut self) -> Result<(), TrySendError>;

    /// Whether bytes are buffered for the socket.
    fn keeps(&self) -> bool;

    /// The session ends, and nothing more is sent: announces that to the peer, if the peer needs it
    /// before it takes the rest. Called repeatedly until [`is_taken`](Self::is_taken).
    fn finish(&mut self) {}

    /// Whether the peer has taken everything that was sent, as far as can be known. A session that
    /// ends waits for that, up to [`Config::linger`](crate::Config::linger).
    fn is_taken(&self) -> bool {
        true
    }

    /// Prepares for a sleep until there is room: from now on [`ConnectionSpace::descriptor`]
    /// becomes readable.
    ///
    /// # Errors
    /// Those of the system calls.
    fn arm(&mut self) -> io::Result<()>;

    /// Ends the sleep that [`arm`](Self::arm) prepared.
    fn disarm(&mut self);

    /// Where to wait for room without holding the sender.
    fn room(&self) -> Arc<dyn ConnectionSpace>;

    /// The session has ended: closes everything of ours that the peer can see.
    fn hang_up(&mut self);

    /// Counters of this end.
    fn stats(&self) -> SenderStats;
}

/// Where a sender waits for room.
pub trait ConnectionSpace: fmt::Debug + Send + Sync {
    /// Numbers that differ once there is more room. They may be read from memory that the peer
    /// writes.
    fn snapshot(&self) -> [u64; 3];

    /// Whether the system reports that there is room, or that there never will be any. The snapshot
    /// does not include that.
    fn is_writable(&self) -> bool;

    /// Becomes readable when there may be room. If the protocol has no notification for that, it
    /// becomes readable when it is time to check again.
    fn descriptor(&self) -> BorrowedFd<'_>;
}

/// The receiving end of a connection.
pub trait ConnectionReceiver: fmt::Debug + Send {
    /// The next event, if there is one. Each stream yields `Opened` (if the peer opened it),
    /// messages, then `Closed`, and no further event under that id.
    ///
    /// # Errors
    /// See [`ProtocolError`]: the connection is unusable then.
    fn find(&mut self) -> Result<ConnectionEvent, ProtocolError>;

    /// Prepares for a sleep: from now on [`descriptor`](Self::descriptor) becomes readable when an
    /// event arrives. Returns `true` if there is one already. A `quiet` driver also polls by
    /// itself.
    ///
    /// # Errors
    /// See [`ProtocolError`].
    fn arm(&mut self, quiet: bool) -> Result<bool, ProtocolError>;

    /// Becomes readable when an event arrives.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Whether to poll the descriptor now. `false` while the unread bytes exceed their bound; then
    /// the protocol calls [`DriverWaker::wake`].
    fn listens(&self) -> bool {
        true
    }

    /// For a driver that only polls: checks from time to time whether the peer has gone. `true` if
    /// there may be an event.
    ///
    /// # Errors
    /// See [`ProtocolError`].
    fn notice_end(&mut self) -> Result<bool, ProtocolError>;

    /// The session receives no more.
    fn close(&mut self);

    /// Counters of this end.
    fn stats(&self) -> ReceiverStats;
}

/// An event of a connection.
#[derive(Debug)]
pub enum ConnectionEvent {
    /// The peer opened a stream.
    Opened(u32),
    /// A message, or bytes of a stream without message boundaries; never empty.
    Message(u32, Message),
    /// The peer closed a stream, after everything that it sent on it.
    Closed(u32),
    /// An event inside the protocol: call [`find`](ConnectionReceiver::find) again.
    Internal,
    /// There is no event now.
    Nothing,
    /// There will be no further event; all earlier ones were returned.
    End(Closed),
}

/// Shared memory for a message that the application writes. Dropped before it was sent, it is
/// freed.
pub trait SendBuffer: fmt::Debug + Send + Sync + std::any::Any {
    /// The bytes.
    fn as_slice(&self) -> &[u8];

    /// The bytes, to be written.
    fn as_mut_slice(&mut self) -> &mut [u8];

    /// Shortens it to `len` bytes.
    fn truncate(&mut self, len: usize);

    /// Converts it, so that the protocol can downcast to its own type.
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any>;
}

/// Why a call of [`ConnectionSender`] sent nothing.
#[derive(Debug)]
pub enum TrySendError {
    /// There is no room now. Try again when there may be some; nothing was changed.
    Full,
    /// The peer will not receive it.
    Closed(Closed),
    /// The message never fits; the value is the most bytes that do.
    TooLarge(u64),
    /// The connection is broken.
    Broken(ProtocolError),
}
