// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks the reports that client and server make when an epoch drops messages. Each dropped
//! message must be in a report of its sender, and acknowledged messages must not be.

use super::ledger::{Ledger, LinkSnapshot};
use std::collections::HashSet;

/// The reports of dropped messages that client and server noted in the journal of the torture test.
/// The oracle checks them after a round. Each report is stored once, however often a link returned
/// it.
#[derive(Default)]
pub struct ReportSet(HashSet<Report>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Report {
    /// The sender, client or server, of the messages that the report is about.
    pub sender: usize,
    /// Whether the receiver of those messages made this report; otherwise their sender made it.
    pub is_receiving: bool,
    pub is_exact: bool,
    pub is_open: bool,
    pub epoch: u64,
    pub from: u64,
    pub to: u64,
}

impl ReportSet {
    pub fn add(&mut self, report: Report) {
        self.0.insert(report);
    }

    pub fn count(&self) -> u64 {
        self.0.len() as u64
    }

    fn of(&self, sender: usize, epoch: u64) -> impl Iterator<Item = &Report> {
        self.0.iter().filter(move |report| report.sender == sender && report.epoch == epoch)
    }

    /// Compares the reports about messages of `sender`, in all epochs before `last`, with `ledger`,
    /// which knows from the journal which messages were dropped or acknowledged.
    pub fn check(
        &self,
        sender: usize,
        ledger: &Ledger,
        last: u64,
        ring_bytes: u64,
    ) -> Result<(), String> {
        for (number, message) in ledger.messages.iter().enumerate() {
            let Some((epoch, position)) = message.place else { continue };
            let covering = self
                .of(sender, epoch)
                .find(|r| r.is_exact && r.from <= position && position < r.to);
            if let (true, Some(report)) = (message.is_consumed, covering) {
                return Err(format!("{number} at {position} is consumed, and in {report:?}"));
            }
        }
        for epoch in 0..last {
            let is_left = |number: &usize| {
                let message = &ledger.messages[*number];
                let is_of_it = message.epochs == (epoch, epoch);
                let was_sent = message.snapshot == LinkSnapshot::Sent
                    || message.snapshot == LinkSnapshot::Dropped;
                is_of_it && was_sent && !message.is_consumed && !message.is_lost_sight_of
            };
            let left: Vec<usize> = (0..ledger.messages.len()).filter(is_left).collect();
            let Some(first) = left.first() else { continue };
            let own: Vec<&Report> = self.of(sender, epoch).filter(|r| !r.is_receiving).collect();
            if own.is_empty() {
                return Err(format!(
                    "{first} and {} more of epoch {epoch} are left, and nobody reports it",
                    left.len() - 1
                ));
            }
            let certain = left.iter().filter(|number| ledger.messages[**number].was_confirmed);
            let least: u64 = certain.map(|number| ledger.footprint(*number, ring_bytes)).sum();
            if let [report] = own[..] {
                let reported = report.to - report.from;
                if report.is_exact && (reported < least || reported > ring_bytes) {
                    return Err(format!("{least} bytes from {first} on are left: {report:?}"));
                }
            }
            for number in left {
                let Some((_, position)) = ledger.messages[number].place else { continue };
                if !own.iter().any(|r| r.from <= position && (r.is_open || position < r.to)) {
                    return Err(format!("{number} at {position} is left, and not in {own:?}"));
                }
            }
        }
        Ok(())
    }
}
