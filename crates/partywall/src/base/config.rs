// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a listener or a connecting side may choose, with a bound for everything.
//!
//! The defaults need no sizing: a channel begins with 192 KiB and takes more, up to
//! [`memory_max`](Config::memory_max), as messages ask for it.

use crate::error::ConfigError;
use crate::peer::Admission;
use partywall_layout::Geometry;
use partywall_wait::Wait;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Which transport to use (see [`Channel::transport`](crate::Channel::transport)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TransportPolicy {
    /// Shared memory where both sides can share it, the socket otherwise.
    #[default]
    Auto,
    /// Shared memory, or an error that says why not.
    SharedMemory,
    /// The socket, even where memory could be shared.
    Socket,
}

/// What happens to a message for which there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum BackPressure {
    /// `send` waits, until its deadline if it has one.
    #[default]
    Block,
    /// `send` returns [`SendError::Full`](crate::SendError::Full) at once.
    Error,
    /// When shared memory is exhausted, the message is copied through the ring in fragments; order is
    /// kept, and the next message that finds memory is zero-copy again. While the *ring* is full,
    /// `send` waits.
    Overflow,
}

/// How far the other process is trusted; see `SECURITY.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TrustPolicy {
    /// [`Trust::Trusted`](crate::Trust::Trusted) if the other process certainly runs as our own user in our
    /// own namespaces, [`Trust::Untrusted`](crate::Trust::Untrusted) otherwise.
    #[default]
    Auto,
    /// Trust it as one's own user: received messages are views of memory that it could change.
    Peer,
    /// Do not trust it: every message is copied before it is looked at.
    Untrusted,
}

/// Told of each connection that was not let in: whoever it was, and why.
pub(crate) type OnRefused = Arc<dyn Fn(&crate::HandshakeError) + Send + Sync>;

/// The choices of one side, with defaults for everything.
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

/// A half besides its slab segments: what `map_max` adds to the other side's `memory_max`.
const REGION_ALLOWANCE: u64 = 1 << 20;

impl Config {
    /// Which transport to use. Default: [`TransportPolicy::Auto`].
    #[must_use]
    pub const fn transport(mut self, policy: TransportPolicy) -> Self {
        self.transport = policy;
        self
    }

    /// What happens to a message for which there is no room. Default: [`BackPressure::Block`].
    #[must_use]
    pub const fn back_pressure(mut self, policy: BackPressure) -> Self {
        self.back_pressure = policy;
        self
    }

    /// How far the other process is trusted. Default: [`TrustPolicy::Auto`].
    #[must_use]
    pub const fn trust(mut self, policy: TrustPolicy) -> Self {
        self.trust = policy;
        self
    }

    /// Who may be on the other side. Default: whoever the address lets through; on an abstract
    /// address, which has no permissions, only our own user. That holds for who listens there, too:
    /// anybody could have taken the name.
    ///
    /// TCP carries no credentials: with an admission rule, TCP peers are refused.
    #[must_use]
    pub fn admit(mut self, admission: Admission) -> Self {
        self.admission = Some(admission);
        self
    }

    /// How both directions wait at first; each side changes its own at any time with `set_wait`.
    /// Default: [`Wait::Adaptive`].
    #[must_use]
    pub const fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// The longest that [`Wait::Adaptive`] spins before it sleeps. Default: 50 µs.
    #[must_use]
    pub const fn spin_budget(mut self, budget: Duration) -> Self {
        self.spin_budget = budget;
        self
    }

