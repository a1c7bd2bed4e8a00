// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a link: its epoch, its two streams, and what the application has still to be told (SPEC 13.4).
//!
//! What belongs together is committed together: a position that is skipped and the report that says so are one
//! image. What the state means to the neighbour, and how it changes, is chapter 12 of the specification.

use super::PAGE_SLOT_STRIDE;
use super::fault::FileFault;
use super::owner::slots;
use super::slot::{Slot, in_force};
use crate::ring::SLOT_BYTES;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Reports that a state has room for.
pub const REPORTS_MAX: usize = 16;

/// One slot of the state page.
///
/// ```text
///  0   sequence        8   epoch
///  16  sending: stream         24  base          32  acked       40  proof at base   44  reports
///  48  receiving: stream       56  consumed      64  proof at consumed               68  zero
///  72  peer: incarnation       80  lineage (16)
///  96  previous (64)           160 reports (16 × 40)
///  800 zero (1240)             2040 seal
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct StateImage {
    /// Rises with each image, from 1.
    pub sequence: U64,
    /// Chosen by the application; only rises.
    pub epoch: U64,
    /// The stream that this side sends in this epoch; 0 before there is one.
    pub sending_stream: U64,
    /// The records from here on are kept.
    pub sending_base: U64,
    /// Up to here the neighbour has consumed, as far as is known.
    pub sending_acked: U64,
    /// What proves the bytes before the base.
    pub sending_proof: U32,
    /// How many of the reports mean something.
    pub report_count: U32,
    /// The stream that this side consumes in this epoch; 0 before it has consumed from one.
    pub receiving_stream: U64,
    /// Up to where it was consumed when this image was made.
    pub receiving_consumed: U64,
    /// What proves the bytes before that.
    pub receiving_proof: U32,
    /// Always 0.
    pub zero: U32,
    /// The highest incarnation of the neighbour that was seen; 0 if none was.
    pub peer_incarnation: U64,
    /// The lineage of the neighbour's file; 0 if it was never seen.
    pub peer_lineage: [u8; 16],
    /// The streams of the epoch before.
    pub previous: Previous,
    /// What the application has not yet taken notice of.
    pub reports: [Report; REPORTS_MAX],
    /// Always 0.
    pub zeros: [u8; 1240],
    /// See [`Slot`].
    pub seal: U64,
}

/// The streams of the epoch before this one, until they are settled with the neighbour.
///
/// ```text
///  0  flags   8  epoch   16  sending stream   24  base   32  acked   40  tail   48  receiving stream   56  consumed
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Previous {
    /// 0: there is none, and all else is 0. 1: there is.
    pub flags: U64,
    /// Its number.
    pub epoch: U64,
    /// What this side sent in it.
    pub sending_stream: U64,
    /// From here on its records were kept.
    pub base: U64,
    /// Up to here the neighbour had consumed it, as far as is known.
    pub acked: U64,
    /// Its end.
    pub tail: U64,
    /// What this side consumed in it.
    pub receiving_stream: U64,
    /// Up to where.
    pub consumed: U64,
}

/// A range of positions that were skipped or dropped.
///
/// ```text
///  0  kind    4  flags    8  epoch    16  stream    24  from    32  to
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Report {
    /// 1 gap, 2 lost, 3 new epoch; a higher number is of a later version, and kept.
    pub kind: U32,
    /// [`REPORT_RECEIVING`], [`REPORT_INEXACT`].
    pub flags: U32,
    /// In which epoch.
    pub epoch: U64,
    /// Of which stream.
    pub stream: U64,
    /// The first position.
    pub from: U64,
    /// The position behind the last.
    pub to: U64,
}

/// Flag of a [`Report`]: it concerns what this side receives, not what it sends.
pub const REPORT_RECEIVING: u32 = 1;
/// Flag of a [`Report`]: the range is what is known; it may have been less.
pub const REPORT_INEXACT: u32 = 2;

const _: () = {
    assert!(size_of::<StateImage>() as u64 == PAGE_SLOT_STRIDE);
    assert!(core::mem::offset_of!(StateImage, epoch) == 8);
    assert!(core::mem::offset_of!(StateImage, sending_stream) == 16);
    assert!(core::mem::offset_of!(StateImage, sending_base) == 24);
    assert!(core::mem::offset_of!(StateImage, sending_acked) == 32);
    assert!(core::mem::offset_of!(StateImage, sending_proof) == 40);
    assert!(core::mem::offset_of!(StateImage, report_count) == 44);
    assert!(core::mem::offset_of!(StateImage, receiving_stream) == 48);
    assert!(core::mem::offset_of!(StateImage, receiving_consumed) == 56);
    assert!(core::mem::offset_of!(StateImage, receiving_proof) == 64);
    assert!(core::mem::offset_of!(StateImage, zero) == 68);
    assert!(core::mem::offset_of!(StateImage, peer_incarnation) == 72);
    assert!(core::mem::offset_of!(StateImage, peer_lineage) == 80);
    assert!(core::mem::offset_of!(StateImage, previous) == 96);
    assert!(core::mem::offset_of!(StateImage, reports) == 160);
    assert!(core::mem::offset_of!(StateImage, zeros) == 800);
    assert!(core::mem::offset_of!(StateImage, seal) == 2040);
    assert!(size_of::<Previous>() == 64);
    assert!(core::mem::offset_of!(Previous, epoch) == 8);
    assert!(core::mem::offset_of!(Previous, sending_stream) == 16);
    assert!(core::mem::offset_of!(Previous, base) == 24);
    assert!(core::mem::offset_of!(Previous, acked) == 32);
    assert!(core::mem::offset_of!(Previous, tail) == 40);
    assert!(core::mem::offset_of!(Previous, receiving_stream) == 48);
    assert!(core::mem::offset_of!(Previous, consumed) == 56);
    assert!(size_of::<Report>() == 40);
    assert!(core::mem::offset_of!(Report, flags) == 4);
    assert!(core::mem::offset_of!(Report, epoch) == 8);
    assert!(core::mem::offset_of!(Report, stream) == 16);
    assert!(core::mem::offset_of!(Report, from) == 24);
    assert!(core::mem::offset_of!(Report, to) == 32);
};

