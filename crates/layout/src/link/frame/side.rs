// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a side tells of itself when it attaches: who it is, and where (SPEC 12.2, 15.2).
//!
//! ```text
//!  nonce │ identity │ what it sends: base..tail │ what it has received: consumed, received │ past │ skip │ window
//! ```
//!
//! What two sides' words say together is for `reconcile`.

use super::{FrameFault, ensure};
use crate::link::owner::INCARNATION_MAX;
use crate::link::past::is_position;
use crate::link::{Previous, SkipFields};
use crate::record_ring::{RING_BYTES_MAX, RING_BYTES_MIN, RingSize};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The part that ATTACH and ATTACHED have in common.
///
/// ```text
///  0    nonce              8    incarnation        16   lineage (16)
///  32   generation         40   epoch
///  48   sending: stream    56   base               64   tail
///  72   receiving: stream  80   consumed           88   received   96  proof   100  flags
///  104  past (64)          168  skip (48)
///  216  ring bytes         224  slab bytes         232
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct SideFields {
    /// By chance, for this connection.
    pub nonce: U64,
    /// Of its memory, from 1.
    pub incarnation: U64,
    /// Of its memory; never 0.
    pub store_id: [u8; 16],
    /// Of the connection.
    pub connection_number: U64,
    /// Where it is.
    pub epoch: U64,
    /// Its own stream; never 0.
    pub sending_stream: U64,
    /// The first position of it that it has.
    pub base: U64,
    /// The end of it.
    pub tail: U64,
    /// The neighbour's stream, as far as it knows; 0 if it knows none.
    pub receiving_stream: U64,
    /// Up to where it has consumed it.
    pub consumed: U64,
    /// Up to where it has received it.
    pub received: U64,
    /// The proof at `consumed`.
    pub digest: U32,
    /// [`SIDE_SHOWS`], or 0.
    pub flags: U32,
    /// How it left the last epoch.
    pub past: Previous,
    /// What it went past last, as a receiver.
    pub skip: SkipFields,
    /// Bytes of its record ring.
    pub ring_bytes: U64,
    /// Bytes of its slab.
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
        ensure(is_owner, "an incarnation that is none", incarnation)?;
        ensure(self.store_id != [0; 16], "a store id of zero", 0)?;
        self.check_views()?;
        let unfit = |(what, found)| FrameFault::Field { what, found };
        self.past.check(epoch).map_err(unfit)?;
        self.skip.check().map_err(unfit)?;
        let skipped = self.skip.epoch.get();
        ensure(skipped <= epoch, "a skip in a later epoch", skipped)?;
        let ring = self.ring_bytes.get();
        let is_ring = RingSize::new(ring).is_some();
        let is_ring = is_ring && (RING_BYTES_MIN..=RING_BYTES_MAX).contains(&ring);
        ensure(is_ring, "a ring of no size", ring)?;
        let slab = self.slab_bytes.get();
        ensure(slab <= SLAB_BYTES_MAX, "a slab of no size", slab)
    }

    fn check_views(&self) -> Result<(), FrameFault> {
        let positions = [
            ("a base that is no position", self.base),
            ("a tail that is no position", self.tail),
            ("a place up to which was consumed that is none", self.consumed),
            ("a place up to which was received that is none", self.received),
        ];
        for (what, position) in positions {
            ensure(is_position(position), what, position.get())?;
        }
        ensure(self.sending_stream.get() != 0, "nothing that is sent", 0)?;
        ensure(self.base <= self.tail, "a base beyond the tail", self.base.get())?;
        let (stream, consumed) = (self.receiving_stream.get(), self.consumed.get());
        let received = self.received.get();
        ensure(stream != 0 || received == 0, "something received of no stream", received)?;
        ensure(consumed <= received, "more consumed than received", consumed)?;
        let digest = self.digest.get();
        ensure(consumed != 0 || digest == 0, "a proof where a stream begins", digest.into())?;
        let flags = self.flags.get();
        ensure(flags & !SIDE_SHOWS == 0, "a flag that is none", flags.into())
    }
}

/// Flag: the side shows its memory, and descriptors come with the first byte of the frame (SPEC 16.2).
pub const SIDE_SHOWS: u32 = 1;
/// As of a file (SPEC 13.6).
pub const SLAB_BYTES_MAX: u64 = 1 << 40;
