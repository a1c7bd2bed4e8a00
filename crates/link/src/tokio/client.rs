// SPDX-License-Identifier: MIT OR Apache-2.0
//! The async client, which connects links to servers.

use super::group::{Group, Hold};
use super::link::Link;
use crate::{Config, OpenError, Storage};
use partywall::{Address, AddressError};

/// Opens links to servers. The operations of these links are futures; for threads there is
/// [`crate::Client`]. [The module](super) has an example.
#[derive(Debug)]
pub struct Client {
    client: crate::Client,
    hold: Hold,
}

impl Client {
    /// Makes a client called `name`. It keeps its links in `place`, and gives them a group of their
    /// own.
    ///
    /// # Errors
    /// [`OpenError`]: a setting, the name, or the directory is not possible, or the process has no
    /// free descriptor.
    ///
    /// # Panics
    /// If the caller is outside a tokio runtime with I/O enabled.
    pub fn new(place: Storage, name: &str, config: Config) -> Result<Self, OpenError> {
        Self::new_in(&Group::new()?, place, name, config)
    }

    /// Makes a client called `name`. It keeps its links in `place`, and its links belong to the
    /// given `group`.
    ///
    /// # Errors
    /// [`OpenError`] lists the reasons.
    pub fn new_in(
        group: &Group,
        place: Storage,
        name: &str,
        config: Config,
    ) -> Result<Self, OpenError> {
        let hold = group.hold.clone();
        let client = crate::Client::new(place, name, hold.shared.adopt(config))?;
        Ok(Self { client, hold })
    }

    /// Opens the link called `link` to the server called `server` at `address`, without waiting for
    /// the network. Messages sent while no connection exists are kept until the next one.
    ///
    /// The calling thread opens the file and resolves the host name, however long that takes.
    ///
    /// # Errors
    /// [`OpenError`] lists the reasons.
    pub fn connect<A>(&self, address: A, server: &str, link: &str) -> Result<Link, OpenError>
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
        let link = self.client.connect(address, server, link)?;
        Ok(Link::new(link, self.hold.clone()))
    }
}
