// SPDX-License-Identifier: MIT OR Apache-2.0
//! Going over to another address, and so perhaps to another transport, while messages flow.

use super::fault::SwitchError;
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
    /// use partywall_link::{Client, Config, Storage, Server};
    /// # let directory = tempfile::tempdir()?;
    /// # let soon = std::time::Instant::now() + std::time::Duration::from_secs(10);
    ///
    /// let config = Config::default().allow_anonymous_tcp(true);
    /// let near = format!("unix:{}/links.sock", directory.path().display());
    /// let server = Server::bind(&near, Storage::Memory, "bob", config)?;
    /// let far = server.listen_also("tcp:127.0.0.1:0")?;
    /// let client = Client::new(Storage::Memory, "alice", Config::default())?;
    /// let link = client.connect(&near, "bob", "orders")?;
    /// # let is_over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    /// # let is_done = std::sync::Arc::clone(&is_over);
    /// # let served = std::thread::spawn(move || {
    /// #     let link = server.accept_deadline(soon).unwrap();
    /// #     for _ in 0..2 { link.recv_deadline(soon).unwrap().unwrap().ack().unwrap(); }
    /// #     // A link works while it is waited for: until the client has its acknowledgements.
    /// #     while !is_done.load(std::sync::atomic::Ordering::Acquire) {
    /// #         let _ = link.recv_deadline(std::time::Instant::now() + std::time::Duration::from_millis(10));
    /// #     }
    /// # });
    /// link.send(b"over shared memory")?;
    /// link.switch_to(far)?;
    /// link.send(b"over one or the other")?;
    /// # link.wait_acked(soon)?;
    /// # is_over.store(true, std::sync::atomic::Ordering::Release);
    /// # served.join().unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`SwitchError`]. That nobody answers is none.
    pub fn switch_to<A>(&self, address: A) -> Result<(), SwitchError>
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
        let address = address.try_into().map_err(AddressError::from)?;
        self.end().switch_to(address)
    }
}
