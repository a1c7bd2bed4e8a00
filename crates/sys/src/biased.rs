// SPDX-License-Identifier: MIT OR Apache-2.0
//! A mutex biased towards the thread that last acquired it repeatedly.
//!
//! ```text
//!   lock ─ favoured? ─ yes ─▶ inside: two stores, two loads
//!           └ no ─▶ mutex ─ another thread F is favoured?
//!                    ├ yes ─▶ revoke: membarrier(2), wait for F to leave ─▶ inside
//!                    └ no ─▶ inside ─ `needed` acquisitions in a row? ─▶ becomes favoured
//! ```
//!
//! An atomic read-modify-write takes some 20 cycles even without contention, and locking and
//! unlocking a mutex takes two of them. Copying a short message takes less, so a mutex would be
//! most of the cost of sending it. The favoured thread enters without an atomic read-modify-write;
//! [`Bias`] decides which thread enters, and proves mutual exclusion.
//!
//! Revoking the bias costs a system call and an interrupt on each processor that runs a thread of
//! this process. Each revocation therefore doubles the acquisitions in a row that the next bias
//! needs, up to 65,536. So two threads that alternate soon use a plain mutex. A favoured thread
//! that has locked the value without the mutex is called inside. A thread that locks rarely
//! interrupts the favoured thread at most as often as it locks.
//!
//! No thread is favoured if the system has no expedited membarrier(2): Linux before 4.14, or a
//! sandbox.
//!
//! # Invariants
//!
//! - A reference to the value exists only while the thread with the reference is inside, or while
//!   it holds the mutex and no thread is favoured.
//! - Only the thread that holds the mutex touches `held`, the field that stores the mutex's guard.

use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::marker::PhantomData;
use std::mem::{MaybeUninit, transmute};
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::barrier;
use partywall_ring::Bias;
use partywall_ring::bias::{Inside, Slots};

/// A mutex whose fast path has no atomic read-modify-write; see the module documentation.
///
/// ```
/// let count = partywall_sys::Biased::new(0);
/// for _ in 0..1000 {
///     *count.lock() += 1;
/// }
/// assert_eq!(*count.lock(), 1000);
/// ```
pub struct Biased<T> {
    bias: Bias,
    habits: Mutex<Habits>,
    /// The guard of the inner mutex, as long as a thread that is not favoured holds the value. It
    /// is stored here and not in the `BiasedGuard` that the caller gets, which then has only two
    /// words and stays in registers.
    held: UnsafeCell<MaybeUninit<MutexGuard<'static, Habits>>>,
    value: UnsafeCell<T>,
}

// SAFETY: like a mutex, the lock can move to another thread if the value can. The field `held`,
// which stores the mutex's guard, is initialised only while a guard borrows the lock. If that guard
// is forgotten, the content of `held` is never read again, and is no reference that the compiler
// knows of.
unsafe impl<T: Send> Send for Biased<T> {}

// SAFETY: only the thread that holds the lock has a reference to the value, and one thread at a
// time holds the lock. So the value only moves between threads. The next thread sees the previous
// one's writes through the mutex, or through the flag that its revocation waits for.
unsafe impl<T: Send> Sync for Biased<T> {}

// A thread that panics while it holds the lock leaves the value as it is. The lock stays usable,
// because it has no poisoning.
impl<T> UnwindSafe for Biased<T> {}
impl<T> RefUnwindSafe for Biased<T> {}

/// The thread that acquired the mutex last, and the number of its acquisitions in a row.
#[derive(Debug)]
struct Habits {
    slots: Slots,
    last: u64,
    in_a_row: u32,
    /// Number of acquisitions of the mutex in a row after which a thread becomes favoured: it may
    /// then lock without the mutex.
    needed: u32,
    /// Whether a thread has begun to end the bias and has not finished. Stays true if the barrier
    /// panics: the favoured thread may then still use the value.
    is_in_doubt: bool,
}

