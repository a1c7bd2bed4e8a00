// SPDX-License-Identifier: MIT OR Apache-2.0
//! The release ring: the receiver writes to it the ids of blocks that it no longer reads, and the
//! sender's slab takes these blocks back (SPEC 5.3).
//!
//! ```text
//!  receiver's region                              sender
//!  release ring  | id | id | id |  ...            reads the entries from `taken` to `released`;
//!  released      count of entries ever written    gives each id to its slab, which knows the
//!                                                 blocks in flight
//! ```
//!
//! The receiver writes an id when the last view of a block drops, in any order. The ring always has
//! an entry free for the next id, because a sender has at most as many blocks in flight as the ring
//! has entries (SPEC 5.3).

use crate::mem::{OwnMem, PeerMem};
use partywall_layout::Violation;

/// The receiver's end of a release ring: it returns blocks to the peer.
#[derive(Debug)]
pub struct Releaser {
    ring: OwnMem,
    /// Memory that begins with the word `released` of this process's control page: the number of
    /// entries that this process ever wrote to the release ring.
    released: OwnMem,
    count: u64,
    entries: u64,
}

impl Releaser {
    /// A releaser that writes to `ring`. `released` is the cache line of this process's control
    /// page that counts the ring's entries.
    ///
    /// # Panics
    /// If the number of entries in `ring` is not a power of two.
    #[must_use]
    pub fn new(ring: OwnMem, released: OwnMem) -> Self {
        let entries = (ring.len() / 8) as u64;
        assert!(entries.is_power_of_two() && ring.len() % 8 == 0, "a power of two of entries");
        Self { ring, released, count: 0, entries }
    }

    /// Returns `block` to its owner, the sender. After the call the receiver must not read the
    /// block.
    ///
    /// After this call, the caller asks its `Waker` for room whether to notify the owner.
    #[inline]
    pub fn release(&mut self, block: u64) {
        #[expect(clippy::cast_possible_truncation, reason = "an offset in mapped memory")]
        let offset = ((self.count & (self.entries - 1)) * 8) as usize;
        self.ring.store(offset, block);
        self.count += 1;
        // ORDER (in `OwnMem::publish`): Release, so an owner that sees the count sees the entry,
        // and this process's reads of the block are over before.
        self.released.publish(0, self.count);
    }
}

/// The sender's end of a release ring: it takes returned blocks back.
#[derive(Debug)]
pub struct Reclaimer {
    /// The peer's release ring, from which the sender reads block ids.
    ring: PeerMem,
    /// The peer's control page, which contains the word `released`.
    peer: PeerMem,
    /// Offset in bytes of the word `released` in `peer`, the peer's control page.
    offset: usize,
    /// Number of release ring entries that the sender has taken so far.
    taken: u64,
    /// Value of the peer's word `released` when the sender last loaded it.
    seen: u64,
    entries: u64,
}

impl Reclaimer {
    /// A reclaimer of the peer's release `ring`, whose count is at byte `offset` of the peer's
    /// control page.
    ///
    /// # Panics
    /// If the number of entries in `ring` is not a power of two, which the caller's check of the
    /// geometry excludes.
    #[must_use]
    pub fn new(ring: PeerMem, peer: PeerMem, offset: usize) -> Self {
        let entries = (ring.len() / 8) as u64;
        assert!(entries.is_power_of_two() && ring.len() % 8 == 0, "a power of two of entries");
        Self { ring, peer, offset, taken: 0, seen: 0, entries }
    }

    /// Takes the next block id from the release ring, if the peer has returned a further block.
    /// `in_flight` is the number of blocks in flight: the peer cannot return more.
    ///
    /// # Errors
    /// [`Violation::Released`] if the peer's count of entries is impossible. The slab checks the
    /// *id*.
    #[inline]
    pub fn next(&mut self, in_flight: u64) -> Result<Option<u64>, Violation> {
        if self.taken == self.seen {
            let found = self.peer.load(self.offset);
            // The peer's count of entries is loaded once, into `found`; it is checked before it is
            // used.
            if found < self.seen || found - self.taken > in_flight.min(self.entries) {
                return Err(Violation::Released {
                    found,
                    from: self.seen,
                    to: self.taken + in_flight.min(self.entries),
                });
            }
            self.seen = found;
            if self.taken == self.seen {
                return Ok(None);
            }
        }
        #[expect(clippy::cast_possible_truncation, reason = "an offset in mapped memory")]
        let id = self.ring.peek(((self.taken & (self.entries - 1)) * 8) as usize);
        self.taken += 1;
        Ok(Some(id))
    }

    /// The peer's current count of entries in its release ring, unchecked: a waiter compares it
    /// with an earlier count.
    #[inline]
    #[must_use]
    pub fn snapshot(&self) -> u64 {
        self.peer.peek(self.offset)
    }
}
