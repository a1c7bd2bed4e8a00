// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings of a listener or a connecting side. Each resource has a bound.
//!
//! The defaults need no sizing: a channel begins with 128 KiB and allocates more for large
//! messages, up to [`memory_max`](Config::memory_max).

use crate::error::ConfigError;
use crate::peer::Admission;
use partywall_layout::Geometry;
use partywall_wait::Wait;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Which transport a connection may use; [`Channel::transport`](crate::Channel::transport) returns
/// the one that it does use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TransportPolicy {
    /// Use shared memory if both sides can share it, and the socket otherwise. [`Begin`] says which
    /// of them carries the first messages.
    #[default]
    Auto,
    /// Use shared memory. Connecting fails with the reason if memory cannot be shared.
    SharedMemory,
    /// Use the socket, even if memory could be shared.
    Socket,
}

/// Where the records of a new connection travel at first, if its two sides can share memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Begin {
    /// A session begins as with [`Socket`](Self::Socket), a channel as with
    /// [`SharedMemory`](Self::SharedMemory).
    ///
    /// Both sides of a session always receive, so every session can move to shared memory, and many
    /// sessions are short. A channel usually lives long. A channel whose listening side only sends
    /// could not move.
    #[default]
    Auto,
    /// The handshake shares memory, before the first message.
    ///
    /// It pays for long connections whose first messages must be as fast as the later ones, or on
    /// which the listening side only sends.
    SharedMemory,
    /// The first messages travel on the Unix socket. The connection moves to shared memory while it
    /// runs, once that pays: after 8 messages in each direction or 128 in both together, at a
    /// message longer than 16 KiB, or at a message that is sent 1 ms or more after the connection
    /// was opened. A listener that does not trust the connecting side shares memory in the
    /// handshake instead.
    ///
    /// A connection with one message takes about a third of the time to open, use and close, and
    /// one with many messages takes as long as with [`SharedMemory`](Self::SharedMemory).
    Socket,
}

/// How `send` treats a message while the ring or the shared memory has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum BackPressure {
    /// `send` blocks until there is room or its deadline, if any, has passed.
    #[default]
    Block,
    /// `send` does not block: it returns [`SendError::Full`](crate::SendError::Full), and the
    /// message is not sent.
    Error,
    /// When shared memory is exhausted, `send` copies the message through the ring in fragments.
    /// Messages stay in order, and a later message that finds free memory is zero-copy again. While
    /// the *ring* is full, `send` blocks.
    Overflow,
}

/// How far this side trusts the other process; see `SECURITY.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TrustPolicy {
    /// [`Trust::Trusted`](crate::Trust::Trusted) if the other process certainly runs as the same
    /// user in the same namespaces, [`Trust::Untrusted`](crate::Trust::Untrusted) otherwise.
    #[default]
    Auto,
    /// Trusts the processes that [`Auto`](Self::Auto) trusts, and also processes of the own user in
    /// other pid and user namespaces: containers on one machine. The kernel reports the peer's user
    /// as this process's namespace numbers it. A peer is not trusted if the kernel gives this side
    /// no descriptor of its process (pidfd).
    OwnUser,
    /// Trust every peer as if it ran as the same user: received messages are views of memory that
    /// the peer could change.
    Trusted,
    /// Do not trust the peer: every message is copied before it is checked and returned.
    Untrusted,
}

/// The callback of a listener that gets the reason for each refused connection.
pub(crate) type OnRefused = Arc<dyn Fn(&crate::HandshakeError) + Send + Sync>;

