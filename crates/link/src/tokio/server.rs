// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server of links.

use std::io;
use std::time::Instant;

use tokio::task::coop::consume_budget;

use super::group::{Group, Hold};
use super::link::Link;
use crate::{AcceptError, BindError, Config, OpenError, Storage};
use partywall::{Address, AddressError};

/// Serves links at an address, as [`Server`](crate::Server). [The module](super) has an example.
///
/// The group's task accepts and answers connections, whether `accept` is awaited or not.
///
/// Dropping the server closes all its links, including those that have a handle, and removes its
/// socket file.
#[derive(Debug)]
pub struct Server {
    // It is dropped before the hold, so that the task checks when the links are closed.
    server: crate::Server,
    hold: Hold,
}

impl Server {
    /// Serves at `address` links of the end called `name`, which are kept in `place` and have one
    /// group of their own.
    ///
    /// # Errors
    /// [`BindError`] lists the reasons.
    ///
    /// # Panics
    /// If it is called outside a tokio runtime with I/O enabled.
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
    /// Those of [`bind`](Self::bind).
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

    /// Serves the same links at one more address, as [`listen_also`](crate::Server::listen_also).
    ///
    /// # Errors
    /// Those of [`bind`](Self::bind).
    pub fn listen_also<A>(&self, address: A) -> Result<Address, BindError>
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
        self.server.listen_also(address)
    }

    /// Address of the server, with the port that the system chose where 0 was asked for.
    #[must_use]
    pub fn local_address(&self) -> &Address {
        self.server.local_address()
    }

    /// Group of all links of the server.
    #[must_use]
    pub fn group(&self) -> Group {
        Group { hold: self.hold.clone() }
    }

    /// Returns the next link that its client has attached and that has no handle; waits for one.
    ///
    /// Cancel-safe: if the future is dropped before it is ready, it took no link.
    ///
    /// # Errors
    /// [`AcceptError`] lists the reasons.
    pub async fn accept(&self) -> Result<Link, AcceptError> {
        let shared = &self.hold.shared;
        consume_budget().await;
        loop {
            // Notices from here on are not lost, so the check comes after.
            let offered = shared.offered.notified();
            match self.try_accept() {
                Err(AcceptError::TimedOut) => {}
                accepted => return accepted,
            }
            shared.is_driven().map_err(|fault| io::Error::new(fault.kind(), fault))?;
            offered.await;
        }
    }

    /// Returns the next such link if there is one now.
    ///
    /// # Errors
    /// Those of [`accept`](Self::accept); [`AcceptError::TimedOut`] if there is none.
    pub fn try_accept(&self) -> Result<Link, AcceptError> {
        // `try_accept` of the server would make a turn, which is the task's part.
        let link = self.server.accept_deadline(Instant::now())?;
        Ok(Link::new(link, self.hold.clone()))
    }

    /// Opens the link called `link` of the client called `client`, whether it has attached or not.
    /// Messages sent before it attaches are kept for it.
    ///
    /// # Errors
    /// [`OpenError::AlreadyOpen`] if there is a handle for it; the others of [`OpenError`].
    pub fn open(&self, client: &str, link: &str) -> Result<Link, OpenError> {
        Ok(Link::new(self.server.open(client, link)?, self.hold.clone()))
    }

    /// Number of connections that were refused or closed before they attached.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.server.refused()
    }

    /// Reason of the last refusal, if there is one.
    #[must_use]
    pub fn last_refusal(&self) -> Option<String> {
        self.server.last_refusal()
    }
}
