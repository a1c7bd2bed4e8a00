// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far the owner has consumed the neighbour's stream (SPEC 13.5).
//!
//! It changes with every message, so it has slots of its own, beside the word that the living neighbour reads. The
//! slot is written first, the word second: what the neighbour was told is what a restart finds.

use super::fault::FileFault;
use super::slot::{SEAL_BYTES, Slot, in_force, seal};
use super::state::StateImage;
use super::{CONSUMED_SLOT, CONSUMED_SLOT_STRIDE};
use crate::segment::{ASLEEP_RECORDS, LINE_BYTES};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// One slot of the control page.
///
/// ```text
///  0  sequence    8  stream    16  consumed    24  proof   28  zero    32  zero    40  seal
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
    /// Up to which position.
    pub consumed: U64,
    /// What proves the bytes before it.
    pub proof: U32,
    /// Always 0.
    pub zero: U32,
    /// Always 0.
    pub zero_too: U64,
    /// See [`Slot`].
    pub seal: U64,
}

const WORDS: usize = size_of::<ConsumedRecord>() / 8;

const _: () = {
    assert!(size_of::<ConsumedRecord>() == 48);
    assert!(core::mem::offset_of!(ConsumedRecord, stream) == 8);
    assert!(core::mem::offset_of!(ConsumedRecord, consumed) == 16);
    assert!(core::mem::offset_of!(ConsumedRecord, proof) == 24);
    assert!(core::mem::offset_of!(ConsumedRecord, zero) == 28);
    assert!(core::mem::offset_of!(ConsumedRecord, zero_too) == 32);
    assert!(core::mem::offset_of!(ConsumedRecord, seal) == 40);
    assert!(size_of::<ConsumedRecord>() as u64 <= CONSUMED_SLOT_STRIDE);
    assert!(CONSUMED_SLOT + 2 * CONSUMED_SLOT_STRIDE <= LINE_BYTES && LINE_BYTES == ASLEEP_RECORDS);
};

impl ConsumedRecord {
    /// The record with this number.
    #[must_use]
    #[inline]
    pub fn new(sequence: u64, stream: u64, consumed: u64, proof: u32) -> Self {
        zerocopy::transmute!(Self::words(sequence, stream, consumed, proof))
    }

    /// The words of that record, of which the last is the seal: for who stores it word by word. A processor waits when it reads in one
    /// what was just stored in two, so this is never put together.
    #[must_use]
    #[inline]
    pub fn words(sequence: u64, stream: u64, consumed: u64, proof: u32) -> [U64; WORDS] {
        let mut words = [sequence, stream, consumed, u64::from(proof), 0, 0].map(U64::new);
        let (body, _) = words.as_bytes().split_at(size_of::<Self>() - SEAL_BYTES);
        words[WORDS - 1] = U64::new(seal(body));
        words
    }

    /// How far was consumed, and the proof: what the state says, or what was consumed of its stream since.
    #[must_use]
    pub fn with(&self, state: &StateImage) -> (u64, u32) {
        let of_state = (state.receiving_consumed.get(), state.receiving_proof.get());
        let since = (self.consumed.get(), self.proof.get());
        if self.stream == state.receiving_stream && since.0 > of_state.0 { since } else { of_state }
    }
}

impl Slot for ConsumedRecord {
    #[inline]
    fn sequence(&self) -> u64 {
        self.sequence.get()
    }
}

/// The record in force on the control page.
///
/// # Errors
/// [`FileFault::ConsumedDamaged`], [`FileFault::Contradiction`].
pub fn check(control_page: &[u8]) -> Result<ConsumedRecord, FileFault> {
    let slot = |index: u64| {
        let start = usize::try_from(CONSUMED_SLOT + index * CONSUMED_SLOT_STRIDE).ok()?;
        control_page.get(start..start + size_of::<ConsumedRecord>())
    };
    let (Some(first), Some(second)) = (slot(0), slot(1)) else {
        return Err(FileFault::ConsumedDamaged);
    };
    let record: ConsumedRecord = in_force(first, second).ok_or(FileFault::ConsumedDamaged)?;
    let (stream, consumed) = (record.stream.get(), record.consumed.get());
    if consumed % crate::SLOT_BYTES != 0 || (stream == 0 && consumed != 0) {
        let what = "no place up to which can be consumed";
        return Err(FileFault::Contradiction { what, found: consumed });
    }
    Ok(record)
}
