// SPDX-License-Identifier: MIT OR Apache-2.0
//! Our own transport: a channel over shared memory, without a copy on either side.
//!
//! ```text
//! send      send_with(size): filled in place, where the receiver will read it
//! receive   recv_ref ─► read in place ─► dropped: its place is free again
//! ```
//! The only file of the benchmark that touches the library's channels; its sessions are in `parallel/shm.rs`. The policy is `SharedMemory`: where memory cannot be shared the
//! measurement fails and says why, instead of measuring a socket under our name.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use partywall::{Channel, Config, Listener, Receiver, Sender, TransportPolicy, Wait};

use super::cell::WaitName;
use super::lane::{Door, Lane, Setup, Transport};

/// The transport `shm`.
pub struct SharedMemory;

/// A listener at a socket file.
pub struct ShmDoor {
    listener: Listener,
    address: String,
}

/// A channel, split.
pub struct ShmLane {
    sender: Sender,
    receiver: Receiver,
}

impl Transport for SharedMemory {
    type Lane = ShmLane;
    type Door = ShmDoor;

    fn bind(setup: &Setup) -> Result<ShmDoor> {
        let address = format!("unix:{}", setup.directory.join("wall.sock").display());
        let listener = Listener::bind_with(&address, &config(setup))?;
        Ok(ShmDoor { listener, address })
    }

    fn connect(setup: &Setup, address: &str) -> Result<ShmLane> {
        Ok(ShmLane::new(partywall::connect_with(address, &config(setup))?))
    }
}

impl Door for ShmDoor {
    type Lane = ShmLane;

    fn address(&self) -> String {
        self.address.clone()
    }

    fn accept(&mut self) -> Result<ShmLane> {
        Ok(ShmLane::new(self.listener.accept()?))
    }
}

impl ShmLane {
    fn new(channel: Channel) -> Self {
        let (sender, receiver) = channel.split();
        Self { sender, receiver }
    }
}

impl Lane for ShmLane {
    #[inline]
    fn send(&mut self, size: usize, fill: impl FnOnce(&mut [u8])) -> Result<()> {
        self.sender.send_with(size, fill).context("sending a message")
    }

    #[inline]
    fn receive<R>(&mut self, size: usize, read: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let message = self.receiver.recv_ref().context("receiving a message")?;
        ensure!(message.len() == size, "received {} bytes instead of {size}", message.len());
        Ok(read(&message))
    }
}

fn config(setup: &Setup) -> Config {
    let memory_max = (setup.size as u64 * MESSAGES_IN_FLIGHT).max(MEMORY_MIN);
    Config::default()
        .wait(wait_of(setup))
        .transport(TransportPolicy::SharedMemory)
        .memory_max(memory_max)
}

/// How the library is told to wait.
pub const fn wait_of(setup: &Setup) -> Wait {
    match setup.wait {
        Some(WaitName::Spin) => Wait::Spin,
        Some(WaitName::Park) => Wait::Park,
        Some(WaitName::Timed) => Wait::Poll(POLL_PERIOD),
        Some(WaitName::Adaptive) | None => Wait::Adaptive,
    }
}

/// How long a `timed` receiver sleeps between two looks.
const POLL_PERIOD: Duration = Duration::from_micros(100);

/// A flood of large messages may have so many under way.
const MESSAGES_IN_FLIGHT: u64 = 8;

/// Never less than this, in bytes: the library's own default should not matter here.
const MEMORY_MIN: u64 = 64 << 20;
