// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides where one direction of a link resumes after a disconnect (SPEC 12.3). The input is two
//! views: what the sender and the receiver say of the stream. The receiver checks and applies the
//! decision.
//!
//! ```text
//!  The sender keeps the records from base to tail. The receiver
//!    has received beyond tail             Impossible
//!    has consumed to a point before base  Gap: the positions from that point to base are skipped
//!    has consumed from base to tail       Resume, if a record with the receiver's digest ends
//!                                         at that position; Impossible otherwise
//!    has consumed another stream          Lost
//!    knows no stream                      Resume at position 0, or Gap from position 0 to base
//!    is in another epoch                  NewEpoch
//!
//!  sender: reconcile(own view, receiver's view) ──decision──▶ receiver: check, apply, one update
//! ```
//!
//! [`reconcile`] is total: every pair of views has a decision. It reads the sender's records only
//! through the closure `digest_at`, so transports, tools and the model can all call it.
//!
//! The sender decides, because it has the records. The receiver accepts the decision only if
//! [`Decision::check`] succeeds. Its own state must also still be the state of the view that it
//! sent.

use crate::identity::{Epoch, StreamId};
use crate::position::{AckedOffset, Position, Range, RecordDigest};
use crate::report::Impossible;
use crate::skip::Skip;
use crate::views::{ReceiverView, SenderView};

/// Decides how a direction of a link resumes, from the sender's view and the receiver's view.
///
/// `digest_at` is called at most once, for a position from base to tail. It returns the digest at
/// that position, or `None` if no record begins or ends there. It must return a digest for the
/// base.
///
/// ```
/// use partywall_reconcile::{AckedOffset, Decision, Epoch, Position, ReceiverView};
/// use partywall_reconcile::{RecordDigest, SenderView, StreamId, reconcile};
/// let stream = StreamId::new(7).ok_or("zero")?;
/// let sender = SenderView::new(Epoch(1), stream, Position(64), Position(192))?;
/// let acked_offset = AckedOffset { stream, position: Position(128), digest: RecordDigest(5) };
/// let receiver = ReceiverView::new(Epoch(1), Some(acked_offset), Position(128), None)?;
/// let digest_at = |at| (at == Position(128)).then_some(RecordDigest(5));
/// let decision = reconcile(&sender, &receiver, digest_at);
/// assert_eq!(decision, Decision::Resume(Position(128)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn reconcile(
    sender: &SenderView,
    receiver: &ReceiverView,
    digest_at: impl FnOnce(Position) -> Option<RecordDigest>,
) -> Decision {
    if sender.epoch() != receiver.epoch() {
        return Decision::NewEpoch(sender.epoch().max(receiver.epoch()));
    }
    match receiver.consumed() {
        None => from_the_start(sender, digest_at),
        Some(acked_offset) if acked_offset.stream == sender.stream() => {
            same_stream(sender, acked_offset, receiver.received(), digest_at)
        }
        Some(acked_offset) => Decision::Lost {
            of: acked_offset.stream,
            range: Range::clamped(acked_offset.position, receiver.received()),
            resume: sender.base(),
            digest: digest_at(sender.base()).unwrap_or_default(),
        },
    }
}

fn from_the_start(
    sender: &SenderView,
    digest_at: impl FnOnce(Position) -> Option<RecordDigest>,
) -> Decision {
    if sender.base() == Position::START {
        return Decision::Resume(Position::START);
    }
    gap(Position::START, sender, digest_at)
}

fn same_stream(
    sender: &SenderView,
    acked_offset: AckedOffset,
    received: Position,
    digest_at: impl FnOnce(Position) -> Option<RecordDigest>,
) -> Decision {
    // A sender stores records before it sends them, so no receiver can have a record beyond the
    // tail.
    if received > sender.tail() {
        return Decision::Impossible(Impossible::ReceiverAhead);
    }
    if acked_offset.position < sender.base() {
        return gap(acked_offset.position, sender, digest_at);
    }
    match digest_at(acked_offset.position) {
        None => Decision::Impossible(Impossible::NoBoundary),
        Some(digest) if digest != acked_offset.digest => {
            Decision::Impossible(Impossible::OtherRecord)
        }
        Some(_) => Decision::Resume(acked_offset.position),
    }
}

fn gap(
    from: Position,
    sender: &SenderView,
    digest_at: impl FnOnce(Position) -> Option<RecordDigest>,
) -> Decision {
    let digest = digest_at(sender.base()).unwrap_or_default();
    Decision::Gap { range: Range::clamped(from, sender.base()), digest }
}