/// Access to the locked value. Dropping the guard unlocks the value, which only the locking thread
/// may do:
///
/// ```compile_fail
/// fn is_send<T: Send>(_: T) {}
/// let lock = partywall_sys::Biased::new(0);
/// is_send(lock.lock());
/// ```
///
/// Another thread may borrow the guard only if it may borrow the value:
///
/// ```compile_fail
/// fn is_sync<T: Sync>(_: T) {}
/// let lock = partywall_sys::Biased::new(std::cell::Cell::new(0));
/// is_sync(lock.lock());
/// ```
pub struct BiasedGuard<'a, T> {
    lock: &'a Biased<T>,
    /// `Some` if the thread locked as the favoured one, without the mutex; `None` if the thread
    /// holds the mutex.
    inside: Option<Inside>,
    /// The raw pointer makes the compiler treat the guard as neither `Send` nor `Sync`: only the
    /// thread that locked may unlock.
    marker: PhantomData<*mut T>,
}

// SAFETY: another thread gets only `&T` from a guard, which `T: Sync` allows. Only the guard's
// owner unlocks or has `&mut T`.
unsafe impl<T: Sync> Sync for BiasedGuard<'_, T> {}

impl<T> Biased<T> {
    /// Creates an unlocked mutex around `value`.
    pub fn new(value: T) -> Self {
        let (slots, needed) = (Slots::default(), NEEDED_MIN);
        let habits = Habits { slots, last: 0, in_a_row: 0, needed, is_in_doubt: false };
        Self {
            bias: Bias::new(),
            habits: Mutex::new(habits),
            held: UnsafeCell::new(MaybeUninit::uninit()),
            value: UnsafeCell::new(value),
        }
    }

