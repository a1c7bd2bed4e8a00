// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who sleeps says so, and the neighbour rings once (SPEC 6).
//!
//! ```text
//!  Sleeper, in our half                          Waker, looking from the other side
//!  ─────────────────────────────────             ──────────────────────────────────
//!  (caller drains its bell)                      (caller published records, progress or releases)
//!  A1  epoch += 1; asleep = epoch                B1  publish
//!  A2  full fence                                B2  full fence
//!  A3  look again: found? disarm, go on          B3  e = asleep
//!  (caller waits for the bell)                   B4  e ≠ 0 and e ≠ last rung: ring, once per epoch
//! ```
//!
//! No wake-up is lost: of the two fences one comes first in the single order of all such fences. If
//! A2 is first, B3 sees A1 and B4 rings; if B2 is first, A3 sees B1 and nobody sleeps. The bell is
//! drained *before* A1, so a ring for this epoch cannot be among what is drained.
//!
//! There are two sleepers per side, one for records and one for room. This file neither waits nor
//! rings: bells belong to the operating system.

use crate::mem::{OwnMem, PeerMem};
use crate::sync::{AtomicU64, Ordering, fence};
use partywall_layout::seeded_fault;
use partywall_layout::segment::{GONE, QUIET};

/// The last epoch before the first comes again: with or without the flag it is not [`GONE`].
const EPOCH_MAX: u64 = QUIET - 2;

/// Publishes "asleep, epoch n" in our own half.
#[derive(Debug)]
pub struct Sleeper {
    /// The own control word, at offset 0 of this memory.
    word: OwnMem,
    epoch: u64,
}

impl Sleeper {
    /// A sleeper that is awake; `word` is its line of our own control page.
    #[must_use]
    pub const fn new(word: OwnMem) -> Self {
        Self { word, epoch: 0 }
    }

    /// Declares that we are about to sleep. The caller has drained its bell, *then* calls this,
    /// *then* looks again, and sleeps only if there is still nothing.
    ///
    /// With `quiet` ordinary commits do not ring: we look again by ourselves before long.
    #[inline]
    pub fn arm(&mut self, quiet: bool) {
        self.epoch = if self.epoch == EPOCH_MAX { 1 } else { self.epoch + 1 };
        let flag = if quiet { QUIET } else { 0 };
        self.word.store(0, self.epoch | flag);
        // ORDER: A2. Pairs with the fence in `Waker::check`: either it sees the word above, or our
        // caller's next look sees what was published.
        if !seeded_fault("no_sleeper_fence") {
            fence(Ordering::SeqCst);
        }
    }

    /// Declares that we are awake.
    #[inline]
    pub fn disarm(&mut self) {
        // Plain: a neighbour that still sees the old word rings in vain, at most once.
        self.word.store(0, 0);
    }

    /// Declares that nobody will ever wait here, or look, again.
    ///
    /// The caller then rings the neighbour, who may be waiting for room that will never come.
    pub fn leave(&mut self) {
        self.word.store(0, GONE);
        // ORDER: as A2: a neighbour that went to sleep before this is rung by our caller, one that
        // does so later sees the word.
        fence(Ordering::SeqCst);
    }
}

/// What to do for the neighbour after something was published for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// It is awake.
    No,
    /// It sleeps and was rung for this sleep already.
    Notified,
    /// Ring its bell.
    Notify,
    /// It sleeps, but looks again by itself; ring only if we are about to wait for it.
    Quiet,
    /// It will never look again.
    Gone,
}

/// Looks at one of the neighbour's sleepers, and remembers for which epoch it rang.
#[derive(Debug)]
pub struct Waker {
    /// The neighbour's control page.
    peer: PeerMem,
    /// Offset of the sleeper's word in it.
    offset: usize,
    /// The last epoch we rang for. Private memory: our own threads may share a waker.
    last_notified: AtomicU64,
}

impl Waker {
    /// Looks at the word at `offset` of the neighbour's control page.
    #[must_use]
    pub fn new(peer: PeerMem, offset: usize) -> Self {
        Self { peer, offset, last_notified: AtomicU64::new(0) }
    }

    /// Call after publishing; says whether the neighbour must be rung: once per epoch. A thread that
    /// was held up in here for a whole epoch can cause one ring too many, never one too few.
    #[inline]
    #[must_use]
    pub fn check(&self) -> Wake {
        // ORDER: B2. Pairs with the fence in `Sleeper::arm`: either the word below tells of the
        // sleeper, or the sleeper's look after its fence sees what our caller published.
        if !seeded_fault("no_waker_fence") {
            fence(Ordering::SeqCst);
        }
        let word = self.peer.peek(self.offset);
        if word == 0 { Wake::No } else { self.decide(word) }
    }

    /// Before publishing, or even writing: whether the neighbour sleeps and can be rung at once, so
    /// that it wakes up while we still write. [`check`](Self::check) must follow the publishing all the
    /// same: only that proves that no wake-up is lost.
    #[inline]
    #[must_use]
    pub fn check_early(&self) -> Wake {
        let word = self.peer.peek(self.offset);
        if word == 0 { Wake::No } else { self.decide(word) }
    }

    /// As [`check`](Self::check), but rings quiet sleepers too: for one who is about to wait for them.
    #[must_use]
    pub fn check_before_wait(&self) -> Wake {
        match self.check() {
            Wake::Quiet => self.claim(self.peer.peek(self.offset)),
            other => other,
        }
    }

    /// Whether the neighbour declared that it will never look again.
    #[inline]
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.peer.peek(self.offset) == GONE
    }

    #[cold]
    fn decide(&self, word: u64) -> Wake {
        if word == GONE {
            return Wake::Gone;
        }
        if word & QUIET != 0 {
            return Wake::Quiet;
        }
        self.claim(word)
    }

    fn claim(&self, word: u64) -> Wake {
        if word == GONE {
            return Wake::Gone;
        }
        if word == 0 {
            return Wake::No;
        }
        // ORDER: Relaxed: decides only which of our threads rings; the ring itself is a system call.
        if self.last_notified.swap(word, Ordering::Relaxed) == word {
            Wake::Notified
        } else {
            Wake::Notify
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::mem;

    const EPOCH_BITS: u64 = QUIET - 1;

    #[test]
    fn no_epoch_is_awake_or_quiet_or_gone() {
        let (own, seen) = mem::pair(64);
        let mut sleeper = Sleeper::new(own);
        let mut last = 0;
        for start in [0, 10, QUIET - 4, QUIET - 3, EPOCH_MAX] {
            sleeper.epoch = start;
            for quiet in [false, true, true, false] {
                sleeper.arm(quiet);
                let word = seen.peek(0);
                assert!(word != GONE && word & EPOCH_BITS != 0, "{word:#x}");
                assert_eq!(word & QUIET != 0, quiet);
                assert_ne!(word & EPOCH_BITS, last, "two sleeps of one epoch");
                last = word & EPOCH_BITS;
            }
        }
    }
}
