// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shared memory transport: two regions, each written only by its owner (SPEC 3 to 7).
//!
//! ```text
//!   ShmSender ─────┐                                  ┌──── ShmReceiver
//!    producer      │           SharedMemory           │      consumer
//!    blob memory   ├─ wait points, doorbells, ────────┤      segments
//!    sleeper: room │  release ring, peer's words      │      sleeper: records
//!                  └──────────────┬───────────────────┘
//!                       View, View, View: blocks of the peer that are still in use
//! ```
//!
//! Sender and receiver of one side share no mutable memory except the release ring and the hint
//! `has_waited`. Views on any thread write to the release ring, behind a lock of this process. The
//! control socket carries doorbell bytes, segment descriptors and hang-ups, but never payload, so
//! nothing can overtake the ring.

mod blob_memory;
mod control_socket;
mod identity;
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
pub(crate) use region::{
    BlankRegion, OwnRegion, PeerRegion, PeerRegionError, Purpose, SpareRegion,
};
pub(crate) use sender::ShmSender;
#[cfg(shuttle)]
pub(crate) use wait_point::Side;

use crate::cache_padded::CachePadded;
use crate::config::Config;
use crate::error::{Closed, Fault};
use crate::peer::{Peer, Trust};
use crate::transport::waiting_failed;
use crate::transport::{ConnectionState, FormerTransport, Memory, ProgressSnapshot, SpaceWaiter};
use control_socket::{ControlEvents, ControlSocket};
use identity::OwnIdentity;
use partywall_layout::Violation;
use partywall_layout::control::CONTROL_DOORBELL;
use partywall_layout::seeded_fault;
use partywall_layout::segment::{ASLEEP_RECORDS, ASLEEP_ROOM, CONSUMED, GONE, RELEASED};
use partywall_ring::{Block, PeerMem, Releaser, Wake, Waker};
use partywall_sys::poll::{self, PollFd, PollFlags};
use partywall_sys::{AsymmetricMutex, Doorbell, EpollSet, ForkGuard, PidFd, Socket};
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Instant;
use wait_point::{EventSources, WaitPoint, Woken};

/// State of a connection over shared memory that the sender, the receiver and the views of one side
/// share.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    connection_state: ConnectionState,
    /// The value that the word of the fork guard has in the process that may use the connection, or
    /// [`VIOLATED`] once the peer broke a rule. In a forked child the kernel clears that word. The
    /// sender and the receiver compare the word with this value in every call.
    owner: AtomicU64,
    /// Whether a blocking receive call has waited for a record since the sender last sent one. If
    /// that is so for several records in a row, this side probably exchanges single messages with
    /// its peer, which already polls the next slot, and the sender prefetches no lines, because the
    /// peer would take them back (decision 0059). Only time depends on the hint.
    has_waited: CachePadded<AtomicBool>,
    limits: Limits,
    socket: Arc<Socket>,
    /// The pidfd of the peer's process. If the kernel or the namespace provides none, only the
    /// socket reports the peer's death.
    process: Option<Arc<PidFd>>,
    doorbells: Doorbells,
    /// The wait point on which this side's receiver sleeps until there are records.
    records: WaitPoint,
    /// The wait point on which this side's sender sleeps until there is room.
    space: WaitPoint,
    /// The control page of the peer's region, from which this side reads the peer's words.
    peer_region: PeerMem,
    control_socket: Mutex<ControlSocket>,
    releaser: AsymmetricMutex<Releaser>,
    space_waker: Waker,
    /// Blocks of owned reservations that other code dropped without access to the sender. The
    /// sender makes them free again when it needs memory.
    given_back: Mutex<Vec<Block>>,
    /// The part of this side's region that describes this process and the state of the connection,
    /// for tools.
    identity: Mutex<OwnIdentity>,
    /// Whether a thread that parked for the receiver has found that the peer is gone. The receiver
    /// then checks the peer before the next such sleep.
    may_have_ended: AtomicBool,
    /// How many of the two ends, sender and receiver, are open.
    ends_open: Mutex<u8>,
    /// The transport over the socket on which the connection began, if the connection moved to
    /// shared memory.
    origin: OnceLock<Weak<dyn FormerTransport>>,
    /// Number of blocks that are reserved and neither sent nor freed. Only the model tests under
    /// shuttle check it.
    #[cfg(shuttle)]
    reserved: std::sync::atomic::AtomicI64,
}

