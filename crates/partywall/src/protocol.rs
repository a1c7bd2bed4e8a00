// SPDX-License-Identifier: MIT OR Apache-2.0
//! Other protocols behind the same sessions: what one must offer to be spoken here.
//!
//! ```text
//!   listener ── first bytes ──▶ Protocol::recognise ── yes ──▶ accept ┐
//!   connect  ──────────────────────────────────────────────▶ connect ┴▶ Negotiation ── progress ──▶ Connection
//!
//!   Session, Stream ─▶ transport/protocol/ ─▶ ConnectionSender     one at a time writes
//!                                         ◀─ ConnectionReceiver   the driver reads
//! ```
//!
//! A protocol knows its bytes, its memory and its quirks. It does *not* know sessions: credit, directions that
//! end one by one, and numbers that are used again are made here of what it says, which is only that a stream
//! was opened, brought a message, or was closed. It starts no thread and never waits.
//!
//! [`Listener::with_protocol`](crate::blocking::Listener::with_protocol) lets a listener serve one besides our own;
//! [`connect_with_protocol`](crate::blocking::connect_with_protocol) speaks one instead of ours.
//!
//! # What a protocol cannot do
//!
//! - **Half-close.** A stream is closed as a whole. Where we only finish sending, nothing is said until we have
//!   stopped receiving as well; where the other side closes, what it sent is received, then
//!   `None`, and sending fails with
//!   [`Stopped`](crate::StreamSendError::Stopped) and code 0.
//! - **Codes, metadata, pings.** A code of a reset is lost, opening with metadata fails, a ping too.
//! - **Credit.** What may lie unread is bounded by the protocol's own memory, for all streams together.

use crate::config::Config;
use crate::error::Closed;
use crate::message::Message;
use crate::peer::Trust;
use crate::stats::{ReceiverStats, SenderStats};
pub use crate::transport::protocol::{DriverWaker, NameHasher, NameMap, NameSecrets};
use partywall_sys::{Credentials, Socket};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// A protocol other than our own.
pub trait Protocol: fmt::Debug + Send + Sync {
    /// Its name, for people.
    fn name(&self) -> &'static str;

    /// Whether a connection that begins with these bytes speaks it.
    fn recognise(&self, first: &[u8]) -> Recognition;

    /// The other side connected, and `handshake.first` was read.
    ///
    /// # Errors
    /// See [`ProtocolError`]; the connection is closed then.
    fn accept(&self, handshake: Handshake) -> Result<Box<dyn Negotiation>, ProtocolError>;

    /// We connected; nothing was said yet.
    ///
    /// # Errors
    /// See [`ProtocolError`].
    fn connect(&self, handshake: Handshake) -> Result<Box<dyn Negotiation>, ProtocolError>;
}

/// What the first bytes of a connection tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recognition {
    /// It is this protocol.
    Yes,
    /// It is not.
    No,
    /// More bytes are needed. Never said of 8 bytes or more.
    Incomplete,
}

/// A fresh connection, before anything was agreed.
#[derive(Debug)]
#[non_exhaustive]
pub struct Handshake {
    /// The connection. Its calls say for themselves whether they may block; a protocol never lets them.
    pub socket: Socket,
    /// What was read from it already.
    pub first: Vec<u8>,
    /// Who the other side is, where the kernel says so. It was admitted.
    pub credentials: Option<Credentials>,
    /// How far it is trusted.
    pub trust: Trust,
    /// What the application chose.
    pub config: Config,
    /// Calls the session's driver.
    pub driver_waker: DriverWaker,
}

/// A handshake under way. The connection's owner adds the deadline.
pub trait Negotiation: fmt::Debug + Send {
    /// Goes on as far as is possible without waiting; something when both sides are ready. It is asked again
    /// whenever the connection is readable.
    ///
    /// # Errors
    /// See [`ProtocolError`]: it has come to nothing, and what it made is given back when it is dropped.
    fn progress(&mut self) -> Result<Option<Connection>, ProtocolError>;
}

