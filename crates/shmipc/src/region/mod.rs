// SPDX-License-Identifier: MIT OR Apache-2.0
//! The buffer region: slices of a few sizes for messages, which one process allocates and the other
//! frees.
//!
//! ```text
//!   reserve ──▶ Slice ──send──▶ offset ··· queue ··· offset ──receive──▶ Chain
//!      ▲          │ drop                                                 │ drop
//!      └── list ◀─┴──────────────────────────────────────────────────────┘
//! ```
//!
//! A region may serve several sessions of two processes. The region knows neither queues nor
//! streams, never blocks, and copies no message, except for a reader that needs a message in one
//! piece.
//!
//! # Invariants
//!
//! - The geometry is in private memory ([`Geometry`]); every word of the peer is checked against
//!   the geometry before the word is used.
//! - Each slice has at most one owner in this process: a [`Slice`], or a part of a [`Chain`]. A
//!   slice that the peer names twice is refused.
//! - The memory stays mapped as long as any region, slice or chain of it lives.

mod chain;
mod geometry;
mod list;
mod slice;
mod slice_cache;

pub use chain::Chain;
pub use geometry::{
    CLASSES_DEFAULT, Class, Geometry, LISTS_MAX, ListGeometry, PlanError, SLICE_HEADER_BYTES,
    SLICES_MIN,
};
/// Offsets in bytes of the words in the headers of lists and slices.
pub(crate) mod words {
    pub(crate) use super::geometry::{
        HAS_NEXT, LIST_CREATOR as CREATOR, LIST_FREE as FREE, LIST_HEAD as HEAD,
        LIST_MAPPER as MAPPER, LIST_TAIL as TAIL, SLICE_CAPACITY as CAPACITY, SLICE_DATA as DATA,
        SLICE_FLAGS as FLAGS, SLICE_NEXT as NEXT, SLICE_SIZE as SIZE, SLICE_START as START,
    };
}
pub use list::Role;
pub use slice::Slice;

use list::List;
use partywall_sys::sigbus::TableFull;
use partywall_sys::{Piece, SharedMap};
use slice_cache::SliceCache;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A mapped buffer region for one session of this process. Each session has its own `BufferRegion`,
/// with its own cache of freed slices. All `BufferRegion`s over the same memory refer to one
/// `Shared`.
#[derive(Debug)]
pub struct BufferRegion {
    shared: Arc<Shared>,
    cache: SliceCache,
}

/// The state of a region that all sessions of this process share.
#[derive(Debug)]
pub(crate) struct Shared {
    map: Arc<SharedMap>,
    geometry: Geometry,
    lists: Vec<List>,
    role: Role,
    /// Whether slices may be lost, so that new sessions do not use the region.
    is_retired: AtomicBool,
    /// Number of sessions of this process that use the region. It determines how many slices each
    /// session may cache.
    sessions: AtomicUsize,
}

impl BufferRegion {
    /// Creates a region in fresh, zeroed memory, with the given classes of slices.
    ///
    /// # Errors
    ///
    /// Fails for one of the reasons in [`PlanError`].
    pub fn create(map: SharedMap, classes: &[Class]) -> Result<Arc<Self>, PlanError> {
        let geometry = Geometry::plan(map.len(), classes)?;
        geometry.write(&map);
        let bytes = map.len();
        Self::with(map, geometry, Role::Creator).map_err(|_| PlanError::RegionSize { bytes })
    }

    /// Opens a region that the peer created, and reads its geometry.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the headers of the region are impossible.
    pub fn map(map: SharedMap) -> Result<Arc<Self>, Damage> {
        let geometry = Geometry::read(&map)?;
        Self::with(map, geometry, Role::Mapper)
    }

    fn with(map: SharedMap, geometry: Geometry, role: Role) -> Result<Arc<Self>, Damage> {
        let map = Arc::new(map);
        let mut lists = Vec::with_capacity(geometry.lists().len());
        for list in geometry.lists() {
            // The geometry was checked: every list is within the mapped memory, so `List::new`
            // never returns `None` here.
            let made = List::new(Arc::clone(&map), *list, role);
            lists.push(
                made.ok_or_else(|| Damage::new("a list lies behind its region", list.end()))?,
            );
        }
        let is_retired = AtomicBool::new(false);
        let sessions = AtomicUsize::new(0);
        Ok(Self::of(Arc::new(Shared { map, geometry, lists, role, is_retired, sessions })))
    }

