// SPDX-License-Identifier: MIT OR Apache-2.0
//! Going over to another address, and so perhaps to another transport, while messages flow.

use super::fault::LinkSwitchError;
use super::handle::Link;
use partywall::{Address, AddressError};

impl Link {
    /// Clients: goes over to the server at `address`, which must be the same server at another of its addresses: from TCP to shared memory, or
    /// back. Returns at once; sends and receives go on meanwhile over the connection that there is, which is given up when the
    /// next one is attached. As long as nobody answers there, it is tried again, and the link stays where it is.
    ///
    /// [`status`](Self::status) tells which transport is used, [`try_event`](Self::try_event) what came of attempts.
    ///
    /// A link kept in [`Storage::Memory`](super::Storage::Memory) goes over shared memory only if the address that it was
    /// first opened with was that of a Unix socket.
    ///
    /// ```
    /// use partywall_link::{LinkClient, LinkConfig, Storage, LinkServer};
    /// # let directory = tempfile::tempdir()?;
    /// # let soon = std::time::Instant::now() + std::time::Duration::from_secs(10);
    ///
    /// let config = LinkConfig::default().allow_anonymous_tcp(true);
    /// let near = format!("unix:{}/links.sock", directory.path().display());
    /// let server = LinkServer::bind(&near, Storage::Memory, "bob", config)?;
    /// let far = server.listen_also("tcp:127.0.0.1:0")?;
    /// let client = LinkClient::new(Storage::Memory, "alice", LinkConfig::default())?;
    /// let link = client.connect(&near, "bob", "orders")?;
    /// # let served = std::thread::spawn(move || {
    /// #     let link = server.accept_deadline(soon).unwrap();
    /// #     for _ in 0..2 { link.recv_deadline(soon).unwrap().commit().unwrap(); }
    /// #     (server, link) // they live until the client's messages are acknowledged
    /// # });
    /// link.send(b"over shared memory")?;
    /// link.switch_to(far)?;
    /// link.send(b"over one or the other")?;
    /// # link.flush(soon)?;
    /// # drop(served.join().unwrap());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`LinkSwitchError`]. That nobody answers is none.
    pub fn switch_to<A>(&self, address: A) -> Result<(), LinkSwitchError>
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
        let address = address.try_into().map_err(AddressError::from)?;
        self.end().switch_to(address)
    }
}
