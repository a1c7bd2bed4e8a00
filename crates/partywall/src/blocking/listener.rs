// SPDX-License-Identifier: MIT OR Apache-2.0
//! The listener for sessions without a runtime, and the functions that connect to a listener.

use super::session::Session;
use super::thread;
use crate::address::{Address, AddressError};
use crate::config::Config;
use crate::error::{AcceptError, BindError, ConnectError, HandshakeError};
use crate::handshake::{establish, passed_socket};
use crate::protocol::Protocol;
use partywall_layout::hello::SERVICE_SESSION;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// Accepts sessions at an address.
///
/// Dropping the listener removes its socket file.
#[derive(Debug)]
pub struct Listener {
    listener: crate::Listener,
}

impl Listener {
    /// Listens at `address`, with the default [`Config`].
    ///
    /// # Errors
    /// Returns [`BindError`] if the address cannot be bound.
    pub fn bind<A>(address: A) -> Result<Self, BindError>
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
        Self::bind_with(address, &Config::default())
    }

    /// Listens at `address`. `config` applies to every accepted session.
    ///
    /// # Errors
    /// Returns [`BindError`] if the address cannot be bound.
    pub fn bind_with<A>(address: A, config: &Config) -> Result<Self, BindError>
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
        let address = address.try_into().map_err(AddressError::from)?;
        Ok(Self { listener: crate::Listener::bind_service(address, config, SERVICE_SESSION)? })
    }

    /// Listens on a socket that another process made; see
    /// [`Listener::from_descriptor`](crate::Listener::from_descriptor).
    ///
    /// # Errors
    /// Returns [`BindError`] if the descriptor is no listening socket.
    pub fn from_descriptor(descriptor: OwnedFd, config: &Config) -> Result<Self, BindError> {
        let listener = crate::Listener::adopt_service(descriptor, config, SERVICE_SESSION)?;
        Ok(Self { listener })
    }

    /// Listens on the socket that a service manager passed to this process under `name`; see
    /// [`Listener::activated`](crate::Listener::activated).
    ///
    /// # Errors
    /// Returns [`BindError`] if no such socket was passed.
    pub fn activated(name: &str, config: &Config) -> Result<Self, BindError> {
        Self::from_descriptor(passed_socket(name)?, config)
    }

    /// Makes the listener also serve peers that speak `protocol`. The listener recognises a
    /// protocol by a peer's first bytes. Call `with_protocol` once for each protocol.
    #[must_use]
    pub fn with_protocol(mut self, protocol: Arc<dyn Protocol>) -> Self {
        self.listener.add_protocol(protocol);
        self
    }

    /// Returns the bound address. For a port of 0 it contains the port that the system chose.
    #[must_use]
    pub const fn local_address(&self) -> &Address {
        self.listener.local_address()
    }

    /// Blocks until the next session is established, and returns it.
    ///
    /// # Errors
    /// Returns [`AcceptError`] if accepting fails. The listener stays usable after each error. At
    /// the descriptor limit, wait until some descriptors are closed before accepting again.
    pub fn accept(&mut self) -> Result<Session, AcceptError> {
        self.accept_until(None)
    }

    /// Blocks until the next session is established, like [`accept`](Self::accept), but only until
    /// `deadline`.
    ///
    /// # Errors
    /// [`AcceptError::TimedOut`] if the deadline passed; others as [`accept`](Self::accept).
    pub fn accept_deadline(&mut self, deadline: Instant) -> Result<Session, AcceptError> {
        self.accept_until(Some(deadline))
    }

    /// Returns the next session if one is established now. Also drives the handshakes under way,
    /// and never blocks.
    ///
    /// # Errors
    /// [`AcceptError::TimedOut`] if no session is established now; others as
    /// [`accept`](Self::accept).
    pub fn try_accept(&mut self) -> Result<Session, AcceptError> {
        self.accept_until(Some(Instant::now()))
    }

    /// Returns the number of connections that the listener refused.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.listener.refused()
    }

    fn accept_until(&mut self, deadline: Option<Instant>) -> Result<Session, AcceptError> {
        let established = self.listener.accept_until(deadline)?;
        let config = self.listener.config();
        let (handle, thread) = thread::start(established, config).map_err(AcceptError::Wait)?;
        Ok(Session::new(handle, thread, config))
    }
}

impl AsFd for Listener {
    /// Returns a descriptor that becomes readable when the caller should call
    /// [`try_accept`](Self::try_accept).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// Opens a session with the listener at `address`, with the default [`Config`].
///
/// # Errors
/// Returns [`ConnectError`] if connecting fails or takes longer than
/// [`handshake_timeout`](Config::handshake_timeout), by default 5 s.
pub fn connect<A>(address: A) -> Result<Session, ConnectError>
where
    A: TryInto<Address>,
    AddressError: From<A::Error>,
{
    connect_with(address, &Config::default())
}

/// Opens a session with the listener at `address`.
///
/// # Errors
/// Returns [`ConnectError`] if connecting fails or takes longer than the handshake timeout.
pub fn connect_with<A>(address: A, config: &Config) -> Result<Session, ConnectError>
where
    A: TryInto<Address>,
    AddressError: From<A::Error>,
{
    connect_session(address.try_into().map_err(AddressError::from)?, config, None)
}

/// Opens a session with the server at `address`, which speaks `protocol` instead of Partywall's
/// own.
///
/// # Errors
/// Returns [`ConnectError`] if connecting fails or takes longer than the handshake timeout.
pub fn connect_with_protocol<A>(
    address: A,
    config: &Config,
    protocol: Arc<dyn Protocol>,
) -> Result<Session, ConnectError>
where
    A: TryInto<Address>,
    AddressError: From<A::Error>,
{
    connect_session(address.try_into().map_err(AddressError::from)?, config, Some(protocol))
}

fn connect_session(
    address: Address,
    config: &Config,
    protocol: Option<Arc<dyn Protocol>>,
) -> Result<Session, ConnectError> {
    let established = establish(&address, config, SERVICE_SESSION, protocol)?;
    let (handle, thread) = thread::start(established, config).map_err(|source| {
        let (peer, what) = (address.to_string(), "starting the session's thread");
        ConnectError::from(HandshakeError::System { peer, what, source })
    })?;
    Ok(Session::new(handle, thread, config))
}
