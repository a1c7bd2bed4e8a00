// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration of one end of a link: memory, delivery, waiting, and the admission of peers.
//! Each setting has a default.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use partywall_layout::link::frame::LOGIN_BYTES_MAX;
use partywall_layout::link::{LinkGeometry, PARTS_OFFSET};

use super::error::ConfigError;
use super::group::Group;
use super::protocol::frame::{Refusal, Window};
use super::status::Transport;
use super::store::{AfterReboot, Key, Sizes};
use partywall::{Address, Admission, Peer, TransportPolicy};
use partywall_wait::Wait;

/// The time at which a received message counts as acknowledged. It decides whether the message is
/// received again after its receiver was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Delivery {
    /// The message counts as acknowledged when the application acknowledges it. A message that was
    /// not acknowledged before the process was killed is received again, with a higher
    /// [`attempt`](super::Message::attempt).
    #[default]
    AtLeastOnce,
    /// The message counts as acknowledged when the application receives it. If the process is
    /// killed while it handles the message, the message is not received again.
    AtMostOnce,
}

/// Settings of one end of a link. Every setting has a default.
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
    pub(super) after_reboot: AfterReboot,
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
            after_reboot: AfterReboot::Refuse,
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
    /// Size in bytes of the ring that keeps messages until the peer has acknowledged them: a power
    /// of two from 4 KiB to 1 GiB. An existing file keeps its size. The default is 1 MiB.
    ///
    /// A message takes its length and 40 bytes, rounded up to 64. Only 16 bytes are added instead
    /// of 40 while the peer reads the ring in shared memory and the message is no reply. A message
    /// that would take, with its 40 bytes, more than a quarter of the ring goes into the slab.
    #[must_use]
    pub const fn ring_bytes(mut self, bytes: u64) -> Self {
        self.ring_bytes = bytes;
        self
    }

    /// Size in bytes of the slab, for messages too long for the ring, from 0 to 1 TiB. The size
    /// limits the length of the longest message. An existing file keeps its size. The default is 4
    /// MiB.
    #[must_use]
    pub const fn slab_bytes(mut self, bytes: u64) -> Self {
        self.slab_bytes = bytes;
        self
    }

    /// The handling of a link file that was last owned before a reboot, and that its owner did not
    /// [close](crate::Link::close). The file cannot be trusted, because a power loss may have taken
    /// any part of it. By default, such a file is refused.
    #[must_use]
    pub const fn after_reboot(mut self, policy: AfterReboot) -> Self {
        self.after_reboot = policy;
        self
    }

    /// The largest ring and slab of the peer that this end accepts, in bytes. The peer may send as
    /// many bytes before this end acknowledges any. A peer with a larger ring or slab is refused.
    /// The default is 64 MiB for the ring and 1 GiB for the slab.
    #[must_use]
    pub const fn peer_max(mut self, ring_bytes: u64, slab_bytes: u64) -> Self {
        self.peer_ring_max = ring_bytes;
        self.peer_slab_max = slab_bytes;
        self
    }

    /// Transport for connections to a Unix socket's address. Messages go through shared memory if
    /// both ends belong to the same user and can map each other's memory, else through the socket.
    /// With [`TransportPolicy::SharedMemory`] a connection without shared memory is closed. Each
    /// connection chooses anew; the choice does not affect which messages the link keeps. Default:
    /// [`TransportPolicy::Auto`].
    ///
    /// A link in [`Storage::Memory`](super::Storage::Memory) that may share its memory allocates
    /// all of it when it is opened, and uses two more descriptors.
    #[must_use]
    pub const fn transport(mut self, policy: TransportPolicy) -> Self {
        self.transport = policy;
        self
    }

    /// The way in which a thread waits that blocks on the link, as in `send` and `recv`: it spins,
    /// sleeps, or spins before it sleeps. For a link, `Wait::Poll` is the same as `Wait::Park`. The
    /// default is `Wait::Adaptive`.
    #[must_use]
    pub const fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// The longest time for which `Wait::Adaptive` spins before it sleeps. The default is 50 µs.
    #[must_use]
    pub const fn spin_budget(mut self, budget: Duration) -> Self {
        self.spin_budget = budget;
        self
    }

    /// The group of this link, or of all links of this server. A thread that blocks on one link of
    /// a group handles the events of all its links. By default, each link of a client has its own
    /// group, and all links of a server share one.
    #[must_use]
    pub fn group(mut self, group: &Group) -> Self {
        self.group = Some(group.clone());
        self
    }

    /// Bytes that a client sends to the server's application with each connection, at most 4 KiB.
    /// Empty by default.
    #[must_use]
    pub fn login(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.login = bytes.into();
        self
    }

    /// The time at which a received message counts as acknowledged: when the application says so,
    /// or when it receives the message. The default is [`Delivery::AtLeastOnce`].
    #[must_use]
    pub const fn delivery(mut self, delivery: Delivery) -> Self {
        self.delivery = delivery;
        self
    }

    /// Number of owners of the link that may receive the same message before
    /// [`is_poison`](super::Message::is_poison) reports that the message may be crashing them. The
    /// default is 5.
    #[must_use]
    pub const fn attempts_max(mut self, attempts: u32) -> Self {
        self.attempts_max = attempts;
        self
    }

    /// The longest time that a new connection may take to attach, that is, to finish the handshake
    /// of the link. The default is 5 s.
    #[must_use]
    pub const fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self
    }

    /// Maximum number of a server's connections on which ATTACH, the first frame of a client, has
    /// not arrived yet. Further connections wait in the backlog, and each replaces a connection
    /// that has been silent for 100 ms. The default is 64.
    #[must_use]
    pub const fn handshakes_max(mut self, count: usize) -> Self {
        self.handshakes_max = count;
        self
    }

    /// The shortest pause (`min`) and the longest pause (`max`) between two attempts of a client to
    /// connect. Each pause is twice the previous one, with a random part. A pause is at most 10 ms
    /// in the first 10 s after a connection broke, and at most 50 ms while messages are
    /// unacknowledged. The defaults are 1 ms and 1 s.
    #[must_use]
    pub const fn retry(mut self, min: Duration, max: Duration) -> Self {
        self.retry_min = min;
        self.retry_max = max;
        self
    }

    /// Time without an answer of the network after which a TCP connection is closed, from 1 s to 9
    /// h. The link keeps its messages meanwhile. Other transports report the end of a connection at
    /// once. The default is 20 s.
    #[must_use]
    pub const fn dead_after(mut self, silence: Duration) -> Self {
        self.dead_after = silence;
        self
    }

    /// Maximum number of links that a server has at a time; a client that asks for a further link
    /// is refused. Each link takes its ring and slab from memory or from the file system. The
    /// default is 16,384.
    #[must_use]
    pub const fn links_max(mut self, count: usize) -> Self {
        self.links_max = count;
        self
    }

    /// Maximum number of new connections that the system queues until the server accepts them. The
    /// default is 128.
    #[must_use]
    pub const fn backlog(mut self, count: i32) -> Self {
        self.backlog = count;
        self
    }

    /// Permissions of a server's socket file. The default is 0o600.
    #[must_use]
    pub const fn socket_mode(mut self, mode: u32) -> Self {
        self.socket_mode = mode;
        self
    }

    /// Rule for admitting a peer. By default, every peer that can reach the address is admitted; on
    /// an abstract address, which has no permissions, only our own user. TCP carries no
    /// credentials, so with a rule all TCP peers are refused. A callback of the rule runs while the
    /// link is locked, and must not use the link.
    #[must_use]
    pub fn admit(mut self, admission: Admission) -> Self {
        self.admission = Some(admission);
        self
    }

    /// Lets a server bind a `tcp:` address that other hosts can reach. TCP connections are not
    /// encrypted. By default, a server binds only loopback addresses.
    #[must_use]
    pub const fn allow_remote(mut self, allow: bool) -> Self {
        self.allow_remote = allow;
        self
    }

    /// Makes a server call `decide` for each connection before the server opens the link. The
    /// thread that handles the group's events calls `decide`, and handles no other event meanwhile:
    /// if `decide` blocks on a link of the same group, it deadlocks. Without this setting, every
    /// client is accepted over Unix sockets, and none over TCP.
    ///
    /// Over TCP nothing but the login proves a client's names, so let `decide` check a secret.
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

    /// Lets a server without [`on_login`](Self::on_login) listen over TCP. Any process that reaches
    /// the port can then claim to be any client, and receive that client's messages. By default,
    /// the server [refuses](super::BindError::Anonymous) such an address.
    #[must_use]
    pub const fn allow_anonymous_tcp(mut self, allow: bool) -> Self {
        self.allow_anonymous_tcp = allow;
        self
    }

    pub(super) fn sizes(&self) -> Result<Sizes, ConfigError> {
        let wrong = |setting, found: u64, wanted| ConfigError { setting, found, wanted };
        // A link does not use the release ring, so the ring gets the smallest size.
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

    /// The rule by which a peer's process is admitted or refused, if there is one. An abstract
    /// address has no permissions, so without a configured rule only our own user is admitted
    /// there.
    pub(super) fn admission(&self, is_abstract: bool) -> Option<Admission> {
        let own = || is_abstract.then(Admission::own_user);
        self.admission.clone().or_else(own)
    }

    /// Whether the configuration allows the link to share its memory with a peer at this `address`.
    pub(super) fn shares(&self, address: &Address) -> bool {
        let is_unix = matches!(address, Address::Path(_) | Address::Abstract(_));
        is_unix && self.transport != TransportPolicy::Socket
    }

    pub(super) fn peer_bytes_max(&self) -> u64 {
        // Besides ring and slab, a link file contains other pages, and the file's size is rounded
        // up to whole pages.
        let parts = self.peer_ring_max.saturating_add(self.peer_slab_max);
        parts.saturating_add(PARTS_OFFSET).saturating_add(FILLED_UP_MAX)
    }

    /// Refuses a connection without shared memory if the configuration demands shared memory.
    pub(super) fn judge_transport(&self, is_shared: bool) -> Result<(), Refusal> {
        if is_shared || self.transport != TransportPolicy::SharedMemory {
            return Ok(());
        }
        let text = "memory cannot be shared on this connection, and Config::transport says that it must be: \
                    both ends have to be on a unix: address, of the same user, and able to map each other's memory";
        Err(Refusal::Rejected(text.to_owned()))
    }

    /// Refuses a peer whose ring or slab could hold more unacknowledged bytes than this end
    /// accepts.
    ///
    /// The slab in a link file is rounded up to whole pages. So the slab of a peer that is
    /// configured with the maximum may exceed the maximum by this rounding.
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

/// A client that asks to attach to a link. The client states the names in `key`; the system vouches
/// for `peer`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LoginRequest {
    /// The names of the link as the server's end has them: `local` is the server, `remote` the
    /// client.
    pub key: Key,
    /// Bytes that the client's application sends: its [`Config::login`](super::Config::login).
    pub login: Vec<u8>,
    /// Transport of the connection on which the client asks.
    pub transport: Transport,
    /// Identity of the client: the credentials of its process on a Unix socket, but over TCP only
    /// its address.
    pub peer: Peer,
}

