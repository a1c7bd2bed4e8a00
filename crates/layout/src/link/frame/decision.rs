// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a direction goes on, as its sender decided (SPEC 12.3, 15.3).
//!
//! ```text
//!              proof   of   from   to   at
//!  1 resume                             position
//!  2 gap         ●            ●     ●
//!  3 lost        ●      ●     ●     ●   position
//!  4 impossible                         why
//!  5 new epoch                          epoch           what has no meaning is 0
//! ```
//!
//! Whether it follows from the views is for `reconcile`.

use super::{FrameFault, ensure};
use crate::link::past::is_position;
use crate::link::state::IMPOSSIBLE_MAX;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A decision.
///
/// ```text
///  0  kind    4  proof    8  of    16  from    24  to    32  at    40
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DecisionFields {
    /// `DECISION_…`.
    pub kind: U32,
    /// At the position that is gone on with.
    pub digest: U32,
    /// The stream that was lost.
    pub of: U64,
    /// The first position that the receiver will not get.
    pub from: U64,
    /// The position behind the last.
    pub to: U64,
    /// The position that is gone on with; or why not, 1 to 3; or the epoch.
    pub at: U64,
}

/// [`DecisionFields::kind`]: at the position that the receiver had reached.
pub const DECISION_RESUME: u32 = 1;
/// [`DecisionFields::kind`]: at the end of the range.
pub const DECISION_GAP: u32 = 2;
/// [`DecisionFields::kind`]: with another stream.
pub const DECISION_LOST: u32 = 3;
/// [`DecisionFields::kind`]: not at all.
pub const DECISION_IMPOSSIBLE: u32 = 4;
/// [`DecisionFields::kind`]: not yet, because one side is in a higher epoch.
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
        ensure(is_kind, "a decision of no kind", kind.into())?;
        let (from, to, digest) = (self.from.get(), self.to.get(), self.digest.get());
        let is_plain = from == 0 && to == 0 && digest == 0;
        ensure(is_skip || is_plain, "a range in a decision that skips nothing", to)?;
        ensure((kind == DECISION_LOST) == (of != 0), "a decision about no such stream", of)?;
        for position in [self.from, self.to] {
            ensure(is_position(position), "a decision about no position", position.get())?;
        }
        ensure(from <= to, "a decision about less than nothing", to)?;
        match kind {
            DECISION_GAP => ensure(at == 0, "a second end of a gap", at)?,
            DECISION_IMPOSSIBLE => {
                let is_reason = (1..=u64::from(IMPOSSIBLE_MAX)).contains(&at);
                ensure(is_reason, "an impossibility that is none", at)?;
            }
            DECISION_RESUME | DECISION_LOST => {
                ensure(is_position(self.at), "a place to go on that is none", at)?;
            }
            _ => {}
        }
        let resumed = if kind == DECISION_GAP { to } else { at };
        ensure(digest == 0 || resumed != 0, "a proof where a stream begins", digest.into())
    }
}
