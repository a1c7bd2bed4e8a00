// SPDX-License-Identifier: MIT OR Apache-2.0
//! Baseline: two pipes, blocking, with the kernel's default capacity (64 KiB).
//!
//! ```text
//! parent: request.write ──► child: request.read       the parent makes both pipes and hands the
//! parent: reply.read    ◄── child: reply.write        child's ends over a Unix socket
//! ```

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result};

use super::bytes::ByteLane;
use super::handover::{self, HandoverDoor};
use super::lane::{Door, Setup, Transport};

/// The transport `pipe`.
pub struct Pipe;

/// Waits for a parent that brings pipes.
pub struct PipeDoor {
    handover: HandoverDoor,
    size: usize,
}

/// The reading end of one pipe and the writing end of the other.
pub struct PipeEnds {
    reader: File,
    writer: File,
}

impl Transport for Pipe {
    type Lane = ByteLane<PipeEnds>;
    type Door = PipeDoor;

    fn bind(setup: &Setup) -> Result<PipeDoor> {
        Ok(PipeDoor { handover: HandoverDoor::bind(setup)?, size: setup.size })
    }

    fn connect(setup: &Setup, address: &str) -> Result<Self::Lane> {
        let (request_read, request_write) = io::pipe().context("making a pipe")?;
        let (reply_read, reply_write) = io::pipe().context("making a pipe")?;
        handover::give(&handover::connect(address)?, &[request_read.as_fd(), reply_write.as_fd()])?;
        let reader = File::from(OwnedFd::from(reply_read));
        let writer = File::from(OwnedFd::from(request_write));
        Ok(ByteLane::new(PipeEnds { reader, writer }, setup.size))
    }
}

impl Door for PipeDoor {
    type Lane = ByteLane<PipeEnds>;

    fn address(&self) -> String {
        self.handover.address()
    }

    fn accept(&mut self) -> Result<Self::Lane> {
        let [request, reply] = handover::take(&self.handover.accept()?)?;
        let ends = PipeEnds { reader: File::from(request), writer: File::from(reply) };
        Ok(ByteLane::new(ends, self.size))
    }
}

impl Read for PipeEnds {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.reader.read(bytes)
    }
}

impl Write for PipeEnds {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