/// Limits of a connection that both sides agreed on in the handshake, in bytes unless a field says
/// otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Most memory for further segments of this side: the smaller of this side's limit and the
    /// peer's.
    pub own_memory: u64,
    /// Whether `own_memory` is the peer's limit, because that limit is the smaller one.
    pub own_memory_is_peers: bool,
    /// Most segments of this side that the peer maps at a time.
    pub own_segments: u32,
    /// Length of the longest message that the peer receives.
    pub peer_message: u64,
    /// Most blocks of this side that the peer holds at a time.
    pub peer_releases: u32,
    /// Length of the longest message that this side receives.
    pub message: u64,
    /// Most bytes of the peer's memory that this side maps.
    pub map: u64,
    /// Most segments of the peer that this side maps at a time.
    pub segments: u32,
}

/// How this side of a connection over shared memory notifies a peer that sleeps.
#[derive(Debug)]
pub(crate) enum Doorbells {
    /// This side notifies through eventfds that the peer sent.
    Eventfd {
        /// The doorbell that this side notifies when there are records for the peer.
        records: Doorbell,
        /// The doorbell that this side notifies when there is room for the peer to send.
        space: Doorbell,
    },
    /// This side notifies by a byte on the control socket.
    Byte,
    /// In a model test under shuttle, this side notifies the peer's wait points directly.
    #[cfg(shuttle)]
    Model(Arc<Side>),
}

pub(crate) struct ShmParts {
    pub socket: Arc<Socket>,
    pub peer: Peer,
    pub process: Option<Arc<PidFd>>,
    pub guard: ForkGuard,
    pub limits: Limits,
    pub own: OwnRegion,
    pub peer_region: PeerRegion,
    /// The doorbells that notify this side: the first announces records, the second room.
    pub own_doorbells: (Doorbell, Doorbell),
    pub doorbells: Doorbells,
}

/// The receiver or the sender of the peer, as the target of a notification that wakes it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sleeping {
    /// The peer's receiver, which waits for records.
    ForRecords,
    /// The peer's sender, which waits for room.
    ForSpace,
}

pub(crate) fn assemble(parts: ShmParts, config: &Config) -> (ShmSender, ShmReceiver) {
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
    let records = WaitPoint::new(own_doorbells.0, is_byte);
    let space = WaitPoint::new(own_doorbells.1, is_byte);
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
    let mut identity = own.identity;
    identity.open(peer.trust);
    let control = peer_region.control;
    let shm = Arc::new(SharedMemory {
        owner: AtomicU64::new(guard.value()),
        has_waited: CachePadded(AtomicBool::new(false)),
        connection_state: ConnectionState::new(guard, peer),
        socket,
        process,
        doorbells,
        records,
        space,
        control_socket: Mutex::new(ControlSocket::new(limits.segments)),
        releaser: AsymmetricMutex::new(Releaser::new(own.release_ring, own.released)),
        space_waker: Waker::new(&control, word(ASLEEP_ROOM)),
        given_back: Mutex::default(),
        limits,
        identity: Mutex::new(identity),
        may_have_ended: AtomicBool::new(false),
        ends_open: Mutex::new(2),
        origin: OnceLock::new(),
        peer_region: control,
        #[cfg(shuttle)]
        reserved: std::sync::atomic::AtomicI64::new(0),
    });
    let sender = ShmSender::new(Arc::clone(&shm), sender, config);
    (sender, ShmReceiver::new(shm, receiver))
}

