// SPDX-License-Identifier: MIT OR Apache-2.0
//! A session manager like that of shmipc-go: a pool of sessions to one server, whose streams are
//! reused.
//!
//! ```text
//!   get_stream ─▶ 32 times one session, then the next ─▶ idle stream, or a new one ─▶ PooledStream
//!   put_back   ◀─ if clean kept idle, else closed ◀──────────────────────────────────────┘
//!                 ▲ sessions: one task connects, replaces and moves them (supervisor.rs)
//! ```
//!
//! Differences from shmipc-go: if the session whose turn it is has broken, another session supplies
//! the stream. If no session is left, all connect at once, not after `rebuild_interval`. A stream
//! that is put back after a failed call, or with an unread message, is closed. The pool hands out
//! no stream that the peer has closed.

mod notices;
mod place;
mod stream;
mod supervisor;

pub use stream::{PooledIo, PooledStream};

use crate::memory::names::Naming;
use crate::transport::metrics::SessionMetrics;
use crate::{Config, ConfigError};
use partywall::{Address, AddressError, ConnectError, OpenError};
use place::Place;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use supervisor::{Ledger, Shared, Supervisor, View};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Keeps [`session_num`](Config::session_num) sessions to one server of shmipc, and hands out their
/// streams.
///
/// A session that breaks is replaced after [`rebuild_interval`](Config::rebuild_interval). If no
/// session is left, a request for a stream connects at once. In a hot restart the server hands over
/// to a new process: each session is replaced by one to that process, and streams in use continue
/// over the old session. Clones are the same manager. Dropping the last clone ends the manager;
/// streams in use continue.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let address = format!("unix:{}/app.sock", directory.path().display());
/// use partywall::tokio::Listener;
/// use partywall_shmipc::{Config, SessionManager, Shmipc};
/// use std::sync::Arc;
///
/// let mut listener = Listener::bind(&*address)?.with_protocol(Arc::new(Shmipc::default()));
/// # tokio::spawn(async move {
/// #     let session = listener.accept().await?;
/// #     let mut stream = session.accept().await?.unwrap();
/// #     while let Some(message) = stream.recv().await? {
/// #         stream.send(&message).await?;
/// #     }
/// #     Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// # });
///
/// let (config, session) = (Config::default(), partywall::Config::default());
/// let manager = SessionManager::new(&*address, config, session).await?;
/// for _ in 0..3 {
///     let mut stream = manager.get_stream().await?;
///     stream.send(b"hello").await?;
///     assert_eq!(stream.recv().await?.unwrap(), b"hello");
///     stream.put_back(); // the next call of get_stream returns the same stream
/// }
/// assert_eq!(manager.stats().total.stability.active_stream_count, 1);
/// manager.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SessionManager {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    /// Number of streams requested from the pool so far. It determines which session serves the
    /// next request.
    asked: AtomicUsize,
    /// The task that connects and replaces the pool's sessions. It ends when the last clone of the
    /// manager is dropped.
    _supervisor: JoinSet<()>,
}

/// Why a session manager could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionManagerError {
    /// The address of the server is invalid.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// A setting of the protocol is impossible.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Connecting one of the sessions failed; the other sessions were closed.
    #[error(transparent)]
    Connect(Arc<ConnectError>),
}

/// Why a request for a stream failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GetStreamError {
    /// No session is left, and the attempt to connect a new one failed.
    #[error("no session is left: {0}")]
    Connect(Arc<ConnectError>),
    /// The session manager was closed.
    #[error("the session manager is closed")]
    Closed,
    /// Opening a stream failed for another reason.
    #[error(transparent)]
    Open(OpenError),
}

impl From<GetStreamError> for io::Error {
    fn from(error: GetStreamError) -> Self {
        Self::new(io::ErrorKind::NotConnected, error)
    }
}

/// Metrics of the sessions of a session manager.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ManagerMetrics {
    /// Sum over all sessions, including those that have ended. Each region in use counts once.
    pub total: SessionMetrics,
    /// Metrics of each session that has not ended; the oldest first. For a while after a hot
    /// restart the replaced sessions are included.
    pub sessions: Vec<SessionMetrics>,
}

