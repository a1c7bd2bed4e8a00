// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of handles: every object that C programs hold lies in a slot that is never freed.
//!
//! ```text
//!   handle   generation (32 bits) │ index of the slot (24 bits) │ kind (8 bits)
//!   slot     three lanes: the first direction, the second, and the part that any call may copy
//!   lane     lock with the generation and a state (partywall-ring, lane.rs); value
//! ```
//!
//! # Invariants
//!
//! - The library never follows a handle. It compares the kind, then looks up the slot by its index.
//! - The generation tells the objects of one slot apart, and rises with each. A slot that has had
//!   the highest generation is never used again, so no two objects have one handle.
//! - A lane is a lock with its value. Only the call that has locked a lane touches the value.
//! - A lane can favour a thread, which then enters it without an atomic exchange.
//! - A panic within a lane poisons it: every later call but a free is refused.

use crate::failure::Failure;
use crate::spare;
use crate::thread::{self, ThisProcess};
use partywall_layout::seeded_fault;
use partywall_ring::lane::{self, Claim, Refusal, Thread};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A type of object to which C programs have handles. Implemented by types without values:
/// `Handle<ChannelObject>` is a handle that names a channel.
pub(crate) trait Object: Sized + 'static {
    /// The part of an object that calls of its first direction lock; for most types, the whole
    /// object.
    type First: Send + 'static;
    /// The part of an object that calls of its second direction lock, while other calls may have
    /// locked the first part.
    type Second: Send + 'static;
    /// The part of an object that any call may copy while other calls use the directions.
    type Shared: Send + 'static;
    /// The number that stands for the type of object, in the lowest 8 bits of a handle. It is not
    /// 0, so no handle is a null pointer.
    const KIND: u8;
    /// The name of the type in error texts.
    const NAME: &'static str;

    fn table() -> &'static Table<Self>;
}

/// The two directions of an object that was taken out of its slot.
type Directions<O> = (Option<<O as Object>::First>, Option<<O as Object>::Second>);

/// A handle as C programs pass it: a pointer that the library never follows.
#[repr(transparent)]
pub(crate) struct Handle<O: Object> {
    value: *mut c_void,
    object: PhantomData<fn() -> O>,
}

impl<O: Object> Clone for Handle<O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O: Object> Copy for Handle<O> {}

impl<O: Object> Handle<O> {
    /// The null pointer, a handle that names no object.
    pub(crate) const NULL: Self = Self { value: ptr::null_mut(), object: PhantomData };

    /// Puts an object without a shared part into a free slot.
    ///
    /// # Errors
    /// Fails if the process has as many objects of the type as it may have.
    pub(crate) fn insert(first: O::First, second: O::Second) -> Result<Self, Failure>
    where
        O: Object<Shared = ()>,
    {
        Self::insert_with(first, second, ())
    }

    /// Puts an object with a shared part into a free slot.
    ///
    /// # Errors
    /// Fails if the process has as many objects of the type as it may have.
    pub(crate) fn insert_with(
        first: O::First,
        second: O::Second,
        shared: O::Shared,
    ) -> Result<Self, Failure> {
        let index = spare::take::<O>().ok_or_else(|| Failure::exhausted(O::NAME))?;
        let slot = O::table().slot(index).ok_or_else(|| Failure::exhausted(O::NAME))?;
        let generation = slot.first.generation();
        slot.second.fill_part(generation, second);
        slot.shared.fill_part(generation, shared);
        slot.first.fill(generation, first);
        let value = u64::from(generation) << 32 | u64::from(index) << 8 | u64::from(O::KIND);
        Ok(Self { value: ptr::without_provenance_mut(value as usize), object: PhantomData })
    }

    pub(crate) fn is_null(self) -> bool {
        self.value.is_null()
    }