/// Both sides are ready.
#[derive(Debug)]
pub struct Connection {
    /// What writes.
    pub sender: Box<dyn ConnectionSender>,
    /// What reads.
    pub receiver: Box<dyn ConnectionReceiver>,
    /// How many streams we may open at a time; 0 if only the other side opens any.
    pub streams_max: u32,
    /// Whether the other side may open streams. Where it cannot, waiting for one is an error.
    pub peer_opens: bool,
    /// Which kind of line it is, as [`Transport::Protocol`](crate::Transport::Protocol) shows it:
    /// `"shmipc v3, memfd"`.
    pub description: &'static str,
}

/// The sending end of a connection. One thread at a time calls it; none of its calls waits.
pub trait ConnectionSender: fmt::Debug + Send {
    /// Begins a stream; the protocol's name for it, not in use on this connection.
    ///
    /// # Errors
    /// See [`TrySendError`].
    fn open(&mut self) -> Result<u32, TrySendError>;

    /// Sends a message, not an empty one, whole or not at all. What the system does not take at once is kept, and
    /// written by [`flush`](Self::flush).
    ///
    /// # Errors
    /// See [`TrySendError`].
    fn send(&mut self, stream: u32, payload: &[u8]) -> Result<(), TrySendError>;

    /// Shared memory for a message of `len` bytes, not 0; `None` if it will have to be copied.
    ///
    /// # Errors
    /// See [`TrySendError`].
    fn reserve(&mut self, len: usize) -> Result<Option<Box<dyn SendBuffer>>, TrySendError>;

    /// Sends what was written to reserved memory, which is taken when it succeeds.
    ///
    /// # Errors
    /// See [`TrySendError`]: it is still lent then.
    fn commit(
        &mut self,
        stream: u32,
        buffer: &mut Option<Box<dyn SendBuffer>>,
    ) -> Result<(), TrySendError>;

    /// Ends a stream that the other side has not closed.
    ///
    /// # Errors
    /// See [`TrySendError`].
    fn close(&mut self, stream: u32) -> Result<(), TrySendError>;

    /// Writes what earlier calls left to be written.
    ///
    /// # Errors
    /// See [`TrySendError`]: `Full` if some is left still.
    fn flush(&mut self) -> Result<(), TrySendError>;

    /// Whether something is left to be written.
    fn keeps(&self) -> bool;

    /// The session ends and nothing will follow: whatever has to be said to the other side before it can take the rest
    /// is said. It is called again and again until [`is_taken`](Self::is_taken).
    fn finish(&mut self) {}

    /// Whether the other side has taken everything that was sent, as far as can be seen. A session that ends waits for
    /// it, up to [`Config::linger`](crate::Config::linger).
    fn is_taken(&self) -> bool {
        true
    }

    /// Somebody is about to sleep until room comes: from now on [`ConnectionSpace::descriptor`] tells.
    ///
    /// # Errors
    /// The system's.
    fn arm(&mut self) -> io::Result<()>;

    /// Nobody sleeps any more.
    fn disarm(&mut self);

    /// Where to wait for room without holding the sender.
    fn room(&self) -> Arc<dyn ConnectionSpace>;

    /// The session ends: everything of ours that the other side can see is closed.
    fn hang_up(&mut self);

    /// Counters.
    fn stats(&self) -> SenderStats;
}

/// Where one waits for room.
pub trait ConnectionSpace: fmt::Debug + Send + Sync {
    /// Some numbers that differ once there is more room. They may be of memory that the other side writes.
    fn snapshot(&self) -> [u64; 3];

    /// Whether the system says that there is room, or that there never will be any, which no glance shows.
    fn is_writable(&self) -> bool;

    /// What becomes readable when there may be room, or, where nobody tells, when it is time to look again.
    fn descriptor(&self) -> BorrowedFd<'_>;
}

/// The receiving end of a connection.
pub trait ConnectionReceiver: fmt::Debug + Send {
    /// What came next, if anything did. Of one stream: `Opened` (where the other side opened it), messages,
    /// `Closed`, and then never anything again under this name.
    ///
    /// # Errors
    /// See [`ProtocolError`]: the line is of no further use.
    fn find(&mut self) -> Result<ConnectionEvent, ProtocolError>;

