// SPDX-License-Identifier: MIT OR Apache-2.0
//! A wire: one connection of a link, with its socket. It reads and writes bytes; `LinkState`
//! decides what they mean.
//!
//! ```text
//!   socket ─ read ──▶ input ─▶ LinkState::receive
//!                       └ whole records and frames are taken at once: at most one stays in part
//!   LinkState::outgoing ─▶ write ─▶ LinkState::sent
//!   over shared memory: the socket carries only frames; the first byte in each direction brings
//!                       the descriptors of the sender's memory and doorbell
//! ```
//!
//! # Invariants
//!
//! - The reactor watches the socket for EPOLLOUT only while a write would block.
//! - The socket is read whether or not the application receives, so that acknowledgements get
//!   through. The peer's window bounds the bytes that accumulate.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use partywall_sys::epoll::EventFlags;
use partywall_sys::{Doorbell, Family, Socket};

use partywall_reconcile::attach::Nonce;

use crate::drive::Reactor;
use crate::link_state::PeerMapping;
use crate::link_state::{Conn, End, LinkState, Received};
use crate::protocol::codec;
use crate::protocol::frame::{Frame, Refusal};
use crate::status::Transport;
use partywall::Peer;

pub(super) struct Wire {
    pub(super) socket: Socket,
    pub(super) token: u64,
    pub(super) conn: Conn,
    pub(super) input: BytesMut,
    pub(super) peer: Peer,
    /// Time at which this end closes the connection if it is not attached by that time.
    pub(super) deadline: Instant,
    pub(super) active_since: Option<Instant>,
    /// At a client: the number of address changes (`aim` of the dialer) when the connection was
    /// begun. A lower number than the present one marks a former address.
    pub(super) aim: u64,
    /// The doorbells of both ends; `None` if this end did not offer its memory.
    pub(super) doorbells: Option<Doorbells>,
    pub(super) is_write_blocked: bool,
}

pub(super) struct Doorbells {
    pub(super) own: Arc<Doorbell>,
    /// The peer's doorbell; `None` until its descriptor has arrived.
    pub(super) peers: Option<Doorbell>,
    /// Maximum size in bytes of the peer's memory that this end maps. The memory's descriptor
    /// arrives with the first byte that the peer sends.
    pub(super) peer_bytes_max: u64,
}

impl Wire {
    pub(super) fn new(
        socket: Socket,
        token: u64,
        conn: Conn,
        input: BytesMut,
        peer: Peer,
        deadline: Instant,
    ) -> Self {
        Self {
            socket,
            token,
            conn,
            input,
            peer,
            deadline,
            active_since: None,
            aim: 0,
            doorbells: None,
            is_write_blocked: false,
        }
    }