    /// Locks the first part of the object for one call.
    ///
    /// # Errors
    /// Fails if the handle names no object, another call has locked the part, or a panic has left
    /// it in an unknown state.
    #[inline]
    pub(crate) fn first(self) -> Result<Guard<'static, O::First>, Failure> {
        let (slot, generation) = self.locate()?;
        slot.first.lock(generation).map_err(|refusal| explain(refusal, O::NAME))
    }

    /// Locks the first part of the object while `act` uses it. A panic of `act` poisons the part,
    /// so that later calls are refused. After many such calls by one thread, the part favours that
    /// thread, which then needs no atomic exchange to lock it.
    ///
    /// # Errors
    /// Fails if the handle names no object, another call has locked the part, or a panic has left
    /// it in an unknown state; and with the failure of `act`.
    pub(crate) fn with_first<R>(
        self,
        act: impl FnOnce(&mut O::First) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let (slot, generation) = self.locate()?;
        let used = match slot.first.enter(generation) {
            Some(thread) => Ok(slot.first.use_inside(thread, act)),
            None => slot.first.with(generation, act),
        };
        used.unwrap_or_else(|refusal| Err(explain(refusal, O::NAME)))
    }

    /// Lets `act` use the first part of the object if the part's lock favours the calling thread,
    /// which then needs no atomic exchange. Otherwise returns `None`, and the caller has to use
    /// [`with_first`](Self::with_first). A panic of `act` poisons the part, so that later calls are
    /// refused.
    #[inline(always)]
    pub(crate) fn if_favoured_first<R>(self, act: impl FnOnce(&mut O::First) -> R) -> Option<R> {
        let (slot, generation) = self.locate_soon()?;
        let thread = slot.first.enter(generation)?;
        Some(slot.first.use_inside(thread, act))
    }

    /// Lets `act` use the second part of the object if the part's lock favours the calling thread,
    /// which then needs no atomic exchange. Otherwise returns `None`, and the caller has to use
    /// [`with_second`](Self::with_second). A panic of `act` poisons the part, so that later calls
    /// are refused.
    #[inline(always)]
    pub(crate) fn if_favoured_second<R>(self, act: impl FnOnce(&mut O::Second) -> R) -> Option<R> {
        let (slot, generation) = self.locate_soon()?;
        let thread = slot.second.enter(generation)?;
        Some(slot.second.use_inside(thread, act))
    }

    /// Locks the second part of the object while `act` uses it.
    ///
    /// # Errors
    /// Fails if the handle names no object, another call has locked the part, or a panic has left
    /// it in an unknown state; and with the failure of `act`.
    pub(crate) fn with_second<R>(
        self,
        act: impl FnOnce(&mut O::Second) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let (slot, generation) = self.locate()?;
        let used = match slot.second.enter(generation) {
            Some(thread) => Ok(slot.second.use_inside(thread, act)),
            None => slot.second.with(generation, act),
        };
        used.unwrap_or_else(|refusal| Err(explain(refusal, O::NAME)))
    }

    /// Locks the second part of the object for one call.
    ///
    /// # Errors
    /// Fails if the handle names no object, another call has locked the part, or a panic has left
    /// it in an unknown state.
    #[inline]
    pub(crate) fn second(self) -> Result<Guard<'static, O::Second>, Failure> {
        let (slot, generation) = self.locate()?;
        slot.second.lock(generation).map_err(|refusal| explain(refusal, O::NAME))
    }

    /// Locks the second part of an object whose calls lock this part for a moment only. While
    /// another call has locked it, tries again.
    ///
    /// # Errors
    /// Fails if the handle names no object, another call has locked the part for too long, or a
    /// panic has left it in an unknown state.
    pub(crate) fn second_briefly(self) -> Result<Guard<'static, O::Second>, Failure> {
        wait_briefly(|| self.second())
    }

    /// Copies the shared part of the object.
    ///
    /// # Errors
    /// Fails if the handle names no object.
    pub(crate) fn shared(self) -> Result<O::Shared, Failure>
    where
        O::Shared: Clone,
    {
        let (slot, generation) = self.locate()?;
        let lock = || slot.shared.lock(generation).map_err(|refusal| explain(refusal, O::NAME));
        wait_briefly(lock).map(|guard| guard.clone())
    }

    /// Takes the object out of its slot. From then on the handle names no object. A part of the
    /// object is `None` if its type has none, or if its destructor panicked before.
    ///
    /// # Errors
    /// Fails if the handle names no object, or another call has locked a part of it.
    pub(crate) fn remove(self) -> Result<Directions<O>, Failure> {
        let taken = self.vacate(|first, second, shared| {
            (first.take(), second.and_then(Option::take), shared.and_then(Option::take))
        });
        // The object's shared part is dropped at the end of this function, when its slot in the
        // table is vacant. The caller drops the object's two directions.
        taken.map(|(first, second, _)| (first, second))
    }

    /// Frees an object by dropping its parts inside the slot, without moving them out. For types
    /// whose destructors are short, because the slot stays locked meanwhile.
    ///
    /// # Errors
    /// Fails if the handle names no object, or another call has locked a part of it.
    #[inline]
    pub(crate) fn discard(self) -> Result<(), Failure> {
        self.vacate(|first, second, shared| {
            *first = None;
            if let Some(second) = second {
                *second = None;
            }
            if let Some(shared) = shared {
                *shared = None;
            }
        })
    }

    /// Locks all parts of the object, calls `take` with the places of the parts, and makes the
    /// object's slot vacant.
    #[inline]
    fn vacate<R>(
        self,
        take: impl FnOnce(
            &mut Option<O::First>,
            Option<&mut Option<O::Second>>,
            Option<&mut Option<O::Shared>>,
        ) -> R,
    ) -> Result<R, Failure> {
        let (slot, generation) = self.locate()?;
        let refused = |refusal: Refusal| explain(refusal, O::NAME);
        let mut first = slot.first.lock_any(generation).map_err(refused)?;
        let mut second = slot.second.lock_part(generation).map_err(refused)?;
        let mut shared = slot.shared.lock_part(generation).map_err(refused)?;
        let places = (second.as_mut().map(Guard::place), shared.as_mut().map(Guard::place));
        let taken = take(first.place(), places.0, places.1);
        // The locks of the object's parts stay locked until the parts are vacant, so their guards
        // must not unlock them.
        mem::forget((first, second, shared));
        let next = generation.checked_add(1);
        slot.second.vacate_part(next.unwrap_or(generation));
        slot.shared.vacate_part(next.unwrap_or(generation));
        slot.first.vacate(next.unwrap_or(generation));
        // From here on other threads may take the slot for a new object. A slot whose generations
        // are used up is never given back.
        if next.is_some() {
            spare::give::<O>(self.index());
        }
        Ok(taken)
    }

    #[inline]
    fn locate(self) -> Result<(&'static Slot<O>, u32), Failure> {
        let value = self.value.addr() as u64;
        if value & 0xff != u64::from(O::KIND) {
            return Err(self.explain());
        }
        let slot = O::table().slot(self.index()).ok_or_else(|| Failure::handle(O::NAME))?;
        if seeded_fault("no_generation_check") {
            return Ok((slot, slot.first.generation()));
        }
        Ok((slot, (value >> 32) as u32))
    }

    /// Returns the slot of the object, and the generation in the handle, if the handle is of this
    /// type and the slot lies in the first chunk of the table; else `None`. The slots of other
    /// chunks are found by [`locate`](Self::locate).
    #[inline(always)]
    fn locate_soon(self) -> Option<(&'static Slot<O>, u32)> {
        let value = self.value.addr() as u64;
        let is_usual = value & 0xff == u64::from(O::KIND) && !seeded_fault("no_generation_check");
        let slots = O::table().chunks.first()?.get().filter(|_| is_usual)?;
        Some((slots.get(self.index() as usize)?, (value >> 32) as u32))
    }

    #[inline(always)]
    fn index(self) -> u32 {
        (self.value.addr() >> 8) as u32 & (SLOTS_MAX - 1)
    }

    #[cold]
    fn explain(self) -> Failure {
        if self.is_null() { Failure::no_object(O::NAME) } else { Failure::handle(O::NAME) }
    }
}