/// The decision of a server whether a client may attach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginAnswer {
    /// The client may attach: its connection becomes one of the link. The client's application gets
    /// these bytes, at most 4 KiB.
    Accept(Vec<u8>),
    /// The client may not attach. The client gets this reason, which its operator can read, and
    /// tries again later.
    Reject(String),
}

#[derive(Clone)]
pub(super) struct OnLogin(pub(super) Arc<dyn Fn(&LoginRequest) -> LoginAnswer + Send + Sync>);

impl fmt::Debug for OnLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnLogin")
    }
}

/// Upper bound in bytes for two parts of a link file together: its release ring, and the rounding
/// of the file's size up to whole pages. The bound is generous: it only limits how much of a peer's
/// memory this end maps.
const FILLED_UP_MAX: u64 = 1 << 20;

/// Prints each setting with its value, under the name of the function that sets the value. The
/// login is not printed, because it may be a secret.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("ring_bytes", &self.ring_bytes)
            .field("slab_bytes", &self.slab_bytes)
            .field("peer_max", &(self.peer_ring_max, self.peer_slab_max))
            .field("transport", &self.transport)
            .field("wait", &self.wait)
            .field("spin_budget", &self.spin_budget)
            .field("delivery", &self.delivery)
            .field("after_reboot", &self.after_reboot)
            .field("attempts_max", &self.attempts_max)
            .field("handshake_timeout", &self.handshake_timeout)
            .field("handshakes_max", &self.handshakes_max)
            .field("retry", &(self.retry_min, self.retry_max))
            .field("dead_after", &self.dead_after)
            .field("links_max", &self.links_max)
            .field("backlog", &self.backlog)
            .field("socket_mode", &format_args!("{:#o}", self.socket_mode))
            .field("allow_remote", &self.allow_remote)
            .field("allow_anonymous_tcp", &self.allow_anonymous_tcp)
            .finish_non_exhaustive()
    }
}
