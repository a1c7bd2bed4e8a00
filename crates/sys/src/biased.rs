// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lock that costs a thread next to nothing which takes it again and again.
//!
//! ```text
//!   lock ─ favoured? ─ yes ─▶ inside: two stores, two loads
//!           └ no ─▶ mutex ─ another is favoured? ─ yes ─▶ not any more; membarrier(2); until it is outside ─▶ inside
//!                                                └ no ─▶ inside ─ so often in a row? ─▶ favoured from here on
//! ```
//!
//! An atomic read-modify-write takes some 20 cycles even if nobody else wants the line, and a mutex takes two of them: where a
//! message is copied in less, that is most of its price. Who enters is decided by [`Bias`], which says why never two are inside.
//! Taking the favour away costs a system call and an interrupt to each processor that runs a thread of this process, so it
//! takes twice as many turns in a row after each time, up to 65,536: two threads that take turns have a plain mutex before long, and
//! one that comes now and then interrupts the other no more often than that.
//!
//! Where the system has no membarrier(2), expedited (Linux before 4.14, or a sandbox), nobody is ever favoured.
//!
//! # Invariants
//!
//! - A reference to the value exists only while its thread is inside, or holds the mutex and nobody is favoured.
//! - `held` is touched only by the thread that holds the mutex.

use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::marker::PhantomData;
use std::mem::{MaybeUninit, transmute};
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use partywall_ring::Bias;
use partywall_ring::bias::{Inside, Slots};
use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};

/// See the module.
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
    /// Of the mutex, while whoever is not favoured has the value: so that the guard of the others is two words, which stay in registers.
    held: UnsafeCell<MaybeUninit<MutexGuard<'static, Habits>>>,
    value: UnsafeCell<T>,
}

// SAFETY: as a mutex is. `held` is initialised only while a guard borrows the lock; if one is forgotten, what is in it is never looked at again, and
// no reference that the compiler knows of.
unsafe impl<T: Send> Send for Biased<T> {}

// SAFETY: a reference to the value is given to one thread at a time, as the module says, so the value only goes from thread to
// thread; what one did there is seen by the next, through the mutex, or through the flag that it waits for.
unsafe impl<T: Send> Sync for Biased<T> {}

// As a mutex is: a panic inside leaves the value as it was then, and the lock usable.
impl<T> UnwindSafe for Biased<T> {}
impl<T> RefUnwindSafe for Biased<T> {}

/// Who came, and how often in a row.
#[derive(Debug)]
struct Habits {
    slots: Slots,
    last: u64,
    in_a_row: u32,
    /// So often in a row makes a thread favoured.
    needed: u32,
    /// A favour was taken away, and it is not known whether the value is free.
    is_in_doubt: bool,
}

/// The value, locked. Dropping it unlocks, which is for the thread that locked it:
///
/// ```compile_fail
/// fn is_send<T: Send>(_: T) {}
/// let lock = partywall_sys::Biased::new(0);
/// is_send(lock.lock());
/// ```
///
/// Others may only look at it if they may look at the value:
///
/// ```compile_fail
/// fn is_sync<T: Sync>(_: T) {}
/// let lock = partywall_sys::Biased::new(std::cell::Cell::new(0));
/// is_sync(lock.lock());
/// ```
pub struct BiasedGuard<'a, T> {
    lock: &'a Biased<T>,
    /// Of the favoured thread; any other has the mutex.
    inside: Option<Inside>,
    /// Neither `Send` nor `Sync` by itself.
    marker: PhantomData<*mut T>,
}

// SAFETY: what others get of a guard is a reference to the value, which `T: Sync` allows; only its owner unlocks, or has a
// mutable one.
unsafe impl<T: Sync> Sync for BiasedGuard<'_, T> {}

impl<T> Biased<T> {
    /// A value, unlocked.
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