impl<T: ?Sized + Send + Sync + 'static, O: Object<Second = Arc<T>>> Handle<O> {
    /// Returns a reference to the object, for types whose calls all use one object at the same
    /// time.
    ///
    /// # Errors
    /// Fails if the handle names no object, another call has locked it for too long, or a panic has
    /// left it in an unknown state.
    pub(crate) fn share_second(self) -> Result<Arc<T>, Failure> {
        self.second_briefly().map(|guard| Arc::clone(&guard))
    }
}

/// The slots of all objects of one type. They lie in chunks, each twice as long as the chunk before
/// it.
pub(crate) struct Table<O: Object> {
    chunks: [OnceLock<Box<[Slot<O>]>>; CHUNKS],
    free: Mutex<Free>,
}

/// The slots of a table that hold no object.
struct Free {
    vacant: Vec<u32>,
    /// Number of slots that were ever taken; a slot with this index or a higher one has held no
    /// object yet.
    used: u32,
}

impl<O: Object> Table<O> {
    pub(crate) const fn new() -> Self {
        let free = Free { vacant: Vec::new(), used: 0 };
        Self { chunks: [const { OnceLock::new() }; CHUNKS], free: Mutex::new(free) }
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the index of a slot for a new object. Allocates the chunk of the slot if it is the
    /// chunk's first.
    #[cold]
    pub(crate) fn take_vacant(&self) -> Option<u32> {
        let mut free = self.free();
        if let Some(index) = free.vacant.pop() {
            return Some(index);
        }
        let index = free.used;
        if index >= SLOTS_MAX {
            return None;
        }
        free.used += 1;
        let (chunk, _) = place(index);
        self.chunks.get(chunk)?.get_or_init(|| {
            let slots = (0..SLOTS_FIRST << chunk).map(|_| Slot::new());
            slots.collect()
        });
        Some(index)
    }

    /// Gives a vacant slot back to the table, so that any thread may take it.
    #[cold]
    pub(crate) fn give_vacant(&self, index: u32) {
        self.free().vacant.push(index);
    }

    #[inline]
    fn slot(&self, index: u32) -> Option<&Slot<O>> {
        if index < SLOTS_FIRST {
            // Most programs use the first chunk alone, and a slot in it is found without computing
            // the chunk.
            return self.chunks.first()?.get()?.get(index as usize);
        }
        let (chunk, offset) = place(index);
        self.chunks.get(chunk)?.get()?.get(offset)
    }
}

/// Calls `lock` again while it fails because another call has locked the part, but at most
/// [`LOCK_ATTEMPTS`] times. Other calls lock such a part for a moment only.
fn wait_briefly<T>(lock: impl Fn() -> Result<T, Failure>) -> Result<T, Failure> {
    for _ in 1..LOCK_ATTEMPTS {
        match lock() {
            Err(failure) if failure.is_busy() => std::thread::yield_now(),
            locked => return locked,
        }
    }
    lock()
}

/// Returns the chunk of a table that holds the slot `index`, and the offset of the slot in the
/// chunk.
#[inline]
const fn place(index: u32) -> (usize, usize) {
    let chunk = (index / SLOTS_FIRST + 1).ilog2();
    (chunk as usize, (index - SLOTS_FIRST * ((1 << chunk) - 1)) as usize)
}

struct Slot<O: Object> {
    first: Lane<O::First>,
    second: Lane<O::Second>,
    shared: Lane<O::Shared>,
}

impl<O: Object> Slot<O> {
    fn new() -> Self {
        Self { first: Lane::new(), second: Lane::new(), shared: Lane::new() }
    }
}

/// One part of an object and its lock. One call at a time may use the part.
struct Lane<T> {
    lock: lane::Lane,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: the lock of a lane gives the value to one thread at a time, and the next owner sees every
// change (`ring/src/lane.rs`).
unsafe impl<T: Send> Sync for Lane<T> {}

impl<T> Lane<T> {
    fn new() -> Self {
        Self { lock: lane::Lane::new(), value: UnsafeCell::new(None) }
    }

