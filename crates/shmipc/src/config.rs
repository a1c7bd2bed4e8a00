// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings of a session over shmipc, under the names that users of shmipc know.
//!
//! ```text
//!   share_memory_buffer_cap                                 one region of buffers for a pool
//!   ├── buffer_slice_sizes[0], 50 % ──┼── [1], 30 % ──┼─ [2], 20 % ─┤
//!   queue_cap  × 12 bytes  × 2 directions                   one region of queues per session
//!
//!   region  │ 8 │ 36 + n·(size + 20) │ 36 + n·(size + 20) │ … │ unused
//!               └ n slices: percent of the class × region / (size + 20), at least 2
//! ```
//!
//! The first group of [`Config`] has the names and defaults of the other implementations, shmipc-go
//! and the crate `shmipc`. One default differs: this crate shares memfds where shmipc-go shares
//! files. The client decides everything about memory, and a server accepts the client's decision.
//! Only this crate has the second group: limits on the resources that a peer may make this process
//! use.
//!
//! In the picture, 8, 36 and 20 bytes are the headers of the region, of a class and of a slice. A
//! pool is the sessions that one `SessionManager` keeps to its server. Some settings of the other
//! implementations are absent. Those implementations overwrite `queue_path`, and do not use
//! `connection_read_timeout`, `connection_timeout` and `stream_max_idle_time`. Settings of version
//! 4 are absent too. Sessions have the following settings in [`partywall::Config`]:
//!
//! | shmipc-go | this crate |
//! |---|---|
//! | `initialize_timeout`, 1 s | [`handshake_timeout`](partywall::Config::handshake_timeout), 5 s |
//! | `connection_write_timeout`, 10 s | [`linger`](partywall::Config::linger), only at the end |
//! | retries with a full queue, 100 ms | [`back_pressure`](partywall::Config::back_pressure) |
//!
//! No value is rounded. [`verify`](Config::verify) refuses values that contradict each other, and
//! says which value to choose. Other implementations check less, and round values. They accept
//! values that they cannot use: two classes of one size, a class with one slice, an empty queue.
//! This crate refuses such values. Whether the system has enough memory shows only when the memory
//! is allocated.

use crate::frame::PAYLOAD_BYTES_MAX;
use crate::memory::names::{NameError, Naming};
use crate::transport::metrics::Monitor;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The settings of one side of a session, with a default for each.
///
/// ```
/// use partywall_shmipc::{Config, MemMapType, SizePercentPair};
///
/// let small = SizePercentPair { size: 4096, percent: 70 };
/// let large = SizePercentPair { size: 65_536, percent: 30 };
/// let config = Config::default()
///     .share_memory_buffer_cap(64 << 20)
///     .buffer_slice_sizes([small, large])
///     .mem_map_type(MemMapType::DevShmFile);
/// config.verify()?;
///
/// let error = config.queue_cap(1000).verify().unwrap_err();
/// let advice = "Config::queue_cap is 1000: choose a multiple of 16, 1008 for example";
/// assert_eq!(error.to_string(), advice);
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
    pub(crate) files_without_credentials: bool,
}

/// A class of slices: the size of its slices, and the share of the region that they get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizePercentPair {
    /// Capacity of each slice of the class, in bytes; a multiple of 4.
    pub size: u32,
    /// Share of the region that the class gets, in percent.
    pub percent: u32,
}

/// How a client shares its regions of memory with the server: as memfds or as files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemMapType {
    /// Shares the regions as files, in version 2 of the protocol. The server opens the files by
    /// path, and does not tell the client whether it could open them. Either side removes them when
    /// its last session with these files ends. If both processes are killed, the files remain until
    /// a client of this crate with the same prefix creates its own files.
    DevShmFile,
    /// Shares the regions as descriptors of memfds, in version 3 of the protocol. Only a Unix
    /// socket carries descriptors.
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
            files_without_credentials: false,
        }
    }
}