/// The settings of one side of a connection. Each setting has a default.
///
/// ```
/// use partywall::{Config, Wait};
/// use std::time::Duration;
///
/// let config = Config::default().wait(Wait::Spin).handshake_timeout(Duration::from_secs(1));
/// # let _ = config;
/// ```
#[derive(Clone)]
pub struct Config {
    pub(crate) transport: TransportPolicy,
    pub(crate) begin: Begin,
    pub(crate) back_pressure: BackPressure,
    pub(crate) trust: TrustPolicy,
    pub(crate) admission: Option<Admission>,
    pub(crate) wait: Wait,
    pub(crate) spin_budget: Duration,
    pub(crate) handshake_timeout: Duration,
    pub(crate) handshakes_max: usize,
    pub(crate) backlog: i32,
    pub(crate) ring_bytes: u64,
    pub(crate) peer_blocks_max: u64,
    pub(crate) memory_max: u64,
    pub(crate) message_max: Option<u64>,
    pub(crate) map_max: Option<u64>,
    pub(crate) segments_max: u32,
    pub(crate) inline_max: usize,
    pub(crate) idle_memory_timeout: Duration,
    pub(crate) stream_window: u64,
    pub(crate) streams_max: u32,
    pub(crate) linger: Duration,
    pub(crate) socket_mode: u32,
    pub(crate) allow_remote: bool,
    pub(crate) on_refused: Option<OnRefused>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            transport: TransportPolicy::Auto,
            begin: Begin::Auto,
            back_pressure: BackPressure::Block,
            trust: TrustPolicy::Auto,
            admission: None,
            wait: Wait::Adaptive,
            spin_budget: Duration::from_micros(50),
            handshake_timeout: Duration::from_secs(5),
            handshakes_max: 64,
            backlog: 128,
            ring_bytes: 64 << 10,
            peer_blocks_max: 1024,
            memory_max: 64 << 20,
            message_max: None,
            map_max: None,
            segments_max: 32,
            inline_max: 1024,
            idle_memory_timeout: Duration::from_secs(5),
            stream_window: 256 << 10,
            streams_max: 1024,
            linger: Duration::from_secs(5),
            socket_mode: 0o600,
            allow_remote: false,
            on_refused: None,
        }
    }
}

/// The default of `map_max` is `memory_max` plus this number of bytes. The addition lets this side
/// map the peer's region as well as the peer's further segments.
const REGION_ALLOWANCE: u64 = 1 << 20;

impl Config {
    /// Sets the transport to use. Default: [`TransportPolicy::Auto`].
    #[must_use]
    pub const fn transport(mut self, policy: TransportPolicy) -> Self {
        self.transport = policy;
        self
    }

    /// For a connecting side: sets where the first messages travel. A listener accepts both ways,
    /// unless its [`transport`](Self::transport) is not [`TransportPolicy::Auto`]. Default:
    /// [`Begin::Auto`].
    ///
    /// [`Begin::Socket`] has no effect with another transport policy, over TCP, or if the listener
    /// does not accept it.
    #[must_use]
    pub const fn begin(mut self, begin: Begin) -> Self {
        self.begin = begin;
        self
    }

    /// Sets how `send` treats a message while there is no room. Default: [`BackPressure::Block`].
    #[must_use]
    pub const fn back_pressure(mut self, policy: BackPressure) -> Self {
        self.back_pressure = policy;
        self
    }

    /// Sets how far this side trusts the other process. Default: [`TrustPolicy::Auto`].
    #[must_use]
    pub const fn trust(mut self, policy: TrustPolicy) -> Self {
        self.trust = policy;
        self
    }

    /// Sets which processes may be the peer. Default: all processes that have access to the
    /// address. An abstract address has no permissions, so its default admits only processes of the
    /// own user. A connecting side applies the rule to the listener as well, because any process
    /// could have bound an abstract name.
    ///
    /// TCP carries no credentials: a side with an admission rule refuses all TCP peers.
    #[must_use]
    pub fn admit(mut self, admission: Admission) -> Self {
        self.admission = Some(admission);
        self
    }

    /// Sets how sender and receiver of a new connection wait. `set_wait` of the sender or of the
    /// receiver changes its wait later. Default: [`Wait::Adaptive`].
    #[must_use]
    pub const fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// Sets for how long [`Wait::Adaptive`] spins before it sleeps. A call that spins for longer
    /// than 2 ms checks its deadline, and whether the peer lives, every 2 ms. Default: 50 µs.
    #[must_use]
    pub const fn spin_budget(mut self, budget: Duration) -> Self {
        self.spin_budget = budget;
        self
    }

