// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parking: a side declares that it sleeps, and its peer notifies it once per sleep (SPEC 6).
//!
//! ```text
//!  Sleeper, stores `asleep` in its own region    Waker, reads `asleep` of its peer, the sleeper
//!  ─────────────────────────────────             ──────────────────────────────────
//!  (caller drains its doorbell)                  (caller published records, progress or releases)
//!  A1  epoch += 1; asleep = epoch                B1  publish
//!  A2  full fence                                B2  full fence
//!  A3  poll again; if that finds something,      B3  e = asleep
//!      disarm and do not wait                    B4  if e ≠ 0 and e is not the epoch notified
//!  (caller waits for the doorbell)                   last: notify, so once per epoch
//! ```
//!
//! A sleeper and its waker form an eventcount. No wake-up is lost, because one of the two fences
//! comes first in the single order of all sequentially consistent fences. If A2 is first, B3 sees
//! A1 and B4 notifies. If B2 is first, A3 sees B1 and the caller does not sleep. The doorbell is
//! drained *before* A1, so a notification of the new epoch is never among those drained.
//!
//! Each side has two sleepers, one for records and one for room. This file neither waits nor
//! notifies: its caller does both, through doorbells of the operating system.

use crate::mem::{OwnMem, PeerMem};
use crate::sync::{AtomicU64, Ordering, fence};
use partywall_layout::seeded_fault;
use partywall_layout::segment::{GONE, QUIET};

/// The highest sleep epoch; after it the epochs start at 1 again. With or without the flag
/// [`QUIET`], this epoch differs from [`GONE`], the word of a side that has left.
const EPOCH_MAX: u64 = QUIET - 2;

/// A sleeper: one wait of this process, for records or for room. It publishes "asleep, epoch n" in
/// this process's own region.
#[derive(Debug)]
pub struct Sleeper {
    /// Memory that begins with the sleeper word of this process's control page. The word says
    /// whether this side sleeps, and in which epoch.
    word: OwnMem,
    epoch: u64,
}

impl Sleeper {
    /// A sleeper that is awake. `word` is the cache line of its sleeper word, in this process's
    /// control page.
    #[must_use]
    pub const fn new(word: OwnMem) -> Self {
        Self { word, epoch: 0 }
    }

    /// Declares that this side is about to sleep. The caller drains its doorbell, *then* calls
    /// `arm`, *then* polls again, and sleeps only if the poll finds nothing.
    ///
    /// If `quiet`, the peer does not notify this side of each record that it publishes: the caller
    /// polls again by itself at intervals. Otherwise the peer notifies once in this sleep.
    #[inline]
    pub fn arm(&mut self, quiet: bool) {
        self.epoch = if self.epoch == EPOCH_MAX { 1 } else { self.epoch + 1 };
        let flag = if quiet { QUIET } else { 0 };
        self.word.store(0, self.epoch | flag);
        // ORDER: the sleeper's fence, step A2 of the protocol in the module documentation. Pairs
        // with the fence in `Waker::check`: either the peer's check sees the epoch that `arm` has
        // stored, or the caller's next poll sees what the peer published.
        if !seeded_fault("no_sleeper_fence") {
            fence(Ordering::SeqCst);
        }
    }

    /// Declares that this side is awake: stores 0 in its sleeper word.
    #[inline]
    pub fn disarm(&mut self) {
        // No fence is needed: a peer that still sees the sleep epoch in the word notifies
        // needlessly, at most once.
        self.word.store(0, 0);
    }

    /// Declares that this side will never wait or poll again.
    ///
    /// After this call, the caller notifies the peer, which may be waiting for room that will never
    /// come.
    pub fn leave(&mut self) {
        self.word.store(0, GONE);
        // ORDER: a full fence between two accesses: the store by which this side's sleeper word
        // says that this side is gone, and the caller's look at the peer's sleeper word. A peer
        // that declared itself asleep before this fence is notified by the caller; a peer that does
        // so later sees that this side is gone.
        fence(Ordering::SeqCst);
    }
}

/// The caller's duty after it has published something for a peer that may sleep: whether to notify
/// that peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The caller does nothing, because the peer is awake.
    No,
    /// The caller does nothing, because the peer sleeps and was already notified in this epoch.
    Notified,
    /// The caller notifies the peer through the peer's doorbell, because the peer sleeps and was
    /// not notified yet in this epoch.
    Notify,
    /// The peer sleeps, but polls again by itself at intervals. The caller notifies it only if the
    /// caller is about to wait for the peer.
    Quiet,
    /// The caller does nothing, because the peer will never poll again.
    Gone,
}

/// Reads one sleeper word of the peer, and remembers the epoch in which it last notified the peer.
#[derive(Debug)]
pub struct Waker {
    /// The memory of the peer's control page that begins with the peer's sleeper word.
    word: PeerMem,
    /// The epoch in which the peer was last notified. The value is private memory, which threads of
    /// this process share.
    last_notified: AtomicU64,
}

impl Waker {
    /// A waker for the sleeper word at byte `offset` of the peer's control page, `peer`.
    ///
    /// # Panics
    /// If no word is at `offset`.
    #[must_use]
    pub fn new(peer: &PeerMem, offset: usize) -> Self {
        let word = peer.part(offset as u64, 8).expect("a word of the control page");
        Self { word, last_notified: AtomicU64::new(0) }
    }

    /// Returns whether to notify the peer, after the caller has published something for it. A
    /// notification is necessary once per sleep epoch. A thread that is delayed inside this call
    /// for a whole epoch can cause a needless notification, but never prevents one.
    #[inline]
    #[must_use]
    pub fn check(&self) -> Wake {
        // ORDER: the waker's fence, step B2 of the protocol in the module documentation. Pairs with
        // the fence in `Sleeper::arm`: either the load in this function sees the sleeper's epoch,
        // or the poll after the sleeper's fence sees what this caller published.
        if !seeded_fault("no_waker_fence") {
            fence(Ordering::SeqCst);
        }
        let word = self.word.peek(0);
        if word == 0 { Wake::No } else { self.decide(word) }
    }

    /// Returns whether to notify the peer already before the caller publishes, or even before it
    /// writes, so that the peer wakes up during the write. [`check`](Self::check) must still follow
    /// the publication: only `check` guarantees that no wake-up is lost.
    #[inline]
    #[must_use]
    pub fn check_early(&self) -> Wake {
        let word = self.word.peek(0);
        if word == 0 { Wake::No } else { self.decide(word) }
    }

    /// Returns whether to notify the peer, for a caller that is about to wait for the peer. A
    /// sleeping peer is then notified even if it polls at intervals and asked not to be notified of
    /// each record.
    #[must_use]
    pub fn check_before_wait(&self) -> Wake {
        match self.check() {
            Wake::Quiet => self.claim(self.word.peek(0)),
            other => other,
        }
    }

    /// Whether the peer has declared neither that it sleeps nor that it will never poll again. Like
    /// [`check_early`](Self::check_early), this is for a caller that has not published yet.
    #[inline(always)]
    #[must_use]
    pub fn is_awake(&self) -> bool {
        self.word.peek(0) == 0
    }

    /// Whether the peer declared that it will never poll again.
    #[inline]
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.word.peek(0) == GONE
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
        // ORDER: Relaxed: the swap only decides which thread of this process notifies the peer. The
        // notification itself is a system call.
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
    fn sleeper_word_of_any_epoch_is_neither_awake_nor_gone() {
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
                assert_ne!(word & EPOCH_BITS, last, "two sleeps share an epoch");
                last = word & EPOCH_BITS;
            }
        }
    }
}
