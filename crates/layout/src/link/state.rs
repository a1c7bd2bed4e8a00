// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a link: its epoch, its two streams, and the reports for the application (SPEC
//! 13.4).
//!
//! Changes that belong together are stored together: a skipped range and the report of it are in
//! one state image. Chapter 12 of the specification defines the meaning of the state and how it
//! changes. The end of the sent stream is not part of the state: the records determine it.

use super::PAGE_SLOT_STRIDE;
use super::fault::FileFault;
use super::owner::slots;
use super::past::{Previous, is_position};
use super::skip::SkipFields;
use super::slot::{Slot, in_force};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Maximum number of reports for the application that a state image holds until the application has
/// acknowledged them.
pub const REPORTS_MAX: usize = 16;
/// Maximum number of earlier owners of the file whose delivered positions a state image holds.
pub const DELIVERED_MAX: usize = 16;

/// The state image: one of the two slots of the state page in a link's file.
///
/// Each field after its offset in bytes; sizes of longer fields in parentheses:
/// ```text
///  0   sequence        8   epoch
///  16  sending: stream    24 base      32 acked   40 digest at base       44 reports
///  48  receiving: stream  56 consumed             64 digest at consumed   68 quarantine
///  72  peer: incarnation  80 store id (16)
///  96  previous (64)      160 reports (16 × 40)
///  800 skip (48)          848 skip reported (48)
///  896 reports dropped    904 delivered: count    908 zero    912 positions (16 × 8)
///  1040 zero (1000)       2040 seal
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct StateImage {
    /// Sequence number of this state image, from 1. Each later image of the file has a higher
    /// number.
    pub sequence: U64,
    /// The current epoch, chosen by the application; it never decreases.
    pub epoch: U64,
    /// Id of the stream that this side sends in this epoch; 0 before the first epoch.
    pub sending_stream: U64,
    /// The position of the first record that this side keeps to send it again.
    pub sending_base: U64,
    /// The position up to which the peer has consumed the sent stream, as far as this side knows.
    pub sending_acked: U64,
    /// The record digest at `sending_base`.
    pub sending_digest: U32,
    /// The number of valid entries in `reports`.
    pub report_count: U32,
    /// Id of the stream that this side consumes in this epoch; 0 before the first epoch.
    pub receiving_stream: U64,
    /// The position up to which this side had consumed the received stream when it wrote this state
    /// image.
    pub receiving_consumed: U64,
    /// The record digest at `receiving_consumed`.
    pub receiving_digest: U32,
    /// 0 if the link is not quarantined. Otherwise the reason of the quarantine, 1 to 3
    /// ([`IMPOSSIBLE_MAX`]). [`QUARANTINE_RECEIVING`] is added if the reason concerns the received
    /// stream.
    pub quarantine: U32,
    /// The highest incarnation of the peer that has attached; 0 if no peer has.
    pub peer_incarnation: U64,
    /// The store id of the peer; 0 if no peer has attached.
    pub peer_store_id: [u8; 16],
    /// The sent and the received stream of the previous epoch, with their positions.
    pub previous: Previous,
    /// Reports that the application has not acknowledged yet.
    pub reports: [Report; REPORTS_MAX],
    /// The last range of the peer's stream that this side, as its receiver, has skipped.
    pub skip: SkipFields,
    /// The last range of this side's stream that the peer, as its receiver, has skipped, and of
    /// which this side was notified.
    pub skip_reported: SkipFields,
    /// The number of reports that were dropped because `reports` was full.
    pub reports_dropped: U64,
    /// The number of valid positions in `delivered`.
    pub delivered_count: U32,
    /// A reserved field of the state image, always 0.
    pub zero: U32,
    /// For each earlier owner, the position up to which it delivered the receiving stream to its
    /// application.
    pub delivered: [U64; DELIVERED_MAX],
    /// A reserved field of the state image, always 0.
    pub zeros: [u8; 1000],
    /// The seal, stored last: the checksum, and the low half of the sequence number; see [`Slot`].
    pub seal: U64,
}

/// A report for the application: a range of positions that was skipped or dropped, or is in
/// quarantine.
///
/// Each field after its offset in bytes:
/// ```text
///  0  kind    4  flags    8  epoch    16  stream    24  from    32  to
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Report {
    /// The kind of event that happened to the range. 1 gap: the sender no longer had the range. 2
    /// lost: the sender no longer had the stream. 3 undelivered: the epoch ended before the range
    /// was delivered. A range in quarantine has 4, 5 or 6 for the reason 1, 2 or 3 (see
    /// [`IMPOSSIBLE_MAX`]).
    pub kind: U32,
    /// Flags of the report: a union of [`REPORT_RECEIVING`], [`REPORT_INEXACT`] and
    /// [`REPORT_OPEN`].
    pub flags: U32,
    /// The epoch to which the range belongs.
    pub epoch: U64,
    /// Id of the stream to which the range belongs; 0 if the range belongs to no stream.
    pub stream: U64,
    /// First position of the range that the report is about.
    pub from: U64,
    /// The position after the range, as far as this side knows it.
    pub to: U64,
}

