// SPDX-License-Identifier: MIT OR Apache-2.0
//! The protocol of a lock that is biased towards one thread, which enters without the mutex.
//!
//! ```text
//!  F, the favoured thread, enters             R, another thread with the mutex, ends the bias
//!  ─────────────────────────────              ───────────────────────────────────────
//!  E1  inside[slot of F] = 1                  V1  favoured = 0
//!  E2  light barrier                          V2  heavy barrier
//!  E3  if favoured is F: F is inside          V3  wait until inside[slot of F] = 0
//!      else: inside = 0, take the mutex       (R accesses the protected value)
//!  (F accesses the protected value)
//!  E4  inside = 0
//! ```
//!
//! F and R never have the value at the same time, because one of the two barriers comes first. If
//! V2 is first, E3 sees V1 and F does not enter. If E2 is first, V3 sees E1 and R waits for E4.
//!
//! The light barrier only keeps the compiler from moving accesses. The heavy barrier makes every
//! thread of the process execute a full barrier, at whichever step it is, so it does the work of
//! both barriers (membarrier(2), "expedited"). Entering and leaving therefore take two plain stores
//! and two loads.
//!
//! A thread that read `favoured` long ago may write its flag at any later time, and then finds that
//! it is no longer favoured. It must not write the flag of another thread. So each thread that was
//! ever favoured has a flag of its own, at its index ("slot") in `inside`. There are
//! [`FAVOURED_MAX`] flags; further threads always take the mutex.
//!
//! This file has neither the mutex nor the protected value. Its user has both, because a mutex
//! needs an operating system.
//!
//! # Invariants
//!
//! - `favoured` is written while the mutex is locked. It names a thread only while that thread does
//!   not hold the mutex, or is about to unlock it.
//! - Only one thread ever writes a given flag: the thread to which the flag belongs.

use crate::sync::{AtomicU64, Ordering, light_barrier};
use core::num::NonZeroUsize;
use partywall_layout::seeded_fault;

/// Maximum number of threads that a biased lock favours in its life, one after the other. Each of
/// them has a flag of its own; further threads always take the mutex.
pub const FAVOURED_MAX: usize = 4;

/// The words of the lock's bias: which thread is favoured, and which threads are inside the lock.
/// The module documentation describes the protocol.
#[derive(Debug)]
pub struct Bias {
    /// The number of the favoured thread times [`FAVOURED_MAX`], plus the index of its flag "inside
    /// the lock"; 0 if no thread is favoured.
    favoured: AtomicU64,
    inside: [AtomicU64; FAVOURED_MAX],
}

/// Proof that the favoured thread is inside the lock. It holds the index of that thread's flag
/// "inside the lock".
#[derive(Debug)]
#[must_use = "the thread stays inside until `Bias::leave`"]
pub struct Inside(NonZeroUsize);

impl Inside {
    #[inline]
    const fn new(slot: usize) -> Self {
        Self(NonZeroUsize::MIN.saturating_add(slot))
    }

    #[inline]
    const fn slot(&self) -> usize {
        (self.0.get() - 1) % FAVOURED_MAX
    }
}

/// The owner of each flag "inside the lock": the number of a thread that was favoured, or 0. The
/// mutex of the lock's user protects this table.
#[derive(Debug, Default)]
pub struct Slots {
    threads: [u64; FAVOURED_MAX],
}

impl Slots {
    /// Returns the index of the flag by which `thread` says that it is inside the lock. A thread
    /// that has no flag yet gets a free one; `None` if no flag is free.
    fn of(&mut self, thread: u64) -> Option<usize> {
        if seeded_fault("one_slot_for_all") {
            return Some(0);
        }
        let found = self.threads.iter().position(|owner| *owner == thread || *owner == 0)?;
        self.threads[found] = thread;
        Some(found)
    }
}

impl Default for Bias {
    fn default() -> Self {
        Self::new()
    }
}

