// SPDX-License-Identifier: MIT OR Apache-2.0
//! Native shared memory: two halves, each written by its owner only (SPEC 3 to 7).
//!
//! ```text
//!   WallSender ────┐                                  ┌──── WallReceiver
//!    producer      │            Wall (shared)         │      consumer
//!    slab          ├─ doors, bells, release ring,  ───┤      segments
//!    sleeper: room │  neighbour's words, fork guard   │      sleeper: records
//!                  └──────────────┬───────────────────┘
//!                       View, View, View: blocks we still look at
//! ```
//!
//! The sending and the receiving end share no mutable memory but the release ring, which views on any
//! thread write to, behind a lock that is private to this process. The socket carries bells, segment
//! descriptors and the news of the end, never payload, so nothing can overtake the ring.

mod assembly;
mod batch;
mod blob;
mod control_socket;
mod counters;
mod early;
mod fragments;
mod growth;
mod receiver;
mod segments;
mod sender;
mod wait_point;
mod waking;

pub(crate) use receiver::ShmReceiver;
pub(crate) use segments::View;
pub(crate) use sender::ShmSender;

use crate::config::Config;
use crate::error::{Closed, Fault};
use crate::peer::{Peer, Trust};
use crate::region::{OwnRegion, PeerRegion};
use crate::transport::ProgressSnapshot;
use crate::transport::connection_state::ConnectionState;
use control_socket::{ControlSocket, News};
use partywall_layout::Violation;
use partywall_layout::hello::CONTROL_DOORBELL;
use partywall_layout::segment::{ASLEEP_RECORDS, ASLEEP_ROOM, CONSUMED, GONE, RELEASED};
use partywall_ring::{PeerMem, Releaser, Wake, Waker};
use partywall_sys::poll::{self, PollFd, PollFlags};
use partywall_sys::{Doorbell, ForkGuard, PidFd, Socket};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use wait_point::{WaitPoint, Woken};

/// What both ends of one side, and its views, share.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    connection_state: ConnectionState,
    limits: Limits,
    socket: Socket,
    /// `None` where the kernel or the namespaces have none: then the socket tells alone.
    process: Option<PidFd>,
    doorbells: Doorbells,
    /// Where we sleep until records come.
    records: WaitPoint,
    /// Where we sleep until room comes.
    room: WaitPoint,
    /// The neighbour's control page.
    peer_region: PeerMem,
    control_socket: Mutex<ControlSocket>,
    releaser: Mutex<Releaser>,
    room_waker: Waker,
    /// How many of our two ends are open.
    ends_open: Mutex<u8>,
}

/// What both sides agreed to, in bytes unless it says otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The most slab memory of ours besides the half: our own limit and the neighbour's.
    pub own_memory: u64,
    /// Whether the neighbour's limit is the smaller one.
    pub own_memory_is_peers: bool,
    /// How many segments of ours the neighbour maps at a time.
    pub own_segments: u32,
    /// The longest message the neighbour receives.
    pub peer_message: u64,
    /// How many blocks the neighbour holds at a time.
    pub peer_releases: u32,
    /// The longest message we receive.
    pub message: u64,
    /// The most memory of the neighbour that we map.
    pub map: u64,
    /// How many segments of the neighbour we map at a time.
    pub segments: u32,
}

/// How the two sides wake each other.
#[derive(Debug)]
pub(crate) enum Doorbells {
    /// By the neighbour's eventfds.
    Eventfd {
        /// Rung when records came for it.
        records: Doorbell,
        /// Rung when room came for it.
        room: Doorbell,
    },
    /// By a byte on the socket.
    Byte,
}

/// Everything a wall is made of, once both sides are ready.
pub(crate) struct Parts {
    pub socket: Socket,
    pub peer: Peer,
    pub process: Option<PidFd>,
    pub guard: ForkGuard,
    pub limits: Limits,
    pub own: OwnRegion,
    pub peer_region: PeerRegion,
    /// The bells we sleep by: for records, for room.
    pub own_doorbells: (Doorbell, Doorbell),
    pub doorbells: Doorbells,
}

/// Which of the neighbour's sleepers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sleeping {
    /// The one that waits for records.
    ForRecords,
    /// The one that waits for room.
    ForRoom,
}

/// Puts the parts together.
pub(crate) fn assemble(parts: Parts, config: &Config) -> io::Result<(ShmSender, ShmReceiver)> {
    let Parts { socket, peer, process, guard, limits, own, peer_region, own_doorbells, doorbells } =
        parts;
    let is_byte = matches!(doorbells, Doorbells::Byte);
    let records = WaitPoint::new(own_doorbells.0, &socket, process.as_ref(), is_byte)?;
    let room = WaitPoint::new(own_doorbells.1, &socket, process.as_ref(), is_byte)?;
    let control = peer_region.control.clone();
    let shm = Arc::new(SharedMemory {
        connection_state: ConnectionState::new(guard, peer),
        socket,
        process,
        doorbells,
        records,
        room,
        control_socket: Mutex::new(ControlSocket::new(limits.segments)),
        releaser: Mutex::new(Releaser::new(own.release_ring, own.released)),
        room_waker: Waker::new(control.clone(), word(ASLEEP_ROOM)),
        limits,
        ends_open: Mutex::new(2),
        peer_region: control,
    });
    let sender = sender::Parts {
        ring: own.ring,
        ring_size: own.geometry.ring,
        asleep: own.asleep_room,
        counters: own.sending_counters,
        slab: own.slab,
        release_ring: peer_region.release_ring,
    };
    let receiver = receiver::Parts {
        ring: peer_region.ring,
        ring_size: peer_region.geometry.ring,
        consumed: own.consumed,
        asleep: own.asleep_records,
        counters: own.receiving_counters,
        slab: peer_region.slab,
        region_bytes: peer_region.geometry.region_bytes,
    };
    let sender = ShmSender::new(Arc::clone(&shm), sender, config);
    Ok((sender, ShmReceiver::new(shm, receiver)))
}

