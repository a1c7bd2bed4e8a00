// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handshakes over a socket: this file performs the steps of the state machines in `handshake/`,
//! and builds the connection.
//!
//! ```text
//!   ClientHandshake ─ steps ─▶ ClientNegotiation ─┐  bytes, descriptors     ┌─▶ Connection
//!   ServerHandshake ─ steps ─▶ ServerNegotiation ─┴───── HandshakeSocket ───┘
//! ```
//!
//! # Invariants
//!
//! - A handshake reads exactly its own bytes from the socket, because traffic of the established
//!   connection may follow at once.
//! - Dropping a failed negotiation (a handshake over its socket) frees everything that it created.
//!   Files that a client named are removed only if both regions were mapped; a refused file is
//!   never removed.

use crate::config::Config;
use crate::handshake::{ClientHandshake, HandshakeLimits, ServerHandshake, Step};
use crate::memory::queue::{Consumer, Producer, Queue, QueueLayout, Side};
use crate::memory::{Backing, MemoryRules, PeerMemory, RegionError, keep, open_buffer};
use crate::region::BufferRegion;
use crate::shmipc::Buffer;
use crate::transport::{self, ConnectionParts, Observer};
use partywall::protocol::{Connection, Handshake, Negotiation, ProtocolError};
use std::fmt;
use std::io::{ErrorKind, IoSlice};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

/// The socket of a handshake, and the settings of the connection that follows.
#[derive(Debug)]
pub(crate) struct HandshakeSocket {
    /// The socket of the connection; `None` once the established connection has taken it.
    handshake: Option<Handshake>,
    /// Number of bytes that the handshake has consumed, of those that were read before the
    /// handshake began.
    used: usize,
    limits: transport::FallbackLimits,
    observer: Arc<dyn Observer>,
    monitor: Option<(Monitoring, std::time::Duration)>,
}

/// The metrics monitor from the settings, wrapped because a `Monitor` need not implement `Debug`.
#[derive(Clone)]
struct Monitoring(Arc<dyn crate::transport::metrics::Monitor>);

impl fmt::Debug for Monitoring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Monitoring")
    }
}

impl HandshakeSocket {
    pub(crate) fn new(handshake: Handshake, config: &Config, observer: Arc<dyn Observer>) -> Self {
        let Config { fallback_unread_max, fallback_message_max, .. } = *config;
        let limits = transport::FallbackLimits { fallback_unread_max, fallback_message_max };
        let monitor = config.monitor.clone().map(Monitoring);
        let monitor = monitor.map(|monitor| (monitor, config.monitor_interval));
        Self { handshake: Some(handshake), used: 0, limits, observer, monitor }
    }

    /// Reads at most the next `count` bytes of the socket, and the descriptors sent with them.
    /// Returns `None` if no byte has arrived.
    fn read(&mut self, buffer: &mut [u8]) -> Result<Option<(usize, Vec<OwnedFd>)>, ProtocolError> {
        let Some(handshake) = &self.handshake else { return Ok(None) };
        let before = &handshake.first[self.used..];
        if !before.is_empty() {
            let count = before.len().min(buffer.len());
            buffer[..count].copy_from_slice(&before[..count]);
            self.used += count;
            return Ok(Some((count, Vec::new())));
        }
        match handshake.socket.receive(buffer, true) {
            Ok(received) if received.truncated => {
                let what = "descriptors were lost on the way: raise our limit of open descriptors";
                Err(ProtocolError::Refused { what: what.to_owned() })
            }
            Ok(received) if received.bytes == 0 => Err(ProtocolError::HungUp),
            Ok(received) => Ok(Some((received.bytes, received.fds))),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Err(ProtocolError::HungUp),
            Err(source) => Err(ProtocolError::System { what: "receiving", source }),
        }
    }

