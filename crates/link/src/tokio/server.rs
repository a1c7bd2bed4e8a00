// SPDX-License-Identifier: MIT OR Apache-2.0
//! The async server, which accepts links.

use std::io;
use std::time::Instant;

use tokio::task::coop::consume_budget;

use super::group::{Group, Hold};
use super::link::Link;
use crate::{AcceptError, BindError, Config, OpenError, Storage, WaitError};
use partywall::{Address, AddressError};

/// Serves links at an address. The operations of the server and its links are futures; for threads
/// there is [`crate::Server`]. [The module](super) has an example.
///
/// The group's task accepts and answers connections, even while no `accept` is awaited.
///
/// Dropping the server closes all its links, even those with a handle, and removes its socket file.
/// It does not write to the disk: [`close`](Self::close) does.
#[derive(Debug)]
pub struct Server {
    // The field `server` is dropped before `hold`, which keeps the driver task running. So the task
    // still makes its last check after the server's links were closed.
    server: crate::Server,
    hold: Hold,
}

impl Server {
    /// Makes a server for links of the end called `name` at `address`. It keeps its links in
    /// `place`, and gives them a group of their own.
    ///
    /// # Errors
    /// [`BindError`] lists the reasons.
    ///
    /// # Panics
    /// If the caller is outside a tokio runtime with I/O enabled.
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

    /// Makes a server for links of the end called `name` at `address`. It keeps its links in
    /// `place`, and its links belong to the given `group`.
    ///
    /// # Errors
    /// [`BindError`] lists the reasons.
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

    /// Serves the same links at one more address; see [`listen_also`](crate::Server::listen_also).
    ///
    /// # Errors
    /// [`BindError`] lists the reasons.
    pub fn listen_also<A>(&self, address: A) -> Result<Address, BindError>
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
        self.server.listen_also(address)
    }

    /// Address of the server. If port 0 was requested, it contains the port that the system chose.
    #[must_use]
    pub fn local_address(&self) -> &Address {
        self.server.local_address()
    }

    /// The group of all links of the server.
    #[must_use]
    pub fn group(&self) -> Group {
        Group { hold: self.hold.clone() }
    }

    /// Returns the next link that a client has attached and that has no handle yet; waits for one.
    ///
    /// Cancel-safe: if the future is dropped before it is ready, it took no link.
    ///
    /// # Errors
    /// [`AcceptError`] lists the reasons.
    pub async fn accept(&self) -> Result<Link, AcceptError> {
        let shared = &self.hold.shared;
        consume_budget().await;
        loop {
            // The future of `accept` registers for notices before it checks for a link, so that it
            // misses no link between check and await.
            let offered = shared.offered.notified();
            match self.try_accept() {
                Err(AcceptError::TimedOut) => {}
                accepted => return accepted,
            }
            shared.is_driven().map_err(|fault| io::Error::new(fault.kind(), fault))?;
            offered.await;
        }
    }

    /// Returns the next attached link without a handle, if there is one now.
    ///
    /// # Errors
    /// [`AcceptError`] lists the reasons; [`AcceptError::TimedOut`] if no link is ready.
    pub fn try_accept(&self) -> Result<Link, AcceptError> {
        // The blocking server's own `try_accept` would make a turn of the group, which is the
        // driver task's job. So this function calls `accept_deadline` with a deadline that has
        // passed.
        let link = self.server.accept_deadline(Instant::now())?;
        Ok(Link::new(link, self.hold.clone()))
    }

    /// Opens the link called `link` of the client called `client`, whether that client has attached
    /// or not. Messages that the server sends before the client attaches are kept for the client.
    ///
    /// # Errors
    /// [`OpenError::AlreadyOpen`] if the link already has a handle; [`OpenError`] lists the other
    /// reasons.
    pub fn open(&self, client: &str, link: &str) -> Result<Link, OpenError> {
        Ok(Link::new(self.server.open(client, link)?, self.hold.clone()))
    }

    /// Closes the server and all its links like [`crate::Server::close`], on a blocking thread of
    /// the runtime. If the future is dropped, the thread closes them all the same.
    ///
    /// # Errors
    /// [`WaitError`] lists the reasons.
    pub async fn close(self, deadline: Instant) -> Result<(), WaitError> {
        let Self { server, hold } = self;
        hold.shared.close_on_a_thread(move || server.close(deadline)).await
    }

    /// Takes the reason why the last link for which a client was admitted could not be opened; see
    /// [`crate::Server::take_open_error`].
    #[must_use]
    pub fn take_open_error(&self) -> Option<OpenError> {
        self.server.take_open_error()
    }

    /// Number of connections that the server refused, or that closed before they attached.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.server.refused()
    }

    /// Reason of the server's last refusal, if it refused any connection.
    #[must_use]
    pub fn last_refusal(&self) -> Option<String> {
        self.server.last_refusal()
    }
}
