// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one end of a link may choose, with a bound for everything.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use partywall_layout::link::frame::LOGIN_BYTES_MAX;
use partywall_layout::link::{LinkGeometry, PARTS_OFFSET};

use super::error::ConfigError;
use super::group::Group;
use super::protocol::frame::{Refusal, Window};
use super::status::Transport;
use super::store::Key;
use super::store::Sizes;
use partywall::{Address, Admission, Peer, TransportPolicy};
use partywall_wait::Wait;

/// When a message that was received counts as consumed, if its process is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Delivery {
    /// When it is committed. One that was not is received again, with a higher
    /// [`attempt`](super::Message::attempt).
    #[default]
    AtLeastOnce,
    /// When it is received. One that was being worked on is not received again.
    AtMostOnce,
}

/// The choices of one end of a link, with defaults for everything.
///
/// ```
/// use partywall_link::{Delivery, Config};
///
/// let config = Config::default().ring_bytes(1 << 22).delivery(Delivery::AtMostOnce);
/// # let _ = config;
/// ```
#[derive(Clone)]
pub struct Config {
    pub(super) ring_bytes: u64,
    pub(super) slab_bytes: u64,
    pub(super) peer_ring_max: u64,
    pub(super) peer_slab_max: u64,
    pub(super) transport: TransportPolicy,
    pub(super) wait: Wait,
    pub(super) spin_budget: Duration,
    pub(super) group: Option<Group>,
    pub(super) login: Vec<u8>,
    pub(super) delivery: Delivery,
    pub(super) attempts_max: u32,
    pub(super) handshake_timeout: Duration,
    pub(super) handshakes_max: usize,
    pub(super) retry_min: Duration,
    pub(super) retry_max: Duration,
    pub(super) dead_after: Duration,
    pub(super) links_max: usize,
    pub(super) backlog: i32,
    pub(super) socket_mode: u32,
    pub(super) admission: Option<Admission>,
    pub(super) allow_remote: bool,
    pub(super) allow_anonymous_tcp: bool,
    pub(super) on_login: Option<OnLogin>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ring_bytes: 1 << 20,
            slab_bytes: 4 << 20,
            peer_ring_max: 64 << 20,
            peer_slab_max: 1 << 30,
            transport: TransportPolicy::Auto,
            wait: Wait::Adaptive,
            spin_budget: Duration::from_micros(50),
            group: None,
            login: Vec::new(),
            delivery: Delivery::AtLeastOnce,
            attempts_max: 5,
            handshake_timeout: Duration::from_secs(5),
            handshakes_max: 64,
            retry_min: Duration::from_millis(1),
            retry_max: Duration::from_secs(1),
            dead_after: Duration::from_secs(20),
            links_max: 16_384,
            backlog: 128,
            socket_mode: 0o600,
            admission: None,
            allow_remote: false,
            allow_anonymous_tcp: false,
            on_login: None,
        }
    }
}

impl Config {
    /// Size of the ring that keeps what was sent until the other end has consumed it, in bytes: a
    /// power of two from 4 KiB to 1 GiB. Of a file that exists it stays what it is. Default: 1 MiB.
    ///
    /// A message takes its length, 40 bytes, and what rounds that up to 64; 16 bytes instead of 40
    /// while the other end reads it in shared memory and it is no reply. One that would take more
    /// than a quarter of the ring with 40 lies in the slab.
    #[must_use]
    pub const fn ring_bytes(mut self, bytes: u64) -> Self {
        self.ring_bytes = bytes;
        self
    }

    /// Size of the memory for messages that are too long for the ring, in bytes, 0 to 1 TiB, and so
    /// the longest message. Of a file that exists it stays what it is. Default: 4 MiB.
    #[must_use]
    pub const fn slab_bytes(mut self, bytes: u64) -> Self {
        self.slab_bytes = bytes;
        self
    }

    /// The largest ring and slab of the other end that this end agrees to, in bytes: as much may
    /// lie here, received and not yet committed. An end that asks for more is refused. Default: 64
    /// MiB and 1 GiB.
    #[must_use]
    pub const fn peer_max(mut self, ring_bytes: u64, slab_bytes: u64) -> Self {
        self.peer_ring_max = ring_bytes;
        self.peer_slab_max = slab_bytes;
        self
    }

    /// Over what messages go, if the address is that of a Unix socket: shared memory, where both
    /// ends are of the same user and can map it, or the socket. With
    /// [`TransportPolicy::SharedMemory`] a connection over which they would go through a socket is
    /// given up. Whichever it is, what is sent is kept alike, and each connection is judged anew.
    /// Default: [`TransportPolicy::Auto`].
    ///
    /// A link in [`Storage::Memory`] whose memory is to be shared takes all of it at once, and two
    /// descriptors more.
    #[must_use]
    pub const fn transport(mut self, policy: TransportPolicy) -> Self {
        self.transport = policy;
        self
    }

