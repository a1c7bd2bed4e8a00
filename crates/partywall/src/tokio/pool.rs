// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sessions to one address that are kept alive, and streams spread over them.
//!
//! ```text
//!   open ─▶ state: live sessions ─▶ the one with the fewest streams ─▶ stream
//!             ▲ ▲ ▲
//!           supervisors: one task for each place; connect, watch, drain, wait, connect again
//! ```
//!
//! It repeats nothing. A stream that is lost with its session is an error for its user, who alone
//! can know whether the peer has acted.

use super::backoff::random;
use super::pool_config::PoolConfig;
use super::session::Session;
use super::stream::Stream;
use super::supervisor::{PoolState, Supervisor};
use crate::address::{Address, AddressError};
use crate::error::ConnectError;
use crate::session::OpenError;
use std::fmt;
use std::io;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// Keeps sessions to one address, and opens each stream where there are the fewest.
///
/// Lost sessions are replaced, after waits that [`PoolConfig::backoff`] bounds. A session whose
/// peer sent `go_away` is drained while another takes its place. Clones are the same pool. Dropping
/// the last one stops reconnecting; open streams go on.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let address = format!("unix:{}/app.sock", directory.path().display());
/// use partywall::tokio::{Incoming, Listener, Pool, PoolConfig};
///
/// let pool = Pool::new(&address, PoolConfig::default().sessions(2))?; // nobody listens yet
/// let mut incoming = Incoming::new(Listener::bind(&address)?);
/// let (opened, accepted) = tokio::join!(pool.open(b"first"), incoming.accept());
/// opened?;
/// assert_eq!(&accepted.1.metadata[..], b"first");
/// pool.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Pool {
    inner: Arc<Inner>,
}

struct Inner {
    address: Address,
    config: PoolConfig,
    state: Arc<watch::Sender<PoolState>>,
    /// Aborted when the last pool is dropped.
    _supervisors: JoinSet<()>,
}

/// Why a pool opened no stream.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolOpenError {
    /// No session was there in time, or none had room for another stream.
    #[error("no session took a stream in time{}", because(failure.as_deref()))]
    TimedOut {
        /// Why the last attempt to connect failed, if it failed.
        failure: Option<Arc<ConnectError>>,
    },
    /// The pool was closed.
    #[error("the pool is closed")]
    Closed,
    /// No session will ever open such a stream.
    #[error(transparent)]
    Open(OpenError),
}

fn because(failure: Option<&ConnectError>) -> String {
    failure.map_or_else(String::new, |error| format!(": {error}"))
}

impl From<PoolOpenError> for io::Error {
    fn from(error: PoolOpenError) -> Self {
        match error {
            PoolOpenError::TimedOut { .. } => Self::new(io::ErrorKind::TimedOut, error),
            PoolOpenError::Closed => Self::new(io::ErrorKind::NotConnected, error),
            PoolOpenError::Open(error) => error.into(),
        }
    }
}

impl Pool {
    /// Begins to connect to `address`. Returns at once, even if no server listens there yet.
    ///
    /// # Errors
    /// Returns [`AddressError`] if the text is no address.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O and time enabled.
    pub fn new<A>(address: A, config: PoolConfig) -> Result<Self, AddressError>
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
        let address = address.try_into().map_err(AddressError::from)?;
        let places = config.sessions;
        let live = vec![None; places];
        let state = PoolState { live, failure: None, is_closed: false, supervisors: places };
        let state = Arc::new(watch::Sender::new(state));
        let mut supervisors = JoinSet::new();
        for place in 0..places {
            let (address, config, state) = (address.clone(), config.clone(), Arc::clone(&state));
            supervisors.spawn(Supervisor { place, address, config, state }.run());
        }
        let inner = Inner { address, config, state, _supervisors: supervisors };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Opens a stream on the live session with the fewest, as [`Session::open`] does. Waits for a
    /// session, and for room in it, for at most [`PoolConfig::open_timeout`]. Cancel-safe.
    ///
    /// # Errors
    /// Returns [`PoolOpenError`] if it fails.
    pub async fn open(&self, metadata: &[u8]) -> Result<Stream, PoolOpenError> {
        let deadline = Instant::now() + self.inner.config.open_timeout;
        timeout_at(deadline, self.open_unlimited(metadata)).await.unwrap_or_else(|_| {
            let failure = self.inner.state.borrow().failure.clone();
            Err(PoolOpenError::TimedOut { failure })
        })
    }

    /// Closes all sessions with their streams, and waits until no task of the pool is left.
    ///
    /// An attempt to connect that is under way is abandoned. It ends within
    /// [`Config::handshake_timeout`](crate::Config::handshake_timeout), without any effect.
    pub async fn close(&self) {
        let mut state = self.inner.state.subscribe();
        self.inner.state.send_modify(|state| state.is_closed = true);
        // No error: the sender is ours.
        let _ = state.wait_for(|state| state.supervisors == 0).await;
    }

    /// Number of sessions that take streams now.
    #[must_use]
    pub fn live(&self) -> usize {
        self.inner.state.borrow().live.iter().flatten().count()
    }

    /// Number of streams in the sessions that take streams now.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.inner.state.borrow().live.iter().flatten().map(Session::streams).sum()
    }

    /// The address that it connects to.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.inner.address
    }

    async fn open_unlimited(&self, metadata: &[u8]) -> Result<Stream, PoolOpenError> {
        let mut changes = self.inner.state.subscribe();
        loop {
            let chosen = self.choose(&changes.borrow_and_update())?;
            let opening = async {
                match chosen {
                    Some(session) => session.open(metadata).await,
                    None => std::future::pending().await,
                }
            };
            // `changed` never fails: the sender is ours.
            tokio::select! {
                biased;
                opened = opening => match opened {
                    Ok(stream) => return Ok(stream),
                    // Its supervisor removes it from the list in a moment.
                    Err(OpenError::GoingAway { .. } | OpenError::Session(_)) => {
                        let _ = changes.changed().await;
                    }
                    Err(error) => return Err(PoolOpenError::Open(error)),
                },
                _ = changes.changed() => {}
            }
        }
    }

    /// The live session with the fewest streams.
    fn choose(&self, state: &PoolState) -> Result<Option<Session>, PoolOpenError> {
        if state.is_closed {
            return Err(PoolOpenError::Closed);
        }
        let usable = state.live.iter().flatten().filter(|live| live.close_reason().is_none());
        // Random among equals.
        Ok(usable.min_by_key(|session| (session.streams(), random())).cloned())
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("address", &self.inner.address.to_string())
            .field("live", &self.live())
            .finish_non_exhaustive()
    }
}
