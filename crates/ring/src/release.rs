// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a block of the sender's slab comes home (SPEC 5.3).
//!
//! ```text
//!  receiver's half                                sender
//!  release ring  | id | id | id |  ...            reads entries read..released, gives each id
//!  released      count of entries ever written    to its slab, which knows what is really out
//! ```
//!
//! The receiver writes an id when the last view of a block drops, in any order. The ring cannot be
//! full: a sender never has more blocks out than the ring has entries (SPEC 5.3).

use crate::mem::{OwnMem, PeerMem};
use partywall_layout::Violation;

/// The receiving side: gives blocks back.
#[derive(Debug)]
pub struct Releaser {
    ring: OwnMem,
    /// The own control word `released`, at offset 0 of this memory.
    released: OwnMem,
    count: u64,
    entries: u64,
}

impl Releaser {
    /// Writes to `ring`; `released` is the line of our own control page that counts its entries.
    ///
    /// # Panics
    /// If `ring` is not a power of two of whole entries.
    #[must_use]
    pub fn new(ring: OwnMem, released: OwnMem) -> Self {
        let entries = (ring.len() / 8) as u64;
        assert!(entries.is_power_of_two() && ring.len() % 8 == 0, "a power of two of entries");
        Self { ring, released, count: 0, entries }
    }

    /// Tells the owner of `block` that nobody here looks at it any more.
    ///
    /// The caller then asks its `Waker` for room whether to ring.
    #[inline]
    pub fn release(&mut self, block: u64) {
        #[expect(clippy::cast_possible_truncation, reason = "an offset in mapped memory")]
        let offset = ((self.count & (self.entries - 1)) * 8) as usize;
        self.ring.store(offset, block);
        self.count += 1;
        // ORDER (in `OwnMem::publish`): Release, so an owner that sees the count sees the entry and
        // knows that our reads of the block are over.
        self.released.publish(0, self.count);
    }
}

/// The sending side: takes blocks home.
#[derive(Debug)]
pub struct Reclaimer {
    /// The neighbour's release ring.
    ring: PeerMem,
    /// The neighbour's control page.
    peer: PeerMem,
    /// Offset of `released` in it.
    offset: usize,
    /// How many entries we have taken.
    taken: u64,
    /// How many there were when we last looked.
    seen: u64,
    entries: u64,
}

impl Reclaimer {
    /// Reads the neighbour's release `ring`, and its count at `offset` of its control page.
    ///
    /// # Panics
    /// If `ring` is not a power of two of whole entries: geometry was checked before.
    #[must_use]
    pub fn new(ring: PeerMem, peer: PeerMem, offset: usize) -> Self {
        let entries = (ring.len() / 8) as u64;
        assert!(entries.is_power_of_two() && ring.len() % 8 == 0, "a power of two of entries");
        Self { ring, peer, offset, taken: 0, seen: 0, entries }
    }

    /// The next block id that came home. `out` is how many blocks are out: more cannot come.
    ///
    /// # Errors
    /// [`Violation::Released`] if the count is impossible. Whether the *id* is possible only the
    /// slab knows.
    #[inline]
    pub fn next(&mut self, out: u64) -> Result<Option<u64>, Violation> {
        if self.taken == self.seen {
            let found = self.peer.load(self.offset);
            // Copy once (`found`), check, then use.
            if found < self.seen || found - self.taken > out.min(self.entries) {
                return Err(Violation::Released {
                    found,
                    from: self.seen,
                    to: self.taken + out.min(self.entries),
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

    /// The count as the neighbour shows it at this moment, unchecked: a waiter compares it with an
    /// earlier one.
    #[inline]
    #[must_use]
    pub fn snapshot(&self) -> u64 {
        self.peer.peek(self.offset)
    }
}
