// SPDX-License-Identifier: MIT OR Apache-2.0
//! The identity and the positions that a side sends when it attaches (SPEC 12.2, 15.2).
//!
//! ```text
//!  nonce │ identity │ sending: base..tail │ receiving: consumed, received │ past │ skip │ sizes
//! ```
//!
//! `reconcile` compares these fields of both sides; this file does not.

use super::{FrameFault, ensure};
use crate::link::owner::INCARNATION_MAX;
use crate::link::past::is_position;
use crate::link::{Previous, SkipFields};
use crate::record_ring::{RING_BYTES_MAX, RING_BYTES_MIN, RingSize};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The part that ATTACH and ATTACHED have in common: identity and positions of the sender of the
/// frame.
///
/// Each field after its offset in bytes; sizes of longer fields in parentheses:
/// ```text
///  0    nonce              8    incarnation        16   store id (16)
///  32   connection number  40   epoch
///  48   sending: stream    56   base               64   tail
///  72   receiving: stream  80   consumed           88   received   96  digest  100  flags
///  104  past (64)          168  skip (48)
///  216  ring bytes         224  slab bytes         232
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct SideFields {
    /// Random number that the side chose for this connection.
    pub nonce: U64,
    /// Incarnation of the side's store, from 1.
    pub incarnation: U64,
    /// Id of the side's store; never 0.
    pub store_id: [u8; 16],
    /// Number of this connection among those of the client's incarnation.
    pub connection_number: U64,
    /// The side's current epoch.
    pub epoch: U64,
    /// Id of the stream that the side sends; never 0.
    pub sending_stream: U64,
    /// Position of the first record of the sent stream that the side keeps.
    pub base: U64,
    /// Position at which the next record of the sent stream will begin.
    pub tail: U64,
    /// Id of the peer's stream, as far as the side knows it; 0 if the side knows none.
    pub receiving_stream: U64,
    /// Position up to which the side's application has acknowledged the peer's stream.
    pub consumed: U64,
    /// Position up to which the side has received the peer's stream.
    pub received: U64,
    /// The record digest at the position `consumed`.
    pub digest: U32,
    /// Flags of the side: [`SIDE_SHARES_MEMORY`] if the side shares its memory, otherwise 0.
    pub flags: U32,
    /// The streams and positions with which the side left its previous epoch (SPEC 12.4).
    pub past: Previous,
    /// The last range of the peer's stream that the side, as its receiver, skipped because the peer
    /// no longer had it.
    pub skip: SkipFields,
    /// Size of the side's record ring in bytes.
    pub ring_bytes: U64,
    /// Size of the side's slab in bytes.
    pub slab_bytes: U64,
}

const _: () = {
    assert!(size_of::<SideFields>() == 232);
    assert!(core::mem::offset_of!(SideFields, incarnation) == 8);
    assert!(core::mem::offset_of!(SideFields, store_id) == 16);
    assert!(core::mem::offset_of!(SideFields, connection_number) == 32);
    assert!(core::mem::offset_of!(SideFields, epoch) == 40);
    assert!(core::mem::offset_of!(SideFields, sending_stream) == 48);
    assert!(core::mem::offset_of!(SideFields, base) == 56);
    assert!(core::mem::offset_of!(SideFields, tail) == 64);
    assert!(core::mem::offset_of!(SideFields, receiving_stream) == 72);
    assert!(core::mem::offset_of!(SideFields, consumed) == 80);
    assert!(core::mem::offset_of!(SideFields, received) == 88);
    assert!(core::mem::offset_of!(SideFields, digest) == 96);
    assert!(core::mem::offset_of!(SideFields, flags) == 100);
    assert!(core::mem::offset_of!(SideFields, past) == 104);
    assert!(core::mem::offset_of!(SideFields, skip) == 168);
    assert!(core::mem::offset_of!(SideFields, ring_bytes) == 216);
    assert!(core::mem::offset_of!(SideFields, slab_bytes) == 224);
};

impl SideFields {
    pub(super) fn check(&self) -> Result<(), FrameFault> {
        let (incarnation, epoch) = (self.incarnation.get(), self.epoch.get());
        let is_owner = (1..=INCARNATION_MAX).contains(&incarnation);
        ensure(is_owner, "the incarnation is out of range", incarnation)?;
        ensure(self.store_id != [0; 16], "the store id is zero", 0)?;
        self.check_views()?;
        let unfit = |(what, found)| FrameFault::Field { what, found };
        self.past.check(epoch).map_err(unfit)?;
        self.skip.check().map_err(unfit)?;
        let skipped = self.skip.epoch.get();
        ensure(skipped <= epoch, "the skip is of a later epoch", skipped)?;
        let ring = self.ring_bytes.get();
        let is_ring = RingSize::new(ring).is_some();
        let is_ring = is_ring && (RING_BYTES_MIN..=RING_BYTES_MAX).contains(&ring);
        ensure(is_ring, "the ring size is out of range", ring)?;
        let slab = self.slab_bytes.get();
        ensure(slab <= SLAB_BYTES_MAX, "the slab size is out of range", slab)
    }

    fn check_views(&self) -> Result<(), FrameFault> {
        let positions = [
            ("the base is not a position", self.base),
            ("the tail is not a position", self.tail),
            ("consumed is not a position", self.consumed),
            ("received is not a position", self.received),
        ];
        for (what, position) in positions {
            ensure(is_position(position), what, position.get())?;
        }
        ensure(self.sending_stream.get() != 0, "the id of the sent stream is 0", 0)?;
        ensure(self.base <= self.tail, "the base exceeds the tail", self.base.get())?;
        let (stream, consumed) = (self.receiving_stream.get(), self.consumed.get());
        let received = self.received.get();
        ensure(stream != 0 || received == 0, "a position is received of no stream", received)?;
        ensure(consumed <= received, "consumed exceeds received", consumed)?;
        let digest = self.digest.get();
        ensure(
            consumed != 0 || digest == 0,
            "a record digest at the start of a stream",
            digest.into(),
        )?;
        let flags = self.flags.get();
        ensure(flags & !SIDE_SHARES_MEMORY == 0, "an unknown flag is set", flags.into())
    }
}

/// Flag: the side shares its memory, whose descriptors come with the first byte of the frame (SPEC
/// 16.2).
pub const SIDE_SHARES_MEMORY: u32 = 1;
/// Upper bound of the size of a slab in bytes, as in a link file (SPEC 13.6).
pub const SLAB_BYTES_MAX: u64 = 1 << 40;