    /// How a thread waits in `send`, `recv` and the like. [`Wait::Poll`] is as [`Wait::Park`] here.
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

    /// The group whose threads drive the link, or all links of the server. Default: a group of its
    /// own for each link of a client, and one for all links of a server.
    #[must_use]
    pub fn group(mut self, group: &Group) -> Self {
        self.group = Some(group.clone());
        self
    }

    /// Clients: what the server's application is told with each connection, at most 4 KiB. Default:
    /// nothing.
    #[must_use]
    pub fn login(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.login = bytes.into();
        self
    }

    /// When a received message counts as consumed. Default: [`Delivery::AtLeastOnce`].
    #[must_use]
    pub const fn delivery(mut self, delivery: Delivery) -> Self {
        self.delivery = delivery;
        self
    }

    /// How often a message may be handed out by one owner of the link after another before
    /// [`is_poison`](super::Message::is_poison) says that it is the likely cause of their deaths.
    /// Default: 5.
    #[must_use]
    pub const fn attempts_max(mut self, attempts: u32) -> Self {
        self.attempts_max = attempts;
        self
    }

    /// How long attaching a connection may take. Default: 5 s.
    #[must_use]
    pub const fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self
    }

    /// Servers: how many connections there may be that have not said yet which link they are for;
    /// further ones wait in the backlog, and take the place of one that has said nothing for 100
    /// ms. Default: 64.
    #[must_use]
    pub const fn handshakes_max(mut self, count: usize) -> Self {
        self.handshakes_max = count;
        self
    }

    /// Clients: the shortest and the longest wait before another attempt to connect. Each wait is
    /// twice the one before, with some chance; it is at most 10 ms for the first 10 s after a
    /// connection broke, and 50 ms while something is unsent. Default: 1 ms and 1 s.
    #[must_use]
    pub const fn retry(mut self, min: Duration, max: Duration) -> Self {
        self.retry_min = min;
        self.retry_max = max;
        self
    }

    /// After how long a silence of the network a TCP connection is given up, 1 s to 9 h. Sending
    /// goes on into memory meanwhile. Elsewhere the system tells at once. Default: 20 s.
    #[must_use]
    pub const fn dead_after(mut self, silence: Duration) -> Self {
        self.dead_after = silence;
        self
    }

    /// Servers: how many links there may be at a time; clients of further ones are refused. Each
    /// takes its ring and slab, of memory or of the file system. Default: 16,384.
    #[must_use]
    pub const fn links_max(mut self, count: usize) -> Self {
        self.links_max = count;
        self
    }

    /// Servers: how many connections may wait to be looked at. Default: 128.
    #[must_use]
    pub const fn backlog(mut self, count: i32) -> Self {
        self.backlog = count;
        self
    }

    /// Servers: permissions of a socket file. Default: 0o600.
    #[must_use]
    pub const fn socket_mode(mut self, mode: u32) -> Self {
        self.socket_mode = mode;
        self
    }

    /// Who may be at the other end. Default: whoever the address lets through; on an abstract
    /// address, which has no permissions, only our own user. TCP carries no credentials: with a
    /// rule, TCP peers are refused. A rule of the application's own is asked while the link is
    /// locked, and must not call it.
    #[must_use]
    pub fn admit(mut self, admission: Admission) -> Self {
        self.admission = Some(admission);
        self
    }

    /// Lets a server bind a `tcp:` address that other hosts can reach. What goes over TCP is not
    /// encrypted. Default: loopback only.
    #[must_use]
    pub const fn allow_remote(mut self, allow: bool) -> Self {
        self.allow_remote = allow;
        self
    }

    /// Servers: asks `decide` about each connection, before anything of its link is looked at. It
    /// is called in whatever thread drives the group, which drives nothing else meanwhile: a call
    /// that waits for a link of the same group would wait for itself. Default: over Unix sockets
    /// all are let in, over TCP none.
    ///
    /// Over TCP nobody vouches for a client's names but what `decide` makes of the login: let it
    /// ask for a secret.
    ///
    /// ```
    /// use partywall_link::{Config, LoginAnswer};
    ///
    /// let config = Config::default().on_login(|request| match &request.login[..] {
    ///     b"a secret" => LoginAnswer::Accept(b"welcome".to_vec()),
    ///     _ => LoginAnswer::Reject("ask the operator for the secret".to_owned()),
    /// });
    /// # let _ = config;
    /// ```
    #[must_use]
    pub fn on_login(
        mut self,
        decide: impl Fn(&LoginRequest) -> LoginAnswer + Send + Sync + 'static,
    ) -> Self {
        self.on_login = Some(OnLogin(Arc::new(decide)));
        self
    }

    /// Lets a server without [`on_login`](Self::on_login) listen over TCP. Whoever reaches the port
    /// can then say that it is any client, and take its messages. Default: it
    /// [cannot](super::BindError::Anonymous).
    #[must_use]
    pub const fn allow_anonymous_tcp(mut self, allow: bool) -> Self {
        self.allow_anonymous_tcp = allow;
        self
    }

    /// The sizes, if they are possible.
    pub(super) fn sizes(&self) -> Result<Sizes, ConfigError> {
        let wrong = |setting, found: u64, wanted| ConfigError { setting, found, wanted };
        // A link has no use for the release ring; the smallest there is.
        let sizes = Sizes { ring: self.ring_bytes, entries: 8, slab: self.slab_bytes };
        if LinkGeometry::new(self.ring_bytes, 8, 0).is_none() {
            let wanted = "a power of two from 4096 to 1073741824";
            return Err(wrong("ring_bytes", self.ring_bytes, wanted));
        }
        if LinkGeometry::new(self.ring_bytes, 8, self.slab_bytes).is_none() {
            return Err(wrong("slab_bytes", self.slab_bytes, "at most 1099511627776"));
        }
        if self.handshakes_max == 0 {
            return Err(wrong("handshakes_max", 0, "at least 1"));
        }
        if self.login.len() > LOGIN_BYTES_MAX {
            return Err(wrong("login", self.login.len() as u64, "at most 4096 bytes long"));
        }
        Ok(sizes)
    }

    /// The rule for who may be at the other end. An abstract address has no permissions: there it
    /// is our own user by default.
    pub(super) fn admission(&self, is_abstract: bool) -> Option<Admission> {
        let own = || is_abstract.then(Admission::own_user);
        self.admission.clone().or_else(own)
    }

    /// Whether memory is to be shared with who is reached so.
    pub(super) fn shares(&self, address: &Address) -> bool {
        let is_unix = matches!(address, Address::Path(_) | Address::Abstract(_));
        is_unix && self.transport != TransportPolicy::Socket
    }

    /// The largest memory of a neighbour that this end maps.
    pub(super) fn peer_bytes_max(&self) -> u64 {
        // What else there is besides ring and slab, and what fills them up.
        let parts = self.peer_ring_max.saturating_add(self.peer_slab_max);
        parts.saturating_add(PARTS_OFFSET).saturating_add(FILLED_UP_MAX)
    }

    /// Refuses a connection over which records go otherwise than they may.
    pub(super) fn judge_transport(&self, is_shared: bool) -> Result<(), Refusal> {
        if is_shared || self.transport != TransportPolicy::SharedMemory {
            return Ok(());
        }
        let text = "memory cannot be shared on this connection, and Config::transport says that it must be: \
                    both ends have to be on a unix: address, of the same user, and able to map each other's memory";
        Err(Refusal::Rejected(text.to_owned()))
    }

    /// Refuses a neighbour that may have more under way than this end agrees to hold.
    ///
    /// A file is filled up to whole pages: a neighbour that is configured with just what is allowed
    /// here may have them all.
    pub(super) fn judge_window(&self, asked: Window) -> Result<(), Refusal> {
        let filled_up = LinkGeometry::new(self.peer_ring_max, 8, self.peer_slab_max);
        let slab_max = filled_up.map_or(self.peer_slab_max, |filled| filled.slab_bytes);
        if asked.ring_bytes <= self.peer_ring_max && asked.slab_bytes <= slab_max {
            return Ok(());
        }
        Err(Refusal::TooLarge(format!(
            "its ring of {} and slab of {} bytes exceed the {} and {} of Config::peer_max",
            asked.ring_bytes, asked.slab_bytes, self.peer_ring_max, self.peer_slab_max
        )))
    }
}

