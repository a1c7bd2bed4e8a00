// SPDX-License-Identifier: MIT OR Apache-2.0
//! The client of the public interface: it opens links and connects them to servers.

use std::sync::Arc;

use partywall_sys::ForkGuard;

use crate::config::Config;
use crate::end::Endpoint;
use crate::error::OpenError;
use crate::group::Group;
use crate::handle::link::Link;
use crate::storage::{OpenStorage, Storage};
use crate::store::Key;
use partywall::{Address, AddressError};

/// A named client, which opens links to servers. The name and the link's name identify the link at
/// the server.
///
/// ```
/// use partywall_link::{Client, Config, Storage, Server};
/// # let directory = tempfile::tempdir()?;
/// # let address = format!("unix:{}/links.sock", directory.path().display());
///
/// let server = Server::bind(&address, Storage::Memory, "bob", Config::default())?;
/// let served = std::thread::spawn(move || {
///     let link = server.accept().unwrap();
///     let request = link.recv().unwrap().unwrap();
///     let answer = [b"hello, ", &request[..]].concat();
///     request.reply(&answer).unwrap();
///     link.wait_acked(std::time::Instant::now() + std::time::Duration::from_secs(10)).unwrap();
/// });
/// let client = Client::new(Storage::Memory, "alice", Config::default())?;
/// let link = client.connect(&address, "bob", "greetings")?;
/// link.send(b"alice")?;
/// let answer = link.recv()?.ok_or("bob has finished")?;
/// assert_eq!(answer, b"hello, alice");
/// answer.ack()?;
/// link.close(std::time::Instant::now() + std::time::Duration::from_secs(10))?;
/// # served.join().unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Client {
    storage: OpenStorage,
    name: String,
    config: Config,
    guard: ForkGuard,
}

impl Client {
    /// Makes a client called `name`, which keeps its links in `storage`.
    ///
    /// # Errors
    /// [`OpenError`] if a setting is impossible, the name is empty or too long, or the directory is
    /// not fit for link files.
    pub fn new(storage: Storage, name: &str, config: Config) -> Result<Self, OpenError> {
        config.sizes()?;
        Key::new(name, "server", "link")?;
        let storage = OpenStorage::open(&storage)?;
        Ok(Self { storage, name: name.to_owned(), config, guard: ForkGuard::current() })
    }

    /// Opens the link called `link` to the server called `server` at `address`, without waiting for
    /// the network. Messages that are sent while no connection exists are kept until a connection
    /// is attached.
    ///
    /// The system resolves a host name in the address each time a connection is begun. That may
    /// take long and delay the links of the same group: write the IP address where that matters.
    ///
    /// # Errors
    /// [`OpenError`] lists the reasons.
    pub fn connect<A>(&self, address: A, server: &str, link: &str) -> Result<Link, OpenError>
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
        if self.guard.is_child() {
            return Err(OpenError::Forked);
        }
        let address = address.try_into().map_err(AddressError::from)?;
        let key = Key::new(&self.name, server, link)?;
        let group = match &self.config.group {
            Some(group) => group.clone(),
            None => Group::with_wait(self.config.wait)?,
        };
        let shares = self.config.shares(&address);
        let config = self.config.clone();
        let core = self.storage.core(&key, config.sizes()?, config.after_reboot, shares)?;
        let end = Endpoint::dialing(core, key, Arc::clone(&group.inner), config, address);
        Ok(Link::new(end, false))
    }
}
