// SPDX-License-Identifier: MIT OR Apache-2.0
//! The protocol shmipc as listeners and clients use it, with hot restart and metrics of its
//! connections.
//!
//! ```text
//!   Shmipc ── connect ─▶ allocate regions ─▶ ClientNegotiation ─┐  bytes,
//!          ── accept ──────────────────────▶ ServerNegotiation ─┴─ descriptors ─▶ Connection
//! ```
//!
//! A hot restart concerns accepted connections. `hot_restart.rs` has the rules of a hot restart,
//! and `connections.rs` the table of connections.

use crate::config::{Config, ConfigError, MemMapType};
use crate::connections::Connections;
use crate::handshake::{self, ClientHandshake, Mapping};
use crate::hot_restart::{HandoverError, HandoverState};
use crate::memory::names::{Names, Naming};
use crate::memory::queue::{Queue, QueueLayout};
use crate::memory::{Backing, create_buffer, sweep};
use crate::negotiation::{ClientNegotiation, HandshakeSocket, ServerNegotiation, no_region};
use crate::region::{BufferRegion, Class};
use crate::transport::Observer;
use crate::transport::metrics::SessionMetrics;
use partywall::protocol::{Handshake, Negotiation, Protocol, ProtocolError, Recognition};
use partywall_sys::socket::Family;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The protocol shmipc, versions 2 and 3: for `Listener::with_protocol` and `connect_with_protocol`
/// of [`partywall::blocking`] and `partywall::tokio`.
///
/// All client sessions of one `Shmipc` value share one region of buffers, like the sessions of a
/// session manager of shmipc-go. Another value has its own region. Clones are the same value. If a
/// peer dies with allocated slices, the region stays with the sessions that use it. Later sessions
/// share a new region, and the old one is freed with its last session.
///
/// # Examples
/// ```
/// use partywall_shmipc::Shmipc;
/// use std::sync::Arc;
///
/// # let directory = tempfile::tempdir()?;
/// # let address = format!("unix:{}/app.sock", directory.path().display());
/// // A listener that serves clients of shmipc, and of Partywall, at one address:
/// let listener = partywall::blocking::Listener::bind(&*address)?;
/// let mut listener = listener.with_protocol(Arc::new(Shmipc::default()));
/// # let server = std::thread::spawn(move || {
/// let session = listener.accept()?;
/// let mut stream = session.accept()?.ok_or("no stream")?;
/// let message = stream.recv()?.ok_or("no message")?;
/// stream.send(&message)?;
/// # let _ = stream.recv();
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// # });
///
/// // A client for servers that speak shmipc:
/// let (config, protocol) = (partywall::Config::default(), Arc::new(Shmipc::default()));
/// let session = partywall::blocking::connect_with_protocol(&*address, &config, protocol)?;
/// let mut stream = session.open(&[])?;
/// stream.send(b"hello")?;
/// assert_eq!(stream.recv()?.ok_or("no answer")?, b"hello");
/// assert_eq!(session.transport().to_string(), "shmipc v3, memfd");
/// # drop(stream);
/// # server.join().unwrap().unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Shmipc {
    inner: Arc<Inner>,
}

struct Inner {
    config: Config,
    shared: Mutex<SharedMemory>,
    connections: Arc<Connections>,
}

/// State that the client sessions of one `Shmipc` share.
#[derive(Debug)]
struct SharedMemory {
    /// Generates the names of regions: a new region gets new names, because other implementations
    /// identify regions by name.
    naming: Naming,
    /// Number of client sessions begun so far, which is the index of the next session in the names
    /// of regions.
    sessions: u64,
    buffer: Option<Buffer>,
}

/// A region of buffers that this process created, and its memory.
#[derive(Clone, Debug)]
pub(crate) struct Buffer {
    pub(crate) region: Arc<BufferRegion>,
    pub(crate) backing: Arc<Backing>,
}

impl Buffer {
    /// Whether another session may use the region. Each session holds the backing, the region's
    /// memfd or file, until the session ends. So the backing has more than one holder while any
    /// session uses the region.
    fn is_usable(&self) -> bool {
        // A server may have removed the region's file: existing sessions continue, but a new server
        // would not find the file.
        self.backing.is_in_place() && self.region.is_usable(Arc::strong_count(&self.backing) > 1)
    }
}