    /// Sets how long a handshake may take, at most a year. Default: 5 s.
    #[must_use]
    pub const fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self
    }

    /// Sets for how many connections a listener drives the handshake at a time. Default: 64.
    /// Further connections wait in the backlog. A waiting connection replaces one whose peer has
    /// sent nothing for 100 ms.
    #[must_use]
    pub const fn handshakes_max(mut self, count: usize) -> Self {
        self.handshakes_max = count;
        self
    }

    /// Sets how many connections the kernel queues until the listener accepts them. Default: 128.
    #[must_use]
    pub const fn backlog(mut self, count: i32) -> Self {
        self.backlog = count;
        self
    }

    /// Sets the size of the ring of sent messages, in bytes: a power of two from 4 KiB to 1 GiB. An
    /// inline message takes at most a quarter of the ring. Default: 64 KiB.
    #[must_use]
    pub const fn ring_bytes(mut self, bytes: u64) -> Self {
        self.ring_bytes = bytes;
        self
    }

    /// Sets how many large messages of the peer this side can hold at a time, unread ones included:
    /// a power of two from 8 to 1,048,576. Default: 1,024.
    ///
    /// The setting also bounds the list, in private memory, of the sent messages whose memory the
    /// peer still holds. At most this many large messages are in flight to the peer, or 1,024 if
    /// that is more, and never more than 65,536. To have more than 1,024 in flight, raise the
    /// setting on both sides.
    #[must_use]
    pub const fn peer_blocks_max(mut self, entries: u64) -> Self {
        self.peer_blocks_max = entries;
        self
    }

    /// Sets the limit of memory for large sent messages, in bytes, in addition to the 128 KiB of a
    /// channel. This memory is allocated when a message needs it and freed when idle. Default: 64
    /// MiB.
    ///
    /// The value is also the default of two limits for what this side receives:
    /// [`message_max`](Self::message_max), the longest message, and [`map_max`](Self::map_max), the
    /// mapped memory of the peer. For messages of 1 GiB, set `memory_max` above 1 GiB on both
    /// sides.
    #[must_use]
    pub const fn memory_max(mut self, bytes: u64) -> Self {
        self.memory_max = bytes;
        self
    }

    /// Sets the length of the longest received message, in bytes. Default:
    /// [`memory_max`](Self::memory_max).
    #[must_use]
    pub const fn message_max(mut self, bytes: u64) -> Self {
        self.message_max = Some(bytes);
        self
    }

    /// Sets how much memory of the peer this side maps, in bytes, the peer's region included.
    /// Default: [`memory_max`](Self::memory_max) plus 1 MiB.
    #[must_use]
    pub const fn map_max(mut self, bytes: u64) -> Self {
        self.map_max = Some(bytes);
        self
    }

    /// Sets how many memory segments of the peer this side maps at a time. Default: 32.
    #[must_use]
    pub const fn segments_max(mut self, count: u32) -> Self {
        self.segments_max = count;
        self
    }

    /// Sets the length in bytes up to which messages are inline: copied into the ring and out of
    /// the ring, without a block. Longer messages are zero-copy. Default: 1,024. The streams of a
    /// session use at most 512.
    #[must_use]
    pub const fn inline_max(mut self, bytes: usize) -> Self {
        self.inline_max = bytes;
        self
    }

    /// Sets how long a memory segment stays unused before the sender may free it. The sender frees
    /// such segments at its next large message or in [`Sender::trim`](crate::Sender::trim).
    /// Default: 5 s.
    #[must_use]
    pub const fn idle_memory_timeout(mut self, idle: Duration) -> Self {
        self.idle_memory_timeout = idle;
        self
    }

    /// For sessions: sets how many bytes of one stream may be unread at this side before the peer's
    /// sender waits. A single message may be longer. Default: 256 KiB.
    #[must_use]
    pub const fn stream_window(mut self, bytes: u64) -> Self {
        self.stream_window = bytes;
        self
    }

    /// For sessions: sets how many streams opened by the peer may exist at a time. At the limit,
    /// the peer waits before it opens another. Default: 1,024.
    ///
    /// Unread bytes at this side are at most `streams_max` times
    /// [`stream_window`](Self::stream_window).
    #[must_use]
    pub const fn streams_max(mut self, count: u32) -> Self {
        self.streams_max = count;
        self
    }

    /// For sessions: sets how long an ended session waits, in all, for the peer to take the bytes
    /// that are still to be written. After that the session drops the rest. The limit matters only
    /// if the process of the peer is stopped: the session of a running process always reads.
    /// Default: 5 s.
    ///
    /// Over shared memory, only the ends of streams wait to be written, never messages. Over a
    /// socket, sent bytes that the kernel has not accepted wait too; closing may take up to 2 s
    /// more. Over another protocol, ring elements that the peer has not taken wait too; over TCP,
    /// the session also waits for the peer's hang-up.
    #[must_use]
    pub const fn linger(mut self, time: Duration) -> Self {
        self.linger = time;
        self
    }

    /// Sets the permission bits of the socket file. Default: 0600, access for the own user only.
    #[must_use]
    pub const fn socket_mode(mut self, mode: u32) -> Self {
        self.socket_mode = mode;
        self
    }

    /// Allows a `tcp:` listener to bind an address that other hosts can reach. TCP connections are
    /// neither authenticated nor encrypted. Default: loopback only.
    #[must_use]
    pub const fn allow_remote(mut self, allow: bool) -> Self {
        self.allow_remote = allow;
        self
    }

    /// Sets a callback that gets the reason for each connection that a listener refused.
    #[must_use]
    pub fn on_refused(
        mut self,
        callback: impl Fn(&crate::HandshakeError) + Send + Sync + 'static,
    ) -> Self {
        self.on_refused = Some(Arc::new(callback));
        self
    }

    /// For implementations of other protocols: returns how `send` treats a message while there is
    /// no room.
    #[must_use]
    pub const fn back_pressure_policy(&self) -> BackPressure {
        self.back_pressure
    }

    pub(crate) fn message_max_effective(&self) -> u64 {
        self.message_max.unwrap_or(self.memory_max)
    }

    pub(crate) fn streams_max_effective(&self) -> u32 {
        self.streams_max.min(STREAMS_MAX)
    }

    pub(crate) fn map_max_effective(&self) -> u64 {
        self.map_max.unwrap_or(self.memory_max.saturating_add(REGION_ALLOWANCE))
    }

    pub(crate) fn geometry(&self) -> Result<Geometry, ConfigError> {
        let wrong = |setting, found: u64, wanted| ConfigError { setting, found, wanted };
        let Some(geometry) = Geometry::new(self.ring_bytes, self.peer_blocks_max, SLAB_BYTES_MIN)
        else {
            let power_of_two = "a power of two from 4096 to 1073741824";
            if Geometry::new(self.ring_bytes, 8, 0).is_none() {
                return Err(wrong("ring_bytes", self.ring_bytes, power_of_two));
            }
            let wanted = "a power of two from 8 to 1048576";
            return Err(wrong("peer_blocks_max", self.peer_blocks_max, wanted));
        };
        if self.inline_max as u64 > geometry.ring.payload_max() {
            let wanted = "at most a quarter of ring_bytes, less 16";
            return Err(wrong("inline_max", self.inline_max as u64, wanted));
        }
        if self.handshakes_max == 0 {
            return Err(wrong("handshakes_max", 0, "at least 1"));
        }
        Ok(geometry)
    }
}