/// Settings that the other implementations of shmipc have as well.
impl Config {
    /// Capacity of the queue of each direction, in elements; each message takes one element. It
    /// must be a multiple of 16, so that no counter of the second queue crosses a cache line.
    /// Default: 8192, which take 192 KiB.
    #[must_use]
    pub const fn queue_cap(mut self, entries: u32) -> Self {
        self.queue_cap = entries;
        self
    }

    /// Size of the region of buffers, in bytes. All sessions of one `SessionManager` share the
    /// region, for both directions. Each class needs at least two slices, so the default classes
    /// need 1,310,836 bytes. The size must be at least 1 MiB, and at most
    /// [`region_bytes_max`](Self::region_bytes_max). Default: 32 MiB.
    #[must_use]
    pub const fn share_memory_buffer_cap(mut self, bytes: u32) -> Self {
        self.share_memory_buffer_cap = bytes;
        self
    }

    /// Prefix of the names of regions. If memory is shared as files, the prefix is a path, and the
    /// files are created at that path. Default: `/dev/shm/shmipc`.
    #[must_use]
    pub fn share_memory_path_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.share_memory_path_prefix = prefix.into();
        self
    }

    /// The classes of slices in the region, in any order; their shares together must be 100 %. A
    /// message takes as many slices as it needs, and each slice has a header of 20 bytes. Default:
    /// 50 % in slices of 8172 bytes, 30 % of 32,748, 20 % of 131,052.
    #[must_use]
    pub fn buffer_slice_sizes(mut self, classes: impl Into<Vec<SizePercentPair>>) -> Self {
        self.buffer_slice_sizes = classes.into();
        self
    }

    /// How a client shares its memory; a server accepts either kind. Default:
    /// [`MemMapType::MemFd`]; the default of shmipc-go is [`MemMapType::DevShmFile`].
    #[must_use]
    pub const fn mem_map_type(mut self, mem_map_type: MemMapType) -> Self {
        self.mem_map_type = mem_map_type;
        self
    }

    /// Number of sessions that a `SessionManager` keeps to its server. Default: 1.
    #[must_use]
    pub const fn session_num(mut self, sessions: usize) -> Self {
        self.session_num = sessions;
        self
    }

    /// Number of idle streams that a `SessionManager` keeps for each session, to hand them out
    /// again. Default: 4096.
    #[must_use]
    pub const fn max_stream_num(mut self, streams: usize) -> Self {
        self.max_stream_num = streams;
        self
    }

    /// How long a `SessionManager` waits before it replaces a broken session. If no session is
    /// left, a request for a stream connects at once. Default: 60 s.
    #[must_use]
    pub const fn rebuild_interval(mut self, interval: Duration) -> Self {
        self.rebuild_interval = interval;
        self
    }

    /// The monitor that receives the counters of each session, every
    /// [`monitor_interval`](Self::monitor_interval) and at the session's end. Default: no monitor.
    #[must_use]
    pub fn monitor(mut self, monitor: Arc<dyn Monitor>) -> Self {
        self.monitor = Some(monitor);
        self
    }

    /// The shortest time between two reports of a session to the [`monitor`](Self::monitor). A
    /// session reports when it becomes idle after traffic, not by a timer. So an idle session
    /// reports nothing until [`tell_monitor`](crate::Shmipc::tell_monitor) is called; a
    /// `SessionManager` calls it once the interval has elapsed. Default: 30 s, which is a constant
    /// in the other implementations.
    #[must_use]
    pub const fn monitor_interval(mut self, interval: Duration) -> Self {
        self.monitor_interval = interval;
        self
    }
}

/// Limits on what a peer may make this process use. The other implementations of shmipc have no
/// such limits.
impl Config {
    /// The largest region that a client may make this server map, in bytes. Default: 1 GiB.
    #[must_use]
    pub const fn region_bytes_max(mut self, bytes: u32) -> Self {
        self.region_bytes_max = bytes;
        self
    }

