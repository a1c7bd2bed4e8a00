// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one shape every transport of `ping` takes, so that the scenario is written once.
//!
//! ```text
//! child:   T::bind(setup) -> Door     door.accept() -> Answering ─┐   receive, send, receive, …
//!                  │ address (over the control pipe)              │
//! parent:          └─► T::connect(setup, address) -> Asking ──────┘   send, receive, send, …
//! ```
//! The two ends may be of different kinds, because a request and a response are. Payloads are always touched.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::{iceoryx_pubsub, iceoryx_reqres, uds, shm};
use crate::cell::TransportName;
use crate::setup::Setup;

/// One end of a connection.
pub trait Lane {
    /// Sends message `sequence`, written by the pattern.
    fn send(&mut self, sequence: u64) -> Result<()>;

    /// Receives the next message, verifies it and returns its sequence number.
    fn receive(&mut self) -> Result<u64>;
}

/// A bound address.
pub trait Door {
    /// The end that answers.
    type Answering: Lane;

    /// What the parent needs to connect.
    fn address(&self) -> String;

    /// Waits for the other end.
    fn accept(self) -> Result<Self::Answering>;
}

/// A way to get messages from one process to the other and back.
pub trait Transport {
    /// The end that asks.
    type Asking: Lane;
    /// The listening side.
    type Door: Door;

    /// Binds a fresh address for messages of `size` bytes.
    fn bind(setup: &Setup, size: usize) -> Result<Self::Door>;

    /// Connects to `address`.
    fn connect(setup: &Setup, size: usize, address: &str) -> Result<Self::Asking>;
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
        TransportName::Iceoryx2Pubsub => work.on::<iceoryx_pubsub::Pubsub>(),
        TransportName::Iceoryx2Reqres => work.on::<iceoryx_reqres::Reqres>(),
        TransportName::Uds => work.on::<uds::Uds>(),
        TransportName::ShmipcV3
        | TransportName::ShmipcV4Eventfd
        | TransportName::ShmipcOurs
        | TransportName::ShmipcOursTheirs
        | TransportName::Tcp => {
            bail!("{} has no lanes for ping; leave it out of --transport", name.name())
        }
    }
}

/// Looks again and again until there is something, without a pause in between, but not forever.
#[inline]
pub fn spin_until<R>(mut look: impl FnMut() -> Result<Option<R>>) -> Result<R> {
    let mut looks: u32 = 0;
    let mut deadline = None;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(LOOKS_PER_CLOCK) {
            check(&mut deadline)?;
        }
    }
}

#[cold]
fn check(deadline: &mut Option<Instant>) -> Result<()> {
    let now = Instant::now();
    if now > *deadline.get_or_insert(now + SILENCE_MAX) {
        bail!("no message for {} s; the other process may have failed", SILENCE_MAX.as_secs());
    }
    Ok(())
}

/// The clock is read once in so many looks, to stay out of the measured time.
const LOOKS_PER_CLOCK: u32 = 1 << 16;

/// The other process answers within microseconds, unless it has failed.
const SILENCE_MAX: Duration = Duration::from_secs(10);