/// Flag of [`Report::flags`]: the report concerns the received stream, not the sent stream.
pub const REPORT_RECEIVING: u32 = 1;
/// Flag of [`Report::flags`]: the range `from` to `to` may be larger than what was lost.
pub const REPORT_INEXACT: u32 = 2;
/// Flag of [`Report::flags`], only with [`REPORT_INEXACT`]: the end of the range is unknown, and is
/// at least `to`.
pub const REPORT_OPEN: u32 = 4;

/// The highest value of [`Report::kind`].
pub const REPORT_KIND_MAX: u32 = 6;
/// The highest number of a reason why two stores contradict each other, so that the link is
/// quarantined. Reason 1: the receiver is ahead of the sender. Reason 2: no record of the sender
/// ends at the receiver's position. Reason 3: another record ends at that position of the sender
/// than at that of the receiver.
pub const IMPOSSIBLE_MAX: u32 = 3;
/// Flag of [`StateImage::quarantine`]: the reason concerns the received stream.
pub const QUARANTINE_RECEIVING: u32 = 1 << 8;

const _: () = {
    assert!(size_of::<StateImage>() as u64 == PAGE_SLOT_STRIDE);
    assert!(core::mem::offset_of!(StateImage, epoch) == 8);
    assert!(core::mem::offset_of!(StateImage, sending_stream) == 16);
    assert!(core::mem::offset_of!(StateImage, sending_base) == 24);
    assert!(core::mem::offset_of!(StateImage, sending_acked) == 32);
    assert!(core::mem::offset_of!(StateImage, sending_digest) == 40);
    assert!(core::mem::offset_of!(StateImage, report_count) == 44);
    assert!(core::mem::offset_of!(StateImage, receiving_stream) == 48);
    assert!(core::mem::offset_of!(StateImage, receiving_consumed) == 56);
    assert!(core::mem::offset_of!(StateImage, receiving_digest) == 64);
    assert!(core::mem::offset_of!(StateImage, quarantine) == 68);
    assert!(core::mem::offset_of!(StateImage, peer_incarnation) == 72);
    assert!(core::mem::offset_of!(StateImage, peer_store_id) == 80);
    assert!(core::mem::offset_of!(StateImage, previous) == 96);
    assert!(core::mem::offset_of!(StateImage, reports) == 160);
    assert!(core::mem::offset_of!(StateImage, skip) == 800);
    assert!(core::mem::offset_of!(StateImage, skip_reported) == 848);
    assert!(core::mem::offset_of!(StateImage, reports_dropped) == 896);
    assert!(core::mem::offset_of!(StateImage, delivered_count) == 904);
    assert!(core::mem::offset_of!(StateImage, zero) == 908);
    assert!(core::mem::offset_of!(StateImage, delivered) == 912);
    assert!(core::mem::offset_of!(StateImage, zeros) == 1040);
    assert!(core::mem::offset_of!(StateImage, seal) == 2040);
    assert!(size_of::<Report>() == 40);
    assert!(core::mem::offset_of!(Report, flags) == 4);
    assert!(core::mem::offset_of!(Report, epoch) == 8);
    assert!(core::mem::offset_of!(Report, stream) == 16);
    assert!(core::mem::offset_of!(Report, from) == 24);
    assert!(core::mem::offset_of!(Report, to) == 32);
};

impl StateImage {
    /// The state of a new link file: its epoch is 0, and it has no streams.
    #[must_use]
    pub fn new() -> Self {
        Self { sequence: U64::new(1), ..Self::new_zeroed() }.sealed()
    }

    /// The valid reports of this state image: the first `report_count` entries of the field
    /// `reports`.
    #[must_use]
    pub fn reports(&self) -> &[Report] {
        let count = usize::try_from(self.report_count.get()).unwrap_or(usize::MAX);
        &self.reports[..count.min(REPORTS_MAX)]
    }

    /// The valid delivered positions of this state image: the first `delivered_count` entries of
    /// the field `delivered`.
    #[must_use]
    pub fn delivered(&self) -> &[U64] {
        let count = usize::try_from(self.delivered_count.get()).unwrap_or(usize::MAX);
        &self.delivered[..count.min(DELIVERED_MAX)]
    }