impl StateImage {
    /// What the maker of a file leaves: no epoch, no streams.
    #[must_use]
    pub fn new() -> Self {
        Self { sequence: U64::new(1), ..Self::new_zeroed() }.sealed()
    }

    /// The reports that mean something.
    #[must_use]
    pub fn reports(&self) -> &[Report] {
        let count = usize::try_from(self.report_count.get()).unwrap_or(usize::MAX);
        &self.reports[..count.min(REPORTS_MAX)]
    }

    /// Whether this state can be: positions at slots and in their order, nothing without what it belongs to.
    ///
    /// # Errors
    /// [`FileFault::Contradiction`], naming what is wrong.
    pub fn check(&self) -> Result<(), FileFault> {
        let old = &self.previous;
        let positions = [
            ("a base that is no position", self.sending_base),
            ("an acknowledgement that is no position", self.sending_acked),
            ("a place up to which can be consumed that is none", self.receiving_consumed),
            ("a base of the previous epoch that is no position", old.base),
            ("an acknowledgement of the previous epoch that is no position", old.acked),
            ("an end of the previous epoch that is no position", old.tail),
            ("a place in the previous epoch that is no position", old.consumed),
        ];
        for (what, position) in positions {
            ensure(position.get() % SLOT_BYTES == 0, what, position.get())?;
        }
        let (base, acked) = (self.sending_base.get(), self.sending_acked.get());
        ensure(base <= acked, "the base is beyond what was acknowledged", base)?;
        let is_sending = self.sending_stream.get() != 0;
        ensure(is_sending || acked == 0, "acknowledged without a stream", acked)?;
        let (stream, consumed) = (self.receiving_stream.get(), self.receiving_consumed.get());
        ensure(stream != 0 || consumed == 0, "consumed without a stream", consumed)?;
        let peer = self.peer_incarnation.get();
        let is_peer_known = self.peer_lineage != [0; 16];
        ensure(is_peer_known == (peer != 0), "a peer without lineage or incarnation", peer)?;
        old.check(self.epoch.get())?;
        let count = self.report_count.get();
        ensure(count as usize <= REPORTS_MAX, "more reports than there is room for", count.into())?;
        self.reports().iter().try_for_each(|report| report.check(self.epoch.get()))
    }
}

impl Default for StateImage {
    fn default() -> Self {
        Self::new()
    }
}

impl Slot for StateImage {
    fn sequence(&self) -> u64 {
        self.sequence.get()
    }
}

impl Previous {
    /// Whether there is a previous epoch that is not settled.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.flags.get() == 1
    }

    fn check(&self, epoch: u64) -> Result<(), FileFault> {
        if self.flags.get() == 0 {
            let is_empty = self.as_bytes().iter().all(|byte| *byte == 0);
            return ensure(is_empty, "a previous epoch that is none", self.epoch.get());
        }
        ensure(self.is_there(), "a previous epoch of no kind", self.flags.get())?;
        let own = self.epoch.get();
        ensure(own < epoch, "the previous epoch is not before this one", own)?;
        let (base, acked, tail) = (self.base.get(), self.acked.get(), self.tail.get());
        ensure(
            base <= acked && acked <= tail,
            "the previous stream's places are not in order",
            tail,
        )?;
        let is_sending = self.sending_stream.get() != 0;
        ensure(is_sending || tail == 0, "a previous end without a stream", tail)?;
        let (stream, consumed) = (self.receiving_stream.get(), self.consumed.get());
        ensure(stream != 0 || consumed == 0, "consumed of no previous stream", consumed)
    }
}

impl Report {
    fn check(&self, epoch: u64) -> Result<(), FileFault> {
        let kind = u64::from(self.kind.get());
        ensure(kind != 0, "a report of no kind", kind)?;
        ensure(self.epoch.get() <= epoch, "a report of a later epoch", self.epoch.get())?;
        ensure(self.from <= self.to, "a report of less than nothing", self.to.get())
    }
}

fn ensure(holds: bool, what: &'static str, found: u64) -> Result<(), FileFault> {
    if holds { Ok(()) } else { Err(FileFault::Contradiction { what, found }) }
}

/// The state in force on the state page.
///
/// # Errors
/// [`FileFault::StateDamaged`], [`FileFault::Contradiction`].
pub fn check(page: &[u8]) -> Result<StateImage, FileFault> {
    let [first, second] = slots(page, size_of::<StateImage>()).ok_or(FileFault::StateDamaged)?;
    let state: StateImage = in_force(first, second).ok_or(FileFault::StateDamaged)?;
    state.check()?;
    Ok(state)
}
