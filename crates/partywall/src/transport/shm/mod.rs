// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared memory: two regions, each written by its owner only (SPEC 3 to 7).
//!
//! ```text
//!   ShmSender ─────┐                                  ┌──── ShmReceiver
//!    producer      │           SharedMemory           │      consumer
//!    blob memory   ├─ wait points, doorbells, ────────┤      segments
//!    sleeper: space│  release ring, peer's words      │      sleeper: records
//!                  └──────────────┬───────────────────┘
//!                       View, View, View: blocks of the peer that are still in use
//! ```
//!
//! The two ends share no mutable memory but the release ring. Views on any thread write to it,
//! behind a lock that is private to this process. The control socket carries doorbells, segment
//! descriptors and hang-ups, but never payload, so nothing can overtake the ring.

mod blob_memory;
mod control_socket;
#[cfg(shuttle)]
pub(crate) mod model;
mod receiver;
mod region;
mod segments;
mod sender;
#[cfg(not(shuttle))]
mod wait_point;
#[cfg(shuttle)]
#[path = "wait_point_shuttle.rs"]
mod wait_point;

pub(crate) use receiver::ShmReceiver;
pub(crate) use region::{OwnRegion, PeerRegion, PeerRegionError};
pub(crate) use sender::ShmSender;
#[cfg(shuttle)]
pub(crate) use wait_point::Side;

use crate::config::Config;
use crate::error::Fault;
use crate::peer::{Peer, Trust};
use crate::transport::{ConnectionState, ProgressSnapshot, SpaceWaiter};
use control_socket::{ControlEvents, ControlSocket};
use partywall_layout::Violation;
use partywall_layout::hello::CONTROL_DOORBELL;
use partywall_layout::segment::{ASLEEP_RECORDS, ASLEEP_ROOM, CONSUMED, GONE, RELEASED};
use partywall_ring::{PeerMem, Releaser, Wake, Waker};
use partywall_sys::poll::{self, PollFd, PollFlags};
use partywall_sys::{Doorbell, ForkGuard, PidFd, Socket};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use wait_point::{WaitPoint, Woken};

/// State that both ends of one side, and its views, share.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    connection_state: ConnectionState,
    /// The value of the fork guard's word in the process that may use the connection;
    /// [`VIOLATED`] once the peer broke a rule. Both ends compare the two words in every call.
    owner: AtomicU64,
    limits: Limits,
    socket: Socket,
    /// `None` where the kernel or the namespaces have none. Then only the socket reports the peer's
    /// death.
    process: Option<PidFd>,
    doorbells: Doorbells,
    /// Where the receiving end sleeps.
    records: WaitPoint,
    /// Where the sending end sleeps.
    space: WaitPoint,
    /// The peer's control page.
    peer_region: PeerMem,
    control_socket: Mutex<ControlSocket>,
    releaser: Mutex<Releaser>,
    space_waker: Waker,
    /// How many of the two ends are open.
    ends_open: Mutex<u8>,
    /// Blocks that are reserved, and neither sent nor freed: for a model to check.
    #[cfg(shuttle)]
    reserved: std::sync::atomic::AtomicI64,
}

/// Limits that both sides agreed on, in bytes unless the field says otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Memory of our segments at most: the smaller of our own limit and the peer's.
    pub own_memory: u64,
    /// Whether the peer's limit is the smaller one.
    pub own_memory_is_peers: bool,
    /// How many of our segments the peer maps at a time.
    pub own_segments: u32,
    /// Length of the longest message that the peer receives.
    pub peer_message: u64,
    /// How many blocks the peer holds at a time.
    pub peer_releases: u32,
    /// Length of the longest message that this side receives.
    pub message: u64,
    /// Memory of the peer that this side maps at most.
    pub map: u64,
    /// How many segments of the peer this side maps at a time.
    pub segments: u32,
}

/// How the two sides wake each other.
#[derive(Debug)]
pub(crate) enum Doorbells {
    /// By the peer's eventfds.
    Eventfd {
        /// Notified when there are records for the peer.
        records: Doorbell,
        /// Notified when there is space for the peer.
        space: Doorbell,
    },
    /// By a byte on the control socket.
    Byte,
    /// By waking the peer's wait points, in a model.
    #[cfg(shuttle)]
    Model(Arc<Side>),
}

