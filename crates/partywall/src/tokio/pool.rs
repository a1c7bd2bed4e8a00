// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps sessions to one address alive, and spreads streams over these sessions.
//!
//! ```text
//!   open ─▶ state: live sessions ─▶ the one with the fewest streams ─▶ stream
//!             ▲ ▲ ▲
//!           supervisors: one task for each place; connect, watch, drain, wait, connect again
//! ```
//!
//! The pool never repeats a request. The user of a stream that is lost with its session gets an
//! error, because only the user can know whether the peer has acted.

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

/// Keeps sessions to one address, and opens each stream in the session with the fewest streams.
///
/// The pool replaces lost sessions, after waits that [`PoolConfig::backoff`] bounds. If the peer of
/// a session sends `go_away`, the session is drained while another session takes its place. Clones
/// share one pool. Dropping the last clone stops reconnecting; open streams continue.
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
    /// The tasks that keep the sessions of the pool; dropping the last clone of the pool aborts the
    /// tasks.
    _supervisors: JoinSet<()>,
}

/// The reason why a pool opened no stream.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolOpenError {
    /// No session was connected in time, or no session had room for another stream.
    #[error("no session took a stream in time{}", because(failure.as_deref()))]
    TimedOut {
        /// The error of the last attempt to connect, if that attempt failed.
        failure: Option<Arc<ConnectError>>,
    },
    /// The pool was closed by [`close`](Pool::close).
    #[error("the pool is closed")]
    Closed,
    /// No session can ever open the stream, for example because its metadata is too long.
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
    /// Makes a pool and begins to connect to `address`. `new` does not wait, even if no server
    /// listens at the address yet.
    ///
    /// # Errors
    /// Returns [`AddressError`] if the text is no address.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with I/O and time enabled.
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

    /// Opens a stream as [`Session::open`] does, in the live session with the fewest streams. Waits
    /// for a session with room for at most [`PoolConfig::open_timeout`]. Cancel-safe.
    ///
    /// # Errors
    /// Returns [`PoolOpenError`] if no stream was opened.
    pub async fn open(&self, metadata: &[u8]) -> Result<Stream, PoolOpenError> {
        let deadline = Instant::now() + self.inner.config.open_timeout;
        timeout_at(deadline, self.open_unlimited(metadata)).await.unwrap_or_else(|_| {
            let failure = self.inner.state.borrow().failure.clone();
            Err(PoolOpenError::TimedOut { failure })
        })
    }

    /// Closes all sessions with their streams, and waits until every task of the pool has ended.
    ///
    /// The pool abandons an attempt to connect that is under way. The attempt ends within
    /// [`Config::handshake_timeout`](crate::Config::handshake_timeout), without effect.
    pub async fn close(&self) {
        let mut state = self.inner.state.subscribe();
        self.inner.state.send_modify(|state| state.is_closed = true);
        // `wait_for` cannot fail, because this pool owns the sending end of the watched state.
        let _ = state.wait_for(|state| state.supervisors == 0).await;
    }

    /// Returns the number of sessions that accept new streams now.
    #[must_use]
    pub fn live(&self) -> usize {
        self.inner.state.borrow().live.iter().flatten().count()
    }

    /// Returns the number of streams in the sessions that accept new streams now.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.inner.state.borrow().live.iter().flatten().map(Session::streams).sum()
    }

    /// Returns the address that the pool connects to.
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
            // `changed` cannot fail, because this pool owns the sending end of the watched state.
            tokio::select! {
                biased;
                opened = opening => match opened {
                    Ok(stream) => return Ok(stream),
                    // The session has ended: its supervisor will remove it from the live sessions,
                    // which changes the state.
                    Err(OpenError::GoingAway { .. } | OpenError::Session(_)) => {
                        let _ = changes.changed().await;
                    }
                    Err(error) => return Err(PoolOpenError::Open(error)),
                },
                _ = changes.changed() => {}
            }
        }
    }

    /// Returns the live session with the fewest streams, or `None` if no session is live.
    fn choose(&self, state: &PoolState) -> Result<Option<Session>, PoolOpenError> {
        if state.is_closed {
            return Err(PoolOpenError::Closed);
        }
        let usable = state.live.iter().flatten().filter(|live| live.close_reason().is_none());
        // Among sessions with equally many streams, the pool chooses one at random.
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
