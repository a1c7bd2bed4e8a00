// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listeners in an event loop: `ChannelListener` for channels and `Listener` for sessions. Neither
//! of them blocks. The handshakes of all peers advance whenever the application tries to accept.

use super::event::Kinds;
use super::registration::{Interest, Purpose, Registration, Shared};
use super::session::Session;
use crate::address::Address;
use crate::channel::Channel;
use crate::config::Config;
use crate::error::{AcceptError, BindError};
use crate::protocol::Protocol;
use partywall_layout::hello::SERVICE_SESSION;
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// A listener for channels in an event loop.
///
/// The loop reports the listener's tag as readable while handshakes advance or channels are
/// established.
/// Dropping the listener removes it from the loop, and its socket file.
#[derive(Debug)]
pub struct ChannelListener {
    // The descriptor of the listener in the loop's epoll set. `records` is declared before the
    // listener, so that the descriptor leaves the set before the listener closes it.
    records: Interest,
    listener: crate::Listener,
    registration: Arc<Registration>,
}

impl ChannelListener {
    pub(super) fn new(
        shared: &Arc<Shared>,
        listener: crate::Listener,
        tag: u64,
    ) -> io::Result<Self> {
        let registration = Registration::new(shared, tag);
        let mut records = Interest::new(Arc::clone(&registration), Purpose::Records);
        records.watch(&listener)?;
        // The new listener is marked as readable, because connections may be waiting already.
        registration.mark(Kinds::READABLE);
        Ok(Self { records, listener, registration })
    }

    /// Returns the bound address. For a port of 0 it contains the port that the system chose.
    #[must_use]
    pub const fn local_address(&self) -> &Address {
        self.listener.local_address()
    }

    /// Returns the next channel if one is established now. Also drives the handshakes under way.
    /// [`Loop::add_channel`](super::Loop::add_channel) adds the channel to an event loop.
    ///
    /// # Errors
    /// [`AcceptError::TimedOut`] if no channel is established now: the loop reports the tag once
    /// one may be. Other errors as of [`Listener::accept`](crate::Listener::accept).
    pub fn try_accept(&mut self) -> Result<Channel, AcceptError> {
        let accepted = self.listener.try_accept();
        if settle(&self.registration, Kinds::READABLE, &accepted) {
            self.records.watch(&self.listener).map_err(AcceptError::Wait)?;
        }
        accepted
    }

    /// Returns the number of connections that this listener refused.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.listener.refused()
    }
}

/// A listener for sessions in an event loop, which also runs the drivers of the sessions.
///
/// The loop reports the listener's tag as opened while handshakes advance or sessions are
/// established.
/// Dropping the listener removes it from the loop, and its socket file.
#[derive(Debug)]
pub struct Listener {
    records: Interest,
    listener: crate::Listener,
    registration: Arc<Registration>,
}

impl Listener {
    pub(super) fn bind(
        shared: &Arc<Shared>,
        address: Address,
        config: &Config,
        tag: u64,
    ) -> Result<Self, BindError> {
        let listener = crate::Listener::bind_service(address, config, SERVICE_SESSION)?;
        let registration = Registration::new(shared, tag);
        let mut records = Interest::new(Arc::clone(&registration), Purpose::Opened);
        records.watch(&listener).map_err(BindError::Setup)?;
        Ok(Self { records, listener, registration })
    }

    /// Makes the listener also serve peers that speak `protocol`.
    #[must_use]
    pub fn with_protocol(mut self, protocol: Arc<dyn Protocol>) -> Self {
        self.listener.add_protocol(protocol);
        self
    }

    /// Returns the bound address. For a port of 0 it contains the port that the system chose.
    #[must_use]
    pub const fn local_address(&self) -> &Address {
        self.listener.local_address()
    }

    /// Returns the next session if one is established now. Also drives the handshakes under way.
    /// The loop reports events of the session with `tag`.
    ///
    /// # Errors
    /// [`AcceptError::TimedOut`] if no session is established now: the loop reports the tag of the
    /// listener once one may be. Other errors as of [`Listener::accept`](crate::Listener::accept).
    pub fn try_accept(&mut self, tag: u64) -> Result<Session, AcceptError> {
        let accepted = self.listener.accept_until(Some(Instant::now()));
        if settle(&self.registration, Kinds::OPENED, &accepted) {
            self.records.watch(&self.listener).map_err(AcceptError::Wait)?;
        }
        let (shared, config) = (self.registration.shared(), self.listener.config());
        let started = Session::start(shared, accepted?, config, tag).map_err(AcceptError::Wait);
        settle(&self.registration, Kinds::OPENED, &started);
        started
    }

    /// Returns the number of connections that this listener refused.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.listener.refused()
    }
}

/// Clears the listener's event if no connection is left to accept, and returns whether none is
/// left. The caller then watches the listener again: the loop's epoll set is level-triggered, so a
/// connection that arrived meanwhile causes a new event. If accepting failed with another error,
/// the event stays or is reported again: connections may be established, and only further calls of
/// `try_accept` find them.
fn settle<T>(registration: &Registration, kinds: Kinds, accepted: &Result<T, AcceptError>) -> bool {
    match accepted {
        Err(AcceptError::TimedOut) => {
            registration.clear(kinds);
            true
        }
        Err(_) => {
            registration.mark(kinds);
            false
        }
        Ok(_) => false,
    }
}