impl Shmipc {
    /// Creates the protocol shmipc with the settings `config`, which are verified.
    ///
    /// # Errors
    /// Fails for one of the reasons in [`ConfigError`].
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.verify()?;
        let naming = Naming::unique(&config.share_memory_path_prefix)?;
        Ok(Self::named(config, naming))
    }

    /// Creates the protocol with verified settings, and with the names that `naming` generates for
    /// its regions.
    pub(crate) fn named(config: Config, naming: Naming) -> Self {
        let shared = Mutex::new(SharedMemory { naming, sessions: 0, buffer: None });
        Self { inner: Arc::new(Inner { config, shared, connections: Arc::default() }) }
    }

    pub(crate) fn connections(&self) -> &Connections {
        &self.inner.connections
    }

    /// Begins the client's side of a connection over a connected socket, as [`Protocol::connect`]
    /// does. `observer` will be notified of the connection's hot restarts and of its end.
    pub(crate) fn connect_for(
        &self,
        handshake: Handshake,
        observer: Arc<dyn Observer>,
    ) -> Result<Box<dyn Negotiation>, ProtocolError> {
        let inner = &*self.inner;
        let mapping = match inner.config.mem_map_type {
            MemMapType::DevShmFile => Mapping::File,
            MemMapType::MemFd if handshake.socket.family() == Family::Unix => Mapping::Memfd,
            MemMapType::MemFd => {
                let what = "descriptors cannot be sent over TCP: choose \
                            mem_map_type(MemMapType::DevShmFile), or a Unix socket";
                return Err(ProtocolError::Refused { what: what.to_owned() });
            }
        };
        let (buffer, names) = inner.buffer()?;
        let (backing, queue) = inner.make_queue(&names)?;
        let socket = HandshakeSocket::new(handshake, &inner.config, observer);
        let machine = ClientHandshake::new(mapping, &names);
        Ok(Box::new(ClientNegotiation::new(machine, (buffer, backing, queue), socket)))
    }
}

impl Shmipc {
    /// Announces to the clients of all accepted sessions that a new process listens at the same
    /// address. The clients connect to the new process, open new streams on these connections, and
    /// acknowledge. Streams in use continue; the application closes the old sessions once their
    /// calls are over. `epoch` is at least 1, and differs from that of the last hot restart.
    ///
    /// The application decides how the new process gets the address. With a Unix socket, remove the
    /// file and bind anew. The new process must listen *before* this call. Clients that the old
    /// process still accepts afterwards get the announcement too, and connect again.
    ///
    /// Clients of this crate close an old session by themselves, when its last stream in use has
    /// ended, but not within 2 s. Clients of shmipc-go keep an old session until the old process
    /// closes it.
    ///
    /// The hot restart is over when each client has moved or hung up, or after 2 s: see
    /// [`hot_restart_state`](Self::hot_restart_state).
    ///
    /// # Who takes part
    ///
    /// Only sessions of shmipc take part. Clients of Partywall's own protocol at the same address
    /// get `go_away`, then `drained`, then `close`.
    ///
    /// - Clients of shmipc-go move; all of them have a session manager. Clients of this crate with
    ///   a `SessionManager` move, too.
    /// - A client of this crate without a `SessionManager` ignores the announcement, and stays.
    /// - A client of the crate `shmipc` 0.2.1 does *not* know the message. It hangs up, which fails
    ///   the calls of that session, and connects anew after its `rebuild_interval`. The protocol
    ///   does not distinguish such a client from one of shmipc-go. A server of such clients closes
    ///   its sessions instead, between their calls.
    ///
    /// Clients that neither move nor hang up are counted in
    /// [`hot_restart_error_count`](crate::StabilityMetrics::hot_restart_error_count).
    ///
    /// # Errors
    /// Fails for one of the reasons in [`HandoverError`], before any client is notified.
    pub fn hot_restart(&self, epoch: u64) -> Result<(), HandoverError> {
        self.connections().begin(epoch, Instant::now())
    }

    /// State of the last hot restart. The time-out of the hot restart is only checked by this call,
    /// and while `hot_restarted` is awaited. An application that does not await `hot_restarted`
    /// should call this function from time to time.
    #[must_use]
    pub fn hot_restart_state(&self) -> HandoverState {
        self.connections().poll(Instant::now())
    }

    /// Whether the last hot restart has succeeded. `false` before the first hot restart, and after
    /// one that timed out.
    #[must_use]
    pub fn is_hot_restart_done(&self) -> bool {
        matches!(self.hot_restart_state(), HandoverState::Done { .. })
    }

