// SPDX-License-Identifier: MIT OR Apache-2.0
//! The protocol itself: what a listener is given, or a connecting side speaks.
//!
//! ```text
//!   Shmipc ── connect ─▶ regions made, machine begun ─┐
//!          ── accept ──▶ machine begun ───────────────┴─▶ Negotiation ── bytes, descriptors ─▶ Connection
//! ```

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

/// shmipc, versions 2 and 3: for `Listener::with_protocol` and `connect_with_protocol` of
/// [`partywall::blocking`] and `partywall::tokio`.
///
/// All sessions that one value connects share one region of buffers, as those of a peer's session manager do; a
/// second value has one of its own. Clones are the same value. A region of which a peer took something to its grave is
/// left to the sessions that have it: those that are connected later share a new one, and the old one is gone with the
/// last of its own.
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
/// let mut stream = session.accept()?;
/// let message = stream.recv()?;
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
/// assert_eq!(stream.recv()?, b"hello");
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

/// What the next session shares with others.
#[derive(Debug)]
struct SharedMemory {
    /// A new region has new names: peers tell regions by them.
    naming: Naming,
    /// How many sessions were connected.
    sessions: u64,
    buffer: Option<Buffer>,
}

/// A region of buffers that we made, and what it lies in.
#[derive(Clone, Debug)]
pub(crate) struct Buffer {
    pub(crate) region: Arc<BufferRegion>,
    pub(crate) backing: Arc<Backing>,
}

impl Buffer {
    /// Whether one more session may have it. Each session has the backing as long as it lives.
    fn is_usable(&self) -> bool {
        // A server may have removed the file: sessions that have it go on, and no other would find it.
        self.backing.is_in_place() && self.region.is_usable(Arc::strong_count(&self.backing) > 1)
    }
}

impl Shmipc {
    /// With settings.
    ///
    /// # Errors
    /// Fails for one of the reasons in [`ConfigError`].
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.verify()?;
        let naming = Naming::unique(&config.share_memory_path_prefix)?;
        Ok(Self::named(config, naming))
    }

    /// With settings that were verified, and regions of these names.
    pub(crate) fn named(config: Config, naming: Naming) -> Self {
        let shared = Mutex::new(SharedMemory { naming, sessions: 0, buffer: None });
        Self { inner: Arc::new(Inner { config, shared, connections: Arc::default() }) }
    }

    pub(crate) fn connections(&self) -> &Connections {
        &self.inner.connections
    }

    /// As [`Protocol::connect`], with a line that somebody else looks after.
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
    /// Tells the clients of all sessions that were accepted that a new process listens at the same address: they
    /// connect to it, open their new streams there, and say so. Those in use go on; nobody closes them but the
    /// application, once their calls are over. `epoch` is 1 or more, and another one each time.
    ///
    /// How the new process comes by the address is up to the application: of a Unix socket, the file is removed, and
    /// bound anew. It must listen *before* this is called. Clients that the old one still accepts afterwards are
    /// told as well, and come again.
    ///
    /// Our clients close their old sessions by themselves, when the last stream in use has ended and not before 2 s have
    /// passed; those of shmipc-go keep theirs until the old process closes them.
    ///
    /// It is over when each client has moved or hung up, or after 2 s: ask [`hot_restart_state`](Self::hot_restart_state).
    ///
    /// # Who takes part
    ///
    /// Sessions of shmipc only: Partywall's own clients at the same address are told with `go_away`, then
    /// `drained`, then `close`. Clients of shmipc-go, all of which have a session manager, and ours that have a `SessionManager`. A client
    /// of ours without one ignores it, and stays. A client of the crate `shmipc` 0.2.1 does *not*
    /// know the message: it hangs up, which fails the calls under way on that session, and connects anew after its
    /// `rebuild_interval`. Nothing on the wire tells it from a client of shmipc-go: a server of such clients closes its
    /// sessions instead, between their calls. Who was told and did neither move nor hang up is counted in
    /// [`StabilityMetrics::hot_restart_error_count`](crate::StabilityMetrics::hot_restart_error_count).
    ///
    /// # Errors
    /// See [`HandoverError`]; nobody was told then.
    pub fn hot_restart(&self, epoch: u64) -> Result<(), HandoverError> {
        self.connections().begin(epoch, Instant::now())
    }

    /// How far the last hot restart is now. Time goes on only when this is asked, or
    /// `hot_restarted` is awaited: whoever uses neither tokio nor threads asks now and then.
    #[must_use]
    pub fn hot_restart_state(&self) -> HandoverState {
        self.connections().poll(Instant::now())
    }

    /// Whether the last hot restart has succeeded: not before there was one, and not after one that took too long.
    #[must_use]
    pub fn is_hot_restart_done(&self) -> bool {
        matches!(self.hot_restart_state(), HandoverState::Done { .. })
    }

    /// Waits until the hot restart of this epoch is over: [`Done`](HandoverState::Done) or
    /// [`TimedOut`](HandoverState::TimedOut); after 2 s at most. If another one has begun meanwhile, how far that is.
    /// Cancel-safe.
    #[cfg(feature = "tokio")]
    pub async fn hot_restarted(&self, epoch: u64) -> HandoverState {
        self.connections().over(epoch).await
    }

    /// What each session counted that this value has connected or accepted, and that has not ended; the oldest first.
    #[must_use]
    pub fn metrics(&self) -> Vec<SessionMetrics> {
        self.connections().metrics()
    }

    /// Tells the [`monitor`](crate::Config::monitor) of each session whose interval is over. Sessions do so by themselves
    /// whenever they come to rest, and at their end; one that is idle does nothing at all, so who wants
    /// to hear of idle ones as well calls this now and then. A `SessionManager` does.
    pub fn tell_monitor(&self) {
        self.connections().tell_monitor();
    }
}

impl Inner {
    /// The region of this value's sessions, made with the first of them, and what the next session calls its own.
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
    /// With the peers' own settings, and memfds.
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
