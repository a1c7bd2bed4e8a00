// SPDX-License-Identifier: MIT OR Apache-2.0
//! The traits that another protocol implements, so that sessions and streams can run over it.
//!
//! ```text
//!   listener ── first bytes ─▶ Protocol::recognise ── yes ─▶ accept ┐
//!   connect_with_protocol ────────────────────────────────▶ connect ┴▶ Negotiation ─▶ Connection
//!
//!   Session, Stream ─▶ transport/protocol/ ─▶ ConnectionSender     one thread at a time sends
//!                                         ◀─ ConnectionReceiver    the driver receives
//! ```
//!
//! An implementation of a protocol knows the protocol's frames, memory and special cases. It does
//! *not* know sessions. It reports that a stream was opened, received a message, or was closed.
//! From these events `transport/protocol/` derives credit, the end of each direction and the reuse
//! of stream numbers. A protocol starts no thread and never blocks.
//!
//! [`Listener::with_protocol`](crate::blocking::Listener::with_protocol) adds a protocol to a
//! listener. [`connect_with_protocol`](crate::blocking::connect_with_protocol) speaks another
//! protocol instead of Partywall's own.
//!
//! # What a protocol does not support
//!
//! - **Half-close.** A stream is closed as a whole. When this side finishes sending, it sends the
//!   close only after it has stopped receiving as well. When the peer closes, its messages are
//!   received, then `None`; sending fails with [`Stopped`](crate::StreamSendError::Stopped) and
//!   code 0.
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

/// A protocol other than Partywall's own, for connections of sessions.
pub trait Protocol: fmt::Debug + Send + Sync {
    /// Returns the name of the protocol, for error texts and logs.
    fn name(&self) -> &'static str;

    /// Whether a connection whose first bytes are `first` uses this protocol.
    fn recognise(&self, first: &[u8]) -> Recognition;

    /// Begins the server's handshake. The peer connected and sent `handshake.first`.
    ///
    /// # Errors
    /// Returns [`ProtocolError`] if the protocol refuses the connection, which the listener then
    /// closes.
    fn accept(&self, handshake: Handshake) -> Result<Box<dyn Negotiation>, ProtocolError>;

    /// Begins the client's handshake, on a connection over which nothing has been sent.
    ///
    /// # Errors
    /// Returns [`ProtocolError`] if the protocol failed.
    fn connect(&self, handshake: Handshake) -> Result<Box<dyn Negotiation>, ProtocolError>;
}

/// Whether the first bytes of a connection belong to a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recognition {
    /// The first bytes belong to the protocol whose `recognise` was called.
    Yes,
    /// The first bytes do not belong to the protocol whose `recognise` was called.
    No,
    /// More bytes are needed to decide. A protocol never returns this for 8 bytes or more.
    Incomplete,
}

/// A new connection, before the two sides have agreed on anything.
#[derive(Debug)]
#[non_exhaustive]
pub struct Handshake {
    /// The connection's socket. Each call of the socket takes a flag that says whether it may
    /// block; a protocol never lets a call block.
    pub socket: Socket,
    /// The bytes that were already read from the socket.
    pub first: Vec<u8>,
    /// The peer's credentials, if the kernel reports them. The admission rule has accepted the
    /// peer.
    pub credentials: Option<Credentials>,
    /// How far this side trusts the peer.
    pub trust: Trust,
    /// The configuration that the application gave to the listener or to `connect_with_protocol`.
    pub config: Config,
    /// Wakes the session's driver, the task or thread that calls [`ConnectionReceiver::find`].
    /// [`DriverWaker`] says when the protocol calls it.
    pub driver_waker: DriverWaker,
}

/// A handshake of another protocol in progress. The listener, or the connecting side, drives the
/// handshake and enforces its deadline.
pub trait Negotiation: fmt::Debug + Send {
    /// Continues the handshake as far as possible without blocking. Returns the connection once
    /// both sides are ready. The caller calls `progress` again whenever the socket is readable.
    ///
    /// # Errors
    /// Returns [`ProtocolError`] if the handshake has failed; dropping it frees its resources.
    fn progress(&mut self) -> Result<Option<Connection>, ProtocolError>;
}

