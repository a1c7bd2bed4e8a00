// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pair of slots in a link's file (SPEC 13.2). Each slot holds one image: a complete set of
//! fields. An update writes the next image into the other slot, so it takes effect as a whole or
//! not at all.
//!
//! ```text
//!  slot    ┌ sequence ┬ rest of the body ──────┬ seal ┐  seal = crc32c(body) << 32 | low sequence
//!          └──────────┴────────────────────────┴──────┘
//!  pair    A: sequence 1, 3, 5 …     B: sequence 2, 4, 6 …
//!
//!  update to n + 1 while n is in force:      the owner is killed    image that a reader finds
//!    body of n + 1 into the slot of n - 1    ── in this step ───▶   n; other slot: old seal n - 1
//!    seal of n + 1, the one last store       ── after the seal ─▶   n + 1; n is valid as well
//! ```
//!
//! A slot whose update was interrupted still has the seal of its previous image. This seal
//! distinguishes the interrupted slot from a damaged slot: if the newest image is damaged, no older
//! one replaces it. This file only reads slots.
//!
//! # Invariants
//!
//! - No single damaged byte in the pair makes a reader accept an image other than the newest.

use super::checksum::crc32c;
use crate::seeded_fault;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The content of one slot of a pair: it begins with its sequence number and ends with its seal, a
/// checksum that is stored last.
pub trait Slot: FromBytes + IntoBytes + Immutable + Sized {
    /// The sequence number of the content of this slot, which the first eight bytes of the slot
    /// hold.
    fn sequence(&self) -> u64;

    /// Returns the bytes of this slot's content with the right seal. The caller writes all other
    /// bytes into the slot first, and the seal by the last store.
    #[must_use]
    #[inline]
    fn sealed(self) -> Self {
        let mut out = self;
        let bytes = out.as_mut_bytes();
        let body = bytes.len() - SEAL_BYTES;
        let seal = seal(&bytes[..body]).to_le_bytes();
        bytes[body..].copy_from_slice(&seal);
        out
    }
}

/// Index of the slot of a pair that holds the content with this sequence number: 0 for odd numbers,
/// 1 for even ones.
#[must_use]
#[inline]
pub const fn index_of(sequence: u64) -> usize {
    if sequence % 2 == 1 { 0 } else { 1 }
}

/// Returns the newest valid content in a pair of slots of the same size. Returns `None` if damage
/// makes it uncertain which content is the newest.
#[must_use]
pub fn in_force<T: Slot>(first: &[u8], second: &[u8]) -> Option<T> {
    let slots = [SlotState::at(first, 0)?, SlotState::at(second, 1)?];
    let index = match (slots[0].whole, slots[1].whole) {
        (Some(a), Some(b)) if a.checked_add(1) == Some(b) => 1,
        (Some(a), Some(b)) if b.checked_add(1) == Some(a) => 0,
        (Some(a), None) if slots[1].was_before(a) => 0,
        (None, Some(b)) if slots[0].was_before(b) => 1,
        _ => return None,
    };
    T::read_from_bytes([first, second][index]).ok()
}

/// State of one slot of a pair: it holds a complete content, an interrupted update, or damage.
/// [`in_force`] compares the states of both slots to find the newest content.
struct SlotState {
    /// The sequence number of the slot's content, if the seal is right and the number belongs in
    /// this slot: odd numbers in the first slot, even ones in the second.
    whole: Option<u64>,
    sealed_sequence: u32,
    is_body_sealed: bool,
}

impl SlotState {
    fn at(slot: &[u8], index: usize) -> Option<Self> {
        let (body, last) = slot.split_last_chunk::<SEAL_BYTES>()?;
        let sequence = u64::from_le_bytes(*body.first_chunk::<8>()?);
        let stored = u64::from_le_bytes(*last);
        let is_body_sealed = stored >> 32 == seal(body) >> 32;
        let is_whole = stored == seal(body) && sequence != 0 && index_of(sequence) == index;
        let whole = is_whole.then_some(sequence);
        Some(Self { whole, sealed_sequence: low(stored), is_body_sealed })
    }

    /// Whether an interrupted update left this slot while the content with the number `in_force`
    /// was the newest. Such a slot has the seal of its previous content, and that seal does not
    /// match the body. (A body that matches its checksum but has the wrong sequence in the seal is
    /// no interrupted update.)
    fn was_before(&self, in_force: u64) -> bool {
        let is_older = self.sealed_sequence == low(in_force - 1) && !self.is_body_sealed;
        is_older || seeded_fault("link_rot_is_unfinished")
    }
}

/// The seal of a slot whose other bytes are `body`: the crc32c of the body, and the low half of its
/// sequence number.
#[must_use]
#[inline]
pub fn seal(body: &[u8]) -> u64 {
    let sequence = body.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    u64::from(crc32c(body)) << 32 | u64::from(low(sequence))
}

#[expect(clippy::cast_possible_truncation, reason = "the low 32 bits are meant")]
const fn low(word: u64) -> u32 {
    word as u32
}

/// Size of a seal in bytes, at the end of each slot.
pub const SEAL_BYTES: usize = 8;