    fn generation(&self) -> u32 {
        self.lock.generation()
    }

    /// Puts the value of a new object's part into its vacant lane, which no other thread knows yet.
    fn fill(&self, generation: u32, value: T) {
        // SAFETY: `take_vacant` gave the slot to this thread alone, and the state of the part's
        // lock is VACANT.
        let place = unsafe { &mut *self.value.get() };
        *place = Some(value);
        self.lock.fill(generation);
    }

    /// Puts the value of a new object's part into its vacant lane. A part whose type has no bytes
    /// needs no lock and is left out.
    #[inline]
    fn fill_part(&self, generation: u32, value: T) {
        if Self::IS_USED {
            self.fill(generation, value);
        }
    }

    /// Makes the lane of an object's part vacant, when the object is freed. A part whose type has
    /// no bytes has no lock and is left out.
    #[inline]
    fn vacate_part(&self, generation: u32) {
        if Self::IS_USED {
            self.vacate(generation);
        }
    }

    /// Makes the lane of an object's part vacant. The next object in the slot has the given
    /// generation.
    #[inline]
    fn vacate(&self, generation: u32) {
        self.lock.vacate(generation);
    }

    #[inline]
    fn lock(&self, generation: u32) -> Result<Guard<'_, T>, Refusal> {
        self.claim(generation, false)
    }