    /// Locks it; waits until no other thread has it.
    ///
    /// # Panics
    ///
    /// If the calling thread has it locked and is favoured; one that is not waits for ever, as with any mutex. And within
    /// [`locking_nothing`].
    #[inline]
    pub fn lock(&self) -> BiasedGuard<'_, T> {
        match self.bias.enter(thread_number()) {
            Some(inside) => BiasedGuard { lock: self, inside: Some(inside), marker: PhantomData },
            None => self.lock_slowly(),
        }
    }

    /// The same for a thread that may go on to [`wait`](BiasedGuard::wait): nobody is favoured afterwards.
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
        // What goes while a thread panics has to go.
        let may_lock = thread_number() != LOCKS_NOTHING || thread::panicking();
        assert!(
            may_lock,
            "a link was used, or dropped, by what writes or reads a message (`send_with`, `recv_with`): do that before or after"
        );
        let mut habits = self.habits.lock().unwrap_or_else(PoisonError::into_inner);
        self.revoke(&mut habits);
        habits
    }

    /// Returns once nobody but the caller, who holds the mutex, has the value.
    fn revoke(&self, habits: &mut Habits) {
        assert!(!habits.is_in_doubt, "membarrier(2) was taken away from this process");
        let is_in_doubt = &mut habits.is_in_doubt;
        let barrier = || {
            // For good, if it panics.
            *is_in_doubt = true;
            barrier_in_all_threads();
        };
        if self.bias.take_over(thread_number(), barrier, pause) {
            habits.is_in_doubt = false;
            habits.needed = habits.needed.saturating_mul(2).min(NEEDED_MAX);
        }
    }

    /// The value for whoever holds the mutex, and has revoked the favour.
    fn hold<'a>(&'a self, habits: MutexGuard<'a, Habits>) -> BiasedGuard<'a, T> {
        // SAFETY: only the name of the lifetime changes. It is taken out by the guard made here, which borrows the lock for `'a`, or by nobody.
        let habits =
            unsafe { transmute::<MutexGuard<'a, Habits>, MutexGuard<'static, Habits>>(habits) };
        // SAFETY: this thread holds the mutex, and nothing is there: who unlocks takes it out before.
        let held = unsafe { &mut *self.held.get() };
        held.write(habits);
        BiasedGuard { lock: self, inside: None, marker: PhantomData }
    }

    /// What [`hold`](Self::hold) put there.
    ///
    /// # Safety
    /// For a guard that `hold` made, by its thread, once.
    unsafe fn take_held(&self) -> MutexGuard<'_, Habits> {
        // SAFETY: this thread holds the mutex since.
        let held = unsafe { &*self.held.get() };
        // SAFETY: `hold` has written it, and the caller takes it once.
        unsafe { held.assume_init_read() }
    }

    /// Unlocks the mutex, and has the calling thread favoured if it comes again and again.
    ///
    /// # Safety
    /// As for [`take_held`](Self::take_held).
    #[cold]
    #[inline(never)]
    unsafe fn unlock_slowly(&self) {
        // SAFETY: the caller's.
        let mut habits = unsafe { self.take_held() };
        // Only ever itself: another would be inside before this one is out.
        let thread = thread_number();
        let is_habit = habits.last == thread && habits.in_a_row >= habits.needed;
        if is_habit && has_membarrier() {
            habits.in_a_row = 0;
            self.bias.favour(thread, &mut habits.slots);
        }
    }
}

/// Waits for one who does not know that it is waited for, and was looked at so often.
fn pause(looks: u32) {
    match looks {
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
    /// Whether another thread may be waiting for the value: known of a thread that is favoured, and assumed of any other.
    #[inline]
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.inside.as_ref().is_none_or(|inside| self.lock.bias.is_wanted(inside))
    }

    /// Unlocks the value, waits until `changed` is notified, or for so long, and locks it again. It may return for no reason.
    ///
    /// # Panics
    ///
    /// If it was not locked by [`lock_to_wait`](Biased::lock_to_wait).
    #[must_use]
    pub fn wait(self, changed: &Condvar, timeout: Option<Duration>) -> Self {
        let lock = self.lock;
        assert!(self.inside.is_none(), "locked by a way that nobody can wait on");
        // Nothing is left to be unlocked when this is dropped.
        std::mem::forget(self);
        // SAFETY: it was not inside, so `hold` made it, in this thread; and it is not dropped.
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
        // SAFETY: whoever has a guard is alone with the value, as the module says.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for BiasedGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed by who asks.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for BiasedGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        match self.inside.take() {
            Some(inside) => self.lock.bias.leave(inside),
            // SAFETY: whoever is not inside was made by `hold`, in this thread, which `!Send` keeps it in; it is dropped once.
            None => unsafe { self.lock.unlock_slowly() },
        }
    }
}

impl<T> fmt::Debug for Biased<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Biased").finish_non_exhaustive()
    }
}

/// Runs what must lock nothing: the code of somebody else, while the calling thread has something locked. Within it each attempt to
/// lock a [`Biased`] panics, where it might wait for ever otherwise. It costs two stores, and looking for it nothing: a
/// thread within is favoured nowhere.
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

/// The number of a thread, to be given back.
struct Restored(u64);

impl Drop for Restored {
    #[inline]
    fn drop(&mut self) {
        NUMBER.with(|number| number.set(self.0));
    }
}

/// Of a thread that must lock nothing now. No thread has it as its number, and no lock favours it.
const LOCKS_NOTHING: u64 = u64::MAX;

thread_local! {
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// A number that no other thread of this process ever has; not 0.
#[inline]
fn thread_number() -> u64 {
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    NUMBER.with(|number| {
        if number.get() == 0 {
            // ORDER: Relaxed: only that no number comes twice.
            number.set(NUMBERS.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

/// Whether one thread can make all others execute a barrier.
fn has_membarrier() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        membarrier_query().contains_command(MembarrierCommand::PrivateExpedited)
            && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
    })
}

/// Every thread of this process executes a full barrier between the beginning and the end of this call.
fn barrier_in_all_threads() {
    let done = membarrier(MembarrierCommand::PrivateExpedited);
    // Nobody is favoured before it was registered for; a sandbox can still forbid it later, and then nobody may go on.
    assert!(done.is_ok(), "membarrier(2) was taken away from this process: {done:?}");
}

/// So often in a row makes a thread favoured, at first.
const NEEDED_MIN: u32 = 16;
/// And at last: a matter of milliseconds for who is alone.
const NEEDED_MAX: u32 = 1 << 16;
/// Looks before it is assumed that the other thread is not running.
const SPINS: u32 = 256;
/// And before it is assumed that it will not run for long.
const YIELDS: u32 = SPINS + 64;
const NAP: Duration = Duration::from_micros(50);
