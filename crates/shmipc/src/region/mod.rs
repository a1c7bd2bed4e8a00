// SPDX-License-Identifier: MIT OR Apache-2.0
//! The buffer region: slices of a few sizes, in which messages lie, taken by one process and given back by the other.
//!
//! ```text
//!   reserve ──▶ Slice ──send──▶ offset ··· queue ··· offset ──receive──▶ Chain
//!      ▲          │ drop                                                 │ drop
//!      └── list ◀─┴──────────────────────────────────────────────────────┘
//! ```
//!
//! A region may serve several sessions of two processes. It knows neither queues nor streams, never waits, and
//! copies nothing but what a reader asks to have in one piece.
//!
//! # Invariants
//!
//! - Geometry is private ([`Geometry`]); every word of the other side's is checked against it before it is used.
//! - Each slice has at most one owner in this process: a [`Slice`], or a part of a [`Chain`]. What the other side
//!   names twice is refused, not shared.
//! - The memory stays mapped as long as any of them lives.

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
/// Where the words of headers are.
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

/// A mapped buffer region, as one of its users in this process has it. What a user keeps is its own, and what it takes
/// refers to it alone, so that two users meet nowhere but in the shared memory.
#[derive(Debug)]
pub struct BufferRegion {
    shared: Arc<Shared>,
    cache: SliceCache,
}

/// What all users in this process share.
#[derive(Debug)]
pub(crate) struct Shared {
    map: Arc<SharedMap>,
    geometry: Geometry,
    lists: Vec<List>,
    role: Role,
    /// Something of it may be lost: it is not for new sessions.
    is_retired: AtomicBool,
    /// How many sessions of this process use it.
    sessions: AtomicUsize,
}

impl BufferRegion {
    /// Makes a region of fresh memory, which must be zeros.
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

    /// Uses a region that the other side made.
    ///
    /// # Errors
    ///
    /// [`Damage`] where its headers say what cannot be.
    pub fn map(map: SharedMap) -> Result<Arc<Self>, Damage> {
        let geometry = Geometry::read(&map)?;
        Self::with(map, geometry, Role::Mapper)
    }

    fn with(map: SharedMap, geometry: Geometry, role: Role) -> Result<Arc<Self>, Damage> {
        let map = Arc::new(map);
        let mut lists = Vec::with_capacity(geometry.lists().len());
        for list in geometry.lists() {
            // A geometry is within the region, so there is always a list.
            let made = List::new(Arc::clone(&map), *list, role);
            lists.push(
                made.ok_or_else(|| Damage::new("a list lies behind its region", list.end()))?,
            );
        }
        let is_retired = AtomicBool::new(false);
        let sessions = AtomicUsize::new(0);
        Ok(Self::of(Arc::new(Shared { map, geometry, lists, role, is_retired, sessions })))
    }

    /// One more user's.
    pub(crate) fn of(shared: Arc<Shared>) -> Arc<Self> {
        let cache = SliceCache::new(shared.lists.len());
        Arc::new(Self { shared, cache })
    }

    /// The same region for another user.
    pub fn another(&self) -> Arc<Self> {
        Self::of(Arc::clone(&self.shared))
    }

    /// Whether two users have the same region.
    pub fn is_same_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// What all its users share, for those who want to find it again.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// A slice for `len` contiguous bytes: of the smallest class that has one to spare. `None` if none does, if no
    /// class is as large, or if `len` is 0. It is `len` bytes long.
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

