// SPDX-License-Identifier: MIT OR Apache-2.0
//! The transport `baseline-eventfd`, the baseline of sleeping and waking: one blocking eventfd per
//! direction, without payload.
//!
//! No transport whose receiver sleeps can take less time. The time that a transport takes beyond
//! this baseline is its own cost.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;

use anyhow::{Context, Result};
use partywall_sys::eventfd;

use super::handover::{self, HandoverListener};
use super::{Acceptor, ChannelTransport, Endpoint};
use crate::harness::workspace::Setup;

/// Makes channels of the transport `baseline-eventfd`: a message is one write to an eventfd,
/// without payload. No transport that sleeps can be faster.
pub struct BaselineEventfd;

/// The end of the child process, which waits for the two eventfds that the parent process sends.
pub struct EventfdAcceptor(HandoverListener);

/// One end of a connection: the eventfd that this process writes to, and the eventfd that it reads
/// from.
pub struct EventfdEndpoint {
    outgoing: File,
    incoming: File,
}

impl ChannelTransport for BaselineEventfd {
    type Endpoint = EventfdEndpoint;
    type Acceptor = EventfdAcceptor;

    fn bind(setup: &Setup) -> Result<EventfdAcceptor> {
        Ok(EventfdAcceptor(HandoverListener::bind(setup)?))
    }

    fn connect(_: &Setup, address: &str) -> Result<EventfdEndpoint> {
        let request = eventfd::blocking_counter().context("making an eventfd")?;
        let reply = eventfd::blocking_counter().context("making an eventfd")?;
        handover::send(&handover::connect(address)?, &[request.as_fd(), reply.as_fd()])?;
        Ok(EventfdEndpoint { outgoing: File::from(request), incoming: File::from(reply) })
    }
}

impl Acceptor for EventfdAcceptor {
    type Endpoint = EventfdEndpoint;

    fn address(&self) -> String {
        self.0.address()
    }

    fn accept(&mut self) -> Result<EventfdEndpoint> {
        let [request, reply] = handover::receive(&self.0.accept()?)?;
        Ok(EventfdEndpoint { outgoing: File::from(reply), incoming: File::from(request) })
    }
}

impl Endpoint for EventfdEndpoint {
    fn send(&mut self, _: usize, _: impl FnOnce(&mut [u8])) -> Result<()> {
        self.outgoing.write_all(&1_u64.to_ne_bytes()).context("writing an eventfd")
    }

    fn receive<R>(&mut self, _: usize, read: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let mut count = [0; 8];
        self.incoming.read_exact(&mut count).context("reading an eventfd")?;
        Ok(read(&[]))
    }
}