/// How one direction of a link resumes after a disconnect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// The direction resumes at this position, up to which the receiver had consumed.
    Resume(Position),
    /// The direction resumes at the end of this range, because the sender no longer has the records
    /// of the range.
    Gap {
        /// The positions between the receiver's and the sender's records, which the receiver will
        /// not get.
        range: Range,
        /// The digest of the sender's record that ends at the end of the range.
        digest: RecordDigest,
    },
    /// The direction begins anew with another stream id, because the sender has lost its store.
    Lost {
        /// The id of the stream that the receiver consumed before, and that the sender has lost.
        of: StreamId,
        /// The positions of the stream `of` that the receiver received but did not consume.
        range: Range,
        /// The position where the new stream resumes: its base, the first position that the sender
        /// still has.
        resume: Position,
        /// The digest of the record that ends at `resume`.
        digest: RecordDigest,
    },
    /// The direction cannot resume: the views of sender and receiver contradict each other.
    Impossible(Impossible),
    /// The direction does not resume yet: the side with the lower epoch takes over this epoch
    /// first.
    NewEpoch(Epoch),
}

impl Decision {
    /// The position at which the first record on this connection begins in the direction; `None` if
    /// no records can flow.
    #[must_use]
    pub const fn resume_at(&self) -> Option<Position> {
        match self {
            Self::Resume(position) => Some(*position),
            Self::Gap { range, .. } => Some(range.to()),
            Self::Lost { resume, .. } => Some(*resume),
            Self::Impossible(_) | Self::NewEpoch(_) => None,
        }
    }

    /// Checks that this decision follows from the two views: the sender's view `sender` and the
    /// receiver's view `receiver`. The receiver calls it before it applies the decision.
    ///
    /// # Errors
    /// [`Unfit::Contradiction`]: a violation by the sender. The caller closes the connection; no
    /// state was changed.
    pub fn check(&self, sender: &SenderView, receiver: &ReceiverView) -> Result<(), Unfit> {
        // Only the sender knows its records, so the check takes their digests from the decision.
        let digest = match (self, receiver.consumed()) {
            (Self::Resume(_), Some(acked_offset)) => Some(acked_offset.digest),
            (Self::Resume(_), None) => Some(RecordDigest::START),
            (Self::Gap { digest, .. } | Self::Lost { digest, .. }, _) => Some(*digest),
            (Self::Impossible(Impossible::OtherRecord), Some(acked_offset)) => {
                Some(RecordDigest(!acked_offset.digest.0))
            }
            _ => None,
        };
        let expected = reconcile(sender, receiver, |_| digest);
        if expected == *self { Ok(()) } else { Err(Unfit::Contradiction) }
    }

    /// Whether the sender can still follow this decision of its own, if its first kept record is
    /// now at `base`.
    ///
    /// The sender may have trimmed records since, because an old connection acknowledged them.
    /// `continuous`: that old connection was with the same incarnation that attaches now, so the
    /// receiver has consumed the trimmed records. If it was with another incarnation, the receiver
    /// may have forgotten them, and both sides have to attach again.
    #[must_use]
    pub fn stands(&self, base: Position, continuous: bool) -> bool {
        self.resume_at().is_some_and(|resume| resume >= base || continuous)
    }

    /// Returns the receiver's state after it has applied this decision: one update of its store
    /// contains all of it.
    ///
    /// `given` is the receiver's view for which the sender made the decision, `now` the receiver's
    /// present view. `continuous`: everything that was consumed between the two views came from the
    /// same incarnation of the sender that decided. If so, the receiver may have consumed more
    /// since its view. It recognises records that it already has by their positions, and drops
    /// them.
    ///
    /// # Errors
    /// [`Unfit::Contradiction`] as for [`check`](Self::check). [`Unfit::Moved`] if the receiver has
    /// moved since its view: it attaches again with a new view. [`Unfit::NoStream`]: a decision
    /// that is impossible or names another epoch cannot be applied.
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

    /// The range that the receiver skips when it applies this decision of `sender`; `None` if it
    /// skips nothing.
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

    /// Whether a receiver can have come from the acked offset `then` to the acked offset `at` by
    /// consuming records of the resumed stream.
    fn goes_on(&self, then: Option<AckedOffset>, at: Option<AckedOffset>) -> bool {
        match (self, then, at) {
            (Self::Resume(_), Some(then), Some(at)) => {
                then.stream == at.stream && then.position <= at.position
            }
            _ => false,
        }
    }
}

/// The changes that a receiver stores in one update when it applies a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Applied {
    /// The receiver's acked offset after the update of its store.
    pub consumed: AckedOffset,
    /// The range that the receiver skips by this update of its store. It replaces the receiver's
    /// stored skip, and is reported to the application.
    pub skip: Option<Skip>,
}

/// Reason why a receiver does not apply a decision of the sender. No state was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unfit {
    /// The decision does not follow from the two views: a violation by the sender.
    Contradiction,
    /// The receiver has consumed more, or another stream, since its view: both sides attach again.
    Moved,
    /// The decision is `Impossible` or `NewEpoch`: it begins no stream, so there is nothing to
    /// apply.
    NoStream,
}
