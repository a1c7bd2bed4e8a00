// SPDX-License-Identifier: MIT OR Apache-2.0
//! The connecting side of a connection: reaches a listener, and performs the handshake within the
//! handshake timeout.

use super::Established;
use super::pending::Pending;
use crate::address::{Address, AddressError};
use crate::channel::Channel;
use crate::config::Config;
use crate::error::{ConnectError, HandshakeError};
use crate::peer::Admission;
use crate::protocol::Protocol;
use partywall_layout::hello::SERVICE_CHANNEL;
use partywall_sys::peer as sys_peer;
use partywall_sys::poll::{self, PollFd, PollFlags};
use partywall_sys::{Socket, connect_tcp, connect_unix_abstract, connect_unix_path, process};
use partywall_wait::deadline_after;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

/// Connects to the listener at `address`, with the default [`Config`].
///
/// # Errors
/// Returns [`ConnectError`] if connecting fails or takes longer than
/// [`handshake_timeout`](Config::handshake_timeout), by default 5 s.
///
/// # Examples
/// ```no_run
/// let mut channel = partywall::connect("unix:/run/app.sock")?;
/// channel.send(b"hello")?;
/// println!("{} bytes came back over the {}", channel.recv()?.unwrap().len(), channel.transport());
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
/// The handshake timeout covers everything except the lookup of a host name, for which the system's
/// resolver has its own time limits. If the name has several addresses, `connect_with` tries all.
///
/// # Errors
/// Returns [`ConnectError`] if no address can be connected within the timeout.
pub fn connect_with<A>(address: A, config: &Config) -> Result<Channel, ConnectError>
where
    A: TryInto<Address>,
    AddressError: From<A::Error>,
{
    let address = address.try_into().map_err(AddressError::from)?;
    Ok(establish(&address, config, SERVICE_CHANNEL, None)?.into_channel(config))
}

/// Connects and performs the handshake of a channel or a session, in Partywall's own protocol or in
/// `protocol`. Other protocols have sessions only.
pub(crate) fn establish(
    address: &Address,
    config: &Config,
    service: u32,
    protocol: Option<Arc<dyn Protocol>>,
) -> Result<Established, ConnectError> {
    let geometry = config.geometry()?;
    let mut config = config.clone();
    if let Address::Abstract(_) = address {
        // An abstract name has no permissions, so any process could have bound it. So by default
        // only a listener of the own user is admitted.
        config.admission.get_or_insert_with(Admission::own_user);
    }
    let deadline = deadline_after(config.handshake_timeout);
    let socket = reach(address, deadline)?;
    // Another protocol's negotiation is driven before the first wait, because it may be complete
    // already, or this side may have to send first. Partywall's own handshake only awaits the
    // peer's answer, so it needs no such step.
    let is_foreign = protocol.is_some();
    let mut pending = Pending::connecting(socket, address, &config, geometry, service, protocol)?;
    if is_foreign {
        if let Some(established) = pending.progress()? {
            return Ok(established);
        }
    }
    if !pending.begins_on_socket() {
        // While the acceptor prepares its answer, the connector reads the properties of its own
        // process. It needs them to decide whether it trusts the acceptor.
        sys_peer::prepare();
        process::own_program();
    }
    loop {
        let mut descriptors = [PollFd::from_borrowed_fd(pending.as_fd(), PollFlags::IN)];
        let ready = poll::wait(&mut descriptors, Some(deadline)).map_err(|source| {
            let (peer, what) = (address.to_string(), "waiting");
            HandshakeError::System { peer, what, source }
        })?;
        if ready == 0 {
            return Err(pending.time_out("the handshake took too long").into());
        }
        if let Some(established) = pending.progress()? {
            return Ok(established);
        }
    }
}

fn reach(address: &Address, deadline: Instant) -> Result<Socket, ConnectError> {
    Ok(match address {
        Address::Path(path) => connect_unix_path(path, Some(deadline))?,
        Address::Abstract(name) => connect_unix_abstract(name, Some(deadline))?,
        Address::Tcp { .. } => reach_one_of(&address.resolve_all()?, deadline)?,
    })
}

/// Tries the addresses of a host name in order. Each attempt gets an equal share of the time until
/// the deadline. Returns the error of the last attempt if all fail.
fn reach_one_of(
    addresses: &[SocketAddr],
    deadline: Instant,
) -> Result<Socket, partywall_sys::ConnectError> {
    let mut left = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    let mut addresses = addresses.iter();
    loop {
        let Some(address) = addresses.next() else {
            let to = "no address".to_owned();
            return Err(partywall_sys::ConnectError::NotFound { to });
        };
        let now = Instant::now();
        let share = deadline.saturating_duration_since(now) / left;
        match connect_tcp(*address, Some(now + share)) {
            Err(_) if left > 1 => left -= 1,
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::time::Duration;

    #[test]
    fn every_address_of_a_name_is_tried() {
        // Input: an address without a listener: port 1 of this machine. No other process listens
        // there, because only privileged processes can bind this port. A port that the test has
        // bound and freed might be bound by another process.
        let gone = SocketAddr::from(([127, 0, 0, 1], 1));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap();
        let soon = || Instant::now() + Duration::from_secs(60);
        assert!(reach_one_of(&[gone, gone, here], soon()).is_ok());
        assert!(reach_one_of(&[here, gone], soon()).is_ok());
        let error = reach_one_of(&[gone, gone], soon()).unwrap_err();
        assert!(matches!(error, partywall_sys::ConnectError::Refused { .. }), "{error}");
    }
}
