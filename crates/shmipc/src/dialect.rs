// SPDX-License-Identifier: MIT OR Apache-2.0
//! The dialect itself: what a listener is given, or a connecting side speaks.
//!
//! ```text
//!   Shmipc ── connect ─▶ regions made, machine begun ─┐
//!          ── accept ──▶ machine begun ───────────────┴─▶ Negotiation ── bytes, descriptors ─▶ Line
//! ```
//!
//! # Invariants
//!
//! - A handshake reads exactly its own bytes from the socket: established traffic may follow at once.
//! - What was made for a handshake that came to nothing is gone when the negotiation is dropped.

use crate::backing::{Allowed, Backing, Given, RegionError, create_buffer, open_buffer, sweep};
use crate::config::{Config, ConfigError, MemMapType};
use crate::handshake::{self, Client, Limits, Mapping, Server, Step};
use crate::lines::Lines;
use crate::names::{Names, Naming};
use crate::queue::{Consumer, Producer, Queue, QueueLayout, Side};
use crate::region::{Class, Region};
use crate::transport::{self, Observer, Parts};
use partywall::dialect::{Dialect, DialectError, Line, Meeting, Negotiation, Recognition};
use partywall_sys::socket::Family;
use std::fmt;
use std::io::{ErrorKind, IoSlice};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// shmipc, versions 2 and 3: for [`partywall::Config::dialect`] and [`partywall::Config::speak`].
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
/// let config = partywall::Config::default().dialect(Arc::new(Shmipc::default()));
/// let mut listener = partywall::blocking::Listener::bind_with(&*address, &config)?;
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
/// let config = partywall::Config::default().speak(Arc::new(Shmipc::default()));
/// let session = partywall::blocking::connect_with(&*address, &config)?;
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
struct Buffer {
    region: Arc<Region>,
    backing: Arc<Backing>,
}

impl Buffer {
    /// Whether one more session may have it. Each session has the backing as long as it lives.
    fn is_usable(&self) -> bool {
        self.region.is_usable(Arc::strong_count(&self.backing) > 1)
    }
}

impl Shmipc {
    /// With settings.
    ///
    /// # Errors
    /// See [`ConfigError`].
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

    /// As [`Dialect::connect`], with a line that somebody else looks after.
    pub(crate) fn connect_for(
        &self,
        meeting: Meeting,
        observer: Arc<dyn Observer>,
    ) -> Result<Box<dyn Negotiation>, DialectError> {
        let inner = &*self.inner;
        let mapping = match inner.config.mem_map_type {
            MemMapType::DevShmFile => Mapping::File,
            MemMapType::MemFd if meeting.socket.family() == Family::Unix => Mapping::Memfd,
            MemMapType::MemFd => {
                let what = "descriptors cannot be sent over TCP: choose \
                            mem_map_type(MemMapType::DevShmFile), or a Unix socket";
                return Err(DialectError::Refused { what: what.to_owned() });
            }
        };
        let (buffer, names) = inner.buffer()?;
        let (backing, queue) = inner.make_queue(&names)?;
        Ok(Box::new(Connecting {
            machine: Client::new(mapping, &names),
            made: Some((buffer, backing, queue)),
            ends: Ends::new(meeting, inner, observer),
        }))
    }
}

