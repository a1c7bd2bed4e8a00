// SPDX-License-Identifier: MIT OR Apache-2.0
//! The protocol of a mutex that is unlocked by a plain store, without an atomic read-modify-write
//! or a fence.
//!
//! ```text
//!  H, the holder, unlocks                     S, a thread that found the mutex locked, waits
//!  ──────────────────────                     ──────────────────────────────────────────────
//!  U1  locked = 0                             S1  waiters += 1
//!  U2  light barrier                          S2  heavy barrier
//!  U3  if waiters = 0: done                   S3  asleep = 1
//!  U4  fence                                  S4  fence
//!  U5  if asleep = 1: asleep = 0, wake S      S5  try to lock; if another holds the mutex,
//!                                                 sleep while asleep = 1, and repeat S3
//!                                             S6  waiters −= 1
//! ```
//!
//! No thread sleeps while the mutex is unlocked. Of U2 and S2, one comes first. If U2 is first, S5
//! sees U1, and S does not sleep. If S2 is first, U3 sees S1, and H goes on to U4. Then of U4 and
//! S4, one comes first, too: either S5 sees U1, or U5 sees S3, and H wakes S.
//!
//! The light barrier only keeps the compiler from moving accesses. The heavy barrier makes every
//! thread of the process execute a full barrier, at whichever step it is, so it does the work of
//! both barriers (membarrier(2), "expedited"). So unlocking takes one plain store and one load
//! while no thread waits, and one fence more while one does.
//!
//! A heavy barrier is needed only once while there are waiters, because later waiters find
//! `waiters` above 0 for all threads already. So the waiters take turns: one at a time is between
//! S2 and S6, and it leaves a note for the next one ([`WaiterTurn`]). The others sleep until they
//! get the turn.
//!
//! This file has neither the sleep, the turns nor the protected value. Its user has all three,
//! because they need an operating system.

use crate::sync::{AtomicU32, Ordering, fence, light_barrier};
use partywall_layout::seeded_fault;

/// The words of a mutex: whether it is locked, how many threads wait for it, and whether one of
/// them sleeps. The module documentation describes the protocol.
#[derive(Debug)]
pub struct MutexWord {
    /// 1 while a thread holds the mutex, otherwise 0.
    locked: AtomicU32,
    waiters: AtomicU32,
    /// 1 while the waiter that has the turn sleeps or is about to, otherwise 0.
    asleep: AtomicU32,
    /// Whether the light barrier of `unlock` is a full one. Loom cannot make another thread's heavy
    /// barrier complete a light one.
    #[cfg(loom)]
    has_full_barrier: bool,
}

/// The turn of a waiter. A mutex of the user protects it, so that one waiter at a time has it.
#[derive(Debug, Default)]
pub struct WaiterTurn {
    /// Whether a heavy barrier was executed since the number of waiters was last 0. Every thread
    /// that unlocks the mutex then sees that there are waiters.
    is_announced: bool,
}

impl Default for MutexWord {
    fn default() -> Self {
        Self::new()
    }
}

impl MutexWord {
    /// Makes the words of an unlocked mutex.
    #[must_use]
    pub fn new() -> Self {
        Self {
            locked: AtomicU32::new(0),
            waiters: AtomicU32::new(0),
            asleep: AtomicU32::new(0),
            #[cfg(loom)]
            has_full_barrier: true,
        }
    }

    /// Makes the words of an unlocked mutex that always has a waiter which all threads know of, so
    /// that unlocking needs no light barrier, and has none.
    #[cfg(loom)]
    #[must_use]
    pub fn with_known_waiter() -> Self {
        let word = Self { has_full_barrier: false, ..Self::new() };
        word.begin_wait();
        word
    }

