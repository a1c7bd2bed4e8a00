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
//! Messages of channels carry no length, because both ends know it. That favours the byte streams.
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
use crate::harness::workspace::Setup;

/// A transport of blocking channels. If its endpoints are not `Send`, only `ping` runs on it.
pub trait ChannelTransport {
    /// One end of a connection.
    type Endpoint: Endpoint;
    /// The end that listens and accepts.
    type Acceptor: Acceptor<Endpoint = Self::Endpoint>;

    /// Binds a fresh address.
    fn bind(setup: &Setup) -> Result<Self::Acceptor>;

    /// Connects to `address`.
    fn connect(setup: &Setup, address: &str) -> Result<Self::Endpoint>;
}

/// An address that a listener has bound.
pub trait Acceptor {
    /// The accepted end of a connection.
    type Endpoint: Endpoint;

    /// The address that the parent connects to.
    fn address(&self) -> String;

    /// Waits for the next connection.
    fn accept(&mut self) -> Result<Self::Endpoint>;
}

/// One end of a connection that carries messages both ways.
pub trait Endpoint {
    /// Sends one message; `fill` writes its `size` bytes into memory that the transport chooses.
    fn send(&mut self, size: usize, fill: impl FnOnce(&mut [u8])) -> Result<()>;

    /// Receives one message of `size` bytes; `read` gets its bytes in place.
    fn receive<R>(&mut self, size: usize, read: impl FnOnce(&[u8]) -> R) -> Result<R>;

    /// Returns once all sent messages have left this process, because the caller will not use the
    /// endpoint for a while.
    fn settle(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A transport of asynchronous streams.
pub trait StreamTransport: 'static {
    /// One end of one stream.
    type Endpoint: AsyncEndpoint;
    /// The end that opens streams.
    type Client: Client<Endpoint = Self::Endpoint>;
    /// The end that accepts streams.
    type Server: Server<Endpoint = Self::Endpoint>;

    /// Binds a fresh address.
    fn bind(cell: Cell, setup: &Setup) -> impl Future<Output = Result<Self::Server>> + Send;

    /// Connects to `address`.
    fn connect(
        cell: Cell,
        setup: &Setup,
        address: &str,
    ) -> impl Future<Output = Result<Self::Client>> + Send;
}

/// The end that opens streams.
pub trait Client: Send + Sync + 'static {
    /// One end of one stream.
    type Endpoint: AsyncEndpoint;

    /// Opens one more stream.
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

    /// Ends the session.
    fn close(self) -> impl Future<Output = Result<()>> + Send
    where
        Self: Sized,
    {
        async { Ok(()) }
    }
}

/// The end that accepts streams.
pub trait Server: Send + 'static {
    /// One end of one stream.
    type Endpoint: AsyncEndpoint;

    /// The address that the client connects to.
    fn address(&self) -> String;

    /// Waits for the next stream.
    fn accept(&mut self) -> impl Future<Output = Result<Self::Endpoint>> + Send;

    /// Ends all sessions.
    fn close(self) -> impl Future<Output = Result<()>> + Send
    where
        Self: Sized,
    {
        async { Ok(()) }
    }
}

/// One end of one stream.
pub trait AsyncEndpoint: Send + 'static {
    /// Sends one message of the given length.
    fn send(&mut self, payload: Payload) -> impl Future<Output = Result<()>> + Send;

    /// Receives one message, verifies it in place and releases it.
    fn receive(&mut self, payload: Payload) -> impl Future<Output = Result<()>> + Send;

    /// Receives and verifies one message, and holds its memory until [`release`](Self::release).
    fn receive_and_hold(&mut self, payload: Payload) -> impl Future<Output = Result<()>> + Send {
        self.receive(payload)
    }

    /// Releases the held memory.
    fn release(&mut self) {}

    /// Ends the stream.
    fn close(self) -> impl Future<Output = Result<()>> + Send
    where
        Self: Sized,
    {
        async { Ok(()) }
    }
}

/// The content of one message.
#[derive(Clone, Copy, Debug)]
pub struct Payload {
    /// Length of the message in bytes.
    pub size: usize,
    /// Whether the payload is written and verified.
    pub touch: Touch,
    /// Stream, operation and direction, combined into one number.
    pub sequence: u64,
}

impl Payload {
    /// Writes the whole message.
    #[inline]
    pub fn fill(self, message: &mut [u8]) {
        self.touch.fill(message, self.sequence);
    }

    /// Verifies the whole message; the transport has already checked its length.
    #[inline]
    pub fn verify(self, message: &[u8]) -> Result<(), Corrupted> {
        self.touch.verify(message, self.sequence)
    }
}

/// Shared memory of a session.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Number of allocated bytes.
    pub bytes: u64,
    /// The configured maximum of `bytes`.
    pub bytes_max: u64,
    /// Number of large messages that the receiver has not released.
    pub blocks_in_flight: u64,
    /// Maximum number of unread bytes of one stream.
    pub unread_bytes_max: u64,
}
