// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far the owner has consumed the neighbour's stream (SPEC 13.5).
//!
//! ```text
//!   slot of n      sequence  stream  consumed  proof  seal ┐   in force: consumed up to there
//!                                              since word  │   not 0: so many slots of the ring further since, and the proof there
//!   slot of n - 1  as it was
//! ```
//!
//! It changes with every message, so it has slots of its own, beside the word that the living neighbour reads, and nearly all of what
//! changes is one word, stored at once. It is outside the seal, and so it proves itself: its four parts of 16 bits make a constant.
//!
//! # Invariants
//!
//! - No single damaged byte, wherever in the two slots, makes a reader take another place than the newest.

use super::fault::FileFault;
use super::slot::{SEAL_BYTES, Slot, in_force, index_of, seal};
use super::state::StateImage;
use super::{CONSUMED_SLOT, CONSUMED_SLOT_STRIDE};
use crate::SLOT_BYTES;
use crate::segment::{ASLEEP_RECORDS, LINE_BYTES};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// One slot of the control page, without the word behind it.
///
/// ```text
///  0  sequence    8  stream    16  consumed    24  proof   28  zero    32  seal
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ConsumedRecord {
    /// Rises with each record, from 1.
    pub sequence: U64,
    /// Of which stream; 0 as long as none was consumed from.
    pub stream: U64,
    /// Up to which position, when this record was put in force.
    pub consumed: U64,
    /// What proves the bytes before it.
    pub digest: U32,
    /// Always 0.
    pub zero: U32,
    /// See [`Slot`].
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

/// Where in a slot the word lies that says what was consumed since its record was put in force.
pub const SINCE: u64 = 40;

impl ConsumedRecord {
    /// The record with this number.
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

/// The word of what was consumed since: `bytes` of the ring, up to a place with this proof. `None` if it takes a new record to say so.
#[must_use]
#[inline]
pub const fn since_word(bytes: u64, digest: u32) -> Option<u64> {
    if bytes == 0 || bytes > SINCE_MAX || bytes % SLOT_BYTES != 0 {
        return None;
    }
    let said = (bytes / SLOT_BYTES) << 32 | digest as u64;
    Some((parity(said) as u64) << 48 | said)
}

/// The slots that a word says, and the proof; `None` if it is damaged.
const fn since_of(word: u64) -> Option<(u64, u32)> {
    let slots = word >> 32 & 0xffff;
    #[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
    let digest = word as u32;
    if slots != 0 && word >> 48 == parity(word) as u64 { Some((slots, digest)) } else { None }
}

/// What the three lower parts of 16 bits make the highest.
#[expect(clippy::cast_possible_truncation, reason = "the low 16 bits are meant")]
const fn parity(word: u64) -> u16 {
    (word ^ word >> 16 ^ word >> 32) as u16 ^ PARITY
}

/// Neither byte is 0, so that no single byte makes a word of 0 another.
const PARITY: u16 = 0x5a96;
/// The most a word can say.
pub const SINCE_MAX: u64 = 0xffff * SLOT_BYTES;

/// What is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consumed {
    /// The sealed part.
    pub record: ConsumedRecord,
    /// Up to where was consumed.
    pub position: u64,
    /// The proof there.
    pub digest: u32,
}

impl Consumed {
    /// What a record says behind which there is no word.
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
            let what = "no place up to which can be consumed";
            return Err(FileFault::Contradiction { what, found: position });
        }
        let Some((slots, digest)) = since else { return Ok(Self { record, position, digest }) };
        let Some(position) = position.checked_add(slots * SLOT_BYTES) else {
            let what = "consumed beyond the last place";
            return Err(FileFault::Contradiction { what, found: position });
        };
        Ok(Self { record, position, digest })
    }

    /// Where in the control page the seal of the record lies. Who reads while the owner writes looks at the words once the records are read,
    /// and then there again: a word may be of another record unless the seal is still this one's.
    #[must_use]
    pub fn seal_offset(&self) -> u64 {
        slot_offset(index_of(self.record.sequence.get())) + (RECORD_BYTES - SEAL_BYTES) as u64
    }

    /// How far was consumed, and the proof: what the state says, or what was consumed of its stream since.
    #[must_use]
    pub fn with(&self, state: &StateImage) -> (u64, u32) {
        let of_state = (state.receiving_consumed.get(), state.receiving_digest.get());
        let is_since = self.record.stream == state.receiving_stream && self.position > of_state.0;
        if is_since { (self.position, self.digest) } else { of_state }
    }
}

/// What is in force on the control page.
///
/// # Errors
/// [`FileFault::ConsumedDamaged`], [`FileFault::Contradiction`].
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

/// Where in the control page the slot with this index begins.
#[must_use]
#[inline]
pub const fn slot_offset(index: usize) -> u64 {
    CONSUMED_SLOT + index as u64 * CONSUMED_SLOT_STRIDE
}