/// The parts of a connection over shared memory, once both sides are ready.
pub(crate) struct ShmParts {
    pub socket: Socket,
    pub peer: Peer,
    pub process: Option<PidFd>,
    pub guard: ForkGuard,
    pub limits: Limits,
    pub own: OwnRegion,
    pub peer_region: PeerRegion,
    /// The doorbells that wake this side: for records, for space.
    pub own_doorbells: (Doorbell, Doorbell),
    pub doorbells: Doorbells,
}

/// One of the two sleepers of the peer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sleeping {
    /// The receiving end, which waits for records.
    ForRecords,
    /// The sending end, which waits for space.
    ForSpace,
}

/// Makes the two ends of a connection.
pub(crate) fn assemble(parts: ShmParts, config: &Config) -> io::Result<(ShmSender, ShmReceiver)> {
    let ShmParts {
        socket,
        peer,
        process,
        guard,
        limits,
        own,
        peer_region,
        own_doorbells,
        doorbells,
    } = parts;
    let is_byte = matches!(doorbells, Doorbells::Byte);
    let records = WaitPoint::new(own_doorbells.0, &socket, process.as_ref(), is_byte)?;
    let space = WaitPoint::new(own_doorbells.1, &socket, process.as_ref(), is_byte)?;
    let sender = sender::ShmSenderParts {
        ring: own.ring,
        ring_size: own.geometry.ring,
        asleep: own.asleep_room,
        counters: own.sending_counters,
        slab: own.slab,
        release_ring: peer_region.release_ring,
    };
    let receiver = receiver::ShmReceiverParts {
        ring: peer_region.ring,
        ring_size: peer_region.geometry.ring,
        consumed: own.consumed,
        asleep: own.asleep_records,
        counters: own.receiving_counters,
        slab: peer_region.slab,
        region_bytes: peer_region.geometry.region_bytes,
    };
    let control = peer_region.control;
    let shm = Arc::new(SharedMemory {
        owner: AtomicU64::new(guard.value()),
        connection_state: ConnectionState::new(guard, peer),
        socket,
        process,
        doorbells,
        records,
        space,
        control_socket: Mutex::new(ControlSocket::new(limits.segments)),
        releaser: Mutex::new(Releaser::new(own.release_ring, own.released)),
        space_waker: Waker::new(control.clone(), word(ASLEEP_ROOM)),
        limits,
        ends_open: Mutex::new(2),
        peer_region: control,
        #[cfg(shuttle)]
        reserved: std::sync::atomic::AtomicI64::new(0),
    });
    let sender = ShmSender::new(Arc::clone(&shm), sender, config);
    Ok((sender, ShmReceiver::new(shm, receiver)))
}

