// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one shape every transport of `parallel` takes, so that the scenario is written once.
//!
//! ```text
//! T::bind ─► Server ── accept ─► Lane ×199      answers: receive, send, receive, …, end of stream
//!              │ address
//! T::connect ─► Client ── open ─► Lane ×199     asks: send, receive, …, close
//! ```
//! Everything is generic rather than `dyn`: a boxed future per message would be a visible part of the cost.
//!
//! Adding a transport: a file beside `uds.rs` that implements these four
//! traits, an arm in [`dispatch`], and its name in `Scenario::transports`.

use std::future::Future;

use anyhow::{Result, bail};

use super::{protocol, shmipc, tcp, uds, shm};
use crate::cell::{Cell, TransportName};
use crate::pattern::{Inspection, Pattern, Touch};
use crate::setup::Setup;

/// One end of one stream.
pub trait Lane: Send + 'static {
    /// Sends one message.
    fn send(&mut self, message: Outgoing) -> impl Future<Output = Result<()>> + Send;

    /// Receives one message and looks at it in place; `None` at the end of the stream.
    fn receive(&mut self, shape: Shape) -> impl Future<Output = Result<Option<Incoming>>> + Send;

    /// Ends the stream in order, so that the other end sees it.
    fn close(self) -> impl Future<Output = Result<()>> + Send;
}

/// The side that opens streams.
pub trait Client: Clone + Send + 'static {
    /// One end of one stream.
    type Lane: Lane;

    /// Opens one more stream.
    fn open(&self) -> impl Future<Output = Result<Self::Lane>> + Send;

    /// Messages that went over the socket because shared memory had run out, so far.
    fn over_socket(&self) -> u64 {
        0
    }

    /// Ends the session.
    fn close(self) -> impl Future<Output = Result<()>> + Send;
}

/// The side at which streams arrive.
pub trait Server: Send + 'static {
    /// One end of one stream.
    type Lane: Lane;

    /// What the client needs to connect.
    fn address(&self) -> String;

    /// Waits for the next stream; may be cancelled without losing one.
    fn accept(&mut self) -> impl Future<Output = Result<Self::Lane>> + Send;

    /// Ends all sessions.
    fn close(self) -> impl Future<Output = Result<()>> + Send;
}

/// A way to get messages from one end to the other.
pub trait Transport: 'static {
    /// One end of one stream.
    type Lane: Lane;
    /// The side that opens streams.
    type Client: Client<Lane = Self::Lane>;
    /// The side at which they arrive.
    type Server: Server<Lane = Self::Lane>;

    /// Binds a fresh address.
    fn bind(setup: &Setup, shape: Shape) -> impl Future<Output = Result<Self::Server>> + Send;

    /// Connects to `address`.
    fn connect(
        setup: &Setup,
        shape: Shape,
        address: &str,
    ) -> impl Future<Output = Result<Self::Client>> + Send;
}

/// What all messages of a cell have in common.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Bytes per message.
    pub size: usize,
    /// Whether they are written and verified.
    pub touch: Touch,
}

/// A message to be sent; the transport offers the memory where it likes it best.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    /// Size and touch.
    pub shape: Shape,
    /// Stream, operation and direction.
    pub sequence: u64,
}

/// A message that was received and verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Incoming {
    /// Its sequence number; `None` if payloads are not touched.
    pub sequence: Option<u64>,
}

impl Shape {
    /// That of the messages of `cell`.
    pub const fn of(cell: &Cell) -> Self {
        Self { size: cell.size, touch: cell.touch }
    }

    /// Verifies a whole message in one piece.
    #[inline]
    pub fn inspect(self, message: &[u8]) -> Result<Incoming> {
        let mut inspection = Inspection::new();
        if self.touch == Touch::None {
            return Ok(Incoming { sequence: None });
        }
        inspection.look(message);
        Ok(Incoming { sequence: Some(inspection.finish(self.size)?) })
    }
}

impl Outgoing {
    /// Writes the piece that begins `offset` bytes into the message, if payloads are touched.
    #[inline]
    pub fn fill(self, piece: &mut [u8], offset: usize) {
        if self.shape.touch == Touch::All {
            Pattern::of(self.sequence).fill(piece, offset);
        }
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
        TransportName::ShmipcV3 => work.on::<shmipc::ShmipcV3>(),
        TransportName::ShmipcV4Eventfd => work.on::<shmipc::ShmipcV4Eventfd>(),
        TransportName::ShmipcOurs => work.on::<protocol::Ours>(),
        TransportName::ShmipcOursTheirs => work.on::<protocol::OursTheirs>(),
        TransportName::Uds => work.on::<uds::Uds>(),
        TransportName::Tcp => work.on::<tcp::Tcp>(),
        TransportName::SharedMemory => work.on::<shm::SharedMemory>(),
        TransportName::Iceoryx2Pubsub | TransportName::Iceoryx2Reqres => {
            bail!("{} has no lanes for parallel; leave it out of --transport", name.name())
        }
    }
}
