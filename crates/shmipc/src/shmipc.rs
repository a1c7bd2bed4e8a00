// SPDX-License-Identifier: MIT OR Apache-2.0
//! The protocol itself: what a listener is given, or a connecting side speaks.
//!
//! ```text
//!   Shmipc ── connect ─▶ regions made, machine begun ─┐
//!          ── accept ──▶ machine begun ───────────────┴─▶ Negotiation ── bytes, descriptors ─▶ Connection
//! ```

use crate::backing::{Backing, create_buffer, sweep};
use crate::config::{Config, ConfigError, MemMapType};
use crate::handshake::{self, Client, Mapping};
use crate::lines::Lines;
use crate::names::{Names, Naming};
use crate::negotiation::{Accepting, Connecting, Ends, no_region};
use crate::queue::{Queue, QueueLayout};
use crate::region::{Class, Region};
use crate::transport::Observer;
use partywall::protocol::{Handshake, Negotiation, Protocol, ProtocolError, Recognition};
use partywall_sys::socket::Family;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

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
    kept: Mutex<Kept>,
    lines: Arc<Lines>,
}

/// What the next session shares with others.
#[derive(Debug)]
struct Kept {
    /// A new region has new names: peers tell regions by them.
    naming: Naming,
    /// How many sessions were connected.
    sessions: u64,
    buffer: Option<Buffer>,
}

/// A region of buffers that we made, and what it lies in.
#[derive(Clone, Debug)]
pub(crate) struct Buffer {
    pub(crate) region: Arc<Region>,
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
        let kept = Mutex::new(Kept { naming, sessions: 0, buffer: None });
        Self { inner: Arc::new(Inner { config, kept, lines: Arc::default() }) }
    }

    pub(crate) fn lines(&self) -> &Lines {
        &self.inner.lines
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
        let ends = Ends::new(handshake, &inner.config, observer);
        let machine = Client::new(mapping, &names);
        Ok(Box::new(Connecting::new(machine, (buffer, backing, queue), ends)))
    }
}

impl Inner {
    /// The region of this value's sessions, made with the first of them, and what the next session calls its own.
    fn buffer(&self) -> Result<(Buffer, Names), ProtocolError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let session = kept.sessions;
        kept.sessions += 1;
        match &kept.buffer {
            Some(buffer) if buffer.is_usable() => {
                return Ok((buffer.clone(), kept.naming.names(session)));
            }
            None => {}
            Some(_) => {
                let naming = Naming::unique(&self.config.share_memory_path_prefix);
                kept.naming =
                    naming.map_err(|error| ProtocolError::Refused { what: error.to_string() })?;
                kept.buffer = None;
            }
        }
        if self.config.mem_map_type == MemMapType::DevShmFile {
            sweep(&self.config.share_memory_path_prefix);
        }
        let names = kept.naming.names(session);
        let buffer = self.make_buffer(&names)?;
        kept.buffer = Some(buffer.clone());
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
        f.debug_struct("Shmipc").field("kept", &self.inner.kept).finish_non_exhaustive()
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
        let observer = Arc::clone(&self.inner.lines) as Arc<dyn Observer>;
        Ok(Box::new(Accepting::new(&self.inner.config, handshake, observer)))
    }

    fn connect(&self, handshake: Handshake) -> Result<Box<dyn Negotiation>, ProtocolError> {
        self.connect_for(handshake, Arc::clone(&self.inner.lines) as Arc<dyn Observer>)
    }
}
