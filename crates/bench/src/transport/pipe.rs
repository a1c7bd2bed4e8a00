// SPDX-License-Identifier: MIT OR Apache-2.0
//! The transport `pipe`: two blocking pipes, one per direction, with the kernel's default capacity
//! (64 KiB).
//!
//! ```text
//! parent: request.write ──► child: request.read       the parent makes both pipes and sends the
//! parent: reply.read    ◄── child: reply.write        child's ends over a Unix socket
//! ```

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result};

use super::byte_stream::ByteStreamEndpoint;
use super::handover::{self, HandoverListener};
use super::{Acceptor, ChannelTransport};
use crate::harness::workspace::Setup;

/// The transport `pipe` (two pipes, one per direction) as a type that the benchmark's scenarios can
/// use.
pub struct Pipe;

/// The end of the child process, which waits for the pipe ends that the parent process sends.
pub struct PipeAcceptor {
    handover: HandoverListener,
    size: usize,
}

/// One end of a connection: the reading end of one pipe and the writing end of the other pipe.
pub struct PipeEnds {
    reader: File,
    writer: File,
}

impl ChannelTransport for Pipe {
    type Endpoint = ByteStreamEndpoint<PipeEnds>;
    type Acceptor = PipeAcceptor;

    fn bind(setup: &Setup) -> Result<PipeAcceptor> {
        Ok(PipeAcceptor { handover: HandoverListener::bind(setup)?, size: setup.size })
    }

    fn connect(setup: &Setup, address: &str) -> Result<Self::Endpoint> {
        let (request_read, request_write) = io::pipe().context("making a pipe")?;
        let (reply_read, reply_write) = io::pipe().context("making a pipe")?;
        handover::send(&handover::connect(address)?, &[request_read.as_fd(), reply_write.as_fd()])?;
        let reader = File::from(OwnedFd::from(reply_read));
        let writer = File::from(OwnedFd::from(request_write));
        Ok(ByteStreamEndpoint::new(PipeEnds { reader, writer }, setup.size))
    }
}

impl Acceptor for PipeAcceptor {
    type Endpoint = ByteStreamEndpoint<PipeEnds>;

    fn address(&self) -> String {
        self.handover.address()
    }

    fn accept(&mut self) -> Result<Self::Endpoint> {
        let [request, reply] = handover::receive(&self.handover.accept()?)?;
        let ends = PipeEnds { reader: File::from(request), writer: File::from(reply) };
        Ok(ByteStreamEndpoint::new(ends, self.size))
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
