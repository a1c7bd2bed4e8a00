// SPDX-License-Identifier: MIT OR Apache-2.0
//! The decision how one direction of a link resumes after a new connection, as that direction's
//! sender made it (SPEC 12.3, 15.3).
//!
//! ```text
//!  kind           fields that the kind uses; the other fields are 0
//!  1 resume       at: the position where the direction resumes
//!  2 gap          digest, from, to: the range that the receiver skips
//!  3 lost         digest, of, from, to, at: the position where the direction resumes
//!  4 impossible   at: the reason why the direction cannot resume
//!  5 new epoch    at: the new epoch
//! ```
//!
//! `reconcile` checks whether the decision follows from the identities and positions that both
//! sides sent; this file does not.

use super::{FrameFault, ensure};
use crate::link::past::is_position;
use crate::link::state::IMPOSSIBLE_MAX;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The fields of a decision how one direction of a link resumes.
///
/// Each field after its offset in bytes:
/// ```text
///  0  kind    4  digest   8  of    16  from    24  to    32  at    40
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DecisionFields {
    /// The kind of the decision: one of `DECISION_…`.
    pub kind: U32,
    /// The record digest at the position where the direction resumes; 0 unless a range is skipped.
    pub digest: U32,
    /// Id of the stream whose records are lost; 0 unless the kind is [`DECISION_LOST`].
    pub of: U64,
    /// First position of the range of the stream that the receiver will not get, because the sender
    /// no longer has it.
    pub from: U64,
    /// The position at which the range that the receiver will not get ends.
    pub to: U64,
    /// The position where the direction resumes, the reason (1 to 3) why it cannot resume, or the
    /// new epoch, depending on the kind.
    pub at: U64,
}

/// [`DecisionFields::kind`]: the direction resumes at the receiver's position.
pub const DECISION_RESUME: u32 = 1;
/// [`DecisionFields::kind`]: the direction resumes after a range that the sender no longer has, and
/// that the receiver skips.
pub const DECISION_GAP: u32 = 2;
/// [`DecisionFields::kind`]: the sender no longer has the receiver's stream, so the direction
/// resumes with another stream.
pub const DECISION_LOST: u32 = 3;
/// [`DecisionFields::kind`]: the direction cannot resume, because the positions or record digests
/// of both sides contradict each other.
pub const DECISION_IMPOSSIBLE: u32 = 4;
/// [`DecisionFields::kind`]: the direction does not resume yet, because one side is in a higher
/// epoch.
pub const DECISION_NEW_EPOCH: u32 = 5;

const _: () = {
    assert!(size_of::<DecisionFields>() == 40);
    assert!(core::mem::offset_of!(DecisionFields, digest) == 4);
    assert!(core::mem::offset_of!(DecisionFields, of) == 8);
    assert!(core::mem::offset_of!(DecisionFields, from) == 16);
    assert!(core::mem::offset_of!(DecisionFields, to) == 24);
    assert!(core::mem::offset_of!(DecisionFields, at) == 32);
};

impl DecisionFields {
    pub(super) fn check(&self) -> Result<(), FrameFault> {
        let (kind, of, at) = (self.kind.get(), self.of.get(), self.at.get());
        let is_skip = kind == DECISION_GAP || kind == DECISION_LOST;
        let is_kind = (DECISION_RESUME..=DECISION_NEW_EPOCH).contains(&kind);
        ensure(is_kind, "unknown decision kind", kind.into())?;
        let (from, to, digest) = (self.from.get(), self.to.get(), self.digest.get());
        let is_plain = from == 0 && to == 0 && digest == 0;
        ensure(is_skip || is_plain, "a range in a decision without a skip", to)?;
        ensure(
            (kind == DECISION_LOST) == (of != 0),
            "a stream id that does not fit the decision",
            of,
        )?;
        for position in [self.from, self.to] {
            ensure(
                is_position(position),
                "a field of the decision is not a position",
                position.get(),
            )?;
        }
        ensure(from <= to, "the range of the decision ends before it begins", to)?;
        match kind {
            DECISION_GAP => ensure(at == 0, "a gap with a second end", at)?,
            DECISION_IMPOSSIBLE => {
                let is_reason = (1..=u64::from(IMPOSSIBLE_MAX)).contains(&at);
                ensure(is_reason, "unknown reason of an impossible resume", at)?;
            }
            DECISION_RESUME | DECISION_LOST => {
                ensure(is_position(self.at), "the resume position is not a position", at)?;
            }
            _ => {}
        }
        let resumed = if kind == DECISION_GAP { to } else { at };
        ensure(
            digest == 0 || resumed != 0,
            "a record digest at the start of a stream",
            digest.into(),
        )
    }
}