impl Inner {
    /// The region of this value's sessions, made with the first of them, and what the next session calls its own.
    fn buffer(&self) -> Result<(Buffer, Names), DialectError> {
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
                    naming.map_err(|error| DialectError::Refused { what: error.to_string() })?;
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

    fn make_buffer(&self, names: &Names) -> Result<Buffer, DialectError> {
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
    ) -> Result<(Backing, partywall_sys::SharedMap), DialectError> {
        let made = match self.config.mem_map_type {
            MemMapType::MemFd => Backing::create_memfd(name, size),
            MemMapType::DevShmFile => Backing::create_file(Path::new(name), size),
        };
        made.map_err(|error| DialectError::Refused { what: error.to_string() })
    }

    fn make_queue(&self, names: &Names) -> Result<(Backing, Queue), DialectError> {
        let capacity = self.config.queue_cap;
        let size = Queue::size_bytes(capacity).unwrap_or(usize::MAX);
        let (backing, map) = self.make(&names.queue, size)?;
        let queue = Queue::create(map, capacity, QueueLayout::NATIVE)
            .map_err(|damage| DialectError::Refused { what: damage.to_string() })?;
        backing.seal().map_err(|error| DialectError::Refused { what: error.to_string() })?;
        Ok((backing, queue))
    }

    fn limits(&self) -> transport::Limits {
        let Config { fallback_unread_max, fallback_message_max, .. } = self.config;
        transport::Limits { fallback_unread_max, fallback_message_max }
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

impl Dialect for Shmipc {
    fn name(&self) -> &'static str {
        "shmipc"
    }

    fn recognise(&self, first: &[u8]) -> Recognition {
        handshake::recognises(first)
    }

    fn accept(&self, meeting: Meeting) -> Result<Box<dyn Negotiation>, DialectError> {
        let inner = &*self.inner;
        let mut allowed = Allowed::new(
            inner.config.region_bytes_max.into(),
            meeting.credentials.map(|who| who.uid),
        );
        allowed.directory.clone_from(&inner.config.directory);
        allowed.is_guarded = inner.config.guards_truncation;
        let may_open_files = meeting.credentials.is_some() || inner.config.files_of_strangers;
        Ok(Box::new(Accepting {
            machine: Server::new(Limits::default()),
            allowed,
            queue_entries_max: inner.config.queue_entries_max,
            may_open_files,
            descriptors: Vec::new(),
            mapped: None,
            ends: Ends::new(meeting, inner, Arc::clone(&inner.lines) as Arc<dyn Observer>),
        }))
    }

    fn connect(&self, meeting: Meeting) -> Result<Box<dyn Negotiation>, DialectError> {
        self.connect_for(meeting, Arc::clone(&self.inner.lines) as Arc<dyn Observer>)
    }
}

/// What both handshakes need.
#[derive(Debug)]
struct Ends {
    /// `None` once the line has it.
    meeting: Option<Meeting>,
    /// How much of what was read before was used.
    used: usize,
    limits: transport::Limits,
    observer: Arc<dyn Observer>,
    monitor: Option<(Monitoring, std::time::Duration)>,
}

/// Who is told of counters.
#[derive(Clone)]
struct Monitoring(Arc<dyn crate::stats::Monitor>);

impl fmt::Debug for Monitoring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Monitoring")
    }
}

impl Ends {
    fn new(meeting: Meeting, dialect: &Inner, observer: Arc<dyn Observer>) -> Self {
        let monitor = dialect.config.monitor.clone().map(Monitoring);
        let monitor = monitor.map(|monitor| (monitor, dialect.config.monitor_interval));
        Self { meeting: Some(meeting), used: 0, limits: dialect.limits(), observer, monitor }
    }

    /// Exactly the next `count` bytes at most, and descriptors beside them; `None` if nothing is there.
    fn read(&mut self, buffer: &mut [u8]) -> Result<Option<(usize, Vec<OwnedFd>)>, DialectError> {
        let Some(meeting) = &self.meeting else { return Ok(None) };
        let before = &meeting.first[self.used..];
        if !before.is_empty() {
            let count = before.len().min(buffer.len());
            buffer[..count].copy_from_slice(&before[..count]);
            self.used += count;
            return Ok(Some((count, Vec::new())));
        }
        match meeting.socket.receive(buffer, true) {
            Ok(received) if received.truncated => {
                let what = "descriptors were lost on the way: raise our limit of open descriptors";
                Err(DialectError::Refused { what: what.to_owned() })
            }
            Ok(received) if received.bytes == 0 => Err(DialectError::HungUp),
            Ok(received) => Ok(Some((received.bytes, received.fds))),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Err(DialectError::HungUp),
            Err(source) => Err(DialectError::System { what: "receiving", source }),
        }
    }