impl Bias {
    /// Makes the bias of a new lock, which favours no thread.
    #[must_use]
    pub fn new() -> Self {
        Self { favoured: AtomicU64::new(0), inside: core::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// Enters the lock if the calling thread is favoured. `thread` is its number, which is not 0
    /// and is never given to another thread.
    ///
    /// # Panics
    /// If the thread is inside the lock already, because it would have the protected value twice.
    #[inline]
    #[must_use]
    pub fn enter(&self, thread: u64) -> Option<Inside> {
        // ORDER: Relaxed: the loaded value of `favoured` is only a hint. If `thread` is favoured,
        // it wrote `favoured` itself. If another thread has ended the favour since, the second load
        // of `favoured`, further below, finds that out.
        let seen = self.favoured.load(Ordering::Relaxed);
        if seen / SLOTS != thread {
            return None;
        }
        let slot = (seen % SLOTS) as usize;
        // ORDER: Relaxed: this thread alone writes its flag "inside the lock", so the load reads
        // its own last store.
        let is_inside = self.inside[slot].load(Ordering::Relaxed) != 0;
        assert!(!is_inside, "a thread locks what it has locked");
        // ORDER: the thread first sets its flag "inside the lock" and then checks whether it is
        // still favoured. Relaxed suffices: the light barrier in between, with the heavy barrier of
        // a thread that ends the favour, orders the two accesses.
        self.inside[slot].store(1, Ordering::Relaxed);
        if !seeded_fault("no_light_barrier") {
            light_barrier();
        }
        // ORDER: the thread, which has set its flag "inside the lock", checks whether it is still
        // favoured. Acquire keeps the accesses to the protected value after this load.
        if self.favoured.load(Ordering::Acquire) == seen {
            return Some(Inside::new(slot));
        }
        self.leave(Inside::new(slot));
        None
    }

    /// Whether another thread waits until the calling thread, which is inside the lock, leaves the
    /// lock. If so, the calling thread may leave, and enter again later.
    #[inline]
    #[must_use]
    pub fn is_wanted(&self, _inside: &Inside) -> bool {
        // ORDER: Relaxed: only a hint that another thread has ended the favour, and waits in
        // `take_over` until this thread leaves the lock. No other thread is favoured before that.
        self.favoured.load(Ordering::Relaxed) == 0
    }

    /// Leaves the lock: the calling thread may no longer access the protected value.
    #[expect(clippy::needless_pass_by_value, reason = "a thread that left has no proof any more")]
    #[inline]
    pub fn leave(&self, inside: Inside) {
        // ORDER: the thread clears its flag "inside the lock". Release pairs with the Acquire load
        // of the same flag in `take_over`, where another thread may wait to enter: this thread's
        // accesses to the protected value happen before those of that thread.
        self.inside[inside.slot()].store(0, Ordering::Release);
    }

    /// Favours `thread`, which holds the mutex and is about to unlock it. Does nothing if no flag
    /// "inside the lock" is left for `thread`.
    pub fn favour(&self, thread: u64, slots: &mut Slots) {
        if let Some(slot) = slots.of(thread) {
            // ORDER: Relaxed: for other threads the word `favoured` is only a hint, and `thread`,
            // which alone acts on it, is the caller.
            self.favoured.store(thread * SLOTS + slot as u64, Ordering::Relaxed);
        }
    }

    /// Ends the bias: no thread is favoured any more. When the call returns, the thread that was
    /// favoured has left the lock.
    ///
    /// The caller is `thread` and holds the mutex. `heavy_barrier` makes every thread of the
    /// process execute a full barrier; `pause` is called between two polls, with the number of
    /// polls so far. Returns whether another thread was favoured; only then are `heavy_barrier` and
    /// `pause` called.
    ///
    /// # Panics
    /// If the caller itself is inside the lock, because it would have the value twice.
    pub fn take_over(
        &self,
        thread: u64,
        heavy_barrier: impl FnOnce(),
        mut pause: impl FnMut(u32),
    ) -> bool {
        // ORDER: Relaxed: `favoured` is written only by the thread that holds the mutex, which is
        // the caller.
        let seen = self.favoured.load(Ordering::Relaxed);
        if seen == 0 {
            return false;
        }
        let flag = &self.inside[(seen % SLOTS) as usize];
        if seen / SLOTS == thread {
            // ORDER: Relaxed: this thread itself last stored both words, its flag "inside the lock"
            // and `favoured`. No other thread writes `favoured` while this thread holds the mutex.
            assert!(flag.load(Ordering::Relaxed) == 0, "a thread locks what it has locked");
            // ORDER: Relaxed: for other threads the word `favoured` is only a hint, and the
            // favoured thread is the caller itself.
            self.favoured.store(0, Ordering::Relaxed);
            return false;
        }
        // ORDER: this thread ends the favour of another thread, and then loads that thread's flag
        // "inside the lock". Relaxed suffices, because the heavy barrier in between orders the two
        // accesses.
        self.favoured.store(0, Ordering::Relaxed);
        if !seeded_fault("no_heavy_barrier") {
            heavy_barrier();
        }
        let mut polls = 0;
        // ORDER: this thread waits until the favoured thread has left the lock. Acquire pairs with
        // the Release store of the same flag in `leave`: accesses of the favoured thread to the
        // protected value happen before those of this thread.
        while flag.load(Ordering::Acquire) != 0 && !seeded_fault("no_wait_for_vacancy") {
            polls += 1;
            pause(polls);
        }
        true
    }
}

const SLOTS: u64 = FAVOURED_MAX as u64;
