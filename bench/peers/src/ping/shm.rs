// SPDX-License-Identifier: MIT OR Apache-2.0
//! Our own transport: a channel over shared memory, waiting as `Wait::Spin`, without a copy on either side.
//!
//! The policy is `SharedMemory`: where memory cannot be shared the measurement fails and says why, instead of measuring a
//! socket under our name.

use anyhow::{Context, Result};
use partywall::{Channel, Config, Listener, Receiver, Sender, TransportPolicy, Wait};

use super::lane::{Door, Lane, Transport};
use crate::pattern::{Inspection, Pattern};
use crate::setup::Setup;

/// The transport `shm`.
pub struct SharedMemory;

/// A listener at a socket file.
pub struct ShmDoor {
    listener: Listener,
    address: String,
    size: usize,
}

/// A channel, split.
pub struct ShmLane {
    sender: Sender,
    receiver: Receiver,
    size: usize,
}

impl Transport for SharedMemory {
    type Asking = ShmLane;
    type Door = ShmDoor;

    fn bind(setup: &Setup, size: usize) -> Result<ShmDoor> {
        let address = format!("unix:{}", setup.path("shm").display());
        let listener = Listener::bind_with(&address, &config(size))?;
        Ok(ShmDoor { listener, address, size })
    }

    fn connect(_: &Setup, size: usize, address: &str) -> Result<ShmLane> {
        Ok(ShmLane::new(partywall::connect_with(address, &config(size))?, size))
    }
}

impl Door for ShmDoor {
    type Answering = ShmLane;

    fn address(&self) -> String {
        self.address.clone()
    }

    fn accept(mut self) -> Result<ShmLane> {
        Ok(ShmLane::new(self.listener.accept()?, self.size))
    }
}

impl ShmLane {
    fn new(channel: Channel, size: usize) -> Self {
        let (sender, receiver) = channel.split();
        Self { sender, receiver, size }
    }
}

impl Lane for ShmLane {
    #[inline]
    fn send(&mut self, sequence: u64) -> Result<()> {
        let fill = |message: &mut [u8]| Pattern::of(sequence).fill(message, 0);
        self.sender.send_with(self.size, fill).context("sending a message")
    }

    #[inline]
    fn receive(&mut self) -> Result<u64> {
        let message = self.receiver.recv_ref().context("receiving a message")?;
        let message = message.context("the peer has finished")?;
        let mut inspection = Inspection::new();
        inspection.look(&message);
        inspection.finish(self.size)
    }
}

fn config(size: usize) -> Config {
    let memory_max = (size as u64 * MESSAGES_IN_FLIGHT).max(MEMORY_MIN);
    Config::default().wait(Wait::Spin).transport(TransportPolicy::SharedMemory).memory_max(memory_max)
}

/// One is; the rest is room.
const MESSAGES_IN_FLIGHT: u64 = 8;

/// Never less than this, in bytes: the library's own default should not matter here.
const MEMORY_MIN: u64 = 64 << 20;
