// SPDX-License-Identifier: MIT OR Apache-2.0
//! Skips: ranges of a stream that a receiver passed over without consuming them, because the sender
//! no longer has them. The module also decides when each side reports such a range (SPEC 12.3).
//!
//! ```text
//!  receiver   one update: moves `consumed` past the range, stores the skip and its report
//!                │ every later view of this receiver contains the skip
//!                ▼
//!  sender     compares that skip with the skip it reported last; if they differ, one update stores
//!             the new skip and its report
//! ```
//!
//! A skip takes effect with the update of the receiver's store, so the sender never reports a skip
//! that was only decided. In the rejected design the sender reported at its decision. Then a
//! connection cut before CONFIRM made it report twice, with different ranges, or not at all.

use crate::identity::{Epoch, StreamId};
use crate::position::{Position, Range};
use crate::report::{Cause, Direction, Report, Reports, Span};

/// A range of a stream that a receiver skipped without consuming it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Skip {
    /// The epoch in which the receiver skipped the range.
    pub epoch: Epoch,
    /// The stream to which the skipped range belongs.
    pub of: StreamId,
    /// The stream with which the receiver continued. It differs from the skipped stream (`of`) if
    /// the sender's store was lost.
    pub into: StreamId,
    /// The skipped positions, which the receiver did not consume. If the receiver continued with
    /// another stream, the range ends at the position up to which it had received the old one,
    /// because the true end of the old stream is unknown.
    pub range: Range,
    /// The position at which the receiver resumed the stream `into`. If that is another stream than
    /// the skipped one, the receiver also skips its positions below `resume`.
    pub resume: Position,
}

impl Skip {
    /// The reports that a side stores about this skip. `direction` says whether that side sends or
    /// receives the stream.
    #[must_use]
    pub fn reports(&self, direction: Direction) -> Reports {
        let mut reports = Reports::default();
        let report = |cause, stream, from, to: Option<Position>, known_to| Report {
            direction,
            cause,
            epoch: self.epoch,
            stream: Some(stream),
            span: Span { from, to, known_to, exact: to.is_some() },
        };
        let (from, to) = (self.range.from(), self.range.to());
        if self.of == self.into {
            reports.add(Some(report(Cause::Gap, self.of, from, Some(to), to)));
        } else {
            reports.add(Some(report(Cause::Lost, self.of, from, None, to)));
            // The receiver skips the beginning of the new stream only if both stores failed: the
            // receiver had acknowledged messages of the new stream, and then lost the store that
            // says so.
            let (start, resume) = (Position::START, self.resume);
            reports.add(Some(report(Cause::Gap, self.into, start, Some(resume), resume)));
        }
        reports
    }
}

/// The reports that a sender has to store for the skip in a receiver's view; `None` if the sender
/// has already reported that skip.
///
/// `reported` is the last skip that the sender reported; `mine` are its present stream and that of
/// the epoch before. The reports are stored in one update of the store with `reported := skip`. A
/// receiver whose file is an older copy skips again, and perhaps further; only the additional range
/// is reported.
#[must_use]
pub fn learn(
    skip: Option<Skip>,
    reported: Option<Skip>,
    mine: &[Option<StreamId>],
) -> Option<Reports> {
    let skip = skip.filter(|skip| mine.contains(&Some(skip.into)))?;
    let known = reported.map(|skip| skip.reports(Direction::Outgoing)).unwrap_or_default();
    let mut new = Reports::default();
    for report in skip.reports(Direction::Outgoing).iter() {
        let is_known = known.iter().any(|known| known.covers(&report));
        new.add((!is_known).then_some(report));
    }
    new.iter().next().is_some().then_some(new)
}