    /// The longest queue that a client may make this server map, in elements of each direction.
    /// Default: 1,048,576, which take 24 MiB.
    #[must_use]
    pub const fn queue_entries_max(mut self, entries: u32) -> Self {
        self.queue_entries_max = entries;
        self
    }

    /// Directory in which a server opens the files that clients name. The server opens no file
    /// outside the directory, and none on another mount below it. The directory should be on a
    /// memory file system: on a disk, a session blocks on disk access. Default: `/dev/shm`.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = directory.into();
        self
    }

    /// Upper bound of unread bytes on this process's heap that arrived over the socket, for all
    /// streams of a session together. Above this limit the session does not read the socket.
    /// Default: 64 MiB.
    #[must_use]
    pub const fn fallback_unread_max(mut self, bytes: u64) -> Self {
        self.fallback_unread_max = bytes;
        self
    }

    /// The most data in one message on the socket, in bytes. More data is sent in several messages;
    /// a longer message of the peer ends the session. Default: 32 MiB - 16, the most that other
    /// implementations accept.
    #[must_use]
    pub const fn fallback_message_max(mut self, bytes: u32) -> Self {
        self.fallback_message_max = bytes;
        self
    }

    /// Whether a server opens files that are named by a client without credentials, such as a
    /// client over TCP. Such a client could name files of other users that this process may open.
    /// So the server does not remove these files at the end, unlike those of a client with
    /// credentials. Default: `false`; a Unix socket provides credentials.
    #[must_use]
    pub const fn files_without_credentials(mut self, opens: bool) -> Self {
        self.files_without_credentials = opens;
        self
    }

    /// Whether this process survives a peer that truncates a mapped region, which the other
    /// implementations do not prevent. If the setting is `false`, the truncation kills this
    /// process. Default: `true`.
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

/// A setting whose value is impossible, or does not fit the other settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// One setting has an impossible value.
    #[error("Config::{setting} is {found}: {advice}")]
    Setting {
        /// The name of the impossible setting.
        setting: &'static str,
        /// The impossible value, as text.
        found: String,
        /// A possible value that the caller could choose instead.
        advice: String,
    },
    /// The classes of slices (`buffer_slice_sizes`) are impossible, or do not fit the region.
    #[error("Config::buffer_slice_sizes has {found}: {advice}")]
    Classes {
        /// The refused classes of slices, and the fault in them, as text.
        found: String,
        /// The classes that the caller could choose instead, as text.
        advice: String,
    },
    /// The prefix of the regions' names (`share_memory_path_prefix`) is impossible.
    // The inner error is not the `source` of this one: the text of this error already contains its
    // text.
    #[error("Config::share_memory_path_prefix: {0}")]
    Name(NameError),
}

impl From<NameError> for ConfigError {
    fn from(error: NameError) -> Self {
        Self::Name(error)
    }
}

impl Config {
    /// Checks whether these settings are possible. A listener checks its settings when it is bound,
    /// and a client when it connects.
    ///
    /// # Errors
    /// A [`ConfigError`]: the first impossible setting, and the value to choose instead.
    pub fn verify(&self) -> Result<(), ConfigError> {
        self.verify_times()?;
        self.verify_queue()?;
        self.verify_classes()?;
        self.verify_places()?;
        self.verify_pool()?;
        self.verify_bounds()
    }

    fn verify_times(&self) -> Result<(), ConfigError> {
        let times = [
            ("rebuild_interval", self.rebuild_interval),
            ("monitor_interval", self.monitor_interval),
        ];
        match times.iter().find(|(_, time)| time.is_zero()) {
            Some((setting, _)) => refuse(setting, "0", "choose a time"),
            None => Ok(()),
        }
    }

