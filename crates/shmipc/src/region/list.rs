// SPDX-License-Identifier: MIT OR Apache-2.0
//! The free slices of one class: a queue from which both processes allocate, and to which both
//! free.
//!
//! ```text
//!   head ──▶ slice ──next──▶ slice ──next──▶ … ──next──▶ slice ◀── tail
//!   take: CAS head to next                     give: swap tail, then link the former tail
//! ```
//!
//! The algorithm is that of the other implementations, with the same accesses to shared memory. It
//! has two weaknesses that one side alone cannot fix. A thread that is delayed between its load of
//! `next` and its compare-and-swap (CAS) may install a stale head. A process that dies between the
//! swap of the tail and the link leaves the list cut. Countermeasures of this file: one thread of
//! this process allocates at a time, every word is checked before it is used, and a list with a
//! detected fault allocates no more.
//!
//! # Invariants
//!
//! - A slice that was allocated or received is claimed until it is freed or sent: only one value of
//!   this process may use it.
//! - No word of the peer makes this process access memory outside the list's slices: each word is
//!   copied to private memory, and `index` checks the copy before its use.

use super::geometry::{
    HAS_NEXT, IN_USE, LIST_CREATOR, LIST_FREE, LIST_HEAD, LIST_MAPPER, LIST_TAIL, ListGeometry,
    SLICE_CAPACITY, SLICE_DATA, SLICE_FLAGS, SLICE_NEXT, SLICE_SIZE, SLICE_START,
};
use partywall_sys::{Area, Piece, Pieces, SharedMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Whether this process created a region, or mapped one that the peer created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The process created the region.
    Creator,
    /// The process mapped a region that the peer created.
    Mapper,
}

/// One free list of the region: the free slices of one size, and what this process needs to
/// allocate and free them.
#[derive(Debug)]
pub(super) struct List {
    map: Arc<SharedMap>,
    geometry: ListGeometry,
    /// Offset in the list's header of this process's counter: the number of slices that this
    /// process has allocated minus those it has freed.
    counter: usize,
    pieces: Pieces,
    /// This lock lets one thread of this process allocate from the list at a time. Without it, a
    /// delayed thread could set the list's head to a slice that is no longer free. (A delayed
    /// thread of the peer can do so all the same.)
    taking: Mutex<()>,
    is_stopped: AtomicBool,
    violations: AtomicU64,
}

/// The words in the header of a slice that is part of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct SliceWords {
    pub(super) capacity: u32,
    pub(super) size: u32,
    pub(super) start: u32,
    pub(super) next: Option<u32>,
}

impl List {
    /// Creates the list at `geometry`. Returns `None` if the list is not entirely within the memory
    /// of `map`.
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

    /// Allocates a slice from the list, if more than one slice is free.
    pub(super) fn take(&self) -> Option<Piece> {
        if self.is_stopped() {
            return None;
        }
        let _alone = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.word(LIST_FREE);
        // The last free slice is never allocated: the list's head and tail would have to change
        // together, which no single atomic operation can do.
        if (self.map.add(free, MINUS_ONE) as i32).wrapping_sub(1) > 0 {
            if let Some(index) = self.take_head() {
                return self.taken(index);
            }
        }
        self.map.add(free, 1);
        None
    }