    /// Reads the bytes that have arrived, and adds the effects of their records and frames to
    /// `received`, even if a later byte causes an error. Returns whether there were bytes.
    pub(super) fn read(
        &mut self,
        core: &mut LinkState,
        received: &mut Received,
    ) -> Result<bool, End> {
        let mut has_bytes = false;
        for _ in 0..READS_MAX {
            let read = match self.doorbells {
                Some(Doorbells { peers: None, .. }) => self.read_first(),
                _ => read_some(&self.socket, &mut self.input),
            };
            let (count, room) = match read {
                Ok((0, _)) => return Err(self.broken(core, self.hang_up().to_owned())),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    return Err(self.broken(core, format!("the connection broke: {error}")));
                }
            };
            has_bytes = true;
            self.take(core, received)?;
            if count < room {
                break;
            }
        }
        Ok(has_bytes)
    }

    /// Makes the first read of a client's connection. The descriptors of the server's memory and
    /// doorbell arrive with this read; if they do not, they never arrive.
    fn read_first(&mut self) -> io::Result<(usize, usize)> {
        let mut buffer = [0; FIRST_BYTES];
        let received = self.socket.receive(&mut buffer, true)?;
        self.input.extend_from_slice(&buffer[..received.bytes]);
        let doorbells = self.doorbells.take().filter(|_| !received.truncated);
        let peer_bytes_max = doorbells.as_ref().map_or(0, |doorbells| doorbells.peer_bytes_max);
        if let (Some(doorbells), Some((mapping, peers))) =
            (doorbells, map_peer_memory(received.fds, peer_bytes_max))
        {
            self.conn.set_peer_mapping(mapping);
            self.doorbells = Some(Doorbells { peers: Some(peers), ..doorbells });
        }
        Ok((received.bytes, FIRST_BYTES))
    }

    /// Takes all complete records and frames out of the bytes that were read from the socket, and
    /// adds their effects to `received`.
    fn take(&mut self, core: &mut LinkState, received: &mut Received) -> Result<(), End> {
        let taken = core.receive_into(&mut self.conn, &mut self.input, received);
        if received.activated && self.active_since.is_none() {
            self.active_since = Some(Instant::now());
        }
        if self.conn.is_over() {
            // The connection has ended: further bytes of the peer are dropped, and the socket is
            // read only to notice that the peer closes it.
            self.input.clear();
        }
        // A record states its length before its bytes arrive. `RESERVE_MAX` bounds the memory that
        // is allocated for bytes that the peer has only announced.
        let missing = received.needed.saturating_sub(self.input.len());
        self.input.reserve(missing.min(RESERVE_MAX));
        taken
    }

    /// Reads everything that has arrived on a connection that can no longer be written to. The peer
    /// may have sent many bytes before it closed the connection.
    pub(super) fn drain(&mut self, core: &mut LinkState, received: &mut Received, why: End) -> End {
        for _ in 0..DRAINS_MAX {
            match self.read(core, received) {
                Ok(true) => {}
                Ok(false) => break,
                Err(end) => return end,
            }
        }
        why
    }

    /// Writes as many of the connection's unsent bytes as the kernel takes.
    ///
    /// # Errors
    /// Fails if the connection can no longer be written to. The caller still has to
    /// [drain](Self::drain) the bytes that can be read.
    #[inline]
    pub(super) fn flush(&mut self, core: &mut LinkState, reactor: &Reactor) -> Result<(), End> {
        if core.is_replaced(&self.conn) {
            return Err(End::Replaced);
        }
        while core.has_outgoing(&self.conn) {
            // Usually the unsent bytes are one short message, and a write of few pieces of memory
            // (entries of its iovec) is enough for them.
            let goes_on = match core.unsent_bytes(&self.conn) <= FEW_BYTES {
                true => self.write_some::<FEW_SLICES>(core)?,
                false => self.write_some::<WRITE_SLICES>(core)?,
            };
            if !goes_on {
                return self.watch_writing(reactor, true);
            }
        }
        self.watch_writing(reactor, false)
    }

    /// Makes one write of unsent bytes, in at most `SLICES` pieces of memory (entries of its
    /// iovec); `false` if the kernel takes no bytes now.
    fn write_some<const SLICES: usize>(&mut self, core: &mut LinkState) -> Result<bool, End> {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let count = core.outgoing(&self.conn, WRITE_BYTES, &mut slices)?;
        debug_assert!(count > 0, "something is outgoing, and nothing is to be written");
        let slices = &slices[..count];
        let shows = self.conn.descriptor().zip(self.doorbells.as_ref());
        let shows_something = shows.is_some();
        let written = match shows {
            Some((memory, doorbells)) => {
                self.socket.send(slices, &[memory, doorbells.own.as_fd()], false, true)
            }
            None => self.socket.write(slices, true),
        };
        match written {
            Ok(bytes) => core.sent(&mut self.conn, bytes)?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            // The descriptors of this end's memory and doorbell could not be sent: the system may
            // forbid that, or too many descriptors are under way in sockets. The connection
            // continues without shared memory.
            Err(_) if shows_something => self.conn.drop_descriptor(),
            Err(error) => return Err(End::Broken(format!("the connection broke: {error}"))),
        }
        Ok(true)
    }

    pub(super) fn transport(&self) -> Transport {
        match self.socket.family() {
            _ if self.conn.is_shared() => Transport::SharedMemory,
            Family::Unix => Transport::Unix,
            Family::Tcp => Transport::Tcp,
        }
    }

    /// Whether the connection is not attached yet, although its deadline has passed.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        self.active_since.is_none() && self.deadline <= now
    }

    fn watch_writing(&mut self, reactor: &Reactor, is_blocked: bool) -> Result<(), End> {
        if is_blocked == self.is_write_blocked {
            return Ok(());
        }
        let interest = if is_blocked { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        let observer = reactor.rewatch(&self.socket, interest, self.token);
        observer.map_err(|error| End::Broken(format!("epoll: {error}")))?;
        self.is_write_blocked = is_blocked;
        Ok(())
    }

    /// Returns the reason, as text for an operator, why the connection broke if the peer has closed
    /// it.
    const fn hang_up(&self) -> &'static str {
        if self.active_since.is_some() {
            return "the peer hung up";
        }
        "the peer hung up during the handshake: is it an end of a link, and what does its log say?"
    }

    fn broken(&mut self, core: &mut LinkState, words: String) -> End {
        core.ended(&mut self.conn, End::Broken(words))
    }
}

