// SPDX-License-Identifier: MIT OR Apache-2.0
//! The listener for sessions on tokio, and the functions that connect to a listener.

use super::runtime::watch_readable;
use super::session::Session;
use super::task;
use crate::address::{Address, AddressError};
use crate::config::Config;
use crate::error::{AcceptError, BindError, ConnectError, HandshakeError};
use crate::handshake::{establish, passed_socket};
use crate::protocol::Protocol;
use partywall_layout::hello::SERVICE_SESSION;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Instant;
use tokio::io::unix::AsyncFd;

/// Accepts sessions at an address.
///
/// Dropping the listener removes its socket file. Handshakes make progress only while `accept` is
/// awaited.
#[derive(Debug)]
pub struct Listener {
    /// The listener for channels, by which this listener for sessions accepts connections. It is
    /// locked for one attempt to accept, never across an await.
    listener: Mutex<crate::Listener>,
    address: Address,
    config: Config,
    ready: AsyncFd<OwnedFd>,
}

impl Listener {
    /// Listens at `address`, with the default [`Config`].
    ///
    /// # Errors
    /// Returns [`BindError`] if the address cannot be bound.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with I/O enabled.
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
    ///
    /// # Panics
    /// Panics outside a tokio runtime with I/O enabled.
    pub fn bind_with<A>(address: A, config: &Config) -> Result<Self, BindError>
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
        let address = address.try_into().map_err(AddressError::from)?;
        Self::over(crate::Listener::bind_service(address, config, SERVICE_SESSION)?, config)
    }

    /// Listens on a socket that another process made; see
    /// [`Listener::from_descriptor`](crate::Listener::from_descriptor).
    ///
    /// # Errors
    /// Returns [`BindError`] if the descriptor is no listening socket.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with I/O enabled.
    pub fn from_descriptor(descriptor: OwnedFd, config: &Config) -> Result<Self, BindError> {
        Self::over(crate::Listener::adopt_service(descriptor, config, SERVICE_SESSION)?, config)
    }

    /// Listens on the socket that a service manager passed to this process under `name`; see
    /// [`Listener::activated`](crate::Listener::activated).
    ///
    /// # Errors
    /// Returns [`BindError`] if no such socket was passed.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with I/O enabled.
    pub fn activated(name: &str, config: &Config) -> Result<Self, BindError> {
        Self::from_descriptor(passed_socket(name)?, config)
    }

    fn over(listener: crate::Listener, config: &Config) -> Result<Self, BindError> {
        let ready = watch_readable(listener.as_fd()).map_err(BindError::Setup)?;
        let (address, config) = (listener.local_address().clone(), config.clone());
        Ok(Self { listener: Mutex::new(listener), address, config, ready })
    }

    /// Makes the listener also serve peers that speak `protocol`. The listener recognises a
    /// protocol by a peer's first bytes. Call `with_protocol` once for each protocol.
    #[must_use]
    pub fn with_protocol(mut self, protocol: Arc<dyn Protocol>) -> Self {
        let listener = self.listener.get_mut().unwrap_or_else(PoisonError::into_inner);
        listener.add_protocol(protocol);
        self
    }

    /// Returns the bound address. For a port of 0 it contains the port that the system chose.
    #[must_use]
    pub const fn local_address(&self) -> &Address {
        &self.address
    }

    /// Waits for the next session. Several tasks may accept at the same time. Cancel-safe: dropping
    /// the future loses no connection.
    ///
    /// # Errors
    /// Returns [`AcceptError`] if accepting fails. The listener stays usable after each error. At
    /// the descriptor limit, wait until some descriptors are closed before accepting again.
    pub async fn accept(&self) -> Result<Session, AcceptError> {
        loop {
            match self.try_accept() {
                Err(AcceptError::TimedOut) => {}
                accepted => return accepted,
            }
            // Readiness is cleared before the next attempt, so a connection that becomes ready
            // during the attempt is reported again.
            self.ready.readable().await.map_err(AcceptError::Wait)?.clear_ready();
        }
    }

    /// Returns the next session if one is established now. Also drives the handshakes under way,
    /// and never waits.
    ///
    /// # Errors
    /// [`AcceptError::TimedOut`] if no session is established now; others as
    /// [`accept`](Self::accept).
    ///
    /// # Panics
    /// Panics outside a tokio runtime with I/O enabled.
    pub fn try_accept(&self) -> Result<Session, AcceptError> {
        let established = self.lock().accept_until(Some(Instant::now()))?;
        let started = task::start(established, &self.config);
        started.map(Session::new).map_err(AcceptError::Wait)
    }

    /// Polls for the next session, like [`accept`](Self::accept), for futures that are written by
    /// hand. Only the task that polled last is woken.
    ///
    /// # Errors
    /// Fails as [`accept`](Self::accept) does.
    pub fn poll_accept(&self, context: &mut Context<'_>) -> Poll<Result<Session, AcceptError>> {
        loop {
            match self.try_accept() {
                Err(AcceptError::TimedOut) => {}
                accepted => return Poll::Ready(accepted),
            }
            let ready = ready!(self.ready.poll_read_ready(context));
            ready.map_err(AcceptError::Wait)?.clear_ready();
        }
    }

    /// Returns the number of connections that the listener refused.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.lock().refused()
    }

    fn lock(&self) -> MutexGuard<'_, crate::Listener> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens a session with the listener at `address`, with the default [`Config`].
///
/// # Errors
/// Returns [`ConnectError`] if connecting fails or takes longer than
/// [`handshake_timeout`](Config::handshake_timeout), by default 5 s.
pub async fn connect<A>(address: A) -> Result<Session, ConnectError>
where
    A: TryInto<Address>,
    AddressError: From<A::Error>,
{
    connect_with(address, &Config::default()).await
}

/// Opens a session with the listener at `address`.
///
/// # Errors
/// Returns [`ConnectError`] if connecting fails or takes longer than the handshake timeout.
pub async fn connect_with<A>(address: A, config: &Config) -> Result<Session, ConnectError>
where
    A: TryInto<Address>,
    AddressError: From<A::Error>,
{
    connect_session(address.try_into().map_err(AddressError::from)?, config, None).await
}

/// Opens a session with the server at `address`, which speaks `protocol` instead of Partywall's
/// own.
///
/// # Errors
/// Returns [`ConnectError`] if connecting fails or takes longer than the handshake timeout.
pub async fn connect_with_protocol<A>(
    address: A,
    config: &Config,
    protocol: Arc<dyn Protocol>,
) -> Result<Session, ConnectError>
where
    A: TryInto<Address>,
    AddressError: From<A::Error>,
{
    connect_session(address.try_into().map_err(AddressError::from)?, config, Some(protocol)).await
}

pub(super) async fn connect_session(
    address: Address,
    config: &Config,
    protocol: Option<Arc<dyn Protocol>>,
) -> Result<Session, ConnectError> {
    let (label, options) = (address.to_string(), config.clone());
    let system = |what, source| {
        ConnectError::from(HandshakeError::System { peer: label.clone(), what, source })
    };
    // Connecting runs on a blocking thread: the handshake is bounded by its deadline, but looking
    // up a host name may block for longer.
    let connecting = tokio::task::spawn_blocking(move || {
        establish(&address, &options, SERVICE_SESSION, protocol)
    });
    let established =
        connecting.await.map_err(|error| system("connecting", std::io::Error::other(error)))??;
    let started = task::start(established, config);
    Ok(Session::new(started.map_err(|error| system("starting the session", error))?))
}
