// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can be chosen, under the names that users of shmipc know.
//!
//! ```text
//!   share_memory_buffer_cap                                        one region of buffers for a pool
//!   ├── buffer_slice_sizes[0], 50 % ──┼── [1], 30 % ──┼─ [2], 20 % ─┤
//!   queue_cap  × 12 bytes  × 2 directions                          one region of queues for each session
//! ```
//!
//! The first part of [`Config`] is the peers', with their defaults but one: we share memfds, where shmipc-go shares
//! files. Everything in it that concerns memory is the client's choice, and a server takes what comes. The second part
//! is ours: what a peer may make us do.
//!
//! Not taken over: `queue_path`, which peers overwrite; `connection_read_timeout` and `connection_timeout`, which they
//! do not use, nor `stream_max_idle_time`; whatever belongs to version 4. Nor what sessions have settings for already,
//! in [`partywall::Config`]:
//!
//! | of peers | here |
//! |---|---|
//! | `initialize_timeout`, 1 s | [`handshake_timeout`](partywall::Config::handshake_timeout), 5 s |
//! | `connection_write_timeout`, 10 s | nobody waits for the socket to take bytes but at the end of a session: [`linger`](partywall::Config::linger) |
//! | how long to try where the queue is full, 100 ms | [`back_pressure`](partywall::Config::back_pressure): wait, or fail at once; a deadline of the caller bounds the wait |
//!
//! Nothing is rounded. What does not fit is refused by [`verify`](Config::verify), with what to choose instead.

mod verify;

pub use verify::ConfigError;

use crate::frame::PAYLOAD_BYTES_MAX;
use crate::stats::Monitor;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The choices of one side, with defaults for everything.
///
/// ```
/// use partywall_shmipc::{Config, MemMapType, SizePercentPair};
///
/// let config = Config::default()
///     .share_memory_buffer_cap(64 << 20)
///     .buffer_slice_sizes([SizePercentPair { size: 4096, percent: 70 }, SizePercentPair { size: 65_536, percent: 30 }])
///     .mem_map_type(MemMapType::DevShmFile);
/// config.verify()?;
///
/// let error = config.queue_cap(1000).verify().unwrap_err();
/// assert_eq!(error.to_string(), "Config::queue_cap is 1000: choose a multiple of 16, 1008 for example");
/// # Ok::<(), partywall_shmipc::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct Config {
    pub(crate) queue_cap: u32,
    pub(crate) share_memory_buffer_cap: u32,
    pub(crate) share_memory_path_prefix: String,
    pub(crate) buffer_slice_sizes: Vec<SizePercentPair>,
    pub(crate) mem_map_type: MemMapType,
    pub(crate) session_num: usize,
    pub(crate) max_stream_num: usize,
    pub(crate) rebuild_interval: Duration,
    pub(crate) monitor: Option<Arc<dyn Monitor>>,
    pub(crate) monitor_interval: Duration,

    pub(crate) region_bytes_max: u32,
    pub(crate) queue_entries_max: u32,
    pub(crate) directory: PathBuf,
    pub(crate) fallback_unread_max: u64,
    pub(crate) fallback_message_max: u32,
    pub(crate) guards_truncation: bool,
    pub(crate) files_of_strangers: bool,
}

/// A class of slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizePercentPair {
    /// How much fits into each, in bytes; a multiple of 4.
    pub size: u32,
    /// How much of the region they take, in percent.
    pub percent: u32,
}

/// How a client shares its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemMapType {
    /// As files, in version 2: the server opens them by their paths, and does not say whether it could. Either side
    /// removes them when it has no session left that has them; they outlive both processes if both are killed, until the
    /// next client of ours with the same prefix makes its own.
    DevShmFile,
    /// As descriptors, in version 3. Only a Unix socket carries them.
    #[default]
    MemFd,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            queue_cap: 8192,
            share_memory_buffer_cap: 32 << 20,
            share_memory_path_prefix: "/dev/shm/shmipc".into(),
            buffer_slice_sizes: vec![
                SizePercentPair { size: 8172, percent: 50 },
                SizePercentPair { size: 32_748, percent: 30 },
                SizePercentPair { size: 131_052, percent: 20 },
            ],
            mem_map_type: MemMapType::default(),
            session_num: 1,
            max_stream_num: 4096,
            rebuild_interval: Duration::from_secs(60),
            monitor: None,
            monitor_interval: Duration::from_secs(30),
            region_bytes_max: 1 << 30,
            queue_entries_max: 1 << 20,
            directory: "/dev/shm".into(),
            fallback_unread_max: 64 << 20,
            fallback_message_max: PAYLOAD_BYTES_MAX,
            guards_truncation: true,
            files_of_strangers: false,
        }
    }
}

/// What peers have too.
impl Config {
    /// How many elements fit into the queue of each direction: that many messages can be under way. A multiple
    /// of 16, so that no counter in the second queue crosses a cache line. Default: 8192, which take 192 KiB.
    #[must_use]
    pub const fn queue_cap(mut self, entries: u32) -> Self {
        self.queue_cap = entries;
        self
    }

    /// How large the region of buffers is, in bytes; 1 MiB at least, with slices chosen for it: the default ones need
    /// 1,310,836 bytes, 1.25 MiB and some, since there have to be two of each. Both directions of all sessions of a pool
    /// share it. At most [`region_bytes_max`](Self::region_bytes_max). Default: 32 MiB.
    #[must_use]
    pub const fn share_memory_buffer_cap(mut self, bytes: u32) -> Self {
        self.share_memory_buffer_cap = bytes;
        self
    }