    /// Removes the first slice from the list, by advancing the list's head to the next slice.
    /// Returns the index of the removed slice.
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
                // The slice at the head has no successor: the peer has allocated this slice
                // meanwhile, or is just linking the next slice to it.
                if self.free() <= 1 {
                    return None;
                }
                core::hint::spin_loop();
                head = self.map.load(at);
                continue;
            }
            // Between the load of `next` and the compare-and-swap of the list's head, this thread
            // only checks the loaded word. The shorter this time, the less often another process
            // changes the list within it.
            let next = self.map.load(slice + SLICE_NEXT);
            if self.geometry.index(next).is_none() {
                // The loaded word `next` does not lead to another slice of this free list. Another
                // process may have allocated the slice meanwhile: then the head of the list has
                // advanced, and in a message `next` has another meaning. If invalid words persist,
                // the list is broken.
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

    /// Claims slice `index`, which was just removed from the free list, for one user in this
    /// process. Returns `None` if the slice's header does not describe a free slice.
    fn taken(&self, index: u32) -> Option<Piece> {
        let slice = self.slice(index);
        let is_free = self.map.load_byte(slice + SLICE_FLAGS) & IN_USE == 0
            && self.map.load(slice + SLICE_CAPACITY) == self.geometry.capacity;
        let piece = self.pieces.claim(index);
        if !is_free || piece.is_none() {
            // The list's head was stale: the removed slice was not free and has another owner, so
            // this process does not use it.
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

    /// Frees a slice into the list. A forked child does nothing, because the slice belongs to its
    /// parent.
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
        // This process gives up its claim to the slice before the swap makes the slice part of the
        // list: after the swap another thread of this process may allocate the slice, and has to
        // claim it.
        self.pieces.release(piece);
        let relative = self.geometry.relative(index);
        // One atomic swap replaces the tail; other implementations do the same with a loop of CAS.
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

    /// Writes the header of a slice that is to be sent. The data begins at byte 0 of the slice,
    /// because one of the other implementations ignores `start`.
    pub(super) fn write(&self, piece: &Piece, size: u32, next: Option<u32>) {
        let slice = self.slice(piece.index());
        self.map.store(slice + SLICE_SIZE, size);
        self.map.store(slice + SLICE_START, 0);
        self.map.store(slice + SLICE_NEXT, next.unwrap_or(0));
        let flags = if next.is_some() { IN_USE | HAS_NEXT } else { IN_USE };
        self.map.store_byte(slice + SLICE_FLAGS, flags);
    }

    /// Offset of the slice's header in the region, as messages refer to it.
    pub(super) fn offset(&self, piece: &Piece) -> u32 {
        self.geometry.area() + self.geometry.relative(piece.index())
    }

    /// Number of free slices, as the list's header states it. For a moment during an allocation the
    /// number is lower.
    pub(super) fn free(&self) -> i32 {
        self.map.load(self.word(LIST_FREE)) as i32
    }

    /// Number of allocated minus freed slices, for each process: first the region's creator, then
    /// its mapper.
    pub(super) fn counters(&self) -> [i32; 2] {
        [LIST_CREATOR, LIST_MAPPER].map(|at| self.map.load(self.word(at)) as i32)
    }

    /// Number of faults of the list that this process has detected.
    pub(super) fn violations(&self) -> u64 {
        // ORDER: Relaxed: no other access depends on `violations`, the count of detected faults.
        self.violations.load(Ordering::Relaxed)
    }

    /// Whether the list allocates no more slices, because a fault was detected.
    pub(super) fn is_stopped(&self) -> bool {
        // ORDER: Relaxed: the flag `is_stopped` only ends further allocation from a faulty list. A
        // slice that is still allocated after the flag was set does no harm, because every slice is
        // checked before use.
        self.is_stopped.load(Ordering::Relaxed)
    }

    #[cold]
    fn stop(&self) {
        // ORDER: Relaxed: the flag `is_stopped` only ends further allocation from this faulty list.
        // A slice that another thread still allocates is checked before use like any other. No
        // other access depends on `violations`, the count of detected faults.
        self.is_stopped.store(true, Ordering::Relaxed);
        self.violations.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of free slices found by following the links from the list's head to its tail; `None`
    /// if a link is missing or invalid.
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

/// Number of attempts of one allocation to advance the head of a list, as in other implementations.
/// After the last attempt the allocation fails as if no slice were free.
const TAKE_ATTEMPTS_MAX: u32 = 200;

/// If one allocation reads this many invalid `next` words at the head of a list of free slices, the
/// list counts as broken. A race with another process causes fewer.
const STRANGE_MAX: u32 = 16;