    /// Waits until the hot restart with this epoch is over, at most 2 s. Returns
    /// [`Done`](HandoverState::Done) or [`TimedOut`](HandoverState::TimedOut), or the state of a
    /// later hot restart. Cancel-safe.
    #[cfg(feature = "tokio")]
    pub async fn hot_restarted(&self, epoch: u64) -> HandoverState {
        self.connections().over(epoch).await
    }

    /// Metrics of each open session that this value has connected or accepted; the oldest first.
    #[must_use]
    pub fn metrics(&self) -> Vec<SessionMetrics> {
        self.connections().metrics()
    }

    /// Reports to the [`monitor`](crate::Config::monitor) for each session whose report interval
    /// has elapsed. Sessions report by themselves when they become idle after traffic, and at their
    /// end. An idle session does not report by itself, so an application calls this function from
    /// time to time to get its reports too. A `SessionManager` does so by itself.
    pub fn tell_monitor(&self) {
        self.connections().tell_monitor();
    }
}

impl Inner {
    /// Returns the region of buffers that the client sessions of this value share, and the names of
    /// the next session's regions. The first session creates the region of buffers.
    fn buffer(&self) -> Result<(Buffer, Names), ProtocolError> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let session = shared.sessions;
        shared.sessions += 1;
        match &shared.buffer {
            Some(buffer) if buffer.is_usable() => {
                return Ok((buffer.clone(), shared.naming.names(session)));
            }
            None => {}
            Some(_) => {
                let naming = Naming::unique(&self.config.share_memory_path_prefix);
                shared.naming =
                    naming.map_err(|error| ProtocolError::Refused { what: error.to_string() })?;
                shared.buffer = None;
            }
        }
        if self.config.mem_map_type == MemMapType::DevShmFile {
            sweep(&self.config.share_memory_path_prefix);
        }
        let names = shared.naming.names(session);
        let buffer = self.make_buffer(&names)?;
        shared.buffer = Some(buffer.clone());
        Ok((buffer, names))
    }

    fn make_buffer(&self, names: &Names) -> Result<Buffer, ProtocolError> {
        let size = self.config.share_memory_buffer_cap as usize;
        let (backing, map) = self.make(&names.buffer, size)?;
        let classes: Vec<Class> = self
            .config
            .buffer_slice_sizes
            .iter()
            .map(|pair| Class { size: pair.size, percent: pair.percent })
            .collect();
        let region = create_buffer(&backing, map, &classes).map_err(no_region)?;
        Ok(Buffer { region, backing: Arc::new(backing) })
    }

    fn make(
        &self,
        name: &str,
        size: usize,
    ) -> Result<(Backing, partywall_sys::SharedMap), ProtocolError> {
        let made = match self.config.mem_map_type {
            MemMapType::MemFd => Backing::create_memfd(name, size),
            MemMapType::DevShmFile => Backing::create_file(Path::new(name), size),
        };
        made.map_err(|error| ProtocolError::Refused { what: error.to_string() })
    }

    fn make_queue(&self, names: &Names) -> Result<(Backing, Queue), ProtocolError> {
        let capacity = self.config.queue_cap;
        let size = Queue::size_bytes(capacity).unwrap_or(usize::MAX);
        let (backing, map) = self.make(&names.queue, size)?;
        let queue = Queue::create(map, capacity, QueueLayout::NATIVE)
            .map_err(|damage| ProtocolError::Refused { what: damage.to_string() })?;
        backing.seal().map_err(|error| ProtocolError::Refused { what: error.to_string() })?;
        Ok((backing, queue))
    }
}

impl Default for Shmipc {
    /// Creates the protocol with the default settings of other implementations, but with memfds.
    fn default() -> Self {
        #[expect(clippy::expect_used, reason = "a test has it that the defaults are possible")]
        Self::new(Config::default()).expect("the defaults are possible")
    }
}

impl fmt::Debug for Shmipc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shmipc").field("shared", &self.inner.shared).finish_non_exhaustive()
    }
}

impl Protocol for Shmipc {
    fn name(&self) -> &'static str {
        "shmipc"
    }

    fn recognise(&self, first: &[u8]) -> Recognition {
        handshake::recognises(first)
    }

    fn accept(&self, handshake: Handshake) -> Result<Box<dyn Negotiation>, ProtocolError> {
        let observer = Arc::clone(&self.inner.connections) as Arc<dyn Observer>;
        Ok(Box::new(ServerNegotiation::new(&self.inner.config, handshake, observer)))
    }

    fn connect(&self, handshake: Handshake) -> Result<Box<dyn Negotiation>, ProtocolError> {
        self.connect_for(handshake, Arc::clone(&self.inner.connections) as Arc<dyn Observer>)
    }
}