    /// Creates a `BufferRegion` for one more session of this process, over the memory whose state
    /// is `shared`.
    pub(crate) fn of(shared: Arc<Shared>) -> Arc<Self> {
        let cache = SliceCache::new(shared.lists.len());
        Arc::new(Self { shared, cache })
    }

    /// A `BufferRegion` over the same memory, for another session of this process.
    pub fn another(&self) -> Arc<Self> {
        Self::of(Arc::clone(&self.shared))
    }

    /// Whether `self` and `other` use the same memory.
    pub fn is_same_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// The state that sessions of this process share, by which the registry finds the region again.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Allocates a slice for `len` contiguous bytes, from the smallest class that is large enough
    /// and has a free slice. Returns `None` if no such class has one, or if `len` is 0. The slice's
    /// length is `len`.
    pub fn reserve(self: &Arc<Self>, len: usize) -> Option<Slice> {
        if len == 0 || self.is_damaged() {
            return None;
        }
        let fitting = |list: &&List| list.geometry().capacity as usize >= len;
        let numbered = self.shared.lists.iter().enumerate().filter(|(_, list)| fitting(list));
        let (number, piece) = numbered
            .map(|(number, _)| (number, self.take(number)))
            .find(|(_, piece)| piece.is_some())?;
        Some(Slice::new(Arc::clone(self), number, piece?, len))
    }

    /// Allocates slices for a message of `len` bytes, from the largest class downward; the message
    /// fills all slices but the last. Returns `None`, and allocates none, if too few slices are
    /// free, or if `len` is 0.
    pub fn reserve_chain(self: &Arc<Self>, len: usize) -> Option<Vec<Slice>> {
        if len == 0 || self.is_damaged() {
            return None;
        }
        let mut chain = Vec::new();
        let mut missing = len;
        for (number, list) in self.shared.lists.iter().enumerate().rev() {
            while missing > 0 {
                let Some(piece) = self.take(number) else { break };
                let size = missing.min(list.geometry().capacity as usize);
                missing -= size;
                chain.push(Slice::new(Arc::clone(self), number, piece, size));
            }
        }
        // If too few slices were free for the message, dropping `chain` frees the slices that were
        // allocated for it.
        (missing == 0).then_some(chain)
    }

    /// Length in bytes of the longest message for which [`reserve`](Self::reserve) can find a
    /// slice.
    pub fn slice_bytes_max(&self) -> usize {
        self.shared.geometry.lists().last().map_or(0, |list| list.capacity as usize)
    }

    /// Length in bytes of the longest message for which [`reserve_chain`](Self::reserve_chain) can
    /// find slices if all are free.
    pub fn chain_bytes_max(&self) -> u64 {
        let spare = |list: &ListGeometry| u64::from(list.slices - 1) * u64::from(list.capacity);
        self.shared.geometry.lists().iter().map(spare).sum()
    }

    /// Links `slices` into a message and gives up their ownership. Returns the message's offset,
    /// for an element of the queue. If the element is not sent, [`receive`](Self::receive) takes
    /// the message back. Empty slices are freed; returns `None` if all are empty.
    ///
    /// # Panics
    ///
    /// If a slice is of another region.
    pub fn send(self: &Arc<Self>, slices: Vec<Slice>) -> Option<u32> {
        let mut next = None;
        // The slices are linked from the last to the first, because each header holds the offset of
        // the next slice.
        for slice in slices.into_iter().rev().filter(|slice| !slice.is_empty()) {
            next = Some(slice.give_up(self, next));
        }
        next
    }

    /// Makes a message of one slice and gives up the slice's ownership. Returns the message's
    /// offset, for an element of the queue. If the slice is empty, frees it and returns `None`.
    ///
    /// # Panics
    ///
    /// If the slice is of another region.
    pub fn send_one(self: &Arc<Self>, slice: Slice) -> Option<u32> {
        (!slice.is_empty()).then(|| slice.give_up(self, None))
    }

    /// Takes over the message that begins at `offset`: claims its slices, so that nothing else in
    /// this process uses or frees them.
    ///
    /// # Errors
    ///
    /// [`Damage`] if there is no message at `offset`: no slice begins at an offset, a header is
    /// impossible, or a slice occurs twice or is already claimed by this process. The named slices
    /// are then neither used nor freed, since they may have another owner.
    pub fn receive(self: &Arc<Self>, offset: u32) -> Result<Chain, Damage> {
        let truncated =
            || Damage::new("the buffer region was truncated", self.shared.map.len() as u64);
        if self.is_damaged() {
            return Err(truncated());
        }
        let taken = Chain::take_over(self, offset);
        // If the region's file was truncated, loads from the region return zeros, so the slices
        // that were found for this message cannot be trusted.
        if self.is_damaged() { Err(truncated()) } else { taken }
    }