/// Sends a client the reason why its connection is refused. The caller closes the socket.
pub(crate) fn refuse(socket: &Socket, echo: Nonce, refusal: Refusal) {
    let mut bytes = Vec::new();
    codec::encode(&Frame::Refuse { echo, refusal }, &mut bytes);
    // The frame fits into the socket's empty buffer, so the result of the write is ignored. A
    // client that does not receive the frame tries again.
    let _ = socket.write(&[IoSlice::new(&bytes)], true);
    let _ = socket.shutdown_write();
}

/// Maps the peer's memory and takes the peer's doorbell, from the two descriptors that arrived;
/// `None` unless both are valid.
pub(super) fn map_peer_memory(
    descriptors: Vec<OwnedFd>,
    bytes_max: u64,
) -> Option<(PeerMapping, Doorbell)> {
    let [memory, doorbell] = <[OwnedFd; 2]>::try_from(descriptors).ok()?;
    let mapping = PeerMapping::map(memory.as_fd(), bytes_max).ok()?;
    Some((mapping, Doorbell::from_peer(doorbell).ok()?))
}

/// Makes one read from `socket`, and adds the bytes to `input`. Returns the number of bytes read
/// and the size of the read buffer.
pub(crate) fn read_some(socket: &Socket, input: &mut BytesMut) -> io::Result<(usize, usize)> {
    SCRATCH.with_borrow_mut(|scratch| {
        if scratch.is_empty() {
            scratch.resize(READ_BYTES, 0);
        }
        let count = socket.read(scratch, true)?;
        input.extend_from_slice(&scratch[..count]);
        Ok((count, READ_BYTES))
    })
}

thread_local! {
    /// The buffer for all reads of this thread. If each connection had a buffer, ten thousand idle
    /// connections would use much memory, and each read would have to zero its buffer. The bytes
    /// that are copied from this buffer are in the cache.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Size in bytes of the buffer of a client's first read, the one with which descriptors may arrive.
/// It bounds no message: later reads take further bytes.
const FIRST_BYTES: usize = 4 << 10;
/// Size in bytes of the buffer for one read from a socket. A thread has one such buffer for all its
/// connections.
const READ_BYTES: usize = 64 << 10;
/// Maximum number of bytes that are allocated at once for a record of which the peer has sent only
/// the length.
const RESERVE_MAX: usize = 1 << 20;
/// Maximum number of reads of one connection before other connections of the group are read.
const READS_MAX: u32 = 16;
/// Maximum number of reads while draining a broken connection. They take up to 128 MiB; a peer that
/// sends endlessly does not keep this end busy.
const DRAINS_MAX: u32 = 1 << 11;
/// Number of bytes after which no further record is added to one write to the socket.
const WRITE_BYTES: usize = 256 << 10;
/// Maximum number of pieces of memory (entries of the iovec) that one write hands to the kernel.
const WRITE_SLICES: usize = 64;
/// Number of unsent bytes up to which a write takes only `FEW_SLICES` pieces of memory (entries of
/// its iovec), enough for a few records. If there are more pieces, as for a message in the slab,
/// the next write takes the others.
const FEW_BYTES: u64 = 256;
const FEW_SLICES: usize = 4;