impl SessionManager {
    /// Connects all sessions to the server at `address`, with the settings of the protocol and
    /// those of sessions.
    ///
    /// # Errors
    /// Fails for one of the reasons in [`SessionManagerError`]. If one session cannot be connected,
    /// none stays connected.
    ///
    /// # Panics
    /// If called outside a tokio runtime with I/O and time enabled.
    pub async fn new<A>(
        address: A,
        config: Config,
        session: partywall::Config,
    ) -> Result<Self, SessionManagerError>
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
        let address = address.try_into().map_err(AddressError::from)?;
        config.verify()?;
        let naming = Naming::unique(&config.share_memory_path_prefix).map_err(ConfigError::from)?;
        let view = View { live: vec![None; config.session_num], ..View::default() };
        let (view, ledger) = (watch::Sender::new(view), Mutex::new(Ledger::default()));
        let notices = Arc::default();
        let shared = Arc::new(Shared { address, config, session, view, notices, ledger });
        let mut supervisor = Supervisor::new(Arc::clone(&shared), naming);
        supervisor.fill().await.map_err(SessionManagerError::Connect)?;
        let mut tasks = JoinSet::new();
        tasks.spawn(supervisor.run());
        let inner = Inner { shared, asked: AtomicUsize::new(0), _supervisor: tasks };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns a stream for one use: one that was [put back](PooledStream::put_back), or a new one.
    /// The sessions take turns, 32 streams each. If no session is left, the call waits for a new
    /// connection, which takes at most [`handshake_timeout`](partywall::Config::handshake_timeout).
    /// Cancel-safe.
    ///
    /// # Errors
    /// Fails for one of the reasons in [`GetStreamError`].
    pub async fn get_stream(&self) -> Result<PooledStream, GetStreamError> {
        // ORDER: Relaxed: the number of requests only chooses the session that serves the next one.
        let asked = self.inner.asked.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let shared = &self.inner.shared;
        let mut changes = shared.view.subscribe();
        let begun = changes.borrow().begun;
        loop {
            let chosen = choose(&changes.borrow_and_update(), asked / TURN_STREAMS, begun)?;
            let Some(place) = chosen else {
                shared.view.send_if_modified(|view| {
                    view.is_wanted = true;
                    false
                });
                shared.notices.call();
                // The wait for a change of the pool's state fails only if nothing is left that
                // could change the state. But `self` holds the state, so the error is ignored.
                let _ = changes.changed().await;
                continue;
            };
            let fallbacks = place.control.fallbacks();
            match place.open().await {
                Ok(stream) => return Ok(PooledStream::new(stream, place, fallbacks)),
                // The session that was chosen for the stream broke just now, so the next iteration
                // of the loop chooses another one.
                Err(OpenError::Session(_)) if !place.is_open() => {}
                Err(error) => return Err(GetStreamError::Open(error)),
            }
        }
    }

    /// Gives a stream back to the pool for later calls, as [`PooledStream::put_back`] does;
    /// shmipc-go has the function here. Returns whether the stream was kept.
    #[allow(clippy::unused_self, reason = "where users of the peers look for it")]
    pub fn put_back(&self, stream: PooledStream) -> bool {
        stream.put_back()
    }

    /// Metrics of all sessions that this manager has had.
    #[must_use]
    pub fn stats(&self) -> ManagerMetrics {
        let ledger = self.inner.shared.ledger();
        let mut metrics = ManagerMetrics { total: ledger.past, sessions: Vec::new() };
        let mut regions = BTreeSet::new();
        for connection in ledger.connections.values() {
            let one = connection.metrics();
            metrics.total.add(&one, true);
            if regions.insert(connection.region()) {
                metrics.total.add_region(&one.share_memory);
            }
            metrics.sessions.push(one);
        }
        metrics
    }

    /// Number of sessions of the manager that can open new streams.
    #[must_use]
    pub fn live(&self) -> usize {
        let view = self.inner.shared.view.borrow();
        view.live.iter().flatten().filter(|place| place.is_open()).count()
    }

    /// Address of the server to which the sessions connect.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.inner.shared.address
    }

    /// Closes all sessions and their streams, even streams in use, and waits until everything sent
    /// was written. Sessions that a hot restart replaced more than 2 s ago end only when their
    /// streams end.
    pub async fn close(&self) {
        let shared = &self.inner.shared;
        let mut changes = shared.view.subscribe();
        shared.view.send_modify(|view| view.is_closed = true);
        shared.notices.call();
        // The wait for the end of the pool fails only if nothing is left that could change the
        // pool's state. But `self` holds the state, so the error is ignored.
        let _ = changes.wait_for(|view| view.is_over).await;
    }
}

/// Chooses the session whose turn it is, or a later one if that session is broken; `None` if there
/// is no session yet. The first `begun` attempts to connect were made before the caller requested a
/// stream, so their failures are ignored.
fn choose(view: &View, turn: usize, begun: u64) -> Result<Option<Arc<Place>>, GetStreamError> {
    if view.is_closed || view.is_over {
        return Err(GetStreamError::Closed);
    }
    let count = view.live.len();
    let mut in_turn = (0..count).filter_map(|after| view.live[(turn + after) % count].as_ref());
    if let Some(place) = in_turn.find(|place| place.is_open()) {
        return Ok(Some(Arc::clone(place)));
    }
    match &view.failure {
        Some((number, failure)) if *number >= begun => {
            Err(GetStreamError::Connect(Arc::clone(failure)))
        }
        _ => Ok(None),
    }
}

impl fmt::Debug for SessionManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionManager")
            .field("address", &self.address().to_string())
            .field("live", &self.live())
            .finish_non_exhaustive()
    }
}

/// Number of consecutive requests for streams that one session of the pool serves before the next
/// session serves them, as in shmipc-go.
const TURN_STREAMS: usize = 32;