impl SharedMemory {
    fn sources(&self) -> EventSources<'_> {
        EventSources { socket: &self.socket, process: self.process.as_deref() }
    }

    fn records_descriptor(&self) -> BorrowedFd<'_> {
        self.records.descriptor(self.sources())
    }

    /// Fails in a forked child, or if the peer has broken a rule. Sender and receiver call it only
    /// if the word of the fork guard differs from the value `owner` that it has in the process of
    /// the connection.
    #[cold]
    fn check(&self) -> Result<(), Fault> {
        self.connection_state.check()
    }

    /// Makes `set`, an epoll set that an event loop polls already, report the sender's events.
    /// `set` was made for the socket on which the connection began.
    pub(crate) fn adopt_space_set(&self, set: Option<Arc<EpollSet>>) {
        if let Some(set) = set {
            self.space.adopt(set, self.sources());
        }
    }

    /// Stores the socket on which the connection began. One direction of the connection may still
    /// use that socket.
    pub(crate) fn began_on(&self, origin: Weak<dyn FormerTransport>) {
        let _ = self.origin.set(origin);
    }

    /// Ends the connection, because the peer broke a rule on the socket on which it began.
    pub(crate) fn violated_elsewhere(&self, violation: Violation) {
        let _ = self.violated(violation);
    }

    fn violated(&self, violation: Violation) -> Fault {
        let fault = self.connection_state.violated(violation, &self.socket);
        if let Some(origin) = self.origin.get().and_then(Weak::upgrade) {
            origin.violated_elsewhere(violation);
        }
        // ORDER: Relaxed: the word `owner` guards no other memory. A sender or receiver that still
        // reads its previous value does one more operation on the peer's memory, and checks what it
        // reads there as in any other operation.
        self.owner.store(VIOLATED, Ordering::Relaxed);
        self.state(|identity| identity.broke(fault.code()));
        fault
    }

    /// Notes that the receiver begins to wait for a record.
    #[inline]
    fn note_wait(&self) {
        // ORDER: Relaxed, here and in the sender: the hint guards no other memory. It is stored
        // only when it changes, so that its line stays in the caches of both threads.
        if !self.has_waited.0.load(Ordering::Relaxed) {
            self.has_waited.0.store(true, Ordering::Relaxed);
        }
    }

    /// Writes into this side's region, for tools, that the peer's process ended before it closed
    /// the connection.
    #[cold]
    fn disconnected(&self) {
        self.state(|identity| identity.broke(Closed::Disconnected.number()));
    }

    /// Changes the part of this side's region that describes the connection's state. A forked child
    /// changes nothing, because the region is not mapped there.
    fn state(&self, change: impl FnOnce(&mut OwnIdentity)) {
        if self.connection_state.guard.is_owner() {
            change(&mut lock(&self.identity));
        }
    }

    #[inline]
    fn is_untrusted(&self) -> bool {
        self.connection_state.peer.trust == Trust::Untrusted
    }

    fn notify(&self, sleeping: Sleeping) {
        // An error of the notification is ignored: the peer was notified already, or it is dead,
        // which a later check of its process finds.
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

    /// Notifies the peer's sender if that sender sleeps until there is room. Returns whether it
    /// was notified.
    #[inline]
    fn wake_for_space(&self) -> bool {
        let must_notify = self.space_waker.check() == Wake::Notify;
        if must_notify {
            self.notify(Sleeping::ForSpace);
        }
        must_notify
    }

    /// Adds `change` to the number of reserved blocks, which the model tests under shuttle check.
    #[cfg(shuttle)]
    fn note_reserved(&self, change: i64) {
        // ORDER: Relaxed: this counter exists only under shuttle, which runs one thread at a time.
        self.reserved.fetch_add(change, Ordering::Relaxed);
    }

    /// Releases the peer's block `block`, so that the peer may reuse its memory. `count`, which
    /// counts the released block, runs under the lock of the release ring, before the next block is
    /// released.
    #[inline]
    fn release(&self, block: u64, count: impl FnOnce()) {
        if self.connection_state.guard.is_child() {
            return;
        }
        #[cfg(shuttle)]
        switch_point();
        let mut releaser = self.releaser.lock();
        releaser.release(block);
        count();
        drop(releaser);
        #[cfg(shuttle)]
        switch_point();
        let _ = self.wake_for_space();
    }

    /// Sleeps until there may be records of the peer. Returns whether the peer is gone.
    fn sleep_for_records(&self, deadline: Option<Instant>) -> io::Result<bool> {
        let woken = self.records.sleep(deadline, self.sources())?;
        // A receiver that is woken by a message often answers immediately. Sending the answer reads
        // the word by which the peer's receiver says whether it sleeps, so that word is prefetched.
        self.peer_region.prefetch(word(ASLEEP_RECORDS));
        Ok(self.handle_events(woken, &self.space))
    }

    /// Sleeps for a receiver that has declared itself asleep. Meanwhile other threads may use the
    /// receiver for short calls, such as one for its counters.
    pub(crate) fn park_receiver(&self, deadline: Option<Instant>) -> Result<(), Fault> {
        self.check()?;
        if self.sleep_for_records(deadline).map_err(waiting_failed)? {
            // ORDER: Relaxed: the flag `may_have_ended` is read only by the thread that parks for
            // the receiver, or by the next owner of the receiver. Handing the receiver over orders
            // the two.
            self.may_have_ended.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn may_have_ended(&self) -> bool {
        // ORDER: Relaxed: this thread stored the flag `may_have_ended` itself, or it got the
        // receiver since from the thread that did, which orders the two.
        self.may_have_ended.load(Ordering::Relaxed)
    }

    /// Ends the sleep of this side's receiver; if the receiver does not sleep, its next sleep ends
    /// at once.
    pub(crate) fn wake_receiver(&self) {
        if !self.connection_state.guard.is_child() {
            self.records.notify_self();
        }
    }

    /// Whether the peer has hung up or died. The call consumes no notification, because another
    /// thread may be waiting for that notification.
    fn is_peer_gone(&self) -> bool {
        let hang_up = PollFd::new(&self.socket, PollFlags::RDHUP);
        let has_hung_up =
            poll::wait(&mut [hang_up], Some(Instant::now())).is_ok_and(|count| count > 0);
        has_hung_up || self.process.as_ref().is_some_and(|process| process.is_dead())
    }

    /// Handles the events that woke the sender or the receiver of this side. `other` is the wait
    /// point on which the other one of the two sleeps. Returns whether the peer is gone.
    fn handle_events(&self, woken: Woken, other: &WaitPoint) -> bool {
        if !woken.socket {
            return woken.died;
        }
        if !matches!(self.doorbells, Doorbells::Byte) {
            // With eventfds as doorbells, epoll reports the control socket only for a hang-up, so
            // the peer is gone. Descriptors of segments that arrived before the hang-up stay in the
            // socket until their SEGMENT records are read.
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

    /// Reads the control socket. A doorbell byte does not say whether it is for the sender or the
    /// receiver of this side. Whichever of the two calls this method, the other one, which sleeps
    /// on the wait point `other`, is notified too.
    fn read_control(&self, other: &WaitPoint) -> Result<ControlEvents, Violation> {
        let events = lock(&self.control_socket).read(&self.socket)?;
        if events.notified {
            other.notify_self();
        }
        Ok(events)
    }

    /// Counts that the sender or the receiver of this process was dropped. Once both were dropped,
    /// hangs up on the peer.
    fn depart(&self) {
        let mut open = lock(&self.ends_open);
        *open -= 1;
        let is_last = *open == 0;
        drop(open);
        if is_last {
            self.state(OwnIdentity::close);
            // `close` alone would not hang up: a forked child or a view may still hold the socket's
            // descriptor.
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
        let woken = self.space.sleep(deadline, self.sources())?;
        Ok(self.handle_events(woken, &self.records))
    }

    fn notify_self(&self) {
        self.space.notify_self();
    }

    fn give_back(&self, memory: Memory) {
        if let Memory::Slab(block) = memory {
            #[cfg(shuttle)]
            switch_point();
            lock(&self.given_back).push(block);
            // This side's sender is notified, because the peer's receiver sends no notification of
            // memory that it did not free.
            if !seeded_fault("no_notification_of_given_back") {
                self.space.notify_self();
            }
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.space.descriptor(self.sources())
    }
}

/// Locks a mutex of this connection. Poisoning is ignored, because no holder panics between two
/// related changes.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Converts the offset of a word in the control page to `usize`, without loss because a page is
/// small.
#[expect(clippy::cast_possible_truncation, reason = "within a page")]
const fn word(offset: u64) -> usize {
    offset as usize
}

/// Value of [`SharedMemory::owner`] after a violation; the word of no fork guard has this value, so
/// the check of that word fails in every later call.
const VIOLATED: u64 = u64::MAX;

/// Lets shuttle run another thread. It is called where two sides access shared memory, because
/// shuttle does not notice these accesses.
#[cfg(shuttle)]
fn switch_point() {
    // ORDER: SeqCst: shuttle supports no other order. The loaded value has no meaning.
    shuttle::sync::atomic::AtomicBool::new(false).load(Ordering::SeqCst);
}