    /// Slices for `len` bytes together, from the largest class downward; each is full but for the last. `None`, and
    /// nothing taken, if there are not enough, or if `len` is 0.
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
        // Otherwise they are given back by being dropped.
        (missing == 0).then_some(chain)
    }

    /// The longest message that [`reserve`](Self::reserve) may ever have room for.
    pub fn slice_bytes_max(&self) -> usize {
        self.shared.geometry.lists().last().map_or(0, |list| list.capacity as usize)
    }

    /// What [`reserve_chain`](Self::reserve_chain) has room for where everything is free.
    pub fn chain_bytes_max(&self) -> u64 {
        let spare = |list: &ListGeometry| u64::from(list.slices - 1) * u64::from(list.capacity);
        self.shared.geometry.lists().iter().map(spare).sum()
    }

    /// Links `slices` to a message and gives them up; where it begins, as an element of the queue says it. What the
    /// other side is then not told of is taken back by [`receive`](Self::receive). Empty slices are left out and
    /// given back; `None` if that leaves nothing.
    ///
    /// # Panics
    ///
    /// If a slice is of another region.
    pub fn send(self: &Arc<Self>, slices: Vec<Slice>) -> Option<u32> {
        let mut next = None;
        // From the last to the first, so that each knows what follows.
        for slice in slices.into_iter().rev().filter(|slice| !slice.is_empty()) {
            next = Some(slice.give_up(self, next));
        }
        next
    }

    /// [`send`](Self::send) of one slice.
    ///
    /// # Panics
    ///
    /// If the slice is of another region.
    pub fn send_one(self: &Arc<Self>, slice: Slice) -> Option<u32> {
        (!slice.is_empty()).then(|| slice.give_up(self, None))
    }

    /// Takes over the message that begins at `offset`.
    ///
    /// # Errors
    ///
    /// [`Damage`] where it is no message: an offset that is no slice's, a slice that says what it cannot hold, one
    /// that comes twice or that this process has already. What it named is then left alone, since it may be
    /// somebody else's.
    pub fn receive(self: &Arc<Self>, offset: u32) -> Result<Chain, Damage> {
        let truncated =
            || Damage::new("the buffer region was truncated", self.shared.map.len() as u64);
        if self.is_damaged() {
            return Err(truncated());
        }
        let taken = Chain::take_over(self, offset);
        // What was read of it since are zeros.
        if self.is_damaged() { Err(truncated()) } else { taken }
    }

    /// Whether the file that the region lies in was truncated under us; see [`SharedMap::is_damaged`].
    pub fn is_damaged(&self) -> bool {
        self.shared.map.is_damaged()
    }

    /// Whether this process survives that.
    pub fn is_guarded(&self) -> bool {
        self.shared.map.is_guarded()
    }

    /// From now on this process survives it, whoever mapped the region, and whatever for; see [`SharedMap::guard`].
    pub(crate) fn guard(&self) -> Result<(), TableFull> {
        self.shared.map.guard()
    }

    /// The other side of a session ended with slices in its hands, perhaps: nobody gives them back, since nobody knows
    /// which. Other sessions go on with what is left, but no new one begins.
    pub fn retire(&self) {
        // ORDER: Relaxed: nothing else is read on the strength of it.
        self.shared.is_retired.store(true, Ordering::Relaxed);
    }

    /// Whether a new session may use it, beside others that do (or did: then nobody has anything of it any more).
    pub fn is_usable(&self, is_shared: bool) -> bool {
        let is_whole = !self.is_damaged() && !self.shared.lists.iter().any(List::is_stopped);
        if is_shared {
            // ORDER: Relaxed: see `retire`.
            return is_whole && !self.shared.is_retired.load(Ordering::Relaxed);
        }
        let is_usable = is_whole && self.is_all_free();
        if is_usable {
            // ORDER: Relaxed: see `retire`.
            self.shared.is_retired.store(false, Ordering::Relaxed);
        }
        is_usable
    }

    /// Whether this process made it.
    pub fn role(&self) -> Role {
        self.shared.role
    }

    /// Where everything lies.
    pub fn geometry(&self) -> &Geometry {
        &self.shared.geometry
    }

    /// How many bytes the region has.
    pub fn size_bytes(&self) -> usize {
        self.shared.map.len()
    }

    /// What each list has, at about this time.
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

    /// How many slices each list says are free; all of them where nothing is on its way and nobody leaks.
    pub fn free_counts(&self) -> Vec<i32> {
        (0..self.shared.lists.len()).map(|number| self.spare(number)).collect()
    }

    /// A session begins: some slices that come back are kept for the next who takes one, without asking the list, so
    /// that a message that answers another lies where that lay. The other side is left most of them.
    pub fn join(&self) {
        // ORDER: Relaxed: how many there are decides only how much each keeps.
        self.shared.sessions.fetch_add(1, Ordering::Relaxed);
        self.cache.keep(true);
    }

    /// A session sleeps: more than its share goes back, and everything if no stream of it is open. It may never wake
    /// again, and the other side counts what is free.
    pub fn rest(&self, is_idle: bool) {
        if is_idle {
            self.cache.keep(false);
        }
        for number in 0..self.shared.lists.len() {
            self.give_beyond(number, if is_idle { 0 } else { self.share(number) });
        }
    }

    /// A session that slept is awake.
    pub fn wake(&self) {
        self.cache.keep(true);
    }

    /// A session ends: what was kept is given back, and no more is kept.
    pub fn leave(&self) {
        // ORDER: Relaxed: see `join`.
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

    /// How many slices of a list one session may keep.
    fn share(&self, number: usize) -> usize {
        // ORDER: Relaxed: see `join`.
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

    /// Gives a slice back; a forked child does nothing, since what it inherited is its parent's.
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

    /// How many slices of a list this user could take, were nobody else to.
    fn spare(&self, number: usize) -> i32 {
        let kept = i32::try_from(self.cache.count(number)).unwrap_or(0);
        self.shared.lists[number].free() + kept
    }

    /// How many slices of the largest class are free, as its list says: whoever waits for one looks whether it differs.
    pub fn largest_free(&self) -> u64 {
        self.shared
            .lists
            .len()
            .checked_sub(1)
            .map_or(0, |last| u64::try_from(self.spare(last)).unwrap_or(0))
    }

    /// Whether every slice of every list is free: none is held, none on its way, none lost.
    pub fn is_all_free(&self) -> bool {
        let slices = self.shared.lists.iter().map(|list| i64::from(list.geometry().slices));
        slices.enumerate().all(|(number, slices)| i64::from(self.spare(number)) == slices)
    }

    /// How many slices can be reached from the head of each list; `None` where the way to the tail is cut. Only
    /// while nobody takes or gives.
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

/// Of the slices of a list, sessions together keep about this part, and each no more than so many.
const KEPT_PART: usize = 8;
const KEPT_MAX: usize = 64;

/// What a list has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListCounts {
    /// Bytes a slice takes.
    pub capacity: u32,
    /// How many slices there are.
    pub slices: u32,
    /// How many are free, as the list says.
    pub free: i32,
    /// How many this process has.
    pub held: usize,
    /// Taken less given back, of the process that made the region and of the other one.
    pub counters: [i32; 2],
    /// How often the list was seen to be wrong.
    pub violations: u64,
    /// Whether it is not taken from any more, because of that.
    pub is_stopped: bool,
}

/// Shared memory holds what no peer that keeps the rules writes. Whoever meets it ends the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    what: &'static str,
    found: u64,
}

impl Damage {
    /// `what` is wrong, a whole phrase; `found` is the number that shows it.
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