    /// Somebody is about to sleep: from now on [`descriptor`](Self::descriptor) tells. `true` if there is something
    /// already. A `quiet` one looks again by itself.
    ///
    /// # Errors
    /// See [`ProtocolError`].
    fn arm(&mut self, quiet: bool) -> Result<bool, ProtocolError>;

    /// What becomes readable when something comes.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Whether the descriptor is to be watched now. Not while more lies unread than may: then [`DriverWaker::wake`] tells.
    fn listens(&self) -> bool {
        true
    }

    /// For one who only ever looks: now and then, whether the other side has gone. `true` if there may be something.
    ///
    /// # Errors
    /// See [`ProtocolError`].
    fn notice_end(&mut self) -> Result<bool, ProtocolError>;

    /// Nobody receives any more.
    fn close(&mut self);

    /// Counters.
    fn stats(&self) -> ReceiverStats;
}

/// What came on a connection.
#[derive(Debug)]
pub enum ConnectionEvent {
    /// The other side opened a stream.
    Opened(u32),
    /// A message, or some bytes of a stream that knows no messages; never empty.
    Message(u32, Message),
    /// The other side closed a stream, behind everything it sent on it.
    Closed(u32),
    /// Something happened that only the protocol had to know: look again.
    Internal,
    /// Nothing now.
    Nothing,
    /// Nothing ever again: everything that came before was told.
    End(Closed),
}

/// Shared memory lent for a message to be written. Dropped before it was sent, it is given back.
pub trait SendBuffer: fmt::Debug + Send + Sync + std::any::Any {
    /// The bytes.
    fn as_slice(&self) -> &[u8];

    /// The bytes, to be written.
    fn as_mut_slice(&mut self) -> &mut [u8];

    /// Shortens it to `len` bytes.
    fn truncate(&mut self, len: usize);

    /// Itself, for the protocol to know its own again.
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any>;
}

/// What was received, where it lies: one or several pieces of memory. Dropped, it is given back.
pub trait RecvBuffer: Send + Sync {
    /// How many bytes.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The piece in which byte `from` lies, from there on; empty at the end.
    fn chunk(&self, from: usize) -> &[u8];

    /// All bytes in one piece: what lies in several is copied together, once.
    fn as_slice(&self) -> &[u8];

    /// Whether they lie in memory that the other side wrote.
    fn is_zero_copy(&self) -> bool;
}

impl Message {
    /// A message of bytes that a protocol received; copied.
    #[must_use]
    pub fn from_protocol(bytes: &[u8]) -> Self {
        Self::copied(bytes)
    }

    /// A message of bytes that a protocol received on our heap.
    #[must_use]
    pub const fn from_protocol_vec(bytes: Vec<u8>) -> Self {
        Self::from_vec(bytes)
    }

    /// A message that a protocol received where it lies.
    #[must_use]
    pub fn from_recv_buffer(buffer: Box<dyn RecvBuffer>) -> Self {
        Self::from_buffer(buffer)
    }
}

/// Why nothing was sent.
#[derive(Debug)]
pub enum TrySendError {
    /// No room now: ask again when there may be some. Nothing was done.
    Full,
    /// Nobody will receive it.
    Closed(Closed),
    /// It never fits: so many bytes are the most.
    TooLarge(u64),
    /// The line is broken.
    Broken(ProtocolError),
}

/// What went wrong on a connection, or while one was negotiated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The other side broke a rule of the protocol.
    #[error("broke a rule: {what}")]
    Violation {
        /// Which, and how.
        what: String,
    },
    /// The other side, or we, will not do what was asked for.
    #[error("{what}")]
    Refused {
        /// What, and what to do.
        what: String,
    },
    /// The other side has gone.
    #[error("it hung up")]
    HungUp,
    /// A system call failed.
    #[error("{what} failed: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}
