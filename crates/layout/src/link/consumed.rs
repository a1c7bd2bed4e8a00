// SPDX-License-Identifier: MIT OR Apache-2.0
//! The consumed position in a link's file: up to there the file's owner has consumed its peer's
//! stream (SPEC 13.5).
//!
//! ```text
//!   slot of record n      sequence  stream  consumed  digest  seal   the newest position
//!                         since word, if not 0: the number of ring slots consumed after record n
//!                         was written, and the record digest at the position where they end
//!   slot of record n - 1  stays unchanged while record n is the newest
//! ```
//!
//! The position changes with every message, so it has slots of its own, next to the `consumed` word
//! that a connected peer reads. Nearly every change is one store of one word, `since`. That word is
//! outside the seal and carries its own check: its four parts of 16 bits combine to a constant.
//!
//! # Invariants
//!
//! - No single damaged byte in the two slots makes a reader accept another position than the
//!   newest.

use super::fault::FileFault;
use super::slot::{SEAL_BYTES, Slot, in_force, index_of, seal};
use super::state::StateImage;
use super::{CONSUMED_SLOT, CONSUMED_SLOT_STRIDE};
use crate::SLOT_BYTES;
use crate::segment::{ASLEEP_RECORDS, LINE_BYTES};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A consumed record: up to which position a link file's owner has consumed the peer's stream. It
/// fills one of two slots of the control page, and the `since` word of the slot follows it.
///
/// Each field after its offset in bytes:
/// ```text
///  0  sequence    8  stream    16  consumed    24  digest   28  zero    32  seal
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ConsumedRecord {
    /// Sequence number of this consumed record, from 1. Each later consumed record in the file has
    /// a higher number.
    pub sequence: U64,
    /// Id of the stream that the owner consumes; 0 until it has consumed the first message.
    pub stream: U64,
    /// The position up to which the owner had consumed the stream when the owner wrote this record.
    pub consumed: U64,
    /// The record digest at the position `consumed`.
    pub digest: U32,
    /// A reserved field of the consumed record, always 0.
    pub zero: U32,
    /// The seal, which ends the slot and is stored last; see [`Slot`].
    pub seal: U64,
}

const RECORD_BYTES: usize = size_of::<ConsumedRecord>();
const WORDS: usize = RECORD_BYTES / 8;

const _: () = {
    assert!(RECORD_BYTES == 40);
    assert!(core::mem::offset_of!(ConsumedRecord, stream) == 8);
    assert!(core::mem::offset_of!(ConsumedRecord, consumed) == 16);
    assert!(core::mem::offset_of!(ConsumedRecord, digest) == 24);
    assert!(core::mem::offset_of!(ConsumedRecord, zero) == 28);
    assert!(core::mem::offset_of!(ConsumedRecord, seal) == 32);
    assert!(RECORD_BYTES as u64 == SINCE && SINCE + 8 <= CONSUMED_SLOT_STRIDE);
    assert!(CONSUMED_SLOT + 2 * CONSUMED_SLOT_STRIDE <= LINE_BYTES && LINE_BYTES == ASLEEP_RECORDS);
};

/// Offset of a slot's `since` word from the start of the slot, in bytes. The word counts the ring
/// slots consumed after the slot's consumed record was written.
pub const SINCE: u64 = 40;

impl ConsumedRecord {
    /// Makes a consumed record, the content of one slot of the control page, with this sequence
    /// number and the right seal.
    #[must_use]
    pub fn new(sequence: u64, stream: u64, consumed: u64, digest: u32) -> Self {
        let mut words = [sequence, stream, consumed, u64::from(digest), 0].map(U64::new);
        let (body, _) = words.as_bytes().split_at(RECORD_BYTES - SEAL_BYTES);
        words[WORDS - 1] = U64::new(seal(body));
        zerocopy::transmute!(words)
    }
}

impl Slot for ConsumedRecord {
    #[inline]
    fn sequence(&self) -> u64 {
        self.sequence.get()
    }
}

/// Makes the `since` word of a slot. It states that the owner consumed `bytes` of the ring after it
/// wrote the slot's record, up to a position with this record `digest`. Returns `None` if `bytes`
/// is too large for the word, so that the owner must write a new record.
#[must_use]
#[inline]
pub const fn since_word(bytes: u64, digest: u32) -> Option<u64> {
    if bytes == 0 || bytes > SINCE_MAX || bytes % SLOT_BYTES != 0 {
        return None;
    }
    let said = (bytes / SLOT_BYTES) << 32 | digest as u64;
    Some((parity(said) as u64) << 48 | said)
}