    fn verify_queue(&self) -> Result<(), ConfigError> {
        let (setting, entries) = ("queue_cap", self.queue_cap);
        if entries == 0 || entries % QUEUE_CAP_MULTIPLE != 0 {
            let above = u64::from(entries / QUEUE_CAP_MULTIPLE + 1) * u64::from(QUEUE_CAP_MULTIPLE);
            let better = above.min(QUEUE_ENTRIES_MOST.into());
            return refuse(
                setting,
                entries,
                format!("choose a multiple of 16, {better} for example"),
            );
        }
        let most = self.queue_entries_max;
        if entries > most {
            return refuse(
                setting,
                entries,
                format!("choose at most queue_entries_max, {most}, or raise that"),
            );
        }
        if most > QUEUE_ENTRIES_MOST {
            return refuse(
                "queue_entries_max",
                most,
                format!("choose at most {QUEUE_ENTRIES_MOST}"),
            );
        }
        Ok(())
    }

    fn verify_classes(&self) -> Result<(), ConfigError> {
        let bytes = self.share_memory_buffer_cap;
        if bytes < BUFFER_CAP_MIN {
            let advice = format!("choose {BUFFER_CAP_MIN} or more");
            return refuse("share_memory_buffer_cap", bytes, advice);
        }
        let classes = &self.buffer_slice_sizes;
        if classes.is_empty() || classes.len() > CLASSES_MAX {
            let found = format!("{} classes", classes.len());
            return refuse_classes(found, format!("choose 1 to {CLASSES_MAX}"));
        }
        let percent: u64 = classes.iter().map(|class| u64::from(class.percent)).sum();
        if percent != 100 {
            return refuse_classes(
                format!("{percent} % together"),
                "let their percents sum to 100",
            );
        }
        for (index, class) in classes.iter().enumerate() {
            self.verify_class(*class)?;
            if classes[..index].iter().any(|other| other.size == class.size) {
                let found = format!("two classes of {} bytes", class.size);
                return refuse_classes(found, "make one of them, with the percents of both");
            }
        }
        Ok(())
    }

    fn verify_class(&self, class: SizePercentPair) -> Result<(), ConfigError> {
        let SizePercentPair { size, percent } = class;
        if size == 0 || size % SLICE_MULTIPLE != 0 {
            let better = u64::from(size / SLICE_MULTIPLE + 1) * u64::from(SLICE_MULTIPLE);
            let better = better.min(self.share_memory_buffer_cap.into());
            let advice = format!("choose a multiple of 4, {better} for example");
            return refuse_classes(format!("slices of {size} bytes"), advice);
        }
        if percent == 0 {
            let found = format!("0 % in slices of {size} bytes");
            return refuse_classes(found, "leave them out, or give them 1 % or more");
        }
        let slices = self.slices(class);
        if slices < SLICES_MIN {
            let found =
                format!("{percent} % in slices of {size} bytes, which are {slices} of them");
            let advice = match self.buffer_cap_needed() {
                Some(cap) => format!(
                    "at least {SLICES_MIN} are needed: choose smaller ones, more percent, or a share_memory_buffer_cap of at \
                     least {cap} bytes"
                ),
                None => format!(
                    "at least {SLICES_MIN} are needed: choose smaller ones, or more percent"
                ),
            };
            return refuse_classes(found, advice);
        }
        Ok(())
    }

    /// Number of slices that a class gets in the region, calculated as the other implementations
    /// do.
    fn slices(&self, class: SizePercentPair) -> u64 {
        let room = u64::from(self.share_memory_buffer_cap).saturating_sub(self.headers());
        room * u64::from(class.percent) / 100 / (u64::from(class.size) + SLICE_HEADER_BYTES)
    }

    fn headers(&self) -> u64 {
        REGION_HEADER_BYTES + LIST_HEADER_BYTES * self.buffer_slice_sizes.len() as u64
    }

    /// Size in bytes of the smallest region with enough slices of every class; `None` if no region
    /// can be that large.
    fn buffer_cap_needed(&self) -> Option<u32> {
        let room = |class: &SizePercentPair| {
            let bytes = SLICES_MIN * (u64::from(class.size) + SLICE_HEADER_BYTES);
            (bytes * 100).div_ceil(u64::from(class.percent).max(1))
        };
        let room = self.buffer_slice_sizes.iter().map(room).max()?;
        u32::try_from(self.headers() + room).ok()
    }

