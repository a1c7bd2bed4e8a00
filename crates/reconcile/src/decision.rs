// SPDX-License-Identifier: MIT OR Apache-2.0
//! What comes out of reconciling one direction, and what the receiver does about it (SPEC 12.3).
//!
//! ```text
//!  sender: reconcile(own view, receiver's view) ──decision──▶ receiver: check, apply, one commit
//! ```
//!
//! The sender decides because it has the records. The receiver believes it only as far as
//! [`Decision::check`] goes, and only if it is still where its view said it was.

use crate::identity::{Epoch, StreamId};
use crate::position::{AckedOffset, Position, Range, RecordDigest};
use crate::skip::Skip;
use crate::views::{ReceiverView, SenderView};

/// How one direction goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// At this position, which the receiver had reached.
    Resume(Position),
    /// At the end of this range: the sender no longer has it. `digest` is what identifies the record that ends there.
    Gap {
        /// What the receiver will not get.
        range: Range,
        /// The proof at its end.
        digest: RecordDigest,
    },
    /// With another stream, because the sender's memory was lost.
    Lost {
        /// The stream that the receiver knew.
        of: StreamId,
        /// From where it had consumed it to where it had received it.
        range: Range,
        /// Where the new stream goes on: at its base.
        resume: Position,
        /// The proof at `resume`.
        digest: RecordDigest,
    },
    /// Not at all: the views contradict each other.
    Impossible(Impossible),
    /// Not yet: the side that is behind adopts this epoch first.
    NewEpoch(Epoch),
}

/// Why a link is quarantined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Impossible {
    /// The receiver has what the sender has not yet written: the sender's memory went back.
    ReceiverAhead,
    /// What the receiver consumed does not end where any record of the sender does.
    NoBoundary,
    /// The record that ends there is another one.
    OtherRecord,
}

impl Decision {
    /// Where the first record of the connection will be, if there is to be one.
    #[must_use]
    pub const fn resume_at(&self) -> Option<Position> {
        match self {
            Self::Resume(position) => Some(*position),
            Self::Gap { range, .. } => Some(range.to()),
            Self::Lost { resume, .. } => Some(*resume),
            Self::Impossible(_) | Self::NewEpoch(_) => None,
        }
    }

    /// Whether the sender with this view may decide so about the receiver with that view.
    ///
    /// # Errors
    /// [`Unfit::Contradiction`]: a violation by the sender; the connection is closed, nothing was changed.
    pub fn check(&self, sender: &SenderView, receiver: &ReceiverView) -> Result<(), Unfit> {
        // Only the sender knows its records, so what they prove is taken from its decision.
        let digest = match (self, receiver.consumed()) {
            (Self::Resume(_), Some(acked_offset)) => Some(acked_offset.digest),
            (Self::Resume(_), None) => Some(RecordDigest::START),
            (Self::Gap { digest, .. } | Self::Lost { digest, .. }, _) => Some(*digest),
            (Self::Impossible(Impossible::OtherRecord), Some(acked_offset)) => {
                Some(RecordDigest(!acked_offset.digest.0))
            }
            _ => None,
        };
        let expected = crate::reconcile(sender, receiver, |_| digest);
        if expected == *self { Ok(()) } else { Err(Unfit::Contradiction) }
    }

    /// Whether the sender can still do what it decided some time ago, now that it keeps records from `base` on.
    ///
    /// It may have trimmed since, because an old connection acknowledged. If that came from the very incarnation that attaches
    /// (`continuous`), the receiver knows what was trimmed; else it may be one that has forgotten: attach again.
    #[must_use]
    pub fn stands(&self, base: Position, continuous: bool) -> bool {
        self.resume_at().is_some_and(|resume| resume >= base || continuous)
    }

    /// What the receiver is after it took this decision: one commit stores all of it.
    ///
    /// `given` is the view that the decision answers, `now` the receiver's present one. `continuous` says whether what was
    /// consumed in between came from the very incarnation of the sender that decided; then a receiver may have gone on, and
    /// drops the records it knows by their position.
    ///
    /// # Errors
    /// [`Unfit::Contradiction`] as [`check`](Self::check); [`Unfit::Moved`]: attach again, with a new view.
    /// Impossible decisions and those for another epoch are not applied: [`Unfit::NoStream`].
    pub fn apply(
        &self,
        sender: &SenderView,
        given: &ReceiverView,
        now: &ReceiverView,
        continuous: bool,
    ) -> Result<Applied, Unfit> {
        self.check(sender, given)?;
        let resume = self.resume_at().ok_or(Unfit::NoStream)?;
        let (then, at) = (given.consumed(), now.consumed());
        if given.epoch() != now.epoch() || (then != at && !(continuous && self.goes_on(then, at))) {
            return Err(Unfit::Moved);
        }
        let start = |digest| AckedOffset { stream: sender.stream(), position: resume, digest };
        let consumed = match *self {
            Self::Gap { digest, .. } | Self::Lost { digest, .. } => start(digest),
            _ => at.unwrap_or(start(RecordDigest::START)),
        };
        Ok(Applied { consumed, skip: self.skip(sender) })
    }

    /// What the receiver goes past when it applies this decision of `sender`.
    #[must_use]
    pub fn skip(&self, sender: &SenderView) -> Option<Skip> {
        let (epoch, into) = (sender.epoch(), sender.stream());
        match *self {
            Self::Gap { range, .. } => {
                Some(Skip { epoch, of: into, into, range, resume: range.to() })
            }
            Self::Lost { of, range, resume, .. } => Some(Skip { epoch, of, into, range, resume }),
            _ => None,
        }
    }

    /// Whether a receiver that was at `then` could have come to `at` on the stream that is resumed.
    fn goes_on(&self, then: Option<AckedOffset>, at: Option<AckedOffset>) -> bool {
        match (self, then, at) {
            (Self::Resume(_), Some(then), Some(at)) => {
                then.stream == at.stream && then.position <= at.position
            }
            _ => false,
        }
    }
}

/// What a receiver stores in one commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Applied {
    /// How far it has now consumed.
    pub consumed: AckedOffset,
    /// What it went past: kept in place of the former skip, and reported.
    pub skip: Option<Skip>,
}

/// Why a decision is not applied. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unfit {
    /// It does not follow from the two views: a violation by the sender.
    Contradiction,
    /// The receiver is no longer where its view said it was: attach again.
    Moved,
    /// It begins no stream.
    NoStream,
}
