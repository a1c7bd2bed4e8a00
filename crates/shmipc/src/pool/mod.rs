// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sessions to one server, kept, with streams that are used again: as the session managers of the peers.
//!
//! ```text
//!   get_stream ─▶ 32 times one session, 32 times the next ─▶ kept stream, or a new one ─▶ PooledStream
//!   put_back   ◀─ clean? kept : closed ◀──────────────────────────────────────────────────┘
//!                 ▲ sessions: one task connects, watches, replaces, moves them (keeper.rs)
//! ```
//!
//! What differs from theirs: whoever asks while the session whose turn it is is broken gets a stream of another one; if
//! none is left, all are connected at once, and not only after `rebuild_interval`. Streams that are not clean are
//! closed, and what the other side has closed is not handed out.

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

/// Keeps [`session_num`](Config::session_num) sessions to one server of shmipc, and hands out their streams.
///
/// A session that breaks is replaced after [`rebuild_interval`](Config::rebuild_interval), or at once when a
/// stream is asked for and no session is left. Where a server hands over to a new process (a hot restart), each session is
/// replaced by one to that, while the streams in use go on over the old one. Clones are the same manager; dropping
/// the last one stops all that, and streams in use go on.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
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
/// #     while let Ok(Some(message)) = stream.recv().await {
/// #         stream.send(&message).await?;
/// #     }
/// #     Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// # });
///
/// let manager = SessionManager::new(&*address, Config::default(), partywall::Config::default()).await?;
/// for _ in 0..3 {
///     let mut stream = manager.get_stream().await?;
///     stream.send(b"hello").await?;
///     assert_eq!(stream.recv().await?.unwrap(), b"hello");
///     stream.put_back(); // the next call has the same one
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
    /// How many streams were asked for.
    asked: AtomicUsize,
    /// Ended when the last manager is dropped.
    _supervisor: JoinSet<()>,
}

/// Why there is no manager.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionManagerError {
    /// The text is no address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// A setting that is not possible.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A session could not be connected. None is left.
    #[error(transparent)]
    Connect(Arc<ConnectError>),
}

/// Why there is no stream.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GetStreamError {
    /// No session is left, and connecting failed.
    #[error("no session is left: {0}")]
    Connect(Arc<ConnectError>),
    /// The manager was closed.
    #[error("the session manager is closed")]
    Closed,
    /// No session opens such a stream.
    #[error(transparent)]
    Open(OpenError),
}

impl From<GetStreamError> for io::Error {
    fn from(error: GetStreamError) -> Self {
        Self::new(io::ErrorKind::NotConnected, error)
    }
}

/// What the sessions of a manager counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ManagerMetrics {
    /// All sessions together, with those that have ended; of regions, each that is in use.
    pub total: SessionMetrics,
    /// Each session that has not ended; the oldest first. After a hot restart the old ones are among them for a while.
    pub sessions: Vec<SessionMetrics>,
}

impl SessionManager {
    /// Connects all sessions to the server at `address`: with the protocol's settings, and those of sessions. What
    /// `session` says of the protocol to speak has no effect.
    ///
    /// # Errors
    /// See [`SessionManagerError`]. If one session cannot be connected, none is.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O and time enabled.
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

    /// A stream for one use: one that was [put back](PooledStream::put_back), or a new one. Sessions take turns, 32
    /// streams each. Where none is left it connects, which takes at most
    /// [`handshake_timeout`](partywall::Config::handshake_timeout). Cancel-safe.
    ///
    /// # Errors
    /// Fails for one of the reasons in [`GetStreamError`].
    pub async fn get_stream(&self) -> Result<PooledStream, GetStreamError> {
        // ORDER: Relaxed: a number to count by.
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
                // No error: the sender is ours.
                let _ = changes.changed().await;
                continue;
            };
            let fallbacks = place.control.fallbacks();
            match place.open().await {
                Ok(stream) => return Ok(PooledStream::new(stream, place, fallbacks)),
                // It broke just now, and is not chosen again.
                Err(OpenError::Session(_)) if !place.is_open() => {}
                Err(error) => return Err(GetStreamError::Open(error)),
            }
        }
    }

    /// As [`PooledStream::put_back`], under the peers' name.
    #[allow(clippy::unused_self, reason = "where users of the peers look for it")]
    pub fn put_back(&self, stream: PooledStream) -> bool {
        stream.put_back()
    }

    /// What the sessions counted until now.
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

    /// How many sessions take streams now.
    #[must_use]
    pub fn live(&self) -> usize {
        let view = self.inner.shared.view.borrow();
        view.live.iter().flatten().filter(|place| place.is_open()).count()
    }

    /// Where it connects to.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.inner.shared.address
    }

    /// Closes all sessions with their streams, also those in use, and waits until what was sent is written. Sessions
    /// that a hot restart replaced more than 2 s ago end with their streams.
    pub async fn close(&self) {
        let shared = &self.inner.shared;
        let mut changes = shared.view.subscribe();
        shared.view.send_modify(|view| view.is_closed = true);
        shared.notices.call();
        // No error: the sender is ours.
        let _ = changes.wait_for(|view| view.is_over).await;
    }
}

/// The session whose turn it is, or one after it. Nothing while there is none: what came of the `begun` attempts to
/// connect that were begun before says nothing about now.
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

/// So many streams in a row are of one session, as with the peers.
const TURN_STREAMS: usize = 32;
