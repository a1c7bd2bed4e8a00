// SPDX-License-Identifier: MIT OR Apache-2.0
//! Floor of sleeping and waking: a bare eventfd per direction, written and read, blocking; no payload.
//!
//! What a parked transport takes beyond this is its own; what it takes below this cannot be.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;

use anyhow::{Context, Result};

use super::handover::{self, HandoverDoor};
use super::lane::{Door, Lane, Setup, Transport};
use super::system;

/// The transport `floor-eventfd`.
pub struct FloorEventfd;

/// Waits for a parent that brings the two eventfds.
pub struct EventfdDoor(HandoverDoor);

/// The bell we ring and the bell we hear.
pub struct EventfdLane {
    ring: File,
    hear: File,
}

impl Transport for FloorEventfd {
    type Lane = EventfdLane;
    type Door = EventfdDoor;

    fn bind(setup: &Setup) -> Result<EventfdDoor> {
        Ok(EventfdDoor(HandoverDoor::bind(setup)?))
    }

    fn connect(_: &Setup, address: &str) -> Result<EventfdLane> {
        let request = system::blocking_eventfd().context("making an eventfd")?;
        let reply = system::blocking_eventfd().context("making an eventfd")?;
        handover::give(&handover::connect(address)?, &[request.as_fd(), reply.as_fd()])?;
        Ok(EventfdLane { ring: File::from(request), hear: File::from(reply) })
    }
}

impl Door for EventfdDoor {
    type Lane = EventfdLane;

    fn address(&self) -> String {
        self.0.address()
    }

    fn accept(&mut self) -> Result<EventfdLane> {
        let [request, reply] = handover::take(&self.0.accept()?)?;
        Ok(EventfdLane { ring: File::from(reply), hear: File::from(request) })
    }
}

impl Lane for EventfdLane {
    fn send(&mut self, _: usize, _: impl FnOnce(&mut [u8])) -> Result<()> {
        self.ring.write_all(&1_u64.to_ne_bytes()).context("writing an eventfd")
    }

    fn receive<R>(&mut self, _: usize, read: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let mut count = [0; 8];
        self.hear.read_exact(&mut count).context("reading an eventfd")?;
        Ok(read(&[]))
    }
}