/// Splits a slot's `since` word into the number of ring slots that were consumed after the slot's
/// record was written, and the record digest where they end. `None` if the word is damaged.
const fn since_of(word: u64) -> Option<(u64, u32)> {
    let slots = word >> 32 & 0xffff;
    #[expect(clippy::cast_possible_truncation, reason = "the low 32 bits are meant")]
    let digest = word as u32;
    if slots != 0 && word >> 48 == parity(word) as u64 { Some((slots, digest)) } else { None }
}

/// The highest 16 bits that a `since` word must have, given its three lower parts of 16 bits. A
/// word with other highest bits is damaged.
#[expect(clippy::cast_possible_truncation, reason = "the low 16 bits are meant")]
const fn parity(word: u64) -> u16 {
    (word ^ word >> 16 ^ word >> 32) as u16 ^ PARITY
}

/// Exclusive or of the four 16-bit parts of a valid `since` word. Neither byte of the constant is
/// 0, so no change of a single byte makes a word of 0 valid.
const PARITY: u16 = 0x5a96;
/// Largest number of ring bytes that one `since` word can express; beyond it the owner writes a new
/// consumed record.
pub const SINCE_MAX: u64 = 0xffff * SLOT_BYTES;

/// The newest consumed position in a link's file, and the consumed record from which, together with
/// its `since` word, the position was computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consumed {
    /// The consumed record in the newest slot, with its seal.
    pub record: ConsumedRecord,
    /// The position up to which the owner has consumed its peer's stream.
    pub position: u64,
    /// The record digest at `position`.
    pub digest: u32,
}

impl Consumed {
    /// Returns the consumed position that `record` states. The caller must know that the `since`
    /// word of the record's slot is still 0.
    #[must_use]
    pub fn of(record: ConsumedRecord) -> Self {
        Self { record, position: record.consumed.get(), digest: record.digest.get() }
    }

    fn new(record: ConsumedRecord, since: u64) -> Result<Self, FileFault> {
        let Self { position, digest, .. } = Self::of(record);
        let since = match since {
            0 => None,
            word => Some(since_of(word).ok_or(FileFault::ConsumedDamaged)?),
        };
        let is_of_none = record.stream == 0;
        if position % SLOT_BYTES != 0 || is_of_none && (position != 0 || since.is_some()) {
            let what = "a consumed position that is invalid";
            return Err(FileFault::Contradiction { what, found: position });
        }
        let Some((slots, digest)) = since else { return Ok(Self { record, position, digest }) };
        let Some(position) = position.checked_add(slots * SLOT_BYTES) else {
            let what = "a consumed position beyond the last one";
            return Err(FileFault::Contradiction { what, found: position });
        };
        Ok(Self { record, position, digest })
    }

    /// Offset in the control page of the record's seal, for readers that run while the owner
    /// writes. Such a reader must load the records, then their `since` words, and then the seal
    /// again. If the seal has changed, a `since` word may belong to another record.
    #[must_use]
    pub fn seal_offset(&self) -> u64 {
        slot_offset(index_of(self.record.sequence.get())) + (RECORD_BYTES - SEAL_BYTES) as u64
    }

    /// Returns the position up to which the stream was consumed, and the record digest at that
    /// position. This consumed record counts if it belongs to the stream that `state` receives and
    /// is further along than `state`; otherwise `state` does.
    #[must_use]
    pub fn with(&self, state: &StateImage) -> (u64, u32) {
        let of_state = (state.receiving_consumed.get(), state.receiving_digest.get());
        let is_since = self.record.stream == state.receiving_stream && self.position > of_state.0;
        if is_since { (self.position, self.digest) } else { of_state }
    }
}

/// Checks the control page of a link's file, and returns its newest consumed record, with the
/// `since` word of the record's slot taken into account.
///
/// # Errors
/// Either [`FileFault::ConsumedDamaged`] or [`FileFault::Contradiction`].
pub fn check(control_page: &[u8]) -> Result<Consumed, FileFault> {
    let bytes = |offset: u64, len: usize| {
        let start = usize::try_from(offset).ok()?;
        control_page.get(start..start + len)
    };
    let slot = |index| bytes(slot_offset(index), RECORD_BYTES);
    let (Some(first), Some(second)) = (slot(0), slot(1)) else {
        return Err(FileFault::ConsumedDamaged);
    };
    let record: ConsumedRecord = in_force(first, second).ok_or(FileFault::ConsumedDamaged)?;
    let since = bytes(slot_offset(index_of(record.sequence.get())) + SINCE, 8);
    let since = since.and_then(|bytes| bytes.first_chunk::<8>());
    Consumed::new(record, u64::from_le_bytes(*since.ok_or(FileFault::ConsumedDamaged)?))
}

/// Offset in the control page of one of the two slots for the consumed position, in bytes. The
/// index of the slot is 0 or 1.
#[must_use]
#[inline]
pub const fn slot_offset(index: usize) -> u64 {
    CONSUMED_SLOT + index as u64 * CONSUMED_SLOT_STRIDE
}