    /// Whether the part of the object has a value, which a lock must guard: a type without bytes
    /// needs no lock.
    const IS_USED: bool = size_of::<T>() > 0;

    /// Locks the part even if a panic has poisoned its lock. Returns `None` if the part's type has
    /// no bytes, so that it needs no lock.
    #[inline]
    fn lock_part(&self, generation: u32) -> Result<Option<Guard<'_, T>>, Refusal> {
        if Self::IS_USED { self.lock_any(generation).map(Some) } else { Ok(None) }
    }

    /// Locks the part even if a panic has poisoned its lock, for a caller that only drops the
    /// value.
    #[inline]
    fn lock_any(&self, generation: u32) -> Result<Guard<'_, T>, Refusal> {
        self.claim(generation, true)
    }

    /// Locks the part without an atomic exchange if its lock favours the calling thread, and
    /// returns that thread; otherwise returns `None`.
    #[inline(always)]
    fn enter(&self, generation: u32) -> Option<Thread<'static>> {
        let thread = thread::current()?;
        self.lock.enter(generation, thread).then_some(thread)
    }

    /// Calls `act` with the value of the part, and unlocks the part. `thread` is the calling
    /// thread, which has locked the part by `enter`. A panic of `act` poisons the lock, so that
    /// later calls are refused.
    #[inline(always)]
    fn use_inside<R>(&self, thread: Thread<'static>, act: impl FnOnce(&mut T) -> R) -> R {
        let entered = Entered(&self.lock);
        // SAFETY: the calling thread has locked the part by `enter`, so no other thread uses the
        // value.
        let value = unsafe { &mut *self.value.get() };
        let value = value.as_mut().unwrap_or_else(|| unreachable!("a locked lane has a value"));
        let result = act(value);
        mem::forget(entered);
        lane::Lane::leave(thread);
        result
    }

    /// Locks the part by an atomic exchange, calls `act` with its value, and unlocks it. A panic of
    /// `act` poisons the lock, so that later calls are refused. If one thread locks a part again
    /// and again, the lock begins to favour that thread.
    fn with<R>(&self, generation: u32, act: impl FnOnce(&mut T) -> R) -> Result<R, Refusal> {
        let thread = thread::registered();
        let claim = self.lock.claim(generation, false, thread, &ThisProcess)?;
        let claimed = Claimed { lane: &self.lock, claim };
        // SAFETY: this call has locked the part, so no other call uses the value.
        let value = unsafe { &mut *self.value.get() };
        let value = value.as_mut().unwrap_or_else(|| unreachable!("a locked lane has a value"));
        let result = act(value);
        match thread {
            Some(thread) => self.lock.release_to(&claimed.claim, thread),
            None => self.lock.release(&claimed.claim),
        }
        mem::forget(claimed);
        Ok(result)
    }

    #[inline]
    fn claim(&self, generation: u32, takes_poisoned: bool) -> Result<Guard<'_, T>, Refusal> {
        let claim = self.lock.claim(generation, takes_poisoned, thread::current(), &ThisProcess)?;
        Ok(Guard { lane: self, claim, panics: std::thread::panicking() })
    }
}

/// The lock of a part that the calling thread has locked without an atomic exchange. Only a panic
/// drops this object, and its destructor poisons the lock.
struct Entered<'a>(&'a lane::Lane);

impl Drop for Entered<'_> {
    #[cold]
    fn drop(&mut self) {
        // A thread that locks without an atomic exchange always has a presence.
        if let Some(thread) = thread::current() {
            self.0.break_inside(thread, &ThisProcess);
        }
    }
}

/// The lock of a part that a call has locked by an atomic exchange. Only a panic drops this object,
/// and its destructor poisons the lock.
struct Claimed<'a> {
    lane: &'a lane::Lane,
    claim: Claim,
}

impl Drop for Claimed<'_> {
    #[cold]
    fn drop(&mut self) {
        self.lane.break_claimed(&self.claim);
    }
}

/// A part of an object that one call has locked.
pub(crate) struct Guard<'a, T> {
    lane: &'a Lane<T>,
    claim: Claim,
    /// Whether the thread was already panicking when it locked the part. If so, dropping this guard
    /// does not poison the lock.
    panics: bool,
}

