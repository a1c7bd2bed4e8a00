// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reaching a listener.

use crate::address::{Address, AddressError};
use crate::channel::Channel;
use crate::config::Config;
use crate::error::{ConnectError, HandshakeError};
use crate::handshake::{Pending, deadline_after};
use crate::peer::Admission;
use partywall_sys::poll::{self, PollFd, PollFlags};
use partywall_sys::{Socket, connect_tcp, connect_unix_abstract, connect_unix_path};
use std::os::fd::AsFd;
use std::time::Instant;

/// Connects to the listener at `address`, with the default [`Config`].
///
/// # Errors
/// See [`ConnectError`]; connecting takes at most
/// [`handshake_timeout`](Config::handshake_timeout), 5 s.
///
/// # Examples
/// ```no_run
/// let mut channel = partywall::connect("unix:/run/app.sock")?;
/// channel.send(b"hello")?;
/// println!("{} bytes came back over the {}", channel.recv()?.len(), channel.transport());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn connect<A>(address: A) -> Result<Channel, ConnectError>
where
    A: TryInto<Address>,
    AddressError: From<A::Error>,
{
    connect_with(address, &Config::default())
}

/// Connects to the listener at `address`.
///
/// # Errors
/// See [`ConnectError`].
pub fn connect_with<A>(address: A, config: &Config) -> Result<Channel, ConnectError>
where
    A: TryInto<Address>,
    AddressError: From<A::Error>,
{
    let address = address.try_into().map_err(AddressError::from)?;
    let geometry = config.geometry()?;
    let mut config = config.clone();
    if let Address::Abstract(_) = address {
        // An abstract name has no permissions: anybody could have taken it.
        config.admission.get_or_insert_with(Admission::own_user);
    }
    let deadline = deadline_after(config.handshake_timeout);
    let socket = reach(&address, deadline)?;
    let mut pending = Pending::begin(socket, &config, geometry, false)?;
    loop {
        if let Some(channel) = pending.progress()? {
            return Ok(channel);
        }
        let mut descriptors = [PollFd::from_borrowed_fd(pending.as_fd(), PollFlags::IN)];
        let ready = poll::wait(&mut descriptors, Some(deadline)).map_err(|source| {
            let (peer, what) = (address.to_string(), "waiting");
            HandshakeError::System { peer, what, source }
        })?;
        if ready == 0 {
            return Err(pending.timed_out().into());
        }
    }
}

fn reach(address: &Address, deadline: Instant) -> Result<Socket, ConnectError> {
    Ok(match address {
        Address::Path(path) => connect_unix_path(path, Some(deadline))?,
        Address::Abstract(name) => connect_unix_abstract(name, Some(deadline))?,
        Address::Tcp { .. } => connect_tcp(address.resolve()?, Some(deadline))?,
    })
}
