// SPDX-License-Identifier: MIT OR Apache-2.0
//! The oracle of the simulation: it records all messages, and checks that each message of an epoch
//! is consumed once and in order, or is reported.

use partywall_reconcile::{Cause, Direction, Report};

/// The messages that one end sent and that the other end consumed, each with its epoch.
#[derive(Default)]
pub(super) struct Ledger {
    sent: Vec<Sent>,
    consumed: Vec<(u64, u64)>,
}

struct Sent {
    epoch: u64,
    number: u64,
    /// The position in the stream at which the record of the message ends.
    end: u64,
}

impl Ledger {
    pub(super) fn sent(&mut self, epoch: u64, number: u64, end: u64) {
        self.sent.push(Sent { epoch, number, end });
    }

    pub(super) fn consumed(&mut self, epoch: u64, number: u64) {
        self.consumed.push((epoch, number));
    }

    pub(super) fn count(&self) -> u64 {
        self.sent.len() as u64
    }

    /// Checks that the consumed messages of each epoch are the first ones that were sent in it, in
    /// the same order.
    pub(super) fn check(&self, seed: u64) {
        let mut epochs: Vec<u64> = self.consumed.iter().map(|(epoch, _)| *epoch).collect();
        epochs.dedup();
        assert!(epochs.is_sorted(), "seed {seed}: epochs {epochs:?}");
        for epoch in epochs {
            let consumed: Vec<u64> = of(&self.consumed, epoch);
            let sent = self.sent.iter().filter(|sent| sent.epoch == epoch).map(|sent| sent.number);
            let sent: Vec<u64> = sent.take(consumed.len()).collect();
            assert_eq!(consumed, sent, "seed {seed}, epoch {epoch}");
        }
    }

    /// Checks that all messages of the epoch `last`, the final one, were consumed.
    pub(super) fn check_all(&self, seed: u64, last: u64) {
        let consumed = of(&self.consumed, last);
        let sent = self.sent.iter().filter(|sent| sent.epoch == last).count();
        assert_eq!(consumed.len(), sent, "seed {seed}: of epoch {last}");
    }

    /// Checks the `reports` of one end about epochs before `last`. At the sender, the reports must
    /// name every message that was not consumed. `direction` says whether this end sent or received
    /// the messages.
    pub(super) fn check_reported(
        &self,
        seed: u64,
        last: u64,
        reports: &[Report],
        direction: Direction,
    ) {
        for sent in self.sent.iter().filter(|sent| sent.epoch < last) {
            let is_consumed = self.consumed.contains(&(sent.epoch, sent.number));
            let covering: Vec<&Report> = reports
                .iter()
                .filter(|report| {
                    report.cause == Cause::Undelivered
                        && report.direction == direction
                        && report.epoch.0 == sent.epoch
                        && report.span.from.0 < sent.end
                        && report.span.to.is_none_or(|to| sent.end <= to.0)
                })
                .collect();
            if !is_consumed && direction == Direction::Outgoing {
                assert!(!covering.is_empty(), "seed {seed}: {} is not reported", sent.number);
            }
            if is_consumed {
                let wrong = covering.iter().find(|report| report.span.exact);
                assert!(wrong.is_none(), "seed {seed}: {} was consumed: {wrong:?}", sent.number);
            }
            let exact = covering.iter().filter(|report| report.span.exact).count();
            assert!(exact <= 1, "seed {seed}: {} is reported {exact} times", sent.number);
        }
    }
}

fn of(consumed: &[(u64, u64)], epoch: u64) -> Vec<u64> {
    consumed.iter().filter(|(of, _)| *of == epoch).map(|(_, number)| *number).collect()
}