impl SharedMemory {
    fn records_descriptor(&self) -> BorrowedFd<'_> {
        self.records.as_fd()
    }

    /// Fails in a forked child, and after the peer broke a rule. The ends call it only when the
    /// words differ that they compare.
    #[cold]
    fn check(&self) -> Result<(), Fault> {
        self.connection_state.check()
    }

    fn violated(&self, violation: Violation) -> Fault {
        let fault = self.connection_state.violated(violation, &self.socket);
        // ORDER: Relaxed: the word guards no other memory. An end that reads the former value does
        // one more operation on memory that it checks as always.
        self.owner.store(VIOLATED, Ordering::Relaxed);
        fault
    }

    #[inline]
    fn is_untrusted(&self) -> bool {
        self.connection_state.peer.trust == Trust::Untrusted
    }

    /// Wakes one of the peer's sleepers.
    fn notify(&self, sleeping: Sleeping) {
        // If this fails, the peer is dead or was notified already; both show elsewhere.
        let _ = match (&self.doorbells, sleeping) {
            (Doorbells::Eventfd { records, .. }, Sleeping::ForRecords) => records.notify(),
            (Doorbells::Eventfd { space, .. }, Sleeping::ForSpace) => space.notify(),
            (Doorbells::Byte, _) => {
                self.socket.write(&[IoSlice::new(&[CONTROL_DOORBELL])], true).map(|_| ())
            }
            #[cfg(shuttle)]
            (Doorbells::Model(side), sleeping) => {
                side.notify(sleeping);
                Ok(())
            }
        };
    }

    /// Notifies the peer of space if it sleeps for it; whether it did.
    #[inline]
    fn wake_for_space(&self) -> bool {
        let must_notify = self.space_waker.check() == Wake::Notify;
        if must_notify {
            self.notify(Sleeping::ForSpace);
        }
        must_notify
    }

    /// Counts blocks that are reserved, in a model.
    #[cfg(shuttle)]
    fn note_reserved(&self, change: i64) {
        // ORDER: Relaxed: shuttle runs one thread at a time.
        self.reserved.fetch_add(change, Ordering::Relaxed);
    }

    /// Releases a block to the peer. `count` runs before the next block is released.
    #[inline]
    fn release(&self, block: u64, count: impl FnOnce()) {
        if self.connection_state.guard.is_child() {
            return;
        }
        #[cfg(shuttle)]
        switch_point();
        let mut releaser = lock(&self.releaser);
        releaser.release(block);
        count();
        drop(releaser);
        #[cfg(shuttle)]
        switch_point();
        let _ = self.wake_for_space();
    }

    /// Sleeps until there may be records; whether the peer is gone.
    fn sleep_for_records(&self, deadline: Option<Instant>) -> io::Result<bool> {
        let woken = self.records.sleep(deadline)?;
        // A receiver that is woken by a message often answers, and then reads this word.
        self.peer_region.prefetch(word(ASLEEP_RECORDS));
        Ok(self.handle_events(woken, &self.space))
    }

    /// Whether the peer has hung up or died. Consumes no wake-up: one that another thread sleeps
    /// for must not be lost.
    fn is_peer_gone(&self) -> bool {
        let hang_up = PollFd::new(&self.socket, PollFlags::RDHUP);
        let has_hung_up =
            poll::wait(&mut [hang_up], Some(Instant::now())).is_ok_and(|count| count > 0);
        has_hung_up || self.process.as_ref().is_some_and(PidFd::is_dead)
    }

    /// Acts on the events that woke a sleeper; whether the peer is gone.
    fn handle_events(&self, woken: Woken, other: &WaitPoint) -> bool {
        if !woken.socket {
            return woken.died;
        }
        if !matches!(self.doorbells, Doorbells::Byte) {
            // Only a hang-up makes this socket readable here. Descriptors that came before it stay
            // there until their records ask for them.
            return true;
        }
        match self.read_control(other) {
            Ok(events) => events.hung_up || woken.died,
            Err(violation) => {
                let _ = self.violated(violation);
                true
            }
        }
    }

    /// Reads the control socket. A doorbell may be meant for the other sleeper of this side, so
    /// that one is notified, too.
    fn read_control(&self, other: &WaitPoint) -> Result<ControlEvents, Violation> {
        let events = lock(&self.control_socket).read(&self.socket)?;
        if events.notified {
            other.notify_self();
        }
        Ok(events)
    }

    /// Closes one of the two ends; with the last one the peer sees a hang-up.
    fn depart(&self) {
        let mut open = lock(&self.ends_open);
        *open -= 1;
        let is_last = *open == 0;
        drop(open);
        if is_last {
            // Not only close(): a forked child, or a view, may keep the descriptor.
            let _ = self.socket.shutdown_both();
            #[cfg(shuttle)]
            if let Doorbells::Model(peer) = &self.doorbells {
                peer.hang_up();
            }
        }
    }
}

impl SpaceWaiter for SharedMemory {
    #[inline]
    fn is_inherited(&self) -> bool {
        self.connection_state.guard.is_child()
    }

    #[inline]
    fn snapshot(&self) -> ProgressSnapshot {
        let is_gone = self.peer_region.peek(word(ASLEEP_RECORDS)) == GONE;
        ProgressSnapshot([
            self.peer_region.peek(word(CONSUMED)),
            self.peer_region.peek(word(RELEASED)),
            u64::from(is_gone),
        ])
    }

    fn can_spin(&self) -> bool {
        true
    }

    fn sleep(&self, deadline: Option<Instant>) -> io::Result<bool> {
        let woken = self.space.sleep(deadline)?;
        Ok(self.handle_events(woken, &self.records))
    }

    fn notify_self(&self) {
        self.space.notify_self();
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.space.as_fd()
    }
}

/// Locks a mutex whose holders never panic half-way.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The offset of a word in the control page.
#[expect(clippy::cast_possible_truncation, reason = "within a page")]
const fn word(offset: u64) -> usize {
    offset as usize
}

/// Value of [`SharedMemory::owner`] after a violation: no fork guard has it.
const VIOLATED: u64 = u64::MAX;

/// Lets shuttle run another thread: here the two sides meet in memory, which shuttle does not see.
#[cfg(shuttle)]
fn switch_point() {
    // ORDER: SeqCst: shuttle knows no other. The value means nothing.
    shuttle::sync::atomic::AtomicBool::new(false).load(Ordering::SeqCst);
}
