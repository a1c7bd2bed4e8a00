// SPDX-License-Identifier: MIT OR Apache-2.0
//! The twin of a wall for shuttle (`--cfg shuttle`): two queues of records in private memory, as bounded as a ring
//! and a slab are.
//!
//! ```text
//!   TwinSender ── open batch ── publish ─▶ Lane: records ─▶ find ── TwinReceiver
//!       │  lent, up to `memory_bytes`        │  consumed ◀── report    │
//!       └─ neither ring nor memory: Full     │  released ◀── View ◀────┘  (dropped)
//!                                            ▼
//!   Door of each side: rung for records, or for room, only where that was armed; hung up
//! ```
//!
//! Shuttle chooses between threads at its own locks, and cannot see a thread that sleeps in the system. So the
//! parts of a wall at which threads meet are here again, on shuttle's locks: records in order, each whole; batches
//! seen at once or forgotten; memory lent until the view is dropped; the glance; arming, and rings only for who is
//! armed; CLOSE_WRITE behind everything; a hang-up after it. Whoever is not rung sleeps for ever, which shuttle
//! reports as a deadlock.
//!
//! It writes again what a wall's ends decide (what goes inline, in memory or in pieces, and how credit goes along),
//! so the models show what sessions do with such a wire, and nothing of the wall's own code: that is asked over real
//! ones (`tests/sessions/model.rs`, `tests/sessions/credit.rs`).
//!
//! It is *not* shared memory: memory orders are the loom models' business, what a neighbour may forge that of the
//! hostile tests. Nothing here waits for time, nobody is quiet, and there are no batches of channels. Where a wall
//! takes two steps (publish, then look who sleeps; arm, then look again), this takes one: the steps between are the
//! loom models' as well.

mod receiver;
mod sender;

pub(crate) use receiver::{TwinReceiver, View};
pub(crate) use sender::TwinSender;

use crate::config::BackPressure;
use crate::transport::ProgressSnapshot;
use partywall_layout::RecordHeader;
use shuttle::sync::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

/// How much each direction bears.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub ring_bytes: u64,
    /// Memory for messages that do not go inline.
    pub memory_bytes: u64,
    pub message_max: u64,
    pub inline_max: usize,
    pub policy: BackPressure,
}

/// Both ends of one side, and where it sleeps.
#[derive(Debug)]
pub(crate) struct Ends {
    pub sender: TwinSender,
    pub receiver: TwinReceiver,
    pub door: Arc<Door>,
}

/// Two sides that are connected.
pub(crate) fn pair(limits: Limits) -> [Ends; 2] {
    let doors = [Arc::new(Door::default()), Arc::new(Door::default())];
    let lane = |from: usize| {
        let (sender_door, receiver_door) = (Arc::clone(&doors[from]), Arc::clone(&doors[1 - from]));
        Arc::new(Lane { flow: Mutex::new(Flow::default()), limits, sender_door, receiver_door })
    };
    let lanes = [lane(0), lane(1)];
    [0, 1].map(|side| {
        let end = Arc::new(Side { ends_open: Mutex::new(2), other: Arc::clone(&doors[1 - side]) });
        Ends {
            sender: TwinSender::new(Arc::clone(&lanes[side]), Arc::clone(&end)),
            receiver: TwinReceiver::new(Arc::clone(&lanes[1 - side]), end),
            door: Arc::clone(&doors[side]),
        }
    })
}

/// One direction.
#[derive(Debug)]
pub(crate) struct Lane {
    flow: Mutex<Flow>,
    limits: Limits,
    sender_door: Arc<Door>,
    receiver_door: Arc<Door>,
}

/// What changes of it.
#[derive(Debug, Default)]
struct Flow {
    records: VecDeque<Record>,
    /// Footprints of all that was published; of all that the receiver has told to be behind it.
    published: u64,
    consumed: u64,
    /// Bytes of memory in use by the sender, in records, or by views.
    lent: u64,
    /// How many views were dropped.
    released: u64,
    awaits_records: bool,
    awaits_room: bool,
    is_receiver_gone: bool,
}