    fn verify_places(&self) -> Result<(), ConfigError> {
        let prefix = &self.share_memory_path_prefix;
        Naming::unique(prefix)?;
        if self.mem_map_type == MemMapType::DevShmFile && !prefix.starts_with('/') {
            let advice = "choose an absolute path, which means the same to the server";
            return refuse("share_memory_path_prefix", prefix, advice);
        }
        if !self.directory.is_absolute() {
            return refuse("directory", self.directory.display(), "choose an absolute path");
        }
        Ok(())
    }

    fn verify_pool(&self) -> Result<(), ConfigError> {
        let sessions = self.session_num;
        if !(1..=SESSIONS_MAX).contains(&sessions) {
            return refuse("session_num", sessions, format!("choose 1 to {SESSIONS_MAX}"));
        }
        let streams = self.max_stream_num;
        if streams > STREAMS_MAX {
            return refuse("max_stream_num", streams, format!("choose at most {STREAMS_MAX}"));
        }
        Ok(())
    }

    fn verify_bounds(&self) -> Result<(), ConfigError> {
        let region = self.region_bytes_max;
        if region < BUFFER_CAP_MIN {
            let advice =
                format!("choose {BUFFER_CAP_MIN} or more: clients have no smaller regions");
            return refuse("region_bytes_max", region, advice);
        }
        let own = self.share_memory_buffer_cap;
        if own > region {
            let advice = format!("choose at most region_bytes_max, {region}, or raise that");
            return refuse("share_memory_buffer_cap", own, advice);
        }
        let message = self.fallback_message_max;
        if !(FALLBACK_MESSAGE_MIN..=PAYLOAD_BYTES_MAX).contains(&message) {
            let advice = format!(
                "choose {FALLBACK_MESSAGE_MIN} to {PAYLOAD_BYTES_MAX}, which is the most that peers accept"
            );
            return refuse("fallback_message_max", message, advice);
        }
        let unread = self.fallback_unread_max;
        if unread < u64::from(message) {
            let advice = format!("choose fallback_message_max, {message}, or more");
            return refuse("fallback_unread_max", unread, advice);
        }
        Ok(())
    }
}

fn refuse(
    setting: &'static str,
    found: impl ToString,
    advice: impl Into<String>,
) -> Result<(), ConfigError> {
    Err(ConfigError::Setting { setting, found: found.to_string(), advice: advice.into() })
}

fn refuse_classes(found: impl Into<String>, advice: impl Into<String>) -> Result<(), ConfigError> {
    Err(ConfigError::Classes { found: found.into(), advice: advice.into() })
}

