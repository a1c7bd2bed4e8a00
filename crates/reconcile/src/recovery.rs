// SPDX-License-Identifier: MIT OR Apache-2.0
//! What had been consumed when a side ended in the middle of a commit (SPEC 12.5).
//!
//! ```text
//!  consume alone          stored := mark
//!  consume and produce    the reply's one publishing store               │ commits both: the mark is in the reply
//!                         stored := mark                                 │ any time before the reply is trimmed
//! ```
//!
//! The mark in the reply's record is what was prepared: whoever recovers makes a [`Prepared`] of the last own committed record
//! that carries a mark of the stored mark's stream. It carries the proof, which cannot be found anywhere else after a
//! crash: the record that it proves is the neighbour's. Where it is stored apart from the reply, that is done before, and
//! has no effect until the reply is published; this function does not care. The highest acknowledgement that the neighbour saw is *not* used: if this memory went
//! back, it would skip in silence what the application here has forgotten.

use crate::position::{AckedOffset, Position};

/// A consume that a reply will commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prepared {
    /// What will have been consumed.
    pub acked_offset: AckedOffset,
    /// Where the reply begins, in this side's own stream.
    pub reply_at: Position,
}

/// How far this side has consumed.
///
/// `ack_at` gives the `ack_pos` of the own committed record that begins at a position, if there is one.
///
/// ```
/// use partywall_reconcile::recovery::{recover, Prepared};
/// use partywall_reconcile::{AckedOffset, Position, RecordDigest, StreamId};
/// let stream = StreamId::new(7).ok_or("zero")?;
/// let acked_offset = |position, digest| AckedOffset { stream, position: Position(position), digest: RecordDigest(digest) };
/// let prepared = Prepared { acked_offset: acked_offset(64, 9), reply_at: Position(128) };
/// assert_eq!(recover(Some(acked_offset(0, 0)), Some(prepared), |_| None), Some(acked_offset(0, 0)));
/// assert_eq!(recover(Some(acked_offset(0, 0)), Some(prepared), |_| Some(Position(64))), Some(acked_offset(64, 9)));
/// # Ok::<(), &'static str>(())
/// ```
#[must_use]
pub fn recover(
    stored: Option<AckedOffset>,
    prepared: Option<Prepared>,
    ack_at: impl FnOnce(Position) -> Option<Position>,
) -> Option<AckedOffset> {
    let (Some(old), Some(new)) = (stored, prepared) else { return stored };
    if new.acked_offset.stream != old.stream || new.acked_offset.position <= old.position {
        return stored;
    }
    match ack_at(new.reply_at) {
        Some(ack) if ack >= new.acked_offset.position => Some(new.acked_offset),
        _ => stored,
    }
}