    fn send(
        &self,
        bytes: &[u8],
        descriptors: &[std::os::fd::BorrowedFd<'_>],
    ) -> Result<(), DialectError> {
        let Some(meeting) = &self.meeting else { return Ok(()) };
        // All of a handshake is smaller than any socket buffer.
        match meeting.socket.send(&[IoSlice::new(bytes)], descriptors, false, true) {
            Ok(count) if count == bytes.len() => Ok(()),
            Ok(_) => {
                let source = ErrorKind::WriteZero.into();
                Err(DialectError::System { what: "sending", source })
            }
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(DialectError::HungUp),
            Err(source) => Err(DialectError::System { what: "sending", source }),
        }
    }

    /// Both sides are ready.
    fn line(&mut self, version: u8, made: Made) -> Result<Option<Line>, DialectError> {
        let Some(meeting) = self.meeting.take() else { return Ok(None) };
        let Made { region, queue, backing, is_client, is_memfd } = made;
        let description = match (version, is_memfd) {
            (2, _) => "shmipc v2, files",
            (_, true) => "shmipc v3, memfd",
            (_, false) => "shmipc v3, files",
        };
        let read = meeting.first[self.used..].to_vec();
        let monitor = self.monitor.take().map(|(monitor, interval)| (monitor.0, interval));
        let parts = Parts {
            socket: meeting.socket,
            read,
            version,
            region,
            queue,
            is_client,
            trust: meeting.trust,
            caller: meeting.caller,
            policy: meeting.config.back_pressure_policy(),
            limits: self.limits,
            monitor,
            observer: Arc::clone(&self.observer),
            description,
            // A peer that accepts a stream cannot open one: its client would not know what it is.
            streams_max: if is_client { u32::MAX } else { 0 },
            backing,
        };
        let line = transport::line(parts);
        line.map(Some).map_err(|source| DialectError::System { what: "setting up", source })
    }
}

/// What a line stands on.
struct Made {
    region: Arc<Region>,
    queue: (Producer, Consumer),
    backing: Vec<Arc<Backing>>,
    is_client: bool,
    is_memfd: bool,
}

/// A client's handshake.
#[derive(Debug)]
struct Connecting {
    machine: Client,
    made: Option<(Buffer, Backing, Queue)>,
    ends: Ends,
}

impl Negotiation for Connecting {
    fn progress(&mut self) -> Result<Option<Line>, DialectError> {
        loop {
            while let Some(step) = self.machine.next() {
                match step {
                    Step::Send(bytes) => self.ends.send(&bytes, &[])?,
                    Step::SendDescriptors { byte } => {
                        if let Some((buffer, backing, _)) = &self.made {
                            self.ends.send(&[byte], &[buffer.backing.fd(), backing.fd()])?;
                        }
                    }
                    Step::Done { version } => return self.done(version),
                    // A server's.
                    Step::MapDescriptors { .. } | Step::MapPaths { .. } => {}
                }
            }
            let mut buffer = [0; 64];
            let missing = self.machine.missing().min(buffer.len());
            let Some((count, descriptors)) = self.ends.read(&mut buffer[..missing])? else {
                return Ok(None);
            };
            if !descriptors.is_empty() {
                let what = "a server sends no descriptors".to_owned();
                return Err(DialectError::Violation { what });
            }
            self.machine.feed(&buffer[..count])?;
        }
    }
}

impl Connecting {
    fn done(&mut self, version: u8) -> Result<Option<Line>, DialectError> {
        let Some((buffer, backing, queue)) = self.made.take() else { return Ok(None) };
        let queue = queue
            .split(Side::Client)
            .map_err(|damage| DialectError::Violation { what: damage.to_string() })?;
        let made = Made {
            region: buffer.region,
            queue,
            backing: vec![buffer.backing, Arc::new(backing)],
            is_client: true,
            is_memfd: version != 2,
        };
        self.ends.line(version, made)
    }
}

/// A server's handshake.
#[derive(Debug)]
struct Accepting {
    machine: Server,
    allowed: Allowed,
    queue_entries_max: u32,
    /// Somebody vouches for the client, or it does not matter.
    may_open_files: bool,
    /// Those that came: of the buffers, then of the queue.
    descriptors: Vec<OwnedFd>,
    mapped: Option<(Arc<Region>, Queue, bool)>,
    ends: Ends,
}

impl Negotiation for Accepting {
    fn progress(&mut self) -> Result<Option<Line>, DialectError> {
        loop {
            while let Some(step) = self.machine.next() {
                match step {
                    Step::Send(bytes) => self.ends.send(&bytes, &[])?,
                    Step::MapDescriptors { .. } => {
                        let mut descriptors = std::mem::take(&mut self.descriptors).into_iter();
                        let (Some(buffer), Some(queue)) = (descriptors.next(), descriptors.next())
                        else {
                            let what = "two descriptors were to come".to_owned();
                            return Err(DialectError::Violation { what });
                        };
                        let buffer = Given::descriptor(buffer, &self.allowed).map_err(refused)?;
                        let queue = Given::descriptor(queue, &self.allowed).map_err(refused)?;
                        self.map(&buffer, &queue, true)?;
                    }
                    Step::MapPaths { .. } if !self.may_open_files => {
                        let what = "nobody says who this client is, so the files that it names are not \
                                    opened: use a Unix socket, or Config::files_of_strangers(true)";
                        return Err(DialectError::Refused { what: what.to_owned() });
                    }
                    Step::MapPaths { queue, buffer } => {
                        let queue = Given::path(Path::new(&queue), &self.allowed);
                        let buffer = Given::path(Path::new(&buffer), &self.allowed);
                        self.map(&buffer.map_err(refused)?, &queue.map_err(refused)?, false)?;
                    }
                    Step::Done { version } => {
                        let Some((region, queue, is_memfd)) = self.mapped.take() else {
                            return Ok(None);
                        };
                        let queue = queue.split(Side::Server).map_err(violated)?;
                        let (backing, is_client) = (Vec::new(), false);
                        let made = Made { region, queue, backing, is_client, is_memfd };
                        return self.ends.line(version, made);
                    }
                    // A client's.
                    Step::SendDescriptors { .. } => {}
                }
            }
            let mut buffer = [0; 512];
            let missing = self.machine.missing().min(buffer.len());
            let Some((count, descriptors)) = self.ends.read(&mut buffer[..missing])? else {
                return Ok(None);
            };
            self.machine.feed(&buffer[..count], descriptors.len())?;
            self.descriptors.extend(descriptors);
        }
    }
}

impl Accepting {
    fn map(&mut self, buffer: &Given, queue: &Given, is_memfd: bool) -> Result<(), DialectError> {
        let region = open_buffer(buffer).map_err(no_region)?;
        let queue =
            Queue::map(queue.map().map_err(refused)?, QueueLayout::NATIVE).map_err(violated)?;
        if queue.capacity() > self.queue_entries_max {
            let what = format!(
                "a queue of {} elements exceeds Config::queue_entries_max, {}",
                queue.capacity(),
                self.queue_entries_max
            );
            return Err(DialectError::Refused { what });
        }
        self.mapped = Some((region, queue, is_memfd));
        self.machine.mapped();
        Ok(())
    }
}

fn no_region(error: RegionError) -> DialectError {
    DialectError::Refused { what: error.to_string() }
}

fn refused(error: crate::backing::BackingError) -> DialectError {
    DialectError::Refused { what: error.to_string() }
}

fn violated(damage: crate::region::Damage) -> DialectError {
    DialectError::Violation { what: damage.to_string() }
}
