// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interfaces of a measured transport, so that each scenario is written once.
//!
//! ```text
//! ChannelTransport   child:   T::bind(setup) ─► Acceptor   accept() ─► Endpoint ─┐
//!                                       │ address (over the control pipe)        │ messages
//!                    parent:            └──► T::connect(address) ─► Endpoint ────┘
//!
//! StreamTransport    child:   T::bind ─► Server   accept() ─► AsyncEndpoint ×N     on tokio,
//!                    parent:  T::connect ─► Client  open() ─► AsyncEndpoint ×N     for `parallel`
//! ```
//! All calls are generic: a virtual call or a boxed future per message would be visible in a time
//! of 15 ns.
//!
//! Messages of channels carry no length, because both ends know the size in advance. The missing
//! length field favours transports that are byte streams.
//!
//! Invariant: streams are accepted in the order in which they are opened, so both ends number them
//! alike. If a transport breaks the invariant, payloads do not verify.

pub mod baseline_eventfd;
pub mod baseline_spin;
pub mod byte_stream;
pub mod framed;
pub mod handover;
pub mod link;
pub mod pipe;
pub mod shm;
pub mod tcp;
pub mod uds;

use std::future::Future;

use anyhow::Result;

use crate::harness::cell::Cell;
use crate::harness::pattern::{Corrupted, Touch};
use crate::harness::round::Carrier;
use crate::harness::workspace::Setup;

/// A transport of blocking channels. If the channels' endpoints are not `Send`, only `ping` runs on
/// the transport.
pub trait ChannelTransport {
    /// One end of a connection of the transport.
    type Endpoint: Endpoint;
    /// The end of the child process, which listens and accepts connections.
    type Acceptor: Acceptor<Endpoint = Self::Endpoint>;

    /// Makes an acceptor at an address that no other listener uses.
    fn bind(setup: &Setup) -> Result<Self::Acceptor>;

    /// Connects to the listener at `address`.
    fn connect(setup: &Setup, address: &str) -> Result<Self::Endpoint>;
}

/// The child process's end of a transport: a listener that has bound an address.
pub trait Acceptor {
    /// The end of a connection that the listener returns when it accepts one.
    type Endpoint: Endpoint;

    /// The address of this listener, to which the parent process connects.
    fn address(&self) -> String;

    /// Waits for the next connection of the parent.
    fn accept(&mut self) -> Result<Self::Endpoint>;
}

/// One end of a connection that carries messages in both directions. The process that has the
/// endpoint sends and receives the measured messages with it.
pub trait Endpoint {
    /// Sends one message; `fill` writes its `size` bytes into memory that the transport chooses.
    fn send(&mut self, size: usize, fill: impl FnOnce(&mut [u8])) -> Result<()>;

    /// Receives one message of `size` bytes; `read` gets the bytes where the transport received
    /// them.
    fn receive<R>(&mut self, size: usize, read: impl FnOnce(&[u8]) -> R) -> Result<R>;

    /// The transport of the messages so far, as the connection reports it; `None` if the connection
    /// is neither a socket nor shared memory.
    fn carrier(&self) -> Option<Carrier> {
        None
    }

    /// Returns once all sent messages have left this process. An endpoint such as that of a link
    /// sends only while this process calls it, so without this call its last messages would wait
    /// for the next call.
    fn settle(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A transport of asynchronous streams.
pub trait StreamTransport: 'static {
    /// One end of one stream of this transport.
    type Endpoint: AsyncEndpoint;
    /// The type of the transport's client, which opens streams.
    type Client: Client<Endpoint = Self::Endpoint>;
    /// The type of the transport's server, which accepts streams.
    type Server: Server<Endpoint = Self::Endpoint>;

    /// Makes a server of the transport at an address that no other listener uses.
    fn bind(cell: Cell, setup: &Setup) -> impl Future<Output = Result<Self::Server>> + Send;

    /// Makes a client of the transport for the server at `address`.
    fn connect(
        cell: Cell,
        setup: &Setup,
        address: &str,
    ) -> impl Future<Output = Result<Self::Client>> + Send;
}

/// The client's end of a transport of streams, which opens the streams.
pub trait Client: Send + Sync + 'static {
    /// One end of one stream of the transport.
    type Endpoint: AsyncEndpoint;

    /// Opens one more stream to the server.
    fn open(&self) -> impl Future<Output = Result<Self::Endpoint>> + Send;

    /// Shared memory of the session on the client's side; `None` for a transport without shared
    /// memory.
    fn memory(&self) -> Option<Memory> {
        None
    }

    /// Number of messages so far that found no shared memory and took the socket; `None` if the
    /// transport does not count them.
    fn over_socket(&self) -> Option<u64> {
        None
    }

    /// Ends the session of the client.
    fn close(self) -> impl Future<Output = Result<()>> + Send
    where
        Self: Sized,
    {
        async { Ok(()) }
    }
}

/// The server's end of a transport of streams, which accepts the streams.
pub trait Server: Send + 'static {
    /// One end of one stream of the transport.
    type Endpoint: AsyncEndpoint;

    /// The address of this server, to which the client connects.
    fn address(&self) -> String;

    /// Waits for the next stream that the client opens.
    fn accept(&mut self) -> impl Future<Output = Result<Self::Endpoint>> + Send;

    /// Ends all sessions of the server.
    fn close(self) -> impl Future<Output = Result<()>> + Send
    where
        Self: Sized,
    {
        async { Ok(()) }
    }
}

/// One end of one asynchronous stream.
pub trait AsyncEndpoint: Send + 'static {
    /// Sends one message with the size and content that `payload` gives.
    fn send(&mut self, payload: Payload) -> impl Future<Output = Result<()>> + Send;

    /// Receives one message, verifies it in place against `payload`, and releases its memory.
    fn receive(&mut self, payload: Payload) -> impl Future<Output = Result<()>> + Send;

    /// Receives and verifies one message, and holds its memory until [`release`](Self::release).
    fn receive_and_hold(&mut self, payload: Payload) -> impl Future<Output = Result<()>> + Send {
        self.receive(payload)
    }

    /// Releases the memory of a message from [`receive_and_hold`](Self::receive_and_hold).
    fn release(&mut self) {}

    /// Ends the stream whose end this endpoint is.
    fn close(self) -> impl Future<Output = Result<()>> + Send
    where
        Self: Sized,
    {
        async { Ok(()) }
    }
}

/// The content of one message, from which both ends compute its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Payload {
    /// Length in bytes of the message with this payload.
    pub size: usize,
    /// Whether the sender writes the payload and the receiver verifies it.
    pub touch: Touch,
    /// The numbers of stream and operation and the direction, combined into one number.
    pub sequence: u64,
}

impl Payload {
    /// Writes the bytes of the whole payload into `message`.
    #[inline]
    pub fn fill(self, message: &mut [u8]) {
        self.touch.fill(message, self.sequence);
    }

    /// Verifies that `message` is the payload; the transport has already checked its length.
    #[inline]
    pub fn verify(self, message: &[u8]) -> Result<(), Corrupted> {
        self.touch.verify(message, self.sequence)
    }
}

/// The shared memory that a session has for large messages.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Number of bytes of shared memory that the session has allocated for large messages.
    pub bytes: u64,
    /// The configured maximum of `bytes`, the shared memory for large messages.
    pub bytes_max: u64,
    /// Number of large messages that the receiver has not released.
    pub blocks_in_flight: u64,
    /// Maximum number of unread bytes on one stream of the session.
    pub unread_bytes_max: u64,
}