    /// What the names of regions begin with; in front of what makes them unique. With files it is a path, where
    /// the files are made. Default: `/dev/shm/shmipc`.
    #[must_use]
    pub fn share_memory_path_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.share_memory_path_prefix = prefix.into();
        self
    }

    /// Which slices the region is cut into; in any order, 100 % together. A message takes as many as it needs, and
    /// each has 20 bytes besides. Default: 50 % in slices of 8172 bytes, 30 % of 32,748, 20 % of 131,052.
    #[must_use]
    pub fn buffer_slice_sizes(mut self, classes: impl Into<Vec<SizePercentPair>>) -> Self {
        self.buffer_slice_sizes = classes.into();
        self
    }

    /// How a client shares its memory. Default: [`MemMapType::MemFd`]; that of shmipc-go is
    /// [`MemMapType::DevShmFile`]. A server takes either.
    #[must_use]
    pub const fn mem_map_type(mut self, mem_map_type: MemMapType) -> Self {
        self.mem_map_type = mem_map_type;
        self
    }

    /// How many sessions a pool, a `SessionManager`, keeps. Default: 1.
    #[must_use]
    pub const fn session_num(mut self, sessions: usize) -> Self {
        self.session_num = sessions;
        self
    }

    /// How many idle streams a pool keeps for each session. Default: 4096.
    #[must_use]
    pub const fn max_stream_num(mut self, streams: usize) -> Self {
        self.max_stream_num = streams;
        self
    }

    /// How long a pool waits before it replaces a session that broke; not at all if none is left and somebody asks for a
    /// stream. Default: 60 s.
    #[must_use]
    pub const fn rebuild_interval(mut self, interval: Duration) -> Self {
        self.rebuild_interval = interval;
        self
    }

    /// Who is told the counters of each session, every [`monitor_interval`](Self::monitor_interval) and at its end.
    /// Default: nobody.
    #[must_use]
    pub fn monitor(mut self, monitor: Arc<dyn Monitor>) -> Self {
        self.monitor = Some(monitor);
        self
    }

    /// How often the [`monitor`](Self::monitor) is told, at most: it is told when a session comes to rest after
    /// traffic, not by a timer, so an idle session says nothing until [`tell_monitor`](crate::Shmipc::tell_monitor) is
    /// called. A `SessionManager` calls it in time. Default: 30 s, which peers do not let one choose.
    #[must_use]
    pub const fn monitor_interval(mut self, interval: Duration) -> Self {
        self.monitor_interval = interval;
        self
    }
}

/// What peers do not have: bounds.
impl Config {
    /// The largest region that a client may make us map, in bytes. Default: 1 GiB.
    #[must_use]
    pub const fn region_bytes_max(mut self, bytes: u32) -> Self {
        self.region_bytes_max = bytes;
        self
    }

    /// The longest queue that a client may make us map, in elements of each direction. Default: 1,048,576, which take
    /// 24 MiB.
    #[must_use]
    pub const fn queue_entries_max(mut self, entries: u32) -> Self {
        self.queue_entries_max = entries;
        self
    }

    /// Where a server opens the files that clients name; nothing outside it, and nothing that is mounted beneath it.
    /// It should lie in memory: what lies on a disk is slower, and a session waits where the disk does. Default:
    /// `/dev/shm`.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = directory.into();
        self
    }

    /// How many bytes that came by the socket may lie unread on our heap, for all streams of a session together;
    /// beyond that the socket is not read. Default: 64 MiB.
    #[must_use]
    pub const fn fallback_unread_max(mut self, bytes: u64) -> Self {
        self.fallback_unread_max = bytes;
        self
    }

    /// How much data goes by the socket in one message, in bytes. What is longer we send in several; a peer's
    /// longer one ends the session. Default: 32 MiB - 16, which is the most that peers accept.
    #[must_use]
    pub const fn fallback_message_max(mut self, bytes: u32) -> Self {
        self.fallback_message_max = bytes;
        self
    }

    /// Whether a server opens the files that a client names of whom nobody knows who it is, as over TCP. It could name
    /// files that belong to others of our own; so these are left behind, where those of a known client are removed with its
    /// last session. Default: no; over a Unix socket, the system says who it is.
    #[must_use]
    pub const fn files_of_strangers(mut self, opens: bool) -> Self {
        self.files_of_strangers = opens;
        self
    }

    /// Whether we guard ourselves against regions that get shorter while we have them mapped, which peers do not
    /// prevent: without it, such a peer ends our process. Default: `true`.
    #[must_use]
    pub const fn guard_against_truncation(mut self, guards: bool) -> Self {
        self.guards_truncation = guards;
        self
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("queue_cap", &self.queue_cap)
            .field("share_memory_buffer_cap", &self.share_memory_buffer_cap)
            .field("share_memory_path_prefix", &self.share_memory_path_prefix)
            .field("buffer_slice_sizes", &self.buffer_slice_sizes)
            .field("mem_map_type", &self.mem_map_type)
            .field("session_num", &self.session_num)
            .field("max_stream_num", &self.max_stream_num)
            .field("rebuild_interval", &self.rebuild_interval)
            .field("has_monitor", &self.monitor.is_some())
            .field("monitor_interval", &self.monitor_interval)
            .field("region_bytes_max", &self.region_bytes_max)
            .field("queue_entries_max", &self.queue_entries_max)
            .field("directory", &self.directory)
            .field("fallback_unread_max", &self.fallback_unread_max)
            .field("fallback_message_max", &self.fallback_message_max)
            .field("guards_truncation", &self.guards_truncation)
            .finish()
    }
}
