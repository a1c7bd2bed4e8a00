// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of links that is found by others.

use std::io;
use std::time::Instant;

use tokio::task::coop::consume_budget;

use super::group::{Group, Hold};
use super::link::Link;
use crate::{AcceptError, BindError, Config, OpenError, Storage};
use partywall::{Address, AddressError};

/// Serves links at an address. See [`Server`](crate::Server) there, and [the module](super) for an example.
///
/// Connections are taken and answered by the group's task, whether `accept` is awaited or not.
///
/// Dropping it closes all its links, in the hands of whomever they are, and removes its socket file.
#[derive(Debug)]
pub struct Server {
    // Dropped before the hold: the task looks when the links are closed.
    server: crate::Server,
    hold: Hold,
}

impl Server {
    /// Serves at `address` links of the end called `name`, which are kept in `place`, and are in one group of their own.
    ///
    /// # Errors
    /// See [`BindError`].
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O enabled.
    pub fn bind<A>(
        address: A,
        place: Storage,
        name: &str,
        config: Config,
    ) -> Result<Self, BindError>
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
        Self::bind_in(&Group::new()?, address, place, name, config)
    }

    /// As [`bind`](Self::bind), with links in this group.
    ///
    /// # Errors
    /// As there.
    pub fn bind_in<A>(
        group: &Group,
        address: A,
        place: Storage,
        name: &str,
        config: Config,
    ) -> Result<Self, BindError>
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
        let hold = group.hold.clone();
        let server = crate::Server::bind(address, place, name, hold.shared.adopt(config))?;
        Ok(Self { server, hold })
    }

    /// Serves the same links at one more address: see [`listen_also`](crate::Server::listen_also) there.
    ///
    /// # Errors
    /// As of [`bind`](Self::bind).
    pub fn listen_also<A>(&self, address: A) -> Result<Address, BindError>
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
        self.server.listen_also(address)
    }

    /// The address, with the port that the system chose where 0 was asked for.
    #[must_use]
    pub fn local_address(&self) -> &Address {
        self.server.local_address()
    }

    /// The group that all links of the server are in.
    #[must_use]
    pub fn group(&self) -> Group {
        Group { hold: self.hold.clone() }
    }

    /// The next link that its client has attached and that nobody has; waits for one.
    ///
    /// Cancel-safe: dropped before it is ready, it took none.
    ///
    /// # Errors
    /// See [`AcceptError`].
    pub async fn accept(&self) -> Result<Link, AcceptError> {
        let shared = &self.hold.shared;
        consume_budget().await;
        loop {
            // It is told from here on, before it is looked for.
            let offered = shared.offered.notified();
            match self.try_accept() {
                Err(AcceptError::TimedOut) => {}
                accepted => return accepted,
            }
            shared.is_driven().map_err(|fault| io::Error::new(fault.kind(), fault))?;
            offered.await;
        }
    }

    /// The next such link if there is one now.
    ///
    /// # Errors
    /// As [`accept`](Self::accept); [`AcceptError::TimedOut`] if there is none.
    pub fn try_accept(&self) -> Result<Link, AcceptError> {
        // Not the call of that name: it makes a turn, which is the task's to make.
        let link = self.server.accept_deadline(Instant::now())?;
        Ok(Link::new(link, self.hold.clone()))
    }

    /// The link called `link` of the client called `client`, whether it has attached or not: what is sent is kept for it.
    ///
    /// # Errors
    /// [`OpenError::AlreadyOpen`] if there is a handle for it; the others of [`OpenError`].
    pub fn open(&self, client: &str, link: &str) -> Result<Link, OpenError> {
        Ok(Link::new(self.server.open(client, link)?, self.hold.clone()))
    }

    /// How many connections were refused or given up before they attached.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.server.refused()
    }

    /// Why the last of them was, if it was for a reason that can be told.
    #[must_use]
    pub fn last_refusal(&self) -> Option<String> {
        self.server.last_refusal()
    }
}