    /// Whether the region's file was truncated while this process had it mapped; see
    /// [`SharedMap::is_damaged`].
    pub fn is_damaged(&self) -> bool {
        self.shared.map.is_damaged()
    }

    /// Whether this process survives a truncation of the region's file.
    pub fn is_guarded(&self) -> bool {
        self.shared.map.is_guarded()
    }

    /// Guards the region: from now on this process survives a truncation of the region's file,
    /// whichever session mapped the region; see [`SharedMap::guard`].
    pub(crate) fn guard(&self) -> Result<(), TableFull> {
        self.shared.map.guard()
    }

    /// Retires the region: the peer of a session ended, and may have held slices, which no process
    /// can identify and free. Other sessions continue with the rest, but new sessions use another
    /// region.
    pub fn retire(&self) {
        // ORDER: Relaxed: no other access depends on `is_retired`, which only keeps new sessions
        // from the region.
        self.shared.is_retired.store(true, Ordering::Relaxed);
    }

    /// Whether a new session may use the region. `is_shared` says whether other sessions use the
    /// region now.
    pub fn is_usable(&self, is_shared: bool) -> bool {
        let is_whole = !self.is_damaged() && !self.shared.lists.iter().any(List::is_stopped);
        if is_shared {
            // ORDER: Relaxed: no other access depends on `is_retired`, which only keeps new
            // sessions from the region.
            return is_whole && !self.shared.is_retired.load(Ordering::Relaxed);
        }
        let is_usable = is_whole && self.is_all_free();
        if is_usable {
            // ORDER: Relaxed: no other access depends on `is_retired`, which only keeps new
            // sessions from the region.
            self.shared.is_retired.store(false, Ordering::Relaxed);
        }
        is_usable
    }

    /// Whether this process created the region, or mapped a region that the peer created.
    pub fn role(&self) -> Role {
        self.shared.role
    }

    /// Positions of the region's lists and slices.
    pub fn geometry(&self) -> &Geometry {
        &self.shared.geometry
    }

    /// Size of the region in bytes.
    pub fn size_bytes(&self) -> usize {
        self.shared.map.len()
    }

    /// The counts of each list of the region; they are not an atomic snapshot.
    pub fn counts(&self) -> Vec<ListCounts> {
        let counts = |(number, list): (usize, &List)| ListCounts {
            capacity: list.geometry().capacity,
            slices: list.geometry().slices,
            free: self.spare(number),
            held: list.pieces().claimed().saturating_sub(self.cache.count(number)),
            counters: list.counters(),
            violations: list.violations(),
            is_stopped: list.is_stopped(),
        };
        self.shared.lists.iter().enumerate().map(counts).collect()
    }

    /// Number of free slices of each list. All slices are free if no message is in flight and no
    /// slice has leaked.
    pub fn free_counts(&self) -> Vec<i32> {
        (0..self.shared.lists.len()).map(|number| self.spare(number)).collect()
    }

    /// The caller reports that a session begins. From now on the session caches some freed slices,
    /// and allocates from its cache first. So an answer is written into the slices of its request,
    /// which are still in the processor's cache. The cache is small, because the peer cannot
    /// allocate cached slices.
    pub fn join(&self) {
        // ORDER: Relaxed: the number of sessions only determines how many freed slices each session
        // may keep in its cache.
        self.shared.sessions.fetch_add(1, Ordering::Relaxed);
        self.cache.keep(true);
    }

    /// The caller reports that a session is about to sleep. The session frees cached slices above
    /// its share, or all of them if it has no open stream: it may never wake up, and the peer needs
    /// free slices.
    pub fn rest(&self, is_idle: bool) {
        if is_idle {
            self.cache.keep(false);
        }
        for number in 0..self.shared.lists.len() {
            self.give_beyond(number, if is_idle { 0 } else { self.share(number) });
        }
    }

    /// The caller reports that a session woke up, so the session caches slices again.
    pub fn wake(&self) {
        self.cache.keep(true);
    }

    /// The caller reports that a session ends; the slices in its cache are freed.
    pub fn leave(&self) {
        // ORDER: Relaxed: the number of sessions only determines the size of each cache.
        self.shared.sessions.fetch_sub(1, Ordering::Relaxed);
        self.rest(true);
    }

