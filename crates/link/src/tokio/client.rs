// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of links that connects.

use super::group::{Group, Hold};
use super::link::Link;
use crate::{Config, OpenError, Storage};
use partywall::{Address, AddressError};

/// Opens links to servers. See [`Client`](crate::Client) there, and [the module](super) for an example.
#[derive(Debug)]
pub struct Client {
    client: crate::Client,
    hold: Hold,
}

impl Client {
    /// A client called `name`, whose links are kept in `place`, and are in one group of their own.
    ///
    /// # Errors
    /// See [`OpenError`]: a setting, the name, or the directory is not possible, or no descriptor is left.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O enabled.
    pub fn new(place: Storage, name: &str, config: Config) -> Result<Self, OpenError> {
        Self::new_in(&Group::new()?, place, name, config)
    }

    /// As [`new`](Self::new), with links in this group.
    ///
    /// # Errors
    /// As there.
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

    /// Opens the link called `link` to the server called `server`, which is to be found at `address`. It does not wait for the
    /// network: what is sent is kept until there is a connection, and after one is lost until there is another.
    ///
    /// Opening a file, and looking up a host name, take the time they take, in the thread that calls.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn connect<A>(&self, address: A, server: &str, link: &str) -> Result<Link, OpenError>
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
        let link = self.client.connect(address, server, link)?;
        Ok(Link::new(link, self.hold.clone()))
    }
}
