// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a receiver went past without consuming it, and who reports that when (SPEC 12.3).
//!
//! ```text
//!  receiver   one commit: consumed moves past the range · this skip is kept · its report is stored
//!                │ the skip is in every later view of this receiver
//!                ▼
//!  sender     one commit: told := skip · its report is stored       (once: told is compared)
//! ```
//!
//! The receiver's commit is what makes a skip happen, so the sender never reports one that was only
//! decided: with a report at the decision, a connection cut before CONFIRM made it report twice, with
//! other ranges, or not at all.

use crate::identity::{Epoch, StreamId};
use crate::position::{Position, Range};
use crate::report::{Cause, Direction, Report, Reports, Span};

/// A range that a receiver went past.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Skip {
    /// The epoch it happened in.
    pub epoch: Epoch,
    /// The stream that the range is of.
    pub of: StreamId,
    /// The stream that was gone on with: another one if the sender's memory was lost.
    pub into: StreamId,
    /// What was not consumed. Of another stream: up to what was received; nobody knows how much more there was.
    pub range: Range,
    /// Where the stream was gone on with. Of another stream everything before is skipped too.
    pub resume: Position,
}

impl Skip {
    /// The reports of this skip on the side for which it has `direction`.
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
            // Only if both memories failed: the new stream had been acknowledged by what the receiver forgot.
            let (start, resume) = (Position::START, self.resume);
            reports.add(Some(report(Cause::Gap, self.into, start, Some(resume), resume)));
        }
        reports
    }
}

/// What a sender has to report of the skip in a receiver's view, if anything.
///
/// `told` is the skip it reported last; `mine` are its present stream and the one of the epoch before. The reports
/// are stored in one commit with `told := skip`. `None`: there is nothing new. A receiver whose memory went back skips
/// again, and perhaps further; only what is further is news.
#[must_use]
pub fn learn(skip: Option<Skip>, told: Option<Skip>, mine: &[Option<StreamId>]) -> Option<Reports> {
    let skip = skip.filter(|skip| mine.contains(&Some(skip.into)))?;
    let known = told.map(|told| told.reports(Direction::Outgoing)).unwrap_or_default();
    let mut news = Reports::default();
    for report in skip.reports(Direction::Outgoing).iter() {
        let is_known = known.iter().any(|known| known.covers(&report));
        news.add((!is_known).then_some(report));
    }
    news.iter().next().is_some().then_some(news)
}
