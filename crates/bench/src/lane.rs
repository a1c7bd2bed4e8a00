// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one shape every measured transport takes, so that each scenario is written once.
//!
//! ```text
//! child:   T::bind(setup) -> Door     door.accept() -> Lane ─┐
//!                  │ address (over the control pipe)         │ messages of a size both sides know
//! parent:          └─► T::connect(setup, address) -> Lane ───┘
//! ```
//! Everything is generic rather than `dyn`: a virtual call per message would be a visible part of 15 ns.
//!
//! It does *not* frame: sizes are agreed beforehand, which favours the byte streams we compare with.

use std::path::PathBuf;

use anyhow::Result;

use super::cell::{TransportName, WaitName};
use super::{eventfd, floor, link, pipe, shm, tcp, uds};

/// One end of a duplex pipe of messages.
pub trait Lane: Send + 'static {
    /// Sends one message; `fill` writes its `size` bytes where the transport likes them best.
    fn send(&mut self, size: usize, fill: impl FnOnce(&mut [u8])) -> Result<()>;

    /// Receives one message of `size` bytes; `read` sees it in place.
    fn receive<R>(&mut self, size: usize, read: impl FnOnce(&[u8]) -> R) -> Result<R>;

    /// The caller goes on to something else: nothing that was sent may need it to come back.
    fn settle(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A bound address at which lanes arrive.
pub trait Door {
    /// What the parent needs to connect.
    fn address(&self) -> String;

    /// The accepted kind of lane.
    type Lane: Lane;

    /// Waits for the next lane.
    fn accept(&mut self) -> Result<Self::Lane>;
}

/// A way to get messages from one process to the other.
pub trait Transport {
    /// One end of a connection.
    type Lane: Lane;
    /// The listening side.
    type Door: Door<Lane = Self::Lane>;

    /// Binds a fresh address.
    fn bind(setup: &Setup) -> Result<Self::Door>;

    /// Connects to `address`.
    fn connect(setup: &Setup, address: &str) -> Result<Self::Lane>;
}

/// What both sides know before they meet.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Setup {
    /// A private directory for socket files; removed after the run.
    pub directory: PathBuf,
    /// Another, on a memory file system if this machine has a writable one; removed after the run.
    pub memory: PathBuf,
    /// How our own transport waits; the others block in the kernel.
    pub wait: Option<WaitName>,
    /// The size of every message, in bytes.
    pub size: usize,
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
        TransportName::LinkShm => work.on::<link::LinkShm>(),
        TransportName::LinkTcp => work.on::<link::LinkTcp>(),
        TransportName::LinkUds => work.on::<link::LinkUds>(),
        TransportName::Uds => work.on::<uds::Uds>(),
        TransportName::Tcp => work.on::<tcp::Tcp>(),
        TransportName::Pipe => work.on::<pipe::Pipe>(),
        TransportName::FloorSpin => work.on::<floor::FloorSpin>(),
        TransportName::FloorEventfd => work.on::<eventfd::FloorEventfd>(),
    }
}
