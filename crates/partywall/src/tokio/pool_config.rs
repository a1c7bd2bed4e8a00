// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings of a pool, and the events that a pool reports.

use crate::config::Config;
use crate::error::ConnectError;
use crate::protocol::Protocol;
use crate::session::SessionError;
use crate::tokio::ConnectInfo;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

type OnEvent = Arc<dyn Fn(&PoolEvent) + Send + Sync>;

/// The settings of a [`Pool`](super::Pool), with a default for each.
///
/// ```
/// use partywall::tokio::PoolConfig;
/// use std::time::Duration;
///
/// let config = PoolConfig::default()
///     .sessions(2)
///     .open_timeout(Duration::from_secs(1))
///     .on_event(|event| eprintln!("{event}"));
/// # let _ = config;
/// ```
#[derive(Clone)]
pub struct PoolConfig {
    pub(super) session: Config,
    pub(super) protocol: Option<Arc<dyn Protocol>>,
    pub(super) sessions: usize,
    pub(super) backoff_min: Duration,
    pub(super) backoff_max: Duration,
    pub(super) open_timeout: Duration,
    pub(super) drain_timeout: Duration,
    pub(super) on_event: Option<OnEvent>,
}

/// Most sessions of a pool. Each carries thousands of streams, so more sessions bring no advantage.
const SESSIONS_MAX: usize = 64;

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            session: Config::default(),
            protocol: None,
            sessions: 1,
            backoff_min: Duration::from_millis(20),
            backoff_max: Duration::from_secs(2),
            open_timeout: Duration::from_secs(5),
            drain_timeout: Duration::from_secs(30),
            on_event: None,
        }
    }
}

impl PoolConfig {
    /// Sets the configuration of each session of the pool.
    #[must_use]
    pub fn session(mut self, config: Config) -> Self {
        self.session = config;
        self
    }

    /// Sets the protocol that the pool speaks with the server. Default: Partywall's own.
    #[must_use]
    pub fn protocol(mut self, protocol: Arc<dyn Protocol>) -> Self {
        self.protocol = Some(protocol);
        self
    }

    /// Sets the number of sessions that the pool keeps, from 1 to 64. Default: 1.
    #[must_use]
    pub fn sessions(mut self, count: usize) -> Self {
        self.sessions = count.clamp(1, SESSIONS_MAX);
        self
    }

    /// Sets the waits between attempts to connect. The first wait is `min`; each failure doubles
    /// it, up to `max`. Each wait is shortened at random, at most by half; none is below half a
    /// millisecond. A session that lasted for less than `max` counts as a failure. Default: 20 ms
    /// to 2 s.
    #[must_use]
    pub const fn backoff(mut self, min: Duration, max: Duration) -> Self {
        (self.backoff_min, self.backoff_max) = (min, max);
        self
    }

    /// Sets how long [`open`](super::Pool::open) waits at most, up to a year. Default: 5 s.
    #[must_use]
    pub fn open_timeout(mut self, timeout: Duration) -> Self {
        self.open_timeout = timeout.min(YEAR);
        self
    }

    /// Sets how long the streams of a session may continue after the peer's `go_away`; then the
    /// pool closes the session. At most a year. Default: 30 s.
    #[must_use]
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.drain_timeout = timeout.min(YEAR);
        self
    }

    /// Sets a callback that gets each event of the pool's sessions. A task of the pool calls the
    /// callback, which must not block.
    #[must_use]
    pub fn on_event(mut self, callback: impl Fn(&PoolEvent) + Send + Sync + 'static) -> Self {
        self.on_event = Some(Arc::new(callback));
        self
    }

    pub(super) fn report(&self, event: &PoolEvent) {
        if let Some(callback) = &self.on_event {
            callback(event);
        }
    }
}

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

impl fmt::Debug for PoolConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolConfig")
            .field("sessions", &self.sessions)
            .field("backoff", &(self.backoff_min..=self.backoff_max))
            .field("open_timeout", &self.open_timeout)
            .field("drain_timeout", &self.drain_timeout)
            .finish_non_exhaustive()
    }
}

/// An event of one of a pool's sessions. `place` is the index of the session in the pool, from 0.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PoolEvent {
    /// A session of the pool was connected.
    Connected {
        /// Index of the session in the pool.
        place: usize,
        /// The identity of the peer process.
        peer: ConnectInfo,
    },
    /// An attempt to connect a session of the pool failed.
    Failed {
        /// Index of the session in the pool.
        place: usize,
        /// Why the attempt to connect failed.
        error: Arc<ConnectError>,
        /// Time until the pool next attempts to connect.
        next_attempt: Duration,
    },
    /// A session of the pool is over, and all its streams have ended.
    Lost {
        /// Index of the session in the pool.
        place: usize,
        /// The reason why the session is over.
        error: SessionError,
        /// Time until the pool next attempts to connect.
        next_attempt: Duration,
    },
    /// The peer sent `go_away`: the peer accepts no more streams in this session. Open streams
    /// continue.
    GoneAway {
        /// Index of the session in the pool.
        place: usize,
        /// The code that the peer gave to `go_away`.
        code: u32,
        /// Time until the pool next attempts to connect.
        next_attempt: Duration,
    },
}

impl fmt::Display for PoolEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected { place, peer } => write!(f, "session {place}: {peer}"),
            Self::Failed { place, error, next_attempt } => {
                write!(f, "session {place}: {error}; next attempt in {next_attempt:?}")
            }
            Self::Lost { place, error, next_attempt } => {
                write!(f, "session {place} is lost: {error}; next attempt in {next_attempt:?}")
            }
            Self::GoneAway { place, code, next_attempt } => write!(
                f,
                "session {place} takes no more streams (code {code:#x}); next attempt in {next_attempt:?}"
            ),
        }
    }
}
