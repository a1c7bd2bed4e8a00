// SPDX-License-Identifier: MIT OR Apache-2.0
//! One connection of a link, with its socket: it reads and writes bytes, and decides nothing.
//!
//! ```text
//!   socket ─ read ──▶ input ─▶ LinkState::receive
//!                       └ whole records and frames are taken at once: at most one stays in part
//!   LinkState::outgoing ─▶ write ─▶ LinkState::sent
//!   over shared memory only frames; the first byte each way carries memory and doorbell
//! ```
//!
//! # Invariants
//!
//! - The socket waits for EPOLLOUT only while a write would block.
//! - It is read whatever the application does, so that acknowledgements get through. The window
//!   bounds the bytes that accumulate.

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

/// One connection and its socket.
pub(super) struct Wire {
    pub(super) socket: Socket,
    /// Token of its descriptor in the reactor.
    pub(super) token: u64,
    pub(super) conn: Conn,
    pub(super) input: BytesMut,
    pub(super) peer: Peer,
    /// The connection is closed at this time unless it is attached.
    pub(super) deadline: Instant,
    /// Time at which it was attached.
    pub(super) active_since: Option<Instant>,
    /// At a client: the number of the dialer's address for which it was made.
    pub(super) aim: u64,
    /// The doorbells, if memory was offered.
    pub(super) doorbells: Option<Doorbells>,
    pub(super) is_write_blocked: bool,
}

/// Doorbells of the two ends.
pub(super) struct Doorbells {
    pub(super) own: Arc<Doorbell>,
    /// `None` until the peer's doorbell came.
    pub(super) peers: Option<Doorbell>,
    /// Limit in bytes for the memory that comes with the first byte.
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

    /// Reads what is there, and adds the result to `received`, also that of bytes before an error.
    /// Returns whether there were bytes.
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
                Ok((0, _)) => return Err(self.broken(core, "the peer hung up".to_owned())),
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

    /// Reads for the first time at a client: the server's descriptors come with this read, or
    /// never.
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

    /// Takes all whole records and frames of `input`.
    fn take(&mut self, core: &mut LinkState, received: &mut Received) -> Result<(), End> {
        let taken = core.receive_into(&mut self.conn, &mut self.input, received);
        if received.activated && self.active_since.is_none() {
            self.active_since = Some(Instant::now());
        }
        if self.conn.is_over() {
            // The connection has ended: what else the peer sends is dropped, and the socket is read
            // only to notice that the peer hangs up.
            self.input.clear();
        }
        // A length that the peer merely announces allocates no more than this.
        let missing = received.needed.saturating_sub(self.input.len());
        self.input.reserve(missing.min(RESERVE_MAX));
        taken
    }

    /// Takes everything that can still be read of a connection that cannot be written to: the peer
    /// may have sent much and left.
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

    /// Writes as much as the kernel takes.
    ///
    /// # Errors
    /// The connection cannot be written to. Bytes that can be read are still to be
    /// [drained](Self::drain).
    #[inline]
    pub(super) fn flush(&mut self, core: &mut LinkState, reactor: &Reactor) -> Result<(), End> {
        if core.is_replaced(&self.conn) {
            return Err(End::Replaced);
        }
        while core.has_outgoing(&self.conn) {
            // Usually this is one short message.
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

    /// Writes once, at most `SLICES` slices; `false` if the kernel takes nothing now.
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
            // Descriptors may not be sent here, or too many are in flight.
            Err(_) if shows_something => self.conn.drop_descriptor(),
            Err(error) => return Err(End::Broken(format!("the connection broke: {error}"))),
        }
        Ok(true)
    }

    /// The transport, as `Status` names it.
    pub(super) fn transport(&self) -> Transport {
        match self.socket.family() {
            _ if self.conn.is_shared() => Transport::SharedMemory,
            Family::Unix => Transport::Unix,
            Family::Tcp => Transport::Tcp,
        }
    }

    /// Whether attaching has taken too long.
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

    fn broken(&mut self, core: &mut LinkState, words: String) -> End {
        core.ended(&mut self.conn, End::Broken(words))
    }
}

/// Sends the reason why there is no connection. The caller closes the socket.
pub(crate) fn refuse(socket: &Socket, echo: Nonce, refusal: Refusal) {
    let mut bytes = Vec::new();
    codec::encode(&Frame::Refuse { echo, refusal }, &mut bytes);
    // The frame goes into an empty buffer. A client that does not receive it tries again.
    let _ = socket.write(&[IoSlice::new(&bytes)], true);
    let _ = socket.shutdown_write();
}

/// Maps the memory and takes the doorbell of two descriptors, if both are valid.
pub(super) fn map_peer_memory(
    descriptors: Vec<OwnedFd>,
    bytes_max: u64,
) -> Option<(PeerMapping, Doorbell)> {
    let [memory, doorbell] = <[OwnedFd; 2]>::try_from(descriptors).ok()?;
    let mapping = PeerMapping::map(memory.as_fd(), bytes_max).ok()?;
    Some((mapping, Doorbell::from_peer(doorbell).ok()?))
}

/// Reads once; returns the bytes read and the size of the buffer.
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
    /// The buffer of all reads of this thread. One buffer for each connection would take as much
    /// memory for ten thousand idle ones, and be zeroed for each read. Bytes copied from here are
    /// in the cache.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Bytes read together with descriptors; the rest is read afterwards.
const FIRST_BYTES: usize = 4 << 10;
/// Bytes that one read takes at most.
const READ_BYTES: usize = 64 << 10;
/// Bytes that are allocated ahead for an announced length, at most.
const RESERVE_MAX: usize = 1 << 20;
/// Reads of one connection before others have their turn.
const READS_MAX: u32 = 16;
/// Reads while draining: more than any window holds.
const DRAINS_MAX: u32 = 1 << 11;
/// Bytes handed to the kernel at a time, about.
const WRITE_BYTES: usize = 256 << 10;
/// Slices handed to the kernel at a time, at most.
const WRITE_SLICES: usize = 64;
/// So few bytes of the ring are a few records, and mostly few slices. If there are more slices, as
/// BLOBs have, the rest goes with the next call.
const FEW_BYTES: u64 = 256;
const FEW_SLICES: usize = 4;
