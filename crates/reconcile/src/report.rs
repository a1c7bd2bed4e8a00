// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports for the application: each skipped or dropped range is reported once at each living side.
//!
//! ```text
//!  Undelivered   the epoch ended before the range was consumed
//!  Gap           the receiver's file is an older copy, from before what the sender still has
//!  Lost          the sender's store was lost, and where its stream ended is unknown
//!  Quarantined   the two stores contradict each other; nothing was dropped
//! ```
//!
//! A report is stored in the same update of the store as the change that it reports, and kept until
//! the application has taken it.

use crate::identity::{Epoch, StreamId};
use crate::position::Position;

/// A direction of a link, as seen by the side that reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The stream that the reporting side sends.
    Outgoing,
    /// The stream that the reporting side receives.
    Incoming,
}

/// Reason why a range of messages was skipped or dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The epoch of the range ended before its messages were consumed.
    Undelivered,
    /// The sender no longer had the range when a receiver with an older copy of its file, or a new
    /// store, asked for it.
    Gap,
    /// The sender's store was lost, and with it the range that the receiver had not yet consumed.
    Lost,
    /// The views of the two sides contradict each other; both keep all bytes until an operator
    /// decides.
    Quarantined(Impossible),
}

/// The contradiction between the views of sender and receiver that put a link into quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Impossible {
    /// The receiver has records that the sender has not written: the sender's file is an older
    /// copy.
    ReceiverAhead,
    /// No record of the sender ends at the position up to which the receiver has consumed.
    NoBoundary,
    /// A different record of the sender ends at the position up to which the receiver has consumed.
    OtherRecord,
}

/// The range of positions that a [`Report`] is about, and whether both its ends are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// The first position of the reported range.
    pub from: Position,
    /// The position after the last byte of the reported range; `None` if neither side knows it.
    pub to: Option<Position>,
    /// A position that the range certainly reaches. If `to` is `None`, the range may end after it.
    pub known_to: Position,
    /// Whether the first and the last position of the range are known. If not, the range may also
    /// contain records that were consumed.
    pub exact: bool,
}

impl Span {
    /// Whether the range of this span is known to be empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.to.is_some_and(|to| to <= self.from)
    }
}

/// One skipped or dropped range, as reported to the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Report {
    /// Whether the reporting side sent or received the range.
    pub direction: Direction,
    /// Reason why the range was skipped or dropped.
    pub cause: Cause,
    /// The epoch in which the messages of the range were sent.
    pub epoch: Epoch,
    /// The stream of the range, if the reporting side knows its id.
    pub stream: Option<StreamId>,
    /// The positions of the skipped or dropped range.
    pub span: Span,
}

impl Report {
    /// Whether the range of this report includes that of `other`, for the same stream and cause.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let same = (self.direction, self.cause, self.epoch, self.stream)
            == (other.direction, other.cause, other.epoch, other.stream);
        let ends = match (self.span.to, other.span.to) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(end), Some(other)) => other <= end,
        };
        same && self.span.from <= other.span.from && ends
    }
}

/// The reports for the application in one update of a store: at most [`Reports::MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reports {
    slots: [Option<Report>; Self::MAX],
}

impl Reports {
    /// The maximum number of reports in one update of a store: two of the epoch before, three of
    /// the present epoch, and one spare.
    pub const MAX: usize = 6;

    /// Adds `report`, unless its range is empty.
    pub(crate) fn add(&mut self, report: Option<Report>) {
        let Some(report) = report.filter(|report| !report.span.is_empty()) else { return };
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.is_none()) {
            *slot = Some(report);
        }
    }

    /// The reports, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = Report> + '_ {
        self.slots.iter().flatten().copied()
    }
}
