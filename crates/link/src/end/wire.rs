// SPDX-License-Identifier: MIT OR Apache-2.0
//! One connection of a link, with its socket: bytes in, bytes out, nothing decided.
//!
//! ```text
//!   socket ─ read ──▶ input ─▶ LinkState::receive          LinkState::outgoing ─▶ write ─▶ LinkState::sent
//!                       └ what is whole is taken at once: `input` holds at most one record or frame in part
//!   over shared memory only frames; with the first byte of either side go, and come, memory and bell
//! ```
//!
//! # Invariants
//!
//! - EPOLLOUT is asked for only while a write would block.
//! - It is read whatever the application does, so that acknowledgements get through; the window bounds what piles up.

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

/// See the module.
pub(super) struct Wire {
    pub(super) socket: Socket,
    /// Of its descriptor in the hub.
    pub(super) token: u64,
    pub(super) conn: Conn,
    pub(super) input: BytesMut,
    pub(super) peer: Peer,
    /// When it is given up unless it is attached.
    pub(super) deadline: Instant,
    /// Since when it is attached.
    pub(super) active_since: Option<Instant>,
    /// A client's: what its dialer's was.
    pub(super) aim: u64,
    /// If memory was offered.
    pub(super) doorbells: Option<Doorbells>,
    pub(super) is_write_blocked: bool,
}

/// Who is rung, and by whom.
pub(super) struct Doorbells {
    pub(super) own: Arc<Doorbell>,
    /// `None` until it came.
    pub(super) peers: Option<Doorbell>,
    /// The most that is mapped of what comes with the first byte.
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

    /// Takes what is there, and adds to `received` what became of it, also of what came before an error. Whether there was anything.
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

    /// A client's first read: what the server shows comes with it, or never.
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

    /// Takes what is whole of `input`.
    fn take(&mut self, core: &mut LinkState, received: &mut Received) -> Result<(), End> {
        let taken = core.receive_into(&mut self.conn, &mut self.input, received);
        if received.activated && self.active_since.is_none() {
            self.active_since = Some(Instant::now());
        }
        if self.conn.is_over() {
            // Read on only to see the peer hang up.
            self.input.clear();
        }
        // What the neighbour only says it will send takes no memory beyond that.
        let missing = received.needed.saturating_sub(self.input.len());
        self.input.reserve(missing.min(RESERVE_MAX));
        taken
    }

    /// Takes all that is still there of a connection that can no longer be written to: the neighbour may have said much and left.
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

    /// Writes what there is, as far as the kernel takes it.
    ///
    /// # Errors
    /// It cannot be written to. What is there to read is still to be [drained](Self::drain).
    #[inline]
    pub(super) fn flush(&mut self, core: &mut LinkState, reactor: &Reactor) -> Result<(), End> {
        if core.is_replaced(&self.conn) {
            return Err(End::Replaced);
        }
        while core.has_outgoing(&self.conn) {
            // One short message, mostly.
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

    /// Writes once, of so many slices at most; `false`: the kernel takes nothing now.
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
            // Where no descriptors may be sent, or too many are under way.
            Err(_) if shows_something => self.conn.drop_descriptor(),
            Err(error) => return Err(End::Broken(format!("the connection broke: {error}"))),
        }
        Ok(true)
    }

    /// What the application calls it.
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
        let end = End::Broken(words);
        core.ended(&mut self.conn, end.clone());
        end
    }
}

/// Says why there will be no connection; it is to be closed.
pub(crate) fn refuse(socket: &Socket, echo: Nonce, refusal: Refusal) {
    let mut bytes = Vec::new();
    codec::encode(&Frame::Refuse { echo, refusal }, &mut bytes);
    // It goes into an empty buffer; a client that hears nothing tries again.
    let _ = socket.write(&[IoSlice::new(&bytes)], true);
    let _ = socket.shutdown_write();
}

/// The memory and the bell that came in two descriptors, if both are as they should be.
pub(super) fn map_peer_memory(
    descriptors: Vec<OwnedFd>,
    bytes_max: u64,
) -> Option<(PeerMapping, Doorbell)> {
    let [memory, doorbell] = <[OwnedFd; 2]>::try_from(descriptors).ok()?;
    let mapping = PeerMapping::map(memory.as_fd(), bytes_max).ok()?;
    Some((mapping, Doorbell::from_peer(doorbell).ok()?))
}

/// Reads once, and says of how many bytes there was room for.
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
    /// Where the kernel copies to. A buffer for each connection would be as long for ten thousand idle ones, and would have to be
    /// zeroed for each read; what is copied from here is in the cache.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// As much may come with descriptors; the rest comes behind it.
const FIRST_BYTES: usize = 4 << 10;
/// The most that one read takes.
const READ_BYTES: usize = 64 << 10;
/// The most room that is made ahead of bytes that were announced.
const RESERVE_MAX: usize = 1 << 20;
/// Then it is the turn of other connections.
const READS_MAX: u32 = 16;
/// More than any window holds.
const DRAINS_MAX: u32 = 1 << 11;
/// About as much is handed to the kernel at a time.
const WRITE_BYTES: usize = 256 << 10;
/// In so many pieces.
const WRITE_SLICES: usize = 64;
/// So little of the ring is a few records, and so few pieces mostly; of more, as BLOBs have, the rest goes with the next call.
const FEW_BYTES: u64 = 256;
const FEW_SLICES: usize = 4;