/// A connection of another protocol, after its handshake.
#[derive(Debug)]
pub struct Connection {
    /// The sending end of the connection.
    pub sender: Box<dyn ConnectionSender>,
    /// The receiving end of the connection.
    pub receiver: Box<dyn ConnectionReceiver>,
    /// The most streams that this side may have open at a time; 0 if only the peer opens streams.
    pub streams_max: u32,
    /// Whether the peer may open streams. If not, an application that accepts a stream gets an
    /// error.
    pub peer_opens: bool,
    /// The variant of the protocol, such as `"shmipc v3, memfd"`. It is the text of
    /// [`Transport::Protocol`](crate::Transport::Protocol).
    pub description: &'static str,
}

/// The sending end of a connection. Threads call it one at a time; no call blocks.
pub trait ConnectionSender: fmt::Debug + Send {
    /// Opens a stream and returns the protocol's id of it. No other open stream of the connection
    /// has this id.
    ///
    /// # Errors
    /// Returns [`TrySendError`] if the connection did not accept the operation.
    fn open(&mut self) -> Result<u32, TrySendError>;

    /// Sends a whole message of at least one byte. On an error, no byte of the message was sent.
    /// Bytes that the kernel does not accept immediately are buffered, and [`flush`](Self::flush)
    /// writes them.
    ///
    /// # Errors
    /// Returns [`TrySendError`] if the connection did not accept the operation.
    fn send(&mut self, stream: u32, payload: &[u8]) -> Result<(), TrySendError>;

    /// Reserves shared memory for a message of `len` bytes, at least 1. Returns `None` if messages
    /// of this length are copied instead.
    ///
    /// # Errors
    /// Returns [`TrySendError`] if the connection did not accept the operation.
    fn reserve(&mut self, len: usize) -> Result<Option<Box<dyn SendBuffer>>, TrySendError>;

    /// Sends the message in `buffer`, and sets `buffer` to `None` on success.
    ///
    /// # Errors
    /// Returns [`TrySendError`] if nothing was sent; `buffer` then still holds the memory.
    fn commit(
        &mut self,
        stream: u32,
        buffer: &mut Option<Box<dyn SendBuffer>>,
    ) -> Result<(), TrySendError>;

    /// Closes a stream that the peer has not closed.
    ///
    /// # Errors
    /// Returns [`TrySendError`] if the connection did not accept the operation.
    fn close(&mut self, stream: u32) -> Result<(), TrySendError>;

    /// Writes the bytes that earlier calls left buffered.
    ///
    /// # Errors
    /// Returns [`TrySendError`], which is `Full` if some bytes are still buffered.
    fn flush(&mut self) -> Result<(), TrySendError>;

    /// Whether the sending end still buffers sent bytes that the socket has not accepted.
    fn keeps(&self) -> bool;

    /// Announces to the peer that nothing more will be sent, if the peer needs that before it takes
    /// the remaining bytes. An ending session calls `finish` repeatedly until
    /// [`is_taken`](Self::is_taken) returns `true`.
    fn finish(&mut self) {}

    /// Whether the peer has taken every sent byte, as far as this side can know. An ending session
    /// waits until then, at most for [`Config::linger`](crate::Config::linger).
    fn is_taken(&self) -> bool {
        true
    }

    /// Prepares for a sleep of a thread until there is room. From now on
    /// [`ConnectionSpace::descriptor`] becomes readable when there may be room.
    ///
    /// # Errors
    /// Returns the error of a failed system call.
    fn arm(&mut self) -> io::Result<()>;

    /// Ends the sleep that [`arm`](Self::arm) prepared: the descriptor need not become readable any
    /// longer.
    fn disarm(&mut self);

    /// Returns the object on which a thread waits for room without holding the sender.
    fn room(&self) -> Arc<dyn ConnectionSpace>;

    /// Closes everything that the peer can notice of this side, because the session has ended.
    fn hang_up(&mut self);

    /// Returns the counters of the sending end.
    fn stats(&self) -> SenderStats;
}

