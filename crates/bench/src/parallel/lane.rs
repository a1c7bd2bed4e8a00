// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one shape every transport of `parallel` takes, so that the scenario is written once: as `lane.rs` one
//! directory up, but of futures, and with a session between the address and the lanes.
//!
//! ```text
//! T::bind ─► Server ── accept ─► Lane ×N      answers: receive, send, receive, …
//!              │ address
//! T::connect ─► Client ── open ─► Lane ×N     asks: send, receive, send, …
//! ```
//! Everything is generic rather than `dyn`: a boxed future per message would be a visible part of the cost.
//!
//! Invariant: lanes are accepted in the order in which they are opened, so both ends number them alike. Where that
//! is not so, payloads do not verify.

use std::future::Future;

use anyhow::{Result, bail};

use super::super::cell::{Cell, TransportName};
use super::super::lane::Setup;
use super::super::pattern::{Corrupted, Touch};
use super::{shm, tcp, uds};

/// One end of one stream.
pub trait Lane: Send + 'static {
    /// Sends one message.
    fn send(&mut self, payload: Payload) -> impl Future<Output = Result<()>> + Send;

    /// Receives one message, verifies it in place and lets go of it.
    fn receive(&mut self, payload: Payload) -> impl Future<Output = Result<()>> + Send;

    /// The same, but holds on to the sender's memory until [`let_go`](Self::let_go), where it holds any.
    fn receive_and_hold(&mut self, payload: Payload) -> impl Future<Output = Result<()>> + Send {
        self.receive(payload)
    }

    /// Lets go of what was held.
    fn let_go(&mut self) {}
}

/// The side that opens streams.
pub trait Client: Send + Sync + 'static {
    /// One end of one stream.
    type Lane: Lane;

    /// Opens one more stream.
    fn open(&self) -> impl Future<Output = Result<Self::Lane>> + Send;

    /// Shared memory of the session on this side; `None` for what has none.
    fn memory(&self) -> Option<Memory> {
        None
    }
}

/// The side at which streams arrive.
pub trait Server: Send + 'static {
    /// One end of one stream.
    type Lane: Lane;

    /// What the client needs to connect.
    fn address(&self) -> String;

    /// Waits for the next stream.
    fn accept(&mut self) -> impl Future<Output = Result<Self::Lane>> + Send;
}

/// A way to get messages from one end to the other.
pub trait Transport: 'static {
    /// One end of one stream.
    type Lane: Lane;
    /// The side that opens streams.
    type Client: Client<Lane = Self::Lane>;
    /// The side at which they arrive.
    type Server: Server<Lane = Self::Lane>;

    /// Binds a fresh address. Called within the runtime.
    fn bind(cell: Cell, setup: &Setup) -> Result<Self::Server>;

    /// Connects to `address`.
    fn connect(
        cell: Cell,
        setup: &Setup,
        address: &str,
    ) -> impl Future<Output = Result<Self::Client>> + Send;
}

/// What one message holds.
#[derive(Clone, Copy, Debug)]
pub struct Payload {
    /// Bytes.
    pub size: usize,
    /// Whether they are written and verified.
    pub touch: Touch,
    /// Stream, operation and direction.
    pub sequence: u64,
}

/// Shared memory of a session.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Bytes that exist.
    pub bytes: u64,
    /// The bound of that.
    pub bytes_max: u64,
    /// Large messages that the receiver has not let go of.
    pub blocks_in_flight: u64,
    /// How much of one stream may lie unread.
    pub unread_bytes_max: u64,
}

impl Payload {
    /// Writes it.
    #[inline]
    pub fn fill(self, message: &mut [u8]) {
        self.touch.fill(message, self.sequence);
    }

    /// Checks it; the length is the transport's business.
    #[inline]
    pub fn verify(self, message: &[u8]) -> Result<(), Corrupted> {
        self.touch.verify(message, self.sequence)
    }
}

/// Something to do on a transport that is known by name only at run time.
pub trait Work {
    /// What it yields.
    type Output;

    /// Does it.
    fn on<T: Transport>(self) -> Result<Self::Output>;
}

/// Does `work` on the transport called `name`.
pub fn dispatch<W: Work>(name: TransportName, work: W) -> Result<W::Output> {
    match name {
        TransportName::SharedMemory => work.on::<shm::SharedMemory>(),
        TransportName::Uds => work.on::<uds::Uds>(),
        TransportName::Tcp => work.on::<tcp::Tcp>(),
        TransportName::Pipe
        | TransportName::LinkShm
        | TransportName::LinkTcp
        | TransportName::LinkUds
        | TransportName::FloorSpin
        | TransportName::FloorEventfd => {
            bail!("{} has no streams", name.name())
        }
    }
}