    /// How long a handshake may take in all, at most a year. Default: 5 s.
    #[must_use]
    pub const fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self
    }

    /// How many connections a listener sets up at a time; further ones wait in the backlog, and take the
    /// place of one that has said nothing for 100 ms. Default: 64.
    #[must_use]
    pub const fn handshakes_max(mut self, count: usize) -> Self {
        self.handshakes_max = count;
        self
    }

    /// How many connections may wait to be accepted. Default: 128.
    #[must_use]
    pub const fn backlog(mut self, count: i32) -> Self {
        self.backlog = count;
        self
    }

    /// Size of the ring we send through, in bytes: a power of two from 4 KiB to 1 GiB. One message
    /// inline takes at most a quarter of it. Default: 64 KiB.
    #[must_use]
    pub const fn ring_bytes(mut self, bytes: u64) -> Self {
        self.ring_bytes = bytes;
        self
    }

    /// How many large messages of the other side we can hold at a time, unread ones included: a
    /// power of two from 8 to 1,048,576. Default: 1,024.
    ///
    /// It also bounds the bookkeeping for our own messages: however many the other side would hold, it
    /// is given at most as many as this at a time, or 1,024 if that is more, and never more than
    /// 65,536. To have more large messages on the way than 1,024, raise this on both sides.
    #[must_use]
    pub const fn peer_blocks_max(mut self, entries: u64) -> Self {
        self.peer_blocks_max = entries;
        self
    }

    /// The most memory for large messages that we create to send, in bytes, besides the 192 KiB of
    /// a channel. It is taken as needed and given back when idle. Default: 64 MiB.
    ///
    /// Unless set apart, it is also the longest message received
    /// ([`message_max`](Self::message_max)) and what we map of the other side
    /// ([`map_max`](Self::map_max)): to pass one message of 1 GiB, set this above 1 GiB on both sides.
    #[must_use]
    pub const fn memory_max(mut self, bytes: u64) -> Self {
        self.memory_max = bytes;
        self
    }

    /// The longest message we receive, in bytes. Default: [`memory_max`](Self::memory_max).
    #[must_use]
    pub const fn message_max(mut self, bytes: u64) -> Self {
        self.message_max = Some(bytes);
        self
    }

    /// The most memory of the other side that we map, in bytes, its half included. Default:
    /// [`memory_max`](Self::memory_max) and 1 MiB.
    #[must_use]
    pub const fn map_max(mut self, bytes: u64) -> Self {
        self.map_max = Some(bytes);
        self
    }

    /// The most memory segments of the other side that we map at a time. Default: 32.
    #[must_use]
    pub const fn segments_max(mut self, count: u32) -> Self {
        self.segments_max = count;
        self
    }

    /// Messages up to this many bytes go inline, through the ring: copied at both ends, but without
    /// any bookkeeping. Longer ones are zero-copy. Default: 1,024. On the streams of a session at most
    /// 512.
    #[must_use]
    pub const fn inline_max(mut self, bytes: usize) -> Self {
        self.inline_max = bytes;
        self
    }

    /// Memory segments that were not used for this long go back to the system, at the next large
    /// message or [`Sender::trim`](crate::Sender::trim). Default: 5 s.
    #[must_use]
    pub const fn idle_memory_timeout(mut self, idle: Duration) -> Self {
        self.idle_memory_timeout = idle;
        self
    }

    /// Sessions: how much of a stream may lie unread on our side before its sender waits, in bytes. A
    /// single message may be longer. Default: 256 KiB.
    #[must_use]
    pub const fn stream_window(mut self, bytes: u64) -> Self {
        self.stream_window = bytes;
        self
    }

    /// Sessions: how many streams that the other side opened there may be at a time; further ones wait
    /// on the other side. Default: 1,024.
    ///
    /// What lies unread on our side is bounded by this times [`stream_window`](Self::stream_window).
    #[must_use]
    pub const fn streams_max(mut self, count: u32) -> Self {
        self.streams_max = count;
        self
    }

    /// Sessions: how long one that has ended here waits, in all, for the other side to take what it still
    /// has to write; what has not gone by then is given up. It matters only where the other process
    /// does not run: the session of one that does reads, whatever its applications do. Default: 5 s.
    ///
    /// Over shared memory no message waits, only ends of streams do. On a socket it is also what the
    /// kernel did not take yet of messages that were sent; there, closing may take up to 2 s more. Over a
    /// protocol it is also what the other side has not taken from the ring yet, and, over TCP, that it
    /// hangs up.
    #[must_use]
    pub const fn linger(mut self, time: Duration) -> Self {
        self.linger = time;
        self
    }

    /// Permission bits of the socket file. Default: 0600, our own user only.
    #[must_use]
    pub const fn socket_mode(mut self, mode: u32) -> Self {
        self.socket_mode = mode;
        self
    }

    /// Lets a `tcp:` listener bind an address that other hosts can reach. What goes over TCP is
    /// neither authenticated nor encrypted. Default: loopback only.
    #[must_use]
    pub const fn allow_remote(mut self, allow: bool) -> Self {
        self.allow_remote = allow;
        self
    }

    /// Calls `told` with the reason for each connection that a listener did not let in.
    #[must_use]
    pub fn on_refused(
        mut self,
        told: impl Fn(&crate::HandshakeError) + Send + Sync + 'static,
    ) -> Self {
        self.on_refused = Some(Arc::new(told));
        self
    }

    /// For protocols: what happens to a message for which there is no room.
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

    /// The geometry of our half.
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

/// Books are kept of each stream that there can be; this many are room enough.
pub(crate) const STREAMS_MAX: u32 = 1 << 20;

/// The slab of a half takes what the rounding to 64 KiB leaves, and at least this much.
const SLAB_BYTES_MIN: u64 = 64 << 10;

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("transport", &self.transport)
            .field("back_pressure", &self.back_pressure)
            .field("trust", &self.trust)
            .field("wait", &self.wait)
            .field("memory_max", &self.memory_max)
            .field("ring_bytes", &self.ring_bytes)
            .finish_non_exhaustive()
    }
}