impl SharedMemory {
    pub(crate) fn records_descriptor(&self) -> BorrowedFd<'_> {
        self.records.as_fd()
    }

    pub(crate) fn room_descriptor(&self) -> BorrowedFd<'_> {
        self.room.as_fd()
    }

    /// Whether this is a forked child: our half is not mapped here.
    #[inline]
    pub(crate) fn is_inherited(&self) -> bool {
        self.connection_state.guard.is_child()
    }

    /// Our own process, not a forked child of it, and nothing untrue was heard from the neighbour.
    #[inline]
    fn check(&self) -> Result<(), Fault> {
        self.connection_state.check()
    }

    pub(crate) fn violated(&self, violation: Violation) -> Fault {
        self.connection_state.violated(violation, &self.socket)
    }

    /// The longest message that may come.
    pub(crate) const fn message_max(&self) -> u64 {
        self.limits.message
    }

    #[inline]
    fn is_untrusted(&self) -> bool {
        self.connection_state.peer.trust == Trust::Untrusted
    }

    /// What a waiter for room looks at.
    #[inline]
    pub(crate) fn snapshot(&self) -> ProgressSnapshot {
        let is_gone = self.peer_region.peek(word(ASLEEP_RECORDS)) == GONE;
        ProgressSnapshot([
            self.peer_region.peek(word(CONSUMED)),
            self.peer_region.peek(word(RELEASED)),
            u64::from(is_gone),
        ])
    }

    /// Wakes the neighbour.
    fn notify(&self, sleeping: Sleeping) {
        // A ring that fails finds the neighbour dead or already rung; both show elsewhere.
        let _ = match (&self.doorbells, sleeping) {
            (Doorbells::Eventfd { records, .. }, Sleeping::ForRecords) => records.notify(),
            (Doorbells::Eventfd { room, .. }, Sleeping::ForRoom) => room.notify(),
            (Doorbells::Byte, _) => {
                self.socket.write(&[IoSlice::new(&[CONTROL_DOORBELL])], true).map(|_| ())
            }
        };
    }

    /// Rings for room if the neighbour sleeps for it.
    #[inline]
    fn wake_for_room(&self) -> bool {
        let must_ring = self.room_waker.check() == Wake::Notify;
        if must_ring {
            self.notify(Sleeping::ForRoom);
        }
        must_ring
    }

    /// Gives a block back to the neighbour, and counts that before the next one is given back.
    #[inline]
    fn release(&self, block: u64, count: impl FnOnce()) {
        if self.connection_state.guard.is_child() {
            return;
        }
        let mut releaser = lock(&self.releaser);
        releaser.release(block);
        count();
        drop(releaser);
        let _ = self.wake_for_room();
    }

    pub(crate) fn sleep_for_room(&self, deadline: Option<Instant>) -> io::Result<bool> {
        let woken = self.room.sleep(deadline)?;
        Ok(self.heed(woken, &self.records))
    }

    fn sleep_for_records(&self, deadline: Option<Instant>) -> io::Result<bool> {
        let woken = self.records.sleep(deadline)?;
        // Whoever is woken by a message is likely to answer, and then looks whether the neighbour sleeps.
        self.peer_region.prefetch(word(ASLEEP_RECORDS));
        Ok(self.heed(woken, &self.room))
    }

    /// Whether the neighbour has hung up or died. Takes nothing: a wake-up that somebody sleeps for must
    /// not be lost to a question.
    fn is_peer_gone(&self) -> bool {
        let hang_up = PollFd::new(&self.socket, PollFlags::RDHUP);
        let has_hung_up =
            poll::wait(&mut [hang_up], Some(Instant::now())).is_ok_and(|count| count > 0);
        has_hung_up || self.process.as_ref().is_some_and(PidFd::is_dead)
    }

    /// Wakes our own thread that sleeps for room, because something became free on this side.
    pub(crate) fn wake_own_room(&self) {
        self.room.notify_self();
    }

    /// Acts on what woke us; whether the neighbour is gone.
    fn heed(&self, woken: Woken, other: &WaitPoint) -> bool {
        if !woken.socket {
            return woken.died;
        }
        if matches!(self.doorbells, Doorbells::Eventfd { .. }) {
            // Only a hang-up makes this socket readable for us. Descriptors that came before it
            // stay there until their records ask for them.
            return true;
        }
        match self.read_control(other) {
            Ok(news) => news.hung_up || woken.died,
            Err(violation) => {
                let _ = self.violated(violation);
                true
            }
        }
    }

    /// Reads the socket; a bell may have been meant for the other sleeper of ours, so it rings too.
    fn read_control(&self, other: &WaitPoint) -> Result<News, Violation> {
        let news = lock(&self.control_socket).read(&self.socket)?;
        if news.doorbell {
            other.notify_self();
        }
        Ok(news)
    }

    /// One of our ends closes; with the last one the neighbour sees us hang up.
    fn depart(&self) {
        let mut open = lock(&self.ends_open);
        *open -= 1;
        if *open == 0 {
            // Not only close(): a forked child, or a view, may keep the descriptor.
            let _ = self.socket.shutdown_both();
        }
    }

    /// How the connection ended, when it did not end in order.
    const fn disconnected() -> Closed {
        Closed::Disconnected
    }
}

/// A lock of ours whose holders never panic half-way.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The offset of a word in the control page.
#[expect(clippy::cast_possible_truncation, reason = "within a page")]
const fn word(offset: u64) -> usize {
    offset as usize
}