/// The object on which a thread waits until the connection has room to send.
pub trait ConnectionSpace: fmt::Debug + Send + Sync {
    /// Returns numbers that change once there is more room. A waiting sender compares the numbers
    /// of two calls. The numbers may come from memory that the peer writes.
    fn snapshot(&self) -> [u64; 3];

    /// Whether the kernel reports that the socket accepts bytes, or that the socket never will
    /// again. The numbers of [`snapshot`](Self::snapshot) do not change when the socket accepts
    /// bytes.
    fn is_writable(&self) -> bool;

    /// Returns a descriptor that becomes readable when there may be room. If the protocol does not
    /// notify about room, the descriptor becomes readable when it is time to look for room again.
    fn descriptor(&self) -> BorrowedFd<'_>;
}

/// The receiving end of a connection. Only the session's driver calls it; no call blocks.
pub trait ConnectionReceiver: fmt::Debug + Send {
    /// Returns the next event. Each stream yields `Opened` if the peer opened it, then its
    /// messages, then `Closed`; its id has no later event.
    ///
    /// # Errors
    /// Returns [`ProtocolError`] if the connection failed and is unusable.
    fn find(&mut self) -> Result<ConnectionEvent, ProtocolError>;

    /// Prepares for a sleep of the driver until an event arrives. From now on
    /// [`descriptor`](Self::descriptor) becomes readable when an event arrives. Returns `true` if
    /// an event is there already. `quiet` says that the driver also polls at intervals while it
    /// sleeps.
    ///
    /// # Errors
    /// Returns [`ProtocolError`] if the protocol failed.
    fn arm(&mut self, quiet: bool) -> Result<bool, ProtocolError>;

    /// Returns a descriptor that becomes readable when an event arrives.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Whether the driver should poll the descriptor now. The result is `false` while the unread
    /// bytes exceed their bound. Once they no longer exceed it, the protocol calls
    /// [`DriverWaker::wake`].
    fn listens(&self) -> bool {
        true
    }

    /// Checks whether the peer has gone. A driver that never sleeps calls this method at intervals.
    /// Returns `true` if there may be an event.
    ///
    /// # Errors
    /// Returns [`ProtocolError`] if the protocol failed.
    fn notice_end(&mut self) -> Result<bool, ProtocolError>;

    /// Announces that the session will receive no more messages on this connection.
    fn close(&mut self);

    /// Returns the counters of the receiving end.
    fn stats(&self) -> ReceiverStats;
}

/// An event on a connection of another protocol; the number is the id of a stream.
#[derive(Debug)]
pub enum ConnectionEvent {
    /// The peer opened a stream.
    Opened(u32),
    /// A message of a stream, or some bytes of a stream without message boundaries; never empty.
    Message(u32, Message),
    /// The peer closed a stream. All messages that it sent on the stream were returned before.
    Closed(u32),
    /// The protocol handled an event that does not concern the session: call
    /// [`find`](ConnectionReceiver::find) again.
    Internal,
    /// No event has arrived.
    Nothing,
    /// The connection has ended; all earlier events were returned.
    End(Closed),
}

/// Shared memory for a message that the application writes. Dropping an unsent buffer frees its
/// memory.
pub trait SendBuffer: fmt::Debug + Send + Sync + std::any::Any {
    /// Returns the bytes of the message.
    fn as_slice(&self) -> &[u8];

    /// Returns the bytes of the message that is to be sent, for the application to write.
    fn as_mut_slice(&mut self) -> &mut [u8];

    /// Shortens the message that is to be sent to `len` bytes.
    fn truncate(&mut self, len: usize);

    /// Converts this buffer of a message to `Any`, so that the protocol can downcast it to the
    /// protocol's own type.
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any>;
}

/// Why a call of a [`ConnectionSender`] method sent nothing.
#[derive(Debug)]
pub enum TrySendError {
    /// There is no room now, and nothing was changed. Try again when there may be room.
    Full,
    /// The peer has closed the stream or the connection, so the message cannot arrive.
    Closed(Closed),
    /// The message never fits. The value is the length of the longest possible message in bytes.
    TooLarge(u64),
    /// The connection is broken, for the contained reason.
    Broken(ProtocolError),
}
