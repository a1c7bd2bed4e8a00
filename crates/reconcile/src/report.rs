// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the application is told of: every range that was skipped or dropped, once on each living side.
//!
//! ```text
//!  Undelivered   the epoch ended before the range was consumed
//!  Gap           the receiver's memory went back behind what the sender still has
//!  Lost          the sender's memory was lost; nobody knows where its stream ended
//!  Quarantined   the two memories contradict each other; nothing was dropped
//! ```
//!
//! A report is stored in the same commit as the change that it reports, and kept until it was taken.

use crate::decision::Impossible;
use crate::identity::{Epoch, StreamId};
use crate::position::Position;

/// Which direction, seen from the side that reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// What this side sends.
    Outgoing,
    /// What this side receives.
    Incoming,
}

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// An epoch ended before these were consumed.
    Undelivered,
    /// The sender had trimmed what the receiver, whose memory went back or was lost, asked for.
    Gap,
    /// The sender's memory was lost with what the receiver had not yet consumed.
    Lost,
    /// The views contradict each other; all bytes are kept until a person decides.
    Quarantined(Impossible),
}

/// The positions that a report is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// The first one.
    pub from: Position,
    /// The end, without it; `None` if nobody knows it.
    pub to: Option<Position>,
    /// The range reaches at least up to here.
    pub known_to: Position,
    /// Whether both ends are known and not assumed. If not, the range may begin with records that were consumed.
    pub exact: bool,
}

impl Span {
    /// Whether it is known to hold nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.to.is_some_and(|to| to <= self.from)
    }
}

/// One event for the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Report {
    /// Sent or received by the side that reports.
    pub direction: Direction,
    /// What happened.
    pub cause: Cause,
    /// The epoch of the stream.
    pub epoch: Epoch,
    /// The stream, if the side knows its number.
    pub stream: Option<StreamId>,
    /// Which part of it.
    pub span: Span,
}

impl Report {
    /// Whether whoever had this report needs no `other`.
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

/// The reports of one commit: at most [`Reports::MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reports {
    slots: [Option<Report>; Self::MAX],
}

impl Reports {
    /// The most that one commit can have: two of the epoch before, three of the present one, and one to spare.
    pub const MAX: usize = 6;

    /// Adds `report` unless it is of nothing.
    pub(crate) fn add(&mut self, report: Option<Report>) {
        let Some(report) = report.filter(|report| !report.span.is_empty()) else { return };
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.is_none()) {
            *slot = Some(report);
        }
    }

    /// One after another.
    pub fn iter(&self) -> impl Iterator<Item = Report> + '_ {
        self.slots.iter().flatten().copied()
    }
}