/// A client that wants to attach. Its names are what it says; `peer` is what the system vouches
/// for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LoginRequest {
    /// The server's end of the link: `local` is the server, `remote` the client.
    pub key: Key,
    /// What the client's application says: [`Config::login`](super::Config::login).
    pub login: Vec<u8>,
    /// Over what it has come.
    pub transport: Transport,
    /// Who it is: with credentials on Unix sockets, with the address only over TCP.
    pub peer: Peer,
}

/// Whether a client may attach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginAnswer {
    /// It may, and its application is told these bytes, at most 4 KiB.
    Accept(Vec<u8>),
    /// It may not, and is told why, for people. It goes on trying.
    Reject(String),
}

/// Decides.
#[derive(Clone)]
pub(super) struct OnLogin(pub(super) Arc<dyn Fn(&LoginRequest) -> LoginAnswer + Send + Sync>);

impl fmt::Debug for OnLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnLogin")
    }
}

/// A release ring, and the rest of some pages.
const FILLED_UP_MAX: u64 = 1 << 20;

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkConfig")
            .field("ring_bytes", &self.ring_bytes)
            .field("slab_bytes", &self.slab_bytes)
            .field("wait", &self.wait)
            .field("delivery", &self.delivery)
            .finish_non_exhaustive()
    }
}
