// SPDX-License-Identifier: MIT OR Apache-2.0
//! The free slices of one class: a queue that both processes take from and give to.
//!
//! ```text
//!   head ──▶ slice ──next──▶ slice ──next──▶ … ──next──▶ slice ◀── tail
//!   take: CAS head to next                     give: swap tail, then link the former tail
//! ```
//!
//! This is the peers' algorithm, instruction for instruction as far as they can tell. It has two weaknesses that no
//! one side can mend: a taker that was held up between reading `next` and its CAS may install a stale one, and a
//! process that dies between swapping the tail and linking it leaves the list cut. What is done about them here:
//! one thread of this process takes at a time, every word is checked before it is used, and a list that was seen
//! to be wrong is not taken from again.
//!
//! # Invariants
//!
//! - A slice that was taken or received here is claimed in this process until it is given back or sent.
//! - No word of the peer's leads outside the list's area: `index` decides, on private numbers.

use super::geometry::{
    HAS_NEXT, IN_USE, LIST_CREATOR, LIST_FREE, LIST_HEAD, LIST_MAPPER, LIST_TAIL, ListGeometry,
    SLICE_CAPACITY, SLICE_DATA, SLICE_FLAGS, SLICE_NEXT, SLICE_SIZE, SLICE_START,
};
use partywall_sys::{Area, Piece, Pieces, SharedMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Which of the two processes this is to a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It made the region.
    Creator,
    /// It mapped what the other side made.
    Mapper,
}

/// One list.
#[derive(Debug)]
pub(super) struct List {
    map: Arc<SharedMap>,
    geometry: ListGeometry,
    /// Where this process counts what it took and gave.
    counter: usize,
    pieces: Pieces,
    /// One thread of this process takes at a time: else two of us could do to each other what the peer can.
    taking: Mutex<()>,
    is_stopped: AtomicBool,
    violations: AtomicU64,
}

/// What the header of a slice in a message says.
#[derive(Clone, Copy, Debug)]
pub(super) struct SliceWords {
    pub(super) capacity: u32,
    pub(super) size: u32,
    pub(super) start: u32,
    pub(super) next: Option<u32>,
}

impl List {
    /// `None` if the list is not all within the memory.
    pub(super) fn new(map: Arc<SharedMap>, geometry: ListGeometry, role: Role) -> Option<Self> {
        let area = Area {
            offset: geometry.area() as usize + SLICE_DATA,
            stride: geometry.stride() as usize,
            size: geometry.capacity as usize,
            count: geometry.slices as usize,
        };
        let counter = match role {
            Role::Creator => LIST_CREATOR,
            Role::Mapper => LIST_MAPPER,
        };
        Some(Self {
            pieces: Pieces::new(Arc::clone(&map), area)?,
            counter: geometry.header as usize + counter,
            map,
            geometry,
            taking: Mutex::new(()),
            is_stopped: AtomicBool::new(false),
            violations: AtomicU64::new(0),
        })
    }

    pub(super) fn geometry(&self) -> &ListGeometry {
        &self.geometry
    }

    pub(super) fn pieces(&self) -> &Pieces {
        &self.pieces
    }

    /// Takes a free slice, if the list has one to spare.
    pub(super) fn take(&self) -> Option<Piece> {
        if self.is_stopped() {
            return None;
        }
        let _alone = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.word(LIST_FREE);
        // The last free slice is never given away: then head and tail would have to change together.
        if (self.map.add(free, MINUS_ONE) as i32).wrapping_sub(1) > 0 {
            if let Some(index) = self.take_head() {
                return self.taken(index);
            }
        }
        self.map.add(free, 1);
        None
    }

    /// Moves the head on; the slice that it was.
    fn take_head(&self) -> Option<u32> {
        let at = self.word(LIST_HEAD);
        let mut head = self.map.load(at);
        let mut strange = 0;
        for _ in 0..TAKE_ATTEMPTS_MAX {
            let Some(index) = self.geometry.index(head) else {
                self.stop();
                return None;
            };
            let slice = self.slice(index);
            if self.map.load_byte(slice + SLICE_FLAGS) & HAS_NEXT == 0 {
                // Taken by the peer meanwhile, or one is just being linked behind it.
                if self.free() <= 1 {
                    return None;
                }
                core::hint::spin_loop();
                head = self.map.load(at);
                continue;
            }
            // Nothing stands between reading the word and the CAS but the check of it.
            let next = self.map.load(slice + SLICE_NEXT);
            if self.geometry.index(next).is_none() {
                // The slice is in a message, where the word means something else, and the head has moved on;
                // once more it may even have come back. If it stays, the list is broken.
                strange += 1;
                if strange == STRANGE_MAX {
                    self.stop();
                    return None;
                }
                head = self.map.load(at);
                continue;
            }
            match self.map.exchange(at, head, next) {
                Ok(()) => return Some(index),
                Err(now) => head = now,
            }
        }
        None
    }