impl<T> Guard<'_, T> {
    /// Returns the place of the part's value, which is empty if the value's destructor has
    /// panicked.
    #[inline]
    fn place(&mut self) -> &mut Option<T> {
        // SAFETY: this guard has locked the part, and is borrowed mutably.
        unsafe { &mut *self.lane.value.get() }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard has locked the part, and no mutable borrow of the guard is alive.
        let value = unsafe { &*self.lane.value.get() };
        value.as_ref().unwrap_or_else(|| unreachable!("a locked lane has a value"))
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard has locked the part of the object that contains the value, so no other
        // guard refers to the value. This guard is borrowed mutably, so no other reference that was
        // made through it is alive.
        let value = unsafe { &mut *self.lane.value.get() };
        value.as_mut().unwrap_or_else(|| unreachable!("a locked lane has a value"))
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if std::thread::panicking() && !self.panics {
            self.lane.lock.break_claimed(&self.claim);
        } else {
            self.lane.lock.release(&self.claim);
        }
    }
}

/// Returns the failure of a call that could not lock a part of an object of the type `name`.
#[cold]
fn explain(refusal: Refusal, name: &'static str) -> Failure {
    match refusal {
        Refusal::Gone => Failure::handle(name),
        Refusal::Busy => Failure::busy(),
        Refusal::Poisoned => Failure::poisoned(name),
    }
}

