// SPDX-License-Identifier: MIT OR Apache-2.0
//! The exchange of messages after the worker process was killed: each end of the link receives all
//! remaining messages, and then sends one more message.

use super::act::{LAST_OF_PEER, LAST_OF_WORKER, length};
use crate::support_ends::{message, number};
use partywall_link::{Event, Link, ReportSnapshot};

/// One end of the link after a death of the worker, and the messages that this end has received
/// since.
pub struct Conversation<'a> {
    link: &'a Link,
    is_worker: bool,
    got: Vec<Got>,
    /// The epoch of the last received message; positions begin at 0 again in a new epoch.
    epoch: Option<u64>,
    has_last: bool,
    has_sent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Got {
    pub number: u64,
    pub position: u64,
    pub attempt: u32,
}

impl<'a> Conversation<'a> {
    pub fn new(link: &'a Link, is_worker: bool) -> Self {
        Self { link, is_worker, got: Vec::new(), epoch: None, has_last: false, has_sent: false }
    }

    /// Makes all receives and sends that this end of the link can make now without waiting.
    pub fn turn(&mut self) -> Result<(), String> {
        while let Some(event) = self.link.try_event() {
            if matches!(event, Event::Fenced | Event::Quarantined) {
                return Err(format!("{event:?}"));
            }
        }
        let may_send = match self.is_worker {
            true => self.link.stats().connections > 0,
            false => self.has_last,
        };
        if may_send && !self.has_sent {
            let last = if self.is_worker { LAST_OF_WORKER } else { LAST_OF_PEER };
            self.has_sent = self.link.try_send(&message(last, length(last))).is_ok();
        }
        while let Ok(Some(came)) = self.link.try_recv() {
            self.take(&came, came.position(), came.attempt())?;
            came.ack().map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn take(&mut self, bytes: &[u8], position: u64, attempt: u32) -> Result<(), String> {
        let number = number(bytes);
        if bytes != message(number, length(number)) {
            return Err(format!("{number} at {position} has other bytes"));
        }
        if self.has_last {
            return Err(format!("{number} comes after the last"));
        }
        let epoch = self.link.epoch().ok();
        let is_same = std::mem::replace(&mut self.epoch, epoch) == epoch;
        if is_same && self.got.last().is_some_and(|before| before.position >= position) {
            return Err(format!("{number} at {position} comes after {:?}", self.got));
        }
        match (self.is_worker, number) {
            (true, LAST_OF_PEER) | (false, LAST_OF_WORKER) => self.has_last = true,
            _ => self.got.push(Got { number, position, attempt }),
        }
        Ok(())
    }

    /// Whether this end of the link has received all messages that the peer sent, and the peer has
    /// acknowledged all messages of this end.
    pub fn is_over(&self) -> bool {
        self.has_last && self.has_sent && matches!(self.link.unacked_bytes(), Ok(0))
    }

    pub fn got(self) -> Vec<Got> {
        self.got
    }
}

/// Whether `link` has one report: that an epoch dropped messages which this end of the link had
/// sent.
///
/// # Errors
/// The link has any other report, or the report's range of positions is impossible.
pub fn is_reported(link: &Link, epoch: u64) -> Result<bool, String> {
    let reports = link.reports().map_err(|error| error.to_string())?;
    for report in &reports {
        if report.kind != "undelivered" || epoch == 0 || report.epoch != 0 {
            return Err(format!("{report:?}"));
        }
    }
    let is_own = |report: &ReportSnapshot| !report.is_receiving && report.is_exact;
    Ok(reports.iter().any(|report| is_own(report) && report.from < report.to))
}