    /// Looks at what was taken, and makes it ours; `None` if it was not free at all.
    fn taken(&self, index: u32) -> Option<Piece> {
        let slice = self.slice(index);
        let is_free = self.map.load_byte(slice + SLICE_FLAGS) & IN_USE == 0
            && self.map.load(slice + SLICE_CAPACITY) == self.geometry.capacity;
        let piece = self.pieces.claim(index);
        if !is_free || piece.is_none() {
            // The head was stale: somebody else has this slice. It is left to them.
            if let Some(piece) = piece {
                self.pieces.release(piece);
            }
            self.stop();
            return None;
        }
        self.map.store_byte(slice + SLICE_FLAGS, IN_USE);
        self.map.add(self.counter, 1);
        piece
    }

    /// Gives a slice back; a forked child does nothing, since what it inherited is its parent's.
    pub(super) fn give(&self, piece: Piece) {
        if self.map.is_inherited() {
            return;
        }
        let index = piece.index();
        let slice = self.slice(index);
        self.map.store(slice + SLICE_SIZE, 0);
        self.map.store(slice + SLICE_START, 0);
        self.map.store(slice + SLICE_NEXT, 0);
        self.map.store_byte(slice + SLICE_FLAGS, 0);
        // Before anybody can take it: from the swap on, whoever gives links it, and then it can be taken.
        self.pieces.release(piece);
        let relative = self.geometry.relative(index);
        // What the peers do in a loop of CAS.
        let tail = self.map.swap(self.word(LIST_TAIL), relative);
        let Some(last) = self.geometry.index(tail).filter(|last| *last != index) else {
            return self.stop();
        };
        let last = self.slice(last);
        self.map.store(last + SLICE_NEXT, relative);
        self.map.set_bits(last + SLICE_FLAGS, HAS_NEXT);
        self.map.add(self.word(LIST_FREE), 1);
        self.map.add(self.counter, MINUS_ONE);
    }

    /// What the header of a slice says.
    pub(super) fn read(&self, index: u32) -> SliceWords {
        let slice = self.slice(index);
        let has_next = self.map.load_byte(slice + SLICE_FLAGS) & HAS_NEXT != 0;
        SliceWords {
            capacity: self.map.load(slice + SLICE_CAPACITY),
            size: self.map.load(slice + SLICE_SIZE),
            start: self.map.load(slice + SLICE_START),
            next: has_next.then(|| self.map.load(slice + SLICE_NEXT)),
        }
    }

    /// Writes the header of a slice that is to be sent. It begins at 0, because one of the peers ignores `start`.
    pub(super) fn write(&self, piece: &Piece, size: u32, next: Option<u32>) {
        let slice = self.slice(piece.index());
        self.map.store(slice + SLICE_SIZE, size);
        self.map.store(slice + SLICE_START, 0);
        self.map.store(slice + SLICE_NEXT, next.unwrap_or(0));
        let flags = if next.is_some() { IN_USE | HAS_NEXT } else { IN_USE };
        self.map.store_byte(slice + SLICE_FLAGS, flags);
    }

    /// Where the header of a slice begins, as messages name it.
    pub(super) fn offset(&self, piece: &Piece) -> u32 {
        self.geometry.area() + self.geometry.relative(piece.index())
    }

    /// How many slices the list says are free; it is lower for a moment while some are taken.
    pub(super) fn free(&self) -> i32 {
        self.map.load(self.word(LIST_FREE)) as i32
    }

    /// What the two processes count: first the creator, then the mapper.
    pub(super) fn counters(&self) -> [i32; 2] {
        [LIST_CREATOR, LIST_MAPPER].map(|at| self.map.load(self.word(at)) as i32)
    }

    /// How often the list was seen to be wrong.
    pub(super) fn violations(&self) -> u64 {
        // ORDER: Relaxed: a counter.
        self.violations.load(Ordering::Relaxed)
    }

    /// Whether the list is not taken from any more.
    pub(super) fn is_stopped(&self) -> bool {
        // ORDER: Relaxed: one slice more or less does not matter, each is checked.
        self.is_stopped.load(Ordering::Relaxed)
    }

    #[cold]
    fn stop(&self) {
        // ORDER: Relaxed, see `is_stopped` and `violations`.
        self.is_stopped.store(true, Ordering::Relaxed);
        self.violations.fetch_add(1, Ordering::Relaxed);
    }

    /// Follows the free slices; how many there are up to the tail, or `None` if the way there is cut.
    pub(super) fn walk(&self) -> Option<u32> {
        let tail = self.map.load(self.word(LIST_TAIL));
        let mut at = self.map.load(self.word(LIST_HEAD));
        for count in 1..=self.geometry.slices {
            let slice = self.slice(self.geometry.index(at)?);
            if at == tail {
                return Some(count);
            }
            if self.map.load_byte(slice + SLICE_FLAGS) & HAS_NEXT == 0 {
                return None;
            }
            at = self.map.load(slice + SLICE_NEXT);
        }
        None
    }

    fn word(&self, offset: usize) -> usize {
        self.geometry.header as usize + offset
    }

    fn slice(&self, index: u32) -> usize {
        (self.geometry.area() + self.geometry.relative(index)) as usize
    }
}

const MINUS_ONE: u32 = u32::MAX;

/// How often the head is tried to be moved before the list counts as exhausted; as the peers do.
const TAKE_ATTEMPTS_MAX: u32 = 200;

/// How often in one taking the head may lead nowhere.
const STRANGE_MAX: u32 = 16;
