// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two sides of a connection over private memory of one process, for model tests under shuttle.
//!
//! ```text
//!   ShmSender ── ring, slab: ring::pair ──▶ ShmReceiver       the real sender, receiver
//!   control socket: a socket pair           wait points: shuttle's condition variables
//! ```
//!
//! Rings and slabs may be smaller than in a region, so that a model soon runs out of room. Shuttle
//! runs one thread at a time; the loom models check the memory orders.

use super::identity::OwnIdentity;
use super::region::lines;
use super::{
    Doorbells, Limits, SharedMemory, ShmReceiver, ShmSender, Side, Sleeping, WaitPoint, receiver,
    sender, word,
};
use crate::cache_padded::CachePadded;
use crate::config::{BackPressure, Config};
use crate::peer::{Peer, Trust};
use crate::transport::ConnectionState;
use crate::transport::shm::control_socket::ControlSocket;
use partywall_layout::RingSize;
use partywall_layout::segment::{ASLEEP_ROOM, PAGE_BYTES, RELEASED, SENDING_COUNTERS, sending};
use partywall_ring::mem::pair as memory_pair;
use partywall_ring::{Releaser, Waker};
use partywall_sys::{AsymmetricMutex, ForkGuard, Socket};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// Sender and receiver of one side of a model test, and the object on which the driver of that
/// side's session sleeps.
#[derive(Debug)]
pub(crate) struct Ends {
    pub sender: ShmSender,
    pub receiver: ShmReceiver,
    pub side: Arc<Side>,
    pub link: Link,
}

/// Lets a model test read the counters in one side's shared memory, and make that side notice a
/// hang-up. The test can do so while the side's sender and receiver are in use, and after they were
/// dropped.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    shm: Arc<SharedMemory>,
    side: Arc<Side>,
}

impl Link {
    /// Makes this side notice a hang-up of its peer, as if the peer had died without sending the
    /// record CLOSE_WRITE.
    pub(crate) fn hang_up(&self) {
        let _ = self.shm.socket.shutdown_both();
        self.side.hang_up();
    }

    /// Returns how many blocks the peer has published, according to the peer's counters.
    pub(crate) fn published_by_peer(&self) -> u64 {
        self.shm.peer_region.peek(word(SENDING_COUNTERS + sending::BLOBS * 8))
    }

    /// Returns how many blocks of this side the peer has released.
    pub(crate) fn released_by_peer(&self) -> u64 {
        self.shm.peer_region.peek(word(RELEASED))
    }

    /// Returns how many blocks this side has reserved and neither sent nor freed.
    pub(crate) fn reserved(&self) -> i64 {
        // ORDER: Relaxed: under shuttle, one thread runs at a time.
        self.shm.reserved.load(Ordering::Relaxed)
    }
}

/// Sizes, and the policy for lack of memory, of both directions of a model test's connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModelLimits {
    pub ring_bytes: u64,
    /// Bytes of shared memory for messages that are not inline.
    pub memory_bytes: u64,
    pub message_max: u64,
    pub inline_max: usize,
    pub policy: BackPressure,
}

/// Connects two sides of a model test through private memory in place of shared memory.
pub(crate) fn pair(limits: ModelLimits, config: &Config) -> [Ends; 2] {
    let sides = [Arc::<Side>::default(), Arc::default()];
    let (first, second) = Socket::pair().expect("a socket pair");
    let mut sockets = [Some(first), Some(second)];
    let mut own = Vec::new();
    let mut peers = Vec::new();
    for _ in 0..2 {
        let bytes = |bytes: u64| usize::try_from(bytes).expect("a small size");
        let (control, peer_control) = memory_pair(bytes(PAGE_BYTES));
        let (ring, peer_ring) = memory_pair(bytes(limits.ring_bytes));
        let (release_ring, peer_release_ring) = memory_pair(bytes(BLOCKS_MAX * 8));
        let (slab, peer_slab) = memory_pair(bytes(limits.memory_bytes));
        let (lines, rest) = lines(control);
        own.push(Some((lines, OwnIdentity::new(rest), ring, release_ring, slab)));
        peers.push(Some((peer_control, peer_ring, peer_release_ring, peer_slab)));
    }
    [0, 1].map(|index: usize| {
        let (lines, identity, ring, release_ring, slab) = own[index].take().expect("taken once");
        let [consumed, asleep_records, asleep_space, released, sending, receiving] = lines;
        let (control, peer_ring, peer_release_ring, peer_slab) =
            peers[1 - index].take().expect("taken once");
        let side = &sides[index];
        let guard = ForkGuard::current();
        let peer = Peer::new(None, Trust::Trusted, "model".into());
        let ring_size = RingSize::new(limits.ring_bytes).expect("a size of a ring");
        let shm = Arc::new(SharedMemory {
            owner: AtomicU64::new(guard.value()),
            has_waited: CachePadded(AtomicBool::new(false)),
            connection_state: ConnectionState::new(guard, peer),
            socket: Arc::new(sockets[index].take().expect("taken once")),
            process: None,
            doorbells: Doorbells::Model(Arc::clone(&sides[1 - index])),
            records: WaitPoint::of_side(side, Sleeping::ForRecords),
            space: WaitPoint::of_side(side, Sleeping::ForSpace),
            control_socket: Mutex::new(ControlSocket::new(0)),
            releaser: AsymmetricMutex::new(Releaser::new(release_ring, released)),
            space_waker: Waker::new(&control, word(ASLEEP_ROOM)),
            given_back: Mutex::default(),
            limits: agreed(limits),
            identity: Mutex::new(identity),
            may_have_ended: AtomicBool::new(false),
            ends_open: Mutex::new(2),
            origin: OnceLock::new(),
            peer_region: control,
            reserved: AtomicI64::new(0),
        });
        let parts = sender::ShmSenderParts {
            ring,
            ring_size,
            asleep: asleep_space,
            counters: sending,
            slab,
            release_ring: peer_release_ring,
        };
        let sender = ShmSender::new(Arc::clone(&shm), parts, config);
        let parts = receiver::ShmReceiverParts {
            ring: peer_ring,
            ring_size,
            consumed,
            asleep: asleep_records,
            counters: receiving,
            slab: peer_slab,
            region_bytes: 0,
        };
        let receiver = ShmReceiver::new(Arc::clone(&shm), parts);
        let side = Arc::clone(side);
        Ends { sender, receiver, link: Link { shm, side: Arc::clone(&side) }, side }
    })
}

/// The agreed limits of a model test's connection, which allow no further segments: a side whose
/// slab is full has no free memory.
const fn agreed(limits: ModelLimits) -> Limits {
    Limits {
        own_memory: 0,
        own_memory_is_peers: false,
        own_segments: 0,
        peer_message: limits.message_max,
        peer_releases: BLOCKS_MAX as u32,
        message: limits.message_max,
        map: limits.memory_bytes,
        segments: 0,
    }
}

/// Most blocks of the peer that a side of a model test holds at a time.
const BLOCKS_MAX: u64 = 64;