    /// Locks the mutex; blocks until no other thread holds it.
    ///
    /// # Panics
    ///
    /// If the calling thread holds the lock already and is favoured; a thread that is not favoured
    /// deadlocks, as with any mutex. The call also panics within [`locking_nothing`].
    #[inline]
    pub fn lock(&self) -> BiasedGuard<'_, T> {
        match self.bias.enter(thread_number()) {
            Some(inside) => BiasedGuard { lock: self, inside: Some(inside), marker: PhantomData },
            None => self.lock_slowly(),
        }
    }

    /// Locks the mutex, and returns a guard with which the caller can [`wait`](BiasedGuard::wait)
    /// for a condition variable. Blocks until no other thread holds the mutex. Afterwards no thread
    /// may lock without the mutex.
    pub fn lock_to_wait(&self) -> BiasedGuard<'_, T> {
        self.hold(self.lock_mutex())
    }

    #[cold]
    #[inline(never)]
    fn lock_slowly(&self) -> BiasedGuard<'_, T> {
        let mut habits = self.lock_mutex();
        let thread = thread_number();
        if thread != LOCKS_NOTHING {
            habits.came(thread);
        }
        self.hold(habits)
    }

    fn lock_mutex(&self) -> MutexGuard<'_, Habits> {
        // A thread may lock nothing within `locking_nothing`, and panics if it tries. An exception
        // is a destructor that runs during a panic, because a second panic would abort the process.
        let may_lock = thread_number() != LOCKS_NOTHING || thread::panicking();
        assert!(
            may_lock,
            "a link was used or dropped within a closure of `send_with` or `recv_with`: do that before or after"
        );
        let mut habits = self.habits.lock().unwrap_or_else(PoisonError::into_inner);
        self.revoke(&mut habits);
        habits
    }

    /// Ends the bias: from now on no thread may lock without the mutex. Returns once no other
    /// thread holds the value. The caller holds the mutex.
    fn revoke(&self, habits: &mut Habits) {
        assert!(!habits.is_in_doubt, "membarrier(2) is no longer allowed in this process");
        let is_in_doubt = &mut habits.is_in_doubt;
        let barrier = || {
            // The flag `is_in_doubt` stays set if the barrier panics: mutual exclusion is then
            // lost, and later attempts to lock have to panic.
            *is_in_doubt = true;
            barrier_in_all_threads();
        };
        if self.bias.take_over(thread_number(), barrier, pause) {
            habits.is_in_doubt = false;
            habits.needed = habits.needed.saturating_mul(2).min(NEEDED_MAX);
        }
    }

    /// Makes the guard for a thread that holds the mutex and has ended the bias, so that no other
    /// thread may lock without the mutex.
    fn hold<'a>(&'a self, habits: MutexGuard<'a, Habits>) -> BiasedGuard<'a, T> {
        // SAFETY: the cast changes only the lifetime of the mutex's guard. Only the `BiasedGuard`
        // that this function makes takes the mutex's guard out, and the `BiasedGuard` borrows the
        // lock for `'a`.
        let habits =
            unsafe { transmute::<MutexGuard<'a, Habits>, MutexGuard<'static, Habits>>(habits) };
        // SAFETY: this thread holds the mutex, so no other thread uses the field `held`. The field
        // is empty, because unlocking takes its content out.
        let held = unsafe { &mut *self.held.get() };
        held.write(habits);
        BiasedGuard { lock: self, inside: None, marker: PhantomData }
    }

    /// Takes the mutex's guard out of the field `held`, where [`hold`](Self::hold) stored it.
    ///
    /// # Safety
    /// The caller is a guard that `hold` made. The guard calls this function once, on the thread
    /// that called `hold`.
    unsafe fn take_held(&self) -> MutexGuard<'_, Habits> {
        // SAFETY: this thread has held the mutex since it called `hold`, so no other thread uses
        // the field `held`.
        let held = unsafe { &*self.held.get() };
        // SAFETY: `hold` has stored the mutex's guard in the field `held`, and the caller takes it
        // out once.
        unsafe { held.assume_init_read() }
    }

    /// Unlocks the mutex, and makes the calling thread favoured after enough acquisitions in a row.
    ///
    /// # Safety
    /// The caller is a guard that `hold` made. The guard calls this function once, on the thread
    /// that called `hold`, as [`take_held`](Self::take_held) requires.
    #[cold]
    #[inline(never)]
    unsafe fn unlock_slowly(&self) {
        // SAFETY: the caller is a `BiasedGuard` that `hold` made on this thread, and it calls this
        // function once. `hold` has stored the guard of the mutex in this lock, and only this call
        // takes that guard out.
        let mut habits = unsafe { self.take_held() };
        // A thread makes only itself favoured. If it favoured another thread, that thread could
        // lock the value before this thread has unlocked it.
        let thread = thread_number();
        let is_habit = habits.last == thread && habits.in_a_row >= habits.needed;
        if is_habit && barrier::is_available() {
            habits.in_a_row = 0;
            self.bias.favour(thread, &mut habits.slots);
        }
    }
}

/// Spins, then yields, then sleeps, as the number of `polls` of the lock rises: the favoured
/// thread's unlock wakes no thread.
fn pause(polls: u32) {
    match polls {
        ..SPINS => std::hint::spin_loop(),
        SPINS..YIELDS => thread::yield_now(),
        _ => thread::sleep(NAP),
    }
}

impl Habits {
    fn came(&mut self, thread: u64) {
        if self.last != thread {
            (self.last, self.in_a_row) = (thread, 0);
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
    }
}

impl<'a, T> BiasedGuard<'a, T> {
    /// Whether another thread may be waiting for the value. The answer is exact for the favoured
    /// thread, and always true for any other.
    #[inline]
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.inside.as_ref().is_none_or(|inside| self.lock.bias.is_wanted(inside))
    }