/// Maximum number of attempts to lock a part of an object that other calls lock for a moment only.
const LOCK_ATTEMPTS: u32 = 10_000;
/// Number of slots in the first chunk of a table of handles.
const SLOTS_FIRST: u32 = 64;
/// Maximum number of objects of one type at a time: as many as the index in a handle can tell
/// apart.
const SLOTS_MAX: u32 = 1 << 24;
/// Number of chunks, arrays of slots, in a table with `SLOTS_MAX` slots: the last slot lies in the
/// last chunk.
const CHUNKS: usize = place(SLOTS_MAX - 1).0 + 1;

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    struct Sample;

    static SAMPLES: Table<Sample> = Table::new();

    impl Object for Sample {
        type First = String;
        type Second = u32;
        type Shared = &'static str;
        const KIND: u8 = 30;
        const NAME: &'static str = "sample";

        fn table() -> &'static Table<Self> {
            &SAMPLES
        }
    }

    struct Other;

    static OTHERS: Table<Other> = Table::new();

    impl Object for Other {
        type First = ();
        type Second = ();
        type Shared = ();
        const KIND: u8 = 31;
        const NAME: &'static str = "other";

        fn table() -> &'static Table<Self> {
            &OTHERS
        }
    }

    /// A type of object for tests of locks that favour a thread. It has few objects, which all lie
    /// in the first chunk of the table.
    struct Favouring;

    static FAVOURING: Table<Favouring> = Table::new();

    impl Object for Favouring {
        type First = String;
        type Second = u32;
        type Shared = &'static str;
        const KIND: u8 = 28;
        const NAME: &'static str = "favouring";

        fn table() -> &'static Table<Self> {
            &FAVOURING
        }
    }

    struct Reused;

    static REUSED: Table<Reused> = Table::new();

    impl Object for Reused {
        type First = ();
        type Second = ();
        type Shared = ();
        const KIND: u8 = 29;
        const NAME: &'static str = "reused";

        fn table() -> &'static Table<Self> {
            &REUSED
        }
    }

    fn code<T>(result: Result<T, Failure>) -> i32 {
        result.err().map_or(0, |failure| failure.code())
    }

    #[test]
    fn freed_handle_is_known_although_its_slot_is_used_again() {
        let old = Handle::<Sample>::insert_with("a".into(), 1, "s").unwrap();
        assert_eq!(old.remove().unwrap(), (Some("a".into()), Some(1)));
        assert_eq!(code(old.first()), 902);
        let mut others = Vec::new();
        for _ in 0..1000 {
            others.push(Handle::<Sample>::insert_with("b".into(), 2, "s").unwrap());
            assert_eq!(code(old.first()), 902);
            assert_eq!(code(old.remove()), 902);
        }
        for other in others {
            assert_eq!(*other.first().unwrap(), "b");
            assert!(other.remove().is_ok());
        }
    }

    #[test]
    fn handle_of_another_type_or_of_nothing_is_known() {
        let other = Handle::<Other>::insert((), ()).unwrap();
        let cast = Handle::<Sample> { value: other.value, object: PhantomData };
        assert_eq!(code(cast.first()), 902);
        assert_eq!(code(Handle::<Sample>::NULL.first()), 901);
        for value in [1, 30, 0x7fff_dead_be1e, usize::MAX, usize::MAX << 8 | 30] {
            let value = ptr::without_provenance_mut(value);
            let forged = Handle::<Sample> { value, object: PhantomData };
            assert_eq!(code(forged.second()), 902, "{value:?}");
        }
        assert!(other.remove().is_ok());
    }

    #[test]
    fn directions_are_locked_apart_and_a_locked_object_is_not_removed() {
        let handle = Handle::<Sample>::insert_with("a".into(), 1, "s").unwrap();
        let first = handle.first().unwrap();
        assert_eq!(code(handle.first()), 8);
        assert_eq!(*handle.second().unwrap(), 1);
        assert_eq!(code(handle.remove()), 8);
        drop(first);
        let second = handle.second().unwrap();
        assert_eq!(handle.shared().unwrap(), "s");
        assert_eq!(code(handle.remove()), 8);
        drop(second);
        assert!(handle.remove().is_ok());
    }

    #[test]
    fn slot_that_a_thread_keeps_goes_back_when_the_thread_ends() {
        let free = |it: Handle<Reused>| {
            assert!(it.discard().is_ok());
            it.index()
        };
        let insert = || Handle::<Reused>::insert((), ()).unwrap();
        let kept = thread::spawn(move || free(insert())).join().unwrap();
        assert!(REUSED.free().vacant.contains(&kept));
        let first = insert();
        let index = free(first);
        let second = insert();
        assert_eq!(second.index(), index, "the thread uses its slot again");
        assert_eq!(code(first.first()), 902);
        assert_eq!(code(first.discard()), 902);
        assert!(second.discard().is_ok());
    }

    #[test]
    fn panic_poisons_the_part_that_it_met() {
        let handle = Handle::<Sample>::insert_with("a".into(), 1, "s").unwrap();
        let panicked = std::panic::catch_unwind(|| {
            let _guard = handle.first().ok();
            panic!("a panic of the test");
        });
        assert!(panicked.is_err());
        assert_eq!(code(handle.first()), 903);
        assert_eq!(code(handle.second()), 0);
        let panicked = std::panic::catch_unwind(|| {
            let _: Result<(), Failure> = handle.with_second(|_| panic!("a panic of the test"));
        });
        assert!(panicked.is_err());
        assert_eq!(code(handle.with_second(|_| Ok(()))), 903);
        assert_eq!(code(handle.second()), 903);
        assert!(handle.remove().is_ok());
    }

    #[test]
    fn part_is_locked_exactly_while_it_is_used() {
        let handle = Handle::<Sample>::insert_with("a".into(), 1, "s").unwrap();
        let used = handle.with_first(|first| {
            first.push('b');
            assert_eq!(code(handle.first()), 8);
            assert_eq!(code(handle.with_first(|_| Ok(()))), 8);
            assert_eq!(code(handle.with_second(|_| Ok(()))), 0);
            assert_eq!(code(handle.remove()), 8);
            Ok(())
        });
        assert_eq!(code(used), 0);
        assert_eq!(code(handle.with_first(|_| Err::<(), _>(Failure::state(5)))), 5);
        assert_eq!(*handle.first().unwrap(), "ab");
        assert!(handle.remove().is_ok());
        assert_eq!(code(handle.with_first(|_| Ok(()))), 902);
    }

    /// Makes the handle again from its number, in another thread: a handle cannot be sent there.
    fn same(at: usize) -> Handle<Favouring> {
        Handle { value: ptr::without_provenance_mut(at), object: PhantomData }
    }

    /// Uses the first part of the object until its lock favours this thread. Returns false if the
    /// system has no barrier for that.
    fn favour(handle: Handle<Favouring>) -> bool {
        for _ in 0..100_000 {
            assert_eq!(code(handle.with_first(|_| Ok(()))), 0);
            if handle.if_favoured_first(|_| ()).is_some() {
                return true;
            }
        }
        assert!(!partywall_sys::barrier::is_available());
        false
    }

    #[test]
    fn part_that_favours_a_thread_refuses_while_it_is_used() {
        let handle = Handle::<Favouring>::insert_with("a".into(), 1, "s").unwrap();
        let at = handle.value.addr();
        if !favour(handle) {
            return;
        }
        let used = handle.if_favoured_first(|first| {
            first.push('b');
            assert!(handle.if_favoured_first(|_| ()).is_none());
            assert_eq!(code(handle.with_first(|_| Ok(()))), 8);
            assert_eq!(code(handle.first()), 8);
            assert_eq!(code(handle.with_second(|_| Ok(()))), 0);
            let other = move || (code(same(at).with_first(|_| Ok(()))), code(same(at).remove()));
            assert_eq!(thread::scope(|it| it.spawn(other).join().unwrap()), (8, 8));
        });
        assert!(used.is_some());
        assert_eq!(*handle.first().unwrap(), "ab");
        assert!(
            handle.if_favoured_first(|_| ()).is_some(),
            "a guard of the thread keeps the favour"
        );
        let other = move || {
            let push = |first: &mut String| {
                first.push('c');
                Ok(())
            };
            code(same(at).with_first(push))
        };
        assert_eq!(thread::scope(|it| it.spawn(other).join().unwrap()), 0);
        assert!(handle.if_favoured_first(|_| ()).is_none());
        assert!(favour(handle));
        let taken = thread::scope(|it| it.spawn(move || same(at).remove()).join().unwrap());
        assert_eq!(taken.unwrap().0.as_deref(), Some("abc"));
        assert!(handle.if_favoured_first(|_| ()).is_none());
        assert_eq!(code(handle.with_first(|_| Ok(()))), 902);
    }

    #[test]
    fn part_is_still_poisoned_after_a_free_that_was_refused() {
        let handle = Handle::<Favouring>::insert_with("a".into(), 1, "s").unwrap();
        let panicked = std::panic::catch_unwind(|| {
            handle.with_first(|_| -> Result<(), Failure> { panic!("a panic of the test") })
        });
        assert!(panicked.is_err());
        let second = handle.second().unwrap();
        assert_eq!(code(handle.remove()), 8);
        drop(second);
        assert_eq!(code(handle.first()), 903);
        assert!(handle.remove().is_ok());
    }

    #[test]
    fn panic_poisons_a_part_that_favours_its_thread() {
        let handle = Handle::<Favouring>::insert_with("a".into(), 1, "s").unwrap();
        if !favour(handle) {
            return;
        }
        let panicked = std::panic::catch_unwind(|| {
            handle.if_favoured_first(|_| panic!("a panic of the test"));
        });
        assert!(panicked.is_err());
        assert!(handle.if_favoured_first(|_| ()).is_none());
        assert_eq!(code(handle.with_first(|_| Ok(()))), 903);
        let other = Handle::<Favouring>::insert_with("a".into(), 1, "s").unwrap();
        assert!(favour(other), "the thread is inside no lane any more");
        assert!(handle.remove().is_ok() && other.remove().is_ok());
    }

    #[test]
    fn calls_of_several_threads_never_use_a_part_at_the_same_time() {
        let handle = Handle::<Favouring>::insert_with("a".into(), 0, "s").unwrap();
        let at = handle.value.addr();
        let work = move || {
            let (handle, mut used) = (same(at), 0);
            for call in 0..20_000 {
                let add = |value: &mut u32| {
                    *value = std::hint::black_box(*value) + 1;
                    *value
                };
                let soon = handle.if_favoured_second(add).is_some();
                used += u32::from(soon || handle.with_second(|it| Ok(add(it))).is_ok());
                if call % 1000 == 0 {
                    thread::yield_now();
                }
            }
            used
        };
        let used = thread::scope(|it| {
            let threads = [(); 3].map(|()| it.spawn(work));
            threads.map(|thread| thread.join().unwrap()).iter().sum()
        });
        assert_eq!(handle.remove().unwrap().1, Some(used));
    }

    #[test]
    fn last_slot_lies_in_the_last_chunk() {
        assert_eq!(place(0), (0, 0));
        assert_eq!(place(63), (0, 63));
        assert_eq!(place(64), (1, 0));
        assert_eq!(place(191), (1, 127));
        assert_eq!(place(192), (2, 0));
        assert!(place(SLOTS_MAX - 1).1 < (SLOTS_FIRST as usize) << (CHUNKS - 1));
    }
}