/// A record, and the memory that it refers to.
#[derive(Debug)]
struct Record {
    header: RecordHeader,
    payload: Vec<u8>,
    loan: Option<Loan>,
    /// What a BLOB carries beside its message.
    credit: Option<u64>,
}

/// Memory of a message before it is received. It has to be given back, as a block has.
#[derive(Debug)]
pub(crate) struct Loan {
    bytes: Vec<u8>,
    charged: u64,
}

impl Loan {
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }
}

impl Lane {
    fn flow(&self) -> MutexGuard<'_, Flow> {
        self.flow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a waiter for room looks at.
    pub(crate) fn snapshot(&self) -> ProgressSnapshot {
        let flow = self.flow();
        ProgressSnapshot([flow.consumed, flow.released, u64::from(flow.is_receiver_gone)])
    }

    /// Bytes of memory that are in use: none once everything was received and dropped.
    pub(crate) fn lent_bytes(&self) -> u64 {
        self.flow().lent
    }

    /// Lets go of the lane, and rings for room if the sender sleeps for it.
    fn tell_of_room(&self, mut flow: MutexGuard<'_, Flow>) {
        let must_ring = std::mem::take(&mut flow.awaits_room);
        drop(flow);
        if must_ring {
            self.sender_door.ring(|notified| notified.room = true);
        }
    }

    /// Lets go of the lane, and rings for records if the receiver sleeps for them.
    fn tell_of_records(&self, mut flow: MutexGuard<'_, Flow>) {
        let must_ring = std::mem::take(&mut flow.awaits_records);
        drop(flow);
        if must_ring {
            self.receiver_door.ring(|notified| notified.records = true);
        }
    }
}

/// The ends of one side that are open; with the last one the other side sees us hang up.
#[derive(Debug)]
struct Side {
    ends_open: Mutex<u8>,
    other: Arc<Door>,
}

impl Side {
    fn depart(&self) {
        let mut open = self.ends_open.lock().unwrap_or_else(PoisonError::into_inner);
        *open -= 1;
        let is_last = *open == 0;
        drop(open);
        if is_last {
            self.other.hang_up();
        }
    }
}

/// Where a side sleeps: what the descriptors of a wall are.
#[derive(Debug, Default)]
pub(crate) struct Door {
    notified: Mutex<Notified>,
    changed: Condvar,
}

/// What came since it was looked at.
#[derive(Debug, Default)]
struct Notified {
    records: bool,
    room: bool,
    /// By a waker of our own side.
    called: bool,
    /// For good.
    hung_up: bool,
}

impl Door {
    fn lock(&self) -> MutexGuard<'_, Notified> {
        self.notified.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self, note: impl FnOnce(&mut Notified)) {
        note(&mut self.lock());
        self.changed.notify_all();
    }

    /// Our own side has something to do for whoever sleeps here.
    pub(crate) fn call(&self) {
        self.ring(|notified| notified.called = true);
    }

    /// The other side is gone, in whatever way.
    pub(crate) fn hang_up(&self) {
        self.ring(|notified| notified.hung_up = true);
    }

    /// Takes a ring for records that nobody waited for; whether the other side hung up.
    fn drain_records(&self) -> bool {
        let mut notified = self.lock();
        notified.records = false;
        notified.hung_up
    }

    /// Takes a ring for room that nobody waited for; whether the other side hung up.
    fn drain_room(&self) -> bool {
        let mut notified = self.lock();
        notified.room = false;
        notified.hung_up
    }

    /// What a look at the descriptors shows, and takes: records, room. Room only if that is waited for.
    pub(crate) fn look(&self, for_room: bool) -> (bool, bool) {
        let mut notified = self.lock();
        let records = std::mem::take(&mut notified.records) || notified.hung_up;
        let room = for_room && (std::mem::take(&mut notified.room) || notified.hung_up);
        (records, room)
    }

    /// Sleeps until called, rung or hung up.
    pub(crate) fn sleep(&self, for_room: bool) {
        let mut notified = self.lock();
        while !(notified.called
            || notified.records
            || notified.hung_up
            || for_room && notified.room)
        {
            notified = self.changed.wait(notified).unwrap_or_else(PoisonError::into_inner);
        }
        notified.called = false;
    }
}