/// The capacity of a queue is a multiple of this number of elements, so that the counters of both
/// queues have the same alignment.
const QUEUE_CAP_MULTIPLE: u32 = 16;
/// Upper bound of a queue's capacity in elements. With this capacity, the queues of both directions
/// take 384 MiB.
const QUEUE_ENTRIES_MOST: u32 = 1 << 24;
/// Smallest allowed size of a region of buffers, in bytes; the other implementations have the same
/// bound.
const BUFFER_CAP_MIN: u32 = 1 << 20;
/// Largest number of classes of slices in a region. The format of other implementations can express
/// 65,535 classes; those implementations use three.
const CLASSES_MAX: usize = 64;
/// The capacity of a slice is a multiple of this number of bytes, so that all headers of slices are
/// aligned.
const SLICE_MULTIPLE: u32 = 4;
/// Smallest number of slices in a class: the last free slice of a class is never allocated, so one
/// slice alone would be of no use.
const SLICES_MIN: u64 = 2;
const SLICE_HEADER_BYTES: u64 = 20;
const LIST_HEADER_BYTES: u64 = 36;
const REGION_HEADER_BYTES: u64 = 8;
/// Largest value of the setting `session_num`, the number of sessions that a `SessionManager`
/// keeps.
const SESSIONS_MAX: usize = 1024;
/// Largest value of the setting `max_stream_num`, the number of idle streams that a
/// `SessionManager` keeps for each session.
const STREAMS_MAX: usize = 1 << 20;
/// Smallest value in bytes of the setting `fallback_message_max`, the most data in one message on
/// the socket: in shorter messages, headers and system calls would cost more than the data.
const FALLBACK_MESSAGE_MIN: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn refused(config: &Config) -> String {
        config.verify().expect_err("it was accepted").to_string()
    }

    fn classes(pairs: &[(u32, u32)]) -> Config {
        let pair =
            |(size, percent): &(u32, u32)| SizePercentPair { size: *size, percent: *percent };
        Config::default().buffer_slice_sizes(pairs.iter().map(pair).collect::<Vec<_>>())
    }

    #[test]
    fn the_defaults_are_possible_and_those_of_the_peers() {
        let config = Config::default();
        assert_eq!(config.verify(), Ok(()));
        let counts: Vec<u64> =
            config.buffer_slice_sizes.iter().map(|class| config.slices(*class)).collect();
        assert_eq!(counts, [2047, 307, 51]);
        assert_eq!(config.clone().mem_map_type(MemMapType::DevShmFile).verify(), Ok(()));
    }

    #[test]
    fn a_queue_has_a_multiple_of_16_entries() {
        for (entries, better) in [(0, 16), (8, 16), (8191, 8192), (8200, 8208), (u32::MAX, 1 << 24)]
        {
            let expected = format!(
                "Config::queue_cap is {entries}: choose a multiple of 16, {better} for example"
            );
            assert_eq!(refused(&Config::default().queue_cap(entries)), expected);
        }
        assert_eq!(
            refused(&Config::default().queue_cap(64).queue_entries_max(32)),
            "Config::queue_cap is 64: choose at most queue_entries_max, 32, or raise that"
        );
        assert_eq!(
            refused(&Config::default().queue_entries_max(u32::MAX)),
            "Config::queue_entries_max is 4294967295: choose at most 16777216"
        );
    }

    #[test]
    fn classes_fill_the_region_exactly_once() {
        assert_eq!(
            refused(&classes(&[])),
            "Config::buffer_slice_sizes has 0 classes: choose 1 to 64"
        );
        assert_eq!(
            refused(&classes(&[(4096, 50), (8192, 49)])),
            "Config::buffer_slice_sizes has 99 % together: let their percents sum to 100"
        );
        let wrapping = [(4096, u32::MAX), (8192, 101)];
        assert!(refused(&classes(&wrapping)).contains("4294967396 % together"));
        assert_eq!(
            refused(&classes(&[(4096, 50), (8192, 20), (4096, 30)])),
            "Config::buffer_slice_sizes has two classes of 4096 bytes: make one of them, with the percents of both"
        );
        assert_eq!(classes(&[(8192, 50), (4096, 50)]).verify(), Ok(()));
    }

    #[test]
    fn slices_are_aligned_and_never_alone() {
        for (size, better) in [(0, 4), (4094, 4096), (u32::MAX, 32 << 20)] {
            let expected = format!(
                "Config::buffer_slice_sizes has slices of {size} bytes: choose a multiple of 4, {better} for example"
            );
            assert_eq!(refused(&classes(&[(size, 100)])), expected);
        }
        let half = 16 << 20;
        assert_eq!(
            refused(&classes(&[(half, 100)])),
            "Config::buffer_slice_sizes has 100 % in slices of 16777216 bytes, which are 1 of them: at least 2 are needed: \
             choose smaller ones, more percent, or a share_memory_buffer_cap of at least 33554516 bytes"
        );
        // A region of 33,554,516 bytes is the smallest that has room for two slices of 16 MiB with
        // their headers.
        let roomy = classes(&[(half, 100)]).share_memory_buffer_cap(33_554_516);
        assert_eq!(roomy.verify(), Ok(()));
        assert!(refused(&roomy.share_memory_buffer_cap(33_554_515)).contains("33554516"));
        // A region has less than 4 GiB, so none has room for the two slices of nearly 4 GiB that
        // the class needs.
        let advice = refused(&classes(&[(u32::MAX - 3, 100)]));
        assert!(advice.ends_with("choose smaller ones, or more percent"), "{advice}");
        // A region of 32 MiB, less headers of 8 and 36 bytes, has room for two slices of 16,777,172
        // bytes with their headers, and 4 bytes more.
        assert_eq!(classes(&[(16_777_172, 100)]).verify(), Ok(()));
        assert!(refused(&classes(&[(16_777_176, 100)])).contains("which are 1 of them"));
        assert_eq!(
            refused(&classes(&[(4096, 100), (8192, 0)])),
            "Config::buffer_slice_sizes has 0 % in slices of 8192 bytes: leave them out, or give them 1 % or more"
        );
    }

    #[test]
    fn a_region_has_a_mebibyte_at_least() {
        let config = Config::default().share_memory_buffer_cap((1 << 20) - 1);
        assert_eq!(
            refused(&config),
            "Config::share_memory_buffer_cap is 1048575: choose 1048576 or more"
        );
        let config = config.share_memory_buffer_cap(1 << 20);
        // 1 MiB minus the headers has room for only one slice of the largest class, and a class
        // needs two.
        let advice = refused(&config);
        assert!(advice.contains("20 % in slices of 131052 bytes, which are 1 of them"), "{advice}");
        assert!(
            advice.ends_with("a share_memory_buffer_cap of at least 1310836 bytes"),
            "{advice}"
        );
        assert_eq!(config.clone().share_memory_buffer_cap(1_310_836).verify(), Ok(()));
        let class = SizePercentPair { size: 8192, percent: 100 };
        assert_eq!(config.buffer_slice_sizes([class]).verify(), Ok(()));
        assert!(refused(&Config::default().region_bytes_max(0)).contains("region_bytes_max"));
        assert_eq!(
            refused(&Config::default().region_bytes_max(16 << 20)),
            "Config::share_memory_buffer_cap is 33554432: choose at most region_bytes_max, 16777216, or raise that"
        );
    }

    #[test]
    fn names_and_places_can_be_found_by_the_other_side() {
        let config = Config::default().share_memory_path_prefix("shmipc");
        assert_eq!(config.verify(), Ok(()));
        assert_eq!(
            refused(&config.mem_map_type(MemMapType::DevShmFile)),
            "Config::share_memory_path_prefix is shmipc: choose an absolute path, which means the same to the server"
        );
        let long = Config::default().share_memory_path_prefix("x".repeat(180));
        assert!(refused(&long).contains("choose a shorter share_memory_path_prefix"));
        // Expected: the text of the error and the texts of its sources together name the fault only
        // once.
        let error = long.verify().unwrap_err();
        assert!(std::error::Error::source(&error).is_none(), "{error}");
        assert_eq!(
            refused(&Config::default().directory("shm")),
            "Config::directory is shm: choose an absolute path"
        );
    }

    #[test]
    fn fallback_limits_are_checked() {
        for bytes in [0, 4095, PAYLOAD_BYTES_MAX + 1] {
            let expected = format!(
                "Config::fallback_message_max is {bytes}: choose 4096 to 33554416, which is the most that peers accept"
            );
            assert_eq!(refused(&Config::default().fallback_message_max(bytes)), expected);
        }
        assert_eq!(
            refused(&Config::default().fallback_unread_max(1)),
            "Config::fallback_unread_max is 1: choose fallback_message_max, 33554416, or more"
        );
    }

    #[test]
    fn times_and_pools_are_something() {
        for config in [
            Config::default().rebuild_interval(Duration::ZERO),
            Config::default().monitor_interval(Duration::ZERO),
        ] {
            assert!(refused(&config).ends_with(" is 0: choose a time"));
        }
        assert_eq!(
            refused(&Config::default().session_num(0)),
            "Config::session_num is 0: choose 1 to 1024"
        );
        assert!(refused(&Config::default().max_stream_num(usize::MAX)).contains("max_stream_num"));
    }
}