/// Upper bound of `streams_max`: a session keeps one entry in memory for each possible stream.
pub(crate) const STREAMS_MAX: u32 = 1 << 20;

/// Smallest slab of a region, in bytes. The size of a region is rounded up to 64 KiB, and the slab
/// gets the added bytes. With the default sizes the whole region takes 128 KiB: allocating it is a
/// large part of the time of opening a connection.
const SLAB_BYTES_MIN: u64 = 48 << 10;

/// Prints each setting with its value, under the name of the function that sets it.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("transport", &self.transport)
            .field("begin", &self.begin)
            .field("back_pressure", &self.back_pressure)
            .field("trust", &self.trust)
            .field("wait", &self.wait)
            .field("spin_budget", &self.spin_budget)
            .field("handshake_timeout", &self.handshake_timeout)
            .field("handshakes_max", &self.handshakes_max)
            .field("backlog", &self.backlog)
            .field("ring_bytes", &self.ring_bytes)
            .field("peer_blocks_max", &self.peer_blocks_max)
            .field("memory_max", &self.memory_max)
            .field("message_max", &self.message_max_effective())
            .field("map_max", &self.map_max_effective())
            .field("segments_max", &self.segments_max)
            .field("inline_max", &self.inline_max)
            .field("idle_memory_timeout", &self.idle_memory_timeout)
            .field("stream_window", &self.stream_window)
            .field("streams_max", &self.streams_max)
            .field("linger", &self.linger)
            .field("socket_mode", &format_args!("{:#o}", self.socket_mode))
            .field("allow_remote", &self.allow_remote)
            .finish_non_exhaustive()
    }
}