    /// Checks that the fields of this state image do not contradict each other. Positions must be
    /// in order and multiples of a slot, and no field may be set without the fields that it depends
    /// on.
    ///
    /// # Errors
    /// [`FileFault::Contradiction`], naming the broken rule.
    pub fn check(&self) -> Result<(), FileFault> {
        self.check_streams()?;
        let peer = self.peer_incarnation.get();
        let is_peer_known = self.peer_store_id != [0; 16];
        ensure(is_peer_known == (peer != 0), "a peer without a store id or incarnation", peer)?;
        let quarantine = self.quarantine.get();
        let is_reason = (1..=IMPOSSIBLE_MAX).contains(&(quarantine & !QUARANTINE_RECEIVING));
        ensure(
            quarantine == 0 || is_reason,
            "a quarantine without a valid reason",
            quarantine.into(),
        )?;
        let epoch = self.epoch.get();
        self.previous.check(epoch).or_else(|(what, found)| ensure(false, what, found))?;
        for skip in [&self.skip, &self.skip_reported] {
            skip.check().or_else(|(what, found)| ensure(false, what, found))?;
        }
        let skipped = self.skip.epoch.get();
        ensure(skipped <= epoch, "a skip in a later epoch", skipped)?;
        let count = self.report_count.get();
        ensure(
            count as usize <= REPORTS_MAX,
            "a number of reports beyond the maximum",
            count.into(),
        )?;
        self.reports().iter().try_for_each(Report::check)?;
        self.check_delivered()
    }

    fn check_streams(&self) -> Result<(), FileFault> {
        let positions = [
            ("a base that is not a position", self.sending_base),
            ("an acknowledgement that is not a position", self.sending_acked),
            ("a consumed position that is not a position", self.receiving_consumed),
        ];
        for (what, position) in positions {
            ensure(is_position(position), what, position.get())?;
        }
        let (base, acked) = (self.sending_base.get(), self.sending_acked.get());
        ensure(base <= acked, "a base beyond the acknowledged position", base)?;
        let is_sending = self.sending_stream.get() != 0;
        ensure(is_sending || acked == 0, "an acknowledged position without a stream", acked)?;
        let (stream, consumed) = (self.receiving_stream.get(), self.receiving_consumed.get());
        ensure(stream != 0 || consumed == 0, "a consumed position without a stream", consumed)?;
        let proofs = [(base, self.sending_digest), (consumed, self.receiving_digest)];
        proofs.into_iter().try_for_each(|(position, digest)| {
            let is_possible = position != 0 || digest.get() == 0;
            ensure(is_possible, "a record digest at the start of a stream", digest.get().into())
        })
    }

    fn check_delivered(&self) -> Result<(), FileFault> {
        let count = self.delivered_count.get();
        let is_room = count as usize <= DELIVERED_MAX;
        ensure(is_room, "a number of deliveries beyond the maximum", count.into())?;
        let is_receiving = self.receiving_stream.get() != 0;
        ensure(is_receiving || count == 0, "a delivered position without a stream", count.into())?;
        self.delivered().iter().try_for_each(|position| {
            ensure(
                is_position(*position),
                "a delivered position that is not a position",
                position.get(),
            )
        })
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

impl Report {
    fn check(&self) -> Result<(), FileFault> {
        let (kind, flags) = (self.kind.get(), self.flags.get());
        let is_kind = (1..=REPORT_KIND_MAX).contains(&kind);
        ensure(is_kind, "a report of an unknown kind", kind.into())?;
        let is_known = flags & !(REPORT_RECEIVING | REPORT_INEXACT | REPORT_OPEN) == 0;
        let is_possible = flags & REPORT_OPEN == 0 || flags & REPORT_INEXACT != 0;
        ensure(is_known && is_possible, "a report with invalid flags", flags.into())?;
        for position in [self.from, self.to] {
            ensure(
                is_position(position),
                "a report at an offset that is not a position",
                position.get(),
            )?;
        }
        ensure(self.from <= self.to, "a report whose end is before its start", self.to.get())
    }
}

fn ensure(holds: bool, what: &'static str, found: u64) -> Result<(), FileFault> {
    if holds { Ok(()) } else { Err(FileFault::Contradiction { what, found }) }
}

/// Checks the state page of a link's file, and returns the newest state image.
///
/// # Errors
/// [`FileFault::StateDamaged`] if damage hides which slot is the newest;
/// [`FileFault::Contradiction`] if fields of the newest image contradict each other.
pub fn check(page: &[u8]) -> Result<StateImage, FileFault> {
    let [first, second] = slots(page, size_of::<StateImage>()).ok_or(FileFault::StateDamaged)?;
    let state: StateImage = in_force(first, second).ok_or(FileFault::StateDamaged)?;
    state.check()?;
    Ok(state)
}