    /// Locks the mutex if no thread holds it. Returns whether the calling thread now holds it.
    #[inline]
    #[must_use]
    pub fn try_lock(&self) -> bool {
        // ORDER: Acquire pairs with the Release store in `unlock`: what the previous holder did
        // happens before what this thread does.
        self.locked.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Whether a thread holds the mutex. The answer is only a hint.
    #[inline]
    #[must_use]
    pub fn is_locked(&self) -> bool {
        // ORDER: Relaxed: only a hint, after which the caller tries to lock.
        self.locked.load(Ordering::Relaxed) != 0
    }

    /// Unlocks the mutex, which the calling thread must hold. Returns whether the caller must wake
    /// the thread that sleeps.
    #[inline]
    #[must_use]
    pub fn unlock(&self) -> bool {
        // ORDER: Release pairs with the Acquire in `try_lock`, for the next holder.
        self.locked.store(0, Ordering::Release);
        #[cfg(loom)]
        let has_barrier = self.has_full_barrier && !seeded_fault("no_barrier_of_unlock");
        #[cfg(not(loom))]
        let has_barrier = true;
        if has_barrier {
            light_barrier();
        }
        // ORDER: this thread has unlocked the mutex, and looks for waiters. Relaxed suffices: the
        // light barrier in between, with the heavy barrier of a waiter, orders the two accesses.
        self.waiters.load(Ordering::Relaxed) != 0 && self.must_wake()
    }

    /// Whether to wake the waiter that has the turn. Ends its sleep, as far as the word goes.
    #[cold]
    fn must_wake(&self) -> bool {
        if !seeded_fault("no_fence_of_unlock") {
            // ORDER: SeqCst, against the fence in `wait`: the mutex is unlocked before this thread
            // looks whether the waiter sleeps.
            fence(Ordering::SeqCst);
        }
        // ORDER: Relaxed: the two fences order the accesses. The exchange comes second, because
        // most of the time the waiter is awake already.
        self.asleep.load(Ordering::Relaxed) != 0
            && self.asleep.compare_exchange(1, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Counts the calling thread as a waiter. It calls [`wait`](Self::wait) once it has the turn.
    pub fn begin_wait(&self) {
        // ORDER: Relaxed: the heavy barrier in `wait` follows, or came before while the number of
        // waiters was above 0.
        self.waiters.fetch_add(1, Ordering::Relaxed);
    }

    /// Locks the mutex for the calling thread, which [`begin_wait`](Self::begin_wait) has counted
    /// and which has the turn.
    ///
    /// `heavy_barrier` makes every thread of the process execute a full barrier, and returns
    /// whether it has. `sleep` sleeps while [`asleep`](Self::asleep) is 1. If its argument is
    /// false, perhaps no thread wakes the caller, so the sleep must also end by itself.
    pub fn wait(
        &self,
        turn: &mut WaiterTurn,
        heavy_barrier: impl FnOnce() -> bool,
        mut sleep: impl FnMut(bool),
    ) {
        if !turn.is_announced {
            turn.is_announced = seeded_fault("no_barrier_of_waiter") || heavy_barrier();
        }
        loop {
            // ORDER: Relaxed: the two fences order the accesses.
            self.asleep.store(1, Ordering::Relaxed);
            if !seeded_fault("no_fence_of_waiter") {
                // ORDER: SeqCst, against the fence in `must_wake`: all threads see that this one is
                // about to sleep before it looks whether the mutex is unlocked.
                fence(Ordering::SeqCst);
            }
            if self.try_lock() {
                break;
            }
            sleep(turn.is_announced);
        }
        // ORDER: Relaxed: a thread that still sees 1 only makes a call in vain.
        self.asleep.store(0, Ordering::Relaxed);
        // ORDER: Relaxed: a thread that still counts this one only executes a fence in vain.
        if self.waiters.fetch_sub(1, Ordering::Relaxed) == 1 {
            turn.is_announced = seeded_fault("announced_for_ever");
        }
    }

    /// Returns the word on which the waiter that has the turn sleeps, while the word is 1.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn asleep(&self) -> &AtomicU32 {
        &self.asleep
    }

    /// Whether the waiter that has the turn is still to sleep: what the kernel looks at before it
    /// lets a thread sleep.
    #[cfg(loom)]
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        // ORDER: Relaxed: the kernel's lock of its list of sleepers orders this load and the
        // wake-up of `unlock`.
        self.asleep.load(Ordering::Relaxed) != 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Rule: a waiter whose barrier failed may not rely on being woken, and the next waiter tries
    /// the barrier again.
    #[test]
    fn waiter_without_a_barrier_ends_its_sleep_by_itself() {
        let (word, mut turn) = (MutexWord::new(), WaiterTurn::default());
        for has_barrier in [false, true, false] {
            assert!(word.try_lock() && !word.try_lock());
            word.begin_wait();
            let mut sleeps = 0;
            word.wait(
                &mut turn,
                || has_barrier,
                |is_announced| {
                    assert_eq!(is_announced, has_barrier);
                    sleeps += 1;
                    assert!(word.unlock(), "a waiter sleeps");
                },
            );
            assert_eq!(sleeps, 1);
            assert!(word.is_locked() && !word.unlock());
        }
    }

    /// Rule: while there are waiters, one of them executes the barrier for all.
    #[test]
    fn next_waiter_needs_no_barrier() {
        let (word, mut turn) = (MutexWord::new(), WaiterTurn::default());
        word.begin_wait();
        word.begin_wait();
        word.wait(&mut turn, || true, |_| unreachable!("no thread holds the mutex"));
        assert!(!word.unlock(), "no waiter sleeps");
        word.wait(&mut turn, || unreachable!("the first waiter did it"), |_| unreachable!());
        assert!(!word.unlock());
    }
}