    /// Unlocks the value, waits until the condition variable `changed` is notified or `timeout`
    /// elapses, and locks the value again. Wake-ups may be spurious.
    ///
    /// # Panics
    ///
    /// If the guard does not come from [`lock_to_wait`](Biased::lock_to_wait).
    #[must_use]
    pub fn wait(self, changed: &Condvar, timeout: Option<Duration>) -> Self {
        let lock = self.lock;
        assert!(self.inside.is_none(), "only a guard of lock_to_wait can wait");
        // The guard is forgotten, because dropping it would unlock the value a second time.
        std::mem::forget(self);
        // SAFETY: the guard's `inside` is `None` (asserted), so `hold` made the guard, on this
        // thread. The guard is never dropped, so the mutex's guard that `hold` stored is taken out
        // once.
        let habits = unsafe { lock.take_held() };
        let mut habits = match timeout {
            None => changed.wait(habits).unwrap_or_else(PoisonError::into_inner),
            Some(timeout) => {
                let waited = changed.wait_timeout(habits, timeout);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        lock.revoke(&mut habits);
        lock.hold(habits)
    }
}

impl<T> Deref for BiasedGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: only one thread at a time has a guard: the favoured thread, or the thread that
        // holds the mutex while no thread is favoured. So no other thread has a reference to the
        // value.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for BiasedGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: only one thread at a time has a guard, so no other thread has a reference to the
        // value. This thread has no other one, because the guard is mutably borrowed.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for BiasedGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        match self.inside.take() {
            Some(inside) => self.lock.bias.leave(inside),
            // SAFETY: a guard whose `inside` is `None` was made by `hold`, on this thread (a guard
            // is not `Send`), and is dropped once.
            None => unsafe { self.lock.unlock_slowly() },
        }
    }
}

impl<T> fmt::Debug for Biased<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Biased").finish_non_exhaustive()
    }
}

/// Runs `act`, which must lock no [`Biased`]. A caller that holds a lock uses this function to call
/// foreign code. Each attempt to lock within `act` panics, where it could otherwise deadlock. The
/// cost is two stores. The check is free, because no lock favours the thread number used within
/// `act`.
///
/// ```
/// let lock = partywall_sys::Biased::new(0);
/// let nested = || partywall_sys::biased::locking_nothing(|| drop(lock.lock()));
/// assert!(std::panic::catch_unwind(nested).is_err());
/// assert_eq!(*lock.lock(), 0);
/// ```
#[inline]
pub fn locking_nothing<R>(act: impl FnOnce() -> R) -> R {
    let _restored = Restored(NUMBER.with(|number| number.replace(LOCKS_NOTHING)));
    act()
}

/// The number of a thread that runs [`locking_nothing`], which has replaced that number meanwhile.
/// Dropping the value restores the number, even during a panic.
struct Restored(u64);

impl Drop for Restored {
    #[inline]
    fn drop(&mut self) {
        NUMBER.with(|number| number.set(self.0));
    }
}

/// Stands for the number of a thread while that thread must lock no [`Biased`]. No thread has this
/// number, so no lock favours it.
const LOCKS_NOTHING: u64 = u64::MAX;

thread_local! {
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// The number of the calling thread: not 0, and different from that of every other thread that this
/// process ever has.
#[inline]
fn thread_number() -> u64 {
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    NUMBER.with(|number| {
        if number.get() == 0 {
            // ORDER: Relaxed: the counter guards no other memory; it only has to give each thread a
            // number that no other thread has.
            number.set(NUMBERS.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

fn barrier_in_all_threads() {
    let done = barrier::in_all_threads();
    // No thread becomes favoured unless the registration for the barrier succeeded. A sandbox can
    // still forbid the barrier later. Then no thread may continue, because mutual exclusion is
    // lost.
    assert!(done.is_ok(), "membarrier(2) is no longer allowed in this process: {done:?}");
}

/// Initial value of `Habits::needed`: acquisitions in a row before a thread becomes favoured for
/// the first time.
const NEEDED_MIN: u32 = 16;
/// Largest number of acquisitions in a row that a thread may need to become favoured. Without
/// competition they take some milliseconds.
const NEEDED_MAX: u32 = 1 << 16;
/// Polls of the lock after which a thread that waits for the favoured thread yields the processor:
/// by then it assumes that the favoured thread is not running.
const SPINS: u32 = 256;
/// Polls of the lock after which a thread that waits for the favoured thread sleeps: by then it
/// assumes that the favoured thread will not run for long.
const YIELDS: u32 = SPINS + 64;
const NAP: Duration = Duration::from_micros(50);