    fn send(
        &self,
        bytes: &[u8],
        descriptors: &[std::os::fd::BorrowedFd<'_>],
    ) -> Result<(), ProtocolError> {
        let Some(handshake) = &self.handshake else { return Ok(()) };
        // One send takes all bytes of a message at once, because the whole handshake is smaller
        // than any socket buffer.
        match handshake.socket.send(&[IoSlice::new(bytes)], descriptors, false, true) {
            Ok(count) if count == bytes.len() => Ok(()),
            Ok(_) => {
                let source = ErrorKind::WriteZero.into();
                Err(ProtocolError::System { what: "sending", source })
            }
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(ProtocolError::HungUp),
            Err(source) => Err(ProtocolError::System { what: "sending", source }),
        }
    }

    /// Builds the connection from the socket and the mapped memory, once both sides have finished
    /// the handshake.
    fn establish(
        &mut self,
        version: u8,
        made: Established,
    ) -> Result<Option<Connection>, ProtocolError> {
        let Some(handshake) = self.handshake.take() else { return Ok(None) };
        let Established { region, queue, backing, is_client, is_memfd } = made;
        let description = match (version, is_memfd) {
            (2, _) => "shmipc v2, files",
            (_, true) => "shmipc v3, memfd",
            (_, false) => "shmipc v3, files",
        };
        let read = handshake.first[self.used..].to_vec();
        let monitor = self.monitor.take().map(|(monitor, interval)| (monitor.0, interval));
        let parts = ConnectionParts {
            socket: handshake.socket,
            read,
            version,
            region,
            queue,
            is_client,
            trust: handshake.trust,
            driver_waker: handshake.driver_waker,
            policy: handshake.config.back_pressure_policy(),
            limits: self.limits,
            monitor,
            observer: Arc::clone(&self.observer),
            description,
            // Limit of the streams that this side opens: 0 for a server. In shmipc only the client
            // opens streams, and a client does not know a stream that the server opened.
            streams_max: if is_client { u32::MAX } else { 0 },
            backing,
        };
        let connection = transport::connection(parts);
        connection.map(Some).map_err(|source| ProtocolError::System { what: "setting up", source })
    }
}

/// The shared memory of an established connection: the buffer region, the queue, and the values
/// that keep their files in place.
struct Established {
    region: Arc<BufferRegion>,
    queue: (Producer, Consumer),
    backing: Vec<Arc<Backing>>,
    is_client: bool,
    is_memfd: bool,
}

#[derive(Debug)]
pub(crate) struct ClientNegotiation {
    machine: ClientHandshake,
    made: Option<(Buffer, Backing, Queue)>,
    socket: HandshakeSocket,
}

impl Negotiation for ClientNegotiation {
    fn progress(&mut self) -> Result<Option<Connection>, ProtocolError> {
        loop {
            while let Some(step) = self.machine.next() {
                match step {
                    Step::Send(bytes) => self.socket.send(&bytes, &[])?,
                    Step::SendDescriptors { byte } => {
                        if let Some((buffer, backing, _)) = &self.made {
                            self.socket.send(&[byte], &[buffer.backing.fd(), backing.fd()])?;
                        }
                    }
                    Step::Done { version } => return self.done(version),
                    // The steps `MapDescriptors` and `MapPaths` belong to a server: the state
                    // machine of a client's handshake never returns them.
                    Step::MapDescriptors { .. } | Step::MapPaths { .. } => {}
                }
            }
            let mut buffer = [0; 64];
            let missing = self.machine.missing().min(buffer.len());
            let Some((count, descriptors)) = self.socket.read(&mut buffer[..missing])? else {
                return Ok(None);
            };
            if !descriptors.is_empty() {
                let what = "a server sends no descriptors".to_owned();
                return Err(ProtocolError::Violation { what });
            }
            self.machine.feed(&buffer[..count])?;
        }
    }
}

impl ClientNegotiation {
    /// Begins a client's handshake over `handshake`'s socket. The caller has already created the
    /// client's regions.
    pub(crate) fn new(
        machine: ClientHandshake,
        made: (Buffer, Backing, Queue),
        socket: HandshakeSocket,
    ) -> Self {
        Self { machine, made: Some(made), socket }
    }

