// SPDX-License-Identifier: MIT OR Apache-2.0
//! A mutex that costs little while its threads rarely meet: a thread that has to sleep for it pays
//! for the memory barrier of the thread that unlocks it.
//!
//! ```text
//!   lock ─ unlocked? ─ yes ─▶ held: one atomic read-modify-write
//!           └ no ─▶ poll for a short time ─▶ wait for the turn among waiters
//!                    ─▶ membarrier(2), unless the waiter before left waiters behind
//!                    ─▶ sleep in futex(2) until woken ─▶ held
//!   unlock ─ one store, one load ─ there are waiters? ─ yes ─▶ wake the one with the turn, if it
//!                                                              sleeps
//! ```
//!
//! The mutex of the standard library is unlocked by an atomic read-modify-write, which costs as
//! much as the one that locks it, and also waits until all earlier stores of the thread have
//! reached the cache. A lock that a message takes for some nanoseconds costs half as much without
//! it. [`MutexWord`] has the protocol, and proves that no wake-up is lost.
//!
//! Where the system has no expedited membarrier(2), before Linux 4.14 or in a sandbox, a waiter
//! sleeps for at most a millisecond before it looks again.
//!
//! # Invariant
//!
//! A reference to the value exists only while a guard exists, and one guard exists at a time.

use std::cell::UnsafeCell;
use std::fmt;
use std::hint::spin_loop;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{Mutex, PoisonError};

use crate::barrier;
use partywall_ring::MutexWord;
use partywall_ring::mutex_word::WaiterTurn;
use rustix::thread::futex;

/// A mutex that is unlocked without an atomic read-modify-write; see the module documentation. It
/// has no poisoning: a thread that panics while it holds the mutex leaves the value as it is.
///
/// ```
/// let count = partywall_sys::AsymmetricMutex::new(0);
/// *count.lock() += 1;
/// assert_eq!(*count.lock(), 1);
/// ```
#[repr(C)] // the word and the first bytes of the value, in one cache line
pub struct AsymmetricMutex<T> {
    word: MutexWord,
    value: UnsafeCell<T>,
    turn: Mutex<WaiterTurn>,
}

// SAFETY: like any mutex, it can move to another thread if its value can.
unsafe impl<T: Send> Send for AsymmetricMutex<T> {}

// SAFETY: only the thread that holds the mutex has a reference to the value, and one thread at a
// time holds it. So the value only moves between threads. `MutexWord` makes what the previous
// holder did happen before what the next one does.
unsafe impl<T: Send> Sync for AsymmetricMutex<T> {}

impl<T> UnwindSafe for AsymmetricMutex<T> {}
impl<T> RefUnwindSafe for AsymmetricMutex<T> {}

/// Access to the value of a locked [`AsymmetricMutex`]. Dropping the guard unlocks the mutex, which
/// only the locking thread may do:
///
/// ```compile_fail
/// fn is_send<T: Send>(_: T) {}
/// let mutex = partywall_sys::AsymmetricMutex::new(0);
/// is_send(mutex.lock());
/// ```
///
/// Another thread may borrow the guard only if it may borrow the value:
///
/// ```compile_fail
/// fn is_sync<T: Sync>(_: T) {}
/// let mutex = partywall_sys::AsymmetricMutex::new(std::cell::Cell::new(0));
/// is_sync(mutex.lock());
/// ```
#[must_use = "dropping the guard unlocks the mutex"]
pub struct AsymmetricMutexGuard<'a, T> {
    mutex: &'a AsymmetricMutex<T>,
    /// The raw pointer makes the compiler treat the guard as neither `Send` nor `Sync`.
    marker: PhantomData<*mut T>,
}

// SAFETY: another thread gets only `&T` from a guard, which `T: Sync` allows. Only the guard's
// owner unlocks or has `&mut T`.
unsafe impl<T: Sync> Sync for AsymmetricMutexGuard<'_, T> {}

impl<T> AsymmetricMutex<T> {
    /// Creates an unlocked mutex around `value`.
    pub fn new(value: T) -> Self {
        Self {
            word: MutexWord::new(),
            value: UnsafeCell::new(value),
            turn: Mutex::new(WaiterTurn::default()),
        }
    }

    /// Locks the mutex; blocks until no other thread holds it. A thread that holds it already
    /// blocks for ever.
    #[inline]
    pub fn lock(&self) -> AsymmetricMutexGuard<'_, T> {
        if !self.word.try_lock() {
            lock_slowly(&self.word, &self.turn);
        }
        AsymmetricMutexGuard { mutex: self, marker: PhantomData }
    }
}

/// Locks a mutex that another thread holds.
#[cold]
fn lock_slowly(word: &MutexWord, turn: &Mutex<WaiterTurn>) {
    for _ in 0..SPINS {
        if !word.is_locked() && word.try_lock() {
            return;
        }
        spin_loop();
    }
    // The first call of the process registers it with the system, which may take milliseconds. So
    // it comes before this thread holds the turn.
    let has_barrier = barrier::is_available();
    word.begin_wait();
    let mut turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
    let heavy_barrier = || has_barrier && barrier::in_all_threads().is_ok();
    word.wait(&mut turn, heavy_barrier, |is_announced| {
        let period = if is_announced { None } else { Some(&SLEEP_MAX) };
        // The call returns at once if this thread was woken meanwhile. Each of its errors, also an
        // interruption by a signal, is a reason to try again.
        let _ = futex::wait(word.asleep(), futex::Flags::PRIVATE, ASLEEP, period);
    });
}

/// Wakes the thread that sleeps until the mutex is unlocked. At most one does.
#[cold]
fn wake(word: &MutexWord) {
    // The call fails only for an address that is not mapped.
    let _ = futex::wake(word.asleep(), futex::Flags::PRIVATE, 1);
}

impl<T> Deref for AsymmetricMutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so its thread holds the mutex and no other thread has a
        // reference to the value. The guard is borrowed, so no `&mut T` of `deref_mut` exists.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for AsymmetricMutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard exists, so its thread holds the mutex and no other thread has a
        // reference to the value. The guard is mutably borrowed, so no other reference of its own
        // exists.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T> Drop for AsymmetricMutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.mutex.word.unlock() {
            wake(&self.mutex.word);
        }
    }
}

impl<T: Default> Default for AsymmetricMutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for AsymmetricMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.word.try_lock() {
            let guard = AsymmetricMutexGuard { mutex: self, marker: PhantomData };
            return f.debug_struct("AsymmetricMutex").field("value", &*guard).finish();
        }
        f.debug_struct("AsymmetricMutex").finish_non_exhaustive()
    }
}

impl<T: fmt::Debug> fmt::Debug for AsymmetricMutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Polls of the word after which a thread sleeps: by then it assumes that the holder is not
/// running.
const SPINS: u32 = 100;
/// Value of the word on which a thread sleeps.
const ASLEEP: u32 = 1;
/// Longest sleep of a thread that the holder may not know of: a millisecond.
const SLEEP_MAX: futex::Timespec = futex::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
