// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who may enter a lock without asking: the protocol of a bias towards one thread.
//!
//! ```text
//!  favoured thread F                          any other, R, with the mutex locked
//!  ─────────────────────────────              ───────────────────────────────────
//!  E1  inside[slot of F] = 1                  V1  favoured = nobody
//!  E2  light barrier                          V2  heavy barrier
//!  E3  favoured is F?  yes: inside            V3  wait until inside[slot of F] = 0
//!      no: inside = 0, take the mutex         (R has the value)
//!  (F has the value)
//!  E4  inside = 0
//! ```
//!
//! Never both: the two barriers come one after the other. If V2 is first, E3 sees V1 and F does not enter; if E2 is first, V3 sees
//! E1 and R waits for E4. The light barrier keeps only the compiler from moving accesses: it is the heavy one that makes every
//! thread of the process pass a full barrier, wherever it is in this picture, and so does the work of both
//! (membarrier(2), "expedited"). So to enter and leave takes two plain stores and two loads.
//!
//! A thread that read `favoured` long ago may write its flag at any later time, to find that it is not favoured any more. It must
//! not write the flag of another, so each thread that was ever favoured has a slot of its own; there are
//! [`FAVOURED_MAX`], and who comes later always takes the mutex.
//!
//! There is no mutex here and no value: those belong to whoever has an operating system.
//!
//! # Invariants
//!
//! - `favoured` is written with the mutex locked, and names a thread only while that thread does not hold the mutex or is about to unlock it.
//! - A slot is written by one thread, ever.

use crate::sync::{AtomicU64, Ordering, light_barrier};
use core::num::NonZeroUsize;
use partywall_layout::seeded_fault;

/// So many threads may be favoured in the life of a lock, one after the other.
pub const FAVOURED_MAX: usize = 4;

/// See the module.
#[derive(Debug)]
pub struct Bias {
    /// Number of the thread times [`FAVOURED_MAX`], and its slot; 0: nobody.
    favoured: AtomicU64,
    inside: [AtomicU64; FAVOURED_MAX],
}

/// The favoured thread is inside, with the flag of this slot.
#[derive(Debug)]
#[must_use = "whoever is inside has to leave"]
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

/// Whose slots they are. It is kept under the mutex.
#[derive(Debug, Default)]
pub struct Slots {
    threads: [u64; FAVOURED_MAX],
}

impl Slots {
    /// The slot of a thread, if it has one or one is free.
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
    /// Towards nobody.
    #[must_use]
    pub fn new() -> Self {
        Self { favoured: AtomicU64::new(0), inside: core::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// Enters, if this thread is favoured. `thread` is its number: not 0, and of no other thread, ever.
    ///
    /// # Panics
    ///
    /// If the thread is inside already: it would have the value twice.
    #[inline]
    #[must_use]
    pub fn enter(&self, thread: u64) -> Option<Inside> {
        // ORDER: Relaxed: a hint. A favoured thread wrote the word itself; what another wrote is found at E3.
        let seen = self.favoured.load(Ordering::Relaxed);
        if seen / SLOTS != thread {
            return None;
        }
        let slot = (seen % SLOTS) as usize;
        // ORDER: Relaxed: its own last store.
        let is_inside = self.inside[slot].load(Ordering::Relaxed) != 0;
        assert!(!is_inside, "a thread locks what it has locked");
        // ORDER: E1; the barriers order it, see above.
        self.inside[slot].store(1, Ordering::Relaxed);
        if !seeded_fault("no_light_barrier") {
            light_barrier();
        }
        // ORDER: E3. Acquire keeps the accesses to the value behind it.
        if self.favoured.load(Ordering::Acquire) == seen {
            return Some(Inside::new(slot));
        }
        self.leave(Inside::new(slot));
        None
    }

    /// Whether another thread waits for the one that is inside. One that is may leave, and come back when the other has gone.
    #[inline]
    #[must_use]
    pub fn is_wanted(&self, _inside: &Inside) -> bool {
        // ORDER: Relaxed: a hint, see V1. Nobody else is favoured before this one has left.
        self.favoured.load(Ordering::Relaxed) == 0
    }

    /// Leaves.
    #[expect(clippy::needless_pass_by_value, reason = "whoever has left is not inside any more")]
    #[inline]
    pub fn leave(&self, inside: Inside) {
        // ORDER: E4. Release pairs with the Acquire of V3: whoever waits for it sees what was done to the value.
        self.inside[inside.slot()].store(0, Ordering::Release);
    }

    /// Favours a thread, which has the mutex locked and is about to unlock it. Nothing happens if there is no slot for it.
    pub fn favour(&self, thread: u64, slots: &mut Slots) {
        if let Some(slot) = slots.of(thread) {
            // ORDER: Relaxed: for others a hint; to this thread it is its own store.
            self.favoured.store(thread * SLOTS + slot as u64, Ordering::Relaxed);
        }
    }

    /// Favours nobody from here on; whoever was favoured is outside when this returns. The caller is `thread`, and has the mutex locked.
    /// `heavy_barrier` has every thread of the process pass a full barrier; `pause` is called between two looks. The answer is whether somebody
    /// else was favoured: only then is either of them called.
    ///
    /// # Panics
    ///
    /// If the caller itself is inside: it would have the value twice.
    pub fn take_over(
        &self,
        thread: u64,
        heavy_barrier: impl FnOnce(),
        mut pause: impl FnMut(u32),
    ) -> bool {
        // ORDER: Relaxed: written with the mutex locked, as it is now.
        let seen = self.favoured.load(Ordering::Relaxed);
        if seen == 0 {
            return false;
        }
        let flag = &self.inside[(seen % SLOTS) as usize];
        if seen / SLOTS == thread {
            // ORDER: Relaxed: both are its own stores, and nobody else may write the first while the mutex is locked.
            assert!(flag.load(Ordering::Relaxed) == 0, "a thread locks what it has locked");
            // ORDER: Relaxed: for others a hint, and to this thread its own store.
            self.favoured.store(0, Ordering::Relaxed);
            return false;
        }
        // ORDER: V1; the barriers order it, see above.
        self.favoured.store(0, Ordering::Relaxed);
        if !seeded_fault("no_heavy_barrier") {
            heavy_barrier();
        }
        let mut looks = 0;
        // ORDER: V3. Acquire pairs with the Release of E4.
        while flag.load(Ordering::Acquire) != 0 && !seeded_fault("no_wait_for_vacancy") {
            looks += 1;
            pause(looks);
        }
        true
    }
}

const SLOTS: u64 = FAVOURED_MAX as u64;