    fn give_beyond(&self, number: usize, pieces_max: usize) {
        if self.shared.map.is_inherited() {
            return;
        }
        let pieces = self.cache.beyond(number, pieces_max);
        pieces.into_iter().for_each(|piece| self.shared.lists[number].give(piece));
    }

    /// Number of freed slices of list `number` that one session of this process may keep in its
    /// cache.
    fn share(&self, number: usize) -> usize {
        // ORDER: Relaxed: the number of sessions only determines the size of each cache.
        let sessions = self.shared.sessions.load(Ordering::Relaxed).max(1);
        let slices = self.shared.lists[number].geometry().slices as usize;
        (slices / KEPT_PART / sessions).min(KEPT_MAX)
    }

    fn take(&self, number: usize) -> Option<Piece> {
        let list = &self.shared.lists[number];
        if list.is_stopped() {
            return None;
        }
        self.cache.take(number).or_else(|| list.take())
    }

    /// Frees a slice of list `number`: into this session's cache, or into the list if the cache is
    /// full. A forked child does nothing, because the slice belongs to its parent.
    fn give(&self, number: usize, piece: Piece) {
        if self.shared.map.is_inherited() {
            return;
        }
        let kept = match self.cache.is_keeping() {
            true => self.cache.give(number, piece, self.share(number)),
            false => Some(piece),
        };
        if let Some(piece) = kept {
            self.shared.lists[number].give(piece);
        }
    }

    /// Number of slices of list `number` that this session could allocate if no other session
    /// allocated: free ones, and those in its cache.
    fn spare(&self, number: usize) -> i32 {
        let kept = i32::try_from(self.cache.count(number)).unwrap_or(0);
        self.shared.lists[number].free() + kept
    }

    /// Number of free slices of the largest class. A sender that waits for a slice checks whether
    /// this number has changed.
    pub fn largest_free(&self) -> u64 {
        self.shared
            .lists
            .len()
            .checked_sub(1)
            .map_or(0, |last| u64::try_from(self.spare(last)).unwrap_or(0))
    }

    /// Whether every slice of the region is free: none is allocated, in flight or lost.
    pub fn is_all_free(&self) -> bool {
        let slices = self.shared.lists.iter().map(|list| i64::from(list.geometry().slices));
        slices.enumerate().all(|(number, slices)| i64::from(self.spare(number)) == slices)
    }

    /// Number of free slices of each list, found by following the links from its head; `None` if
    /// the links are broken. The result is only valid while no process allocates.
    pub fn walk_free(&self) -> Vec<Option<u32>> {
        self.shared.lists.iter().map(List::walk).collect()
    }

    fn list(&self, number: usize) -> &List {
        &self.shared.lists[number]
    }
}

impl Drop for BufferRegion {
    fn drop(&mut self) {
        self.rest(true);
    }
}

/// All sessions of this process together cache at most 1/`KEPT_PART` of a list's slices, and each
/// session at most `KEPT_MAX` of a list. The peer can allocate all other slices.
const KEPT_PART: usize = 8;
const KEPT_MAX: usize = 64;

/// Counts of the slices of one list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListCounts {
    /// Capacity of each slice of the list, in bytes.
    pub capacity: u32,
    /// Number of slices of the list, free or not.
    pub slices: u32,
    /// Number of free slices of the list, as its header states it.
    pub free: i32,
    /// Number of slices of the list that this process has claimed: allocated, or received in a
    /// message that is still in use.
    pub held: usize,
    /// Number of allocated minus freed slices of the list, for the region's creator and for the
    /// process that mapped it.
    pub counters: [i32; 2],
    /// Number of faults of the list that this process has detected.
    pub violations: u64,
    /// Whether the list allocates no more slices, because this process has detected a fault.
    pub is_stopped: bool,
}

/// The shared memory has content that no conforming peer writes. The session that detects such
/// content ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    what: &'static str,
    found: u64,
}

impl Damage {
    /// Creates the error for shared memory with impossible content. `what` is a phrase that names
    /// the broken rule, and `found` is the invalid number in the memory.
    #[cold]
    pub(crate) fn new(what: &'static str, found: impl Into<u64>) -> Self {
        Self { what, found: found.into() }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (found {} = {:#x})", self.what, self.found, self.found)
    }
}

impl std::error::Error for Damage {}