    fn done(&mut self, version: u8) -> Result<Option<Connection>, ProtocolError> {
        let Some((buffer, backing, queue)) = self.made.take() else { return Ok(None) };
        let queue = queue
            .split(Side::Client)
            .map_err(|damage| ProtocolError::Violation { what: damage.to_string() })?;
        let made = Established {
            region: buffer.region,
            queue,
            backing: vec![buffer.backing, Arc::new(backing)],
            is_client: true,
            is_memfd: version != 2,
        };
        self.socket.establish(version, made)
    }
}

/// The regions that a server has mapped for its client.
#[derive(Debug)]
struct Mapped {
    region: Arc<BufferRegion>,
    queue: Queue,
    is_memfd: bool,
    /// Files of the client that this process removes at the end of the session.
    kept: Vec<Arc<Backing>>,
}

#[derive(Debug)]
pub(crate) struct ServerNegotiation {
    machine: ServerHandshake,
    allowed: MemoryRules,
    queue_entries_max: u32,
    /// Whether the client may name files: it has credentials, or the settings allow files of
    /// clients without credentials.
    may_open_files: bool,
    /// The descriptors received from the client: first that of the buffers, then that of the queue.
    descriptors: Vec<OwnedFd>,
    mapped: Option<Mapped>,
    socket: HandshakeSocket,
}

impl Negotiation for ServerNegotiation {
    fn progress(&mut self) -> Result<Option<Connection>, ProtocolError> {
        loop {
            while let Some(step) = self.machine.next() {
                match step {
                    Step::Send(bytes) => self.socket.send(&bytes, &[])?,
                    Step::MapDescriptors { .. } => {
                        let mut descriptors = std::mem::take(&mut self.descriptors).into_iter();
                        let (Some(buffer), Some(queue)) = (descriptors.next(), descriptors.next())
                        else {
                            let what = "two descriptors were to come".to_owned();
                            return Err(ProtocolError::Violation { what });
                        };
                        let buffer =
                            PeerMemory::descriptor(buffer, &self.allowed).map_err(refused)?;
                        let queue =
                            PeerMemory::descriptor(queue, &self.allowed).map_err(refused)?;
                        self.map(buffer, queue, true)?;
                    }
                    Step::MapPaths { .. } if !self.may_open_files => {
                        let what = "nobody says who this client is, so the files that it names are not \
                                    opened: use a Unix socket, or Config::files_without_credentials(true)";
                        return Err(ProtocolError::Refused { what: what.to_owned() });
                    }
                    Step::MapPaths { queue, buffer } => {
                        let queue = PeerMemory::path(Path::new(&queue), &self.allowed);
                        let buffer = PeerMemory::path(Path::new(&buffer), &self.allowed);
                        self.map(buffer.map_err(refused)?, queue.map_err(refused)?, false)?;
                    }
                    Step::Done { version } => {
                        let Some(mapped) = self.mapped.take() else { return Ok(None) };
                        let Mapped { region, queue, is_memfd, kept: backing } = mapped;
                        let queue = queue.split(Side::Server).map_err(violated)?;
                        let made =
                            Established { region, queue, backing, is_client: false, is_memfd };
                        return self.socket.establish(version, made);
                    }
                    // The step `SendDescriptors` belongs to a client: the state machine of a
                    // server's handshake never returns it.
                    Step::SendDescriptors { .. } => {}
                }
            }
            let mut buffer = [0; 512];
            let missing = self.machine.missing().min(buffer.len());
            let Some((count, descriptors)) = self.socket.read(&mut buffer[..missing])? else {
                return Ok(None);
            };
            self.machine.feed(&buffer[..count], descriptors.len())?;
            self.descriptors.extend(descriptors);
        }
    }
}

impl ServerNegotiation {
    pub(crate) fn new(config: &Config, handshake: Handshake, observer: Arc<dyn Observer>) -> Self {
        let owner = handshake.credentials.map(|who| who.uid);
        let mut allowed = MemoryRules::new(config.region_bytes_max.into(), owner);
        allowed.directory.clone_from(&config.directory);
        allowed.is_guarded = config.guards_truncation;
        Self {
            machine: ServerHandshake::new(HandshakeLimits::default()),
            allowed,
            queue_entries_max: config.queue_entries_max,
            may_open_files: handshake.credentials.is_some() || config.files_without_credentials,
            descriptors: Vec::new(),
            mapped: None,
            socket: HandshakeSocket::new(handshake, config, observer),
        }
    }

    fn map(
        &mut self,
        buffer: PeerMemory,
        given_queue: PeerMemory,
        is_memfd: bool,
    ) -> Result<(), ProtocolError> {
        let region = open_buffer(&buffer).map_err(no_region)?;
        let queue = Queue::map(given_queue.map().map_err(refused)?, QueueLayout::NATIVE)
            .map_err(violated)?;
        if queue.capacity() > self.queue_entries_max {
            let what = format!(
                "a queue of {} elements exceeds Config::queue_entries_max, {}",
                queue.capacity(),
                self.queue_entries_max
            );
            return Err(ProtocolError::Refused { what });
        }
        let kept = [buffer, given_queue].into_iter().filter_map(keep).collect();
        self.mapped = Some(Mapped { region, queue, is_memfd, kept });
        self.machine.mapped();
        Ok(())
    }
}

pub(crate) fn no_region(error: RegionError) -> ProtocolError {
    ProtocolError::Refused { what: error.to_string() }
}

fn refused(error: crate::memory::BackingError) -> ProtocolError {
    ProtocolError::Refused { what: error.to_string() }
}

fn violated(damage: crate::region::Damage) -> ProtocolError {
    ProtocolError::Violation { what: damage.to_string() }
}
