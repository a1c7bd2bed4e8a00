// SPDX-License-Identifier: MIT OR Apache-2.0
//! Credit of one direction of a stream: the counters with which sender and receiver bound the
//! direction's unread bytes (SPEC 11.4).
//!
//! ```text
//!   sender counts sent and credited: a message of cost c may begin if
//!       sent + c − credited ≤ window, or sent − credited ≤ window / 2
//!   receiver counts received, taken and reported: a CREDIT record is due if
//!       taken − reported ≥ window / 2, and a message the other way carries credit if
//!       taken − reported ≥ window / 4, in both cases > 0
//! ```
//!
//! The counters are totals since the stream was opened; the module only computes. The receiver's
//! `reported` is never behind the sender's `credited`, so a receiver never refuses a message that
//! an honest sender may begin. The receiver reports due credit before it waits (SPEC 11.4), so a
//! sender whose messages were all taken may then begin any message.

use partywall_layout::Violation;
use partywall_layout::record_ring::{HEADER_BYTES, footprint};
use partywall_layout::seeded_fault;

/// Returns the cost in credit of a message of `len` bytes: its footprint in a ring.
#[inline]
pub(crate) const fn cost(len: usize) -> u64 {
    footprint(len as u64)
}

/// The sender's counters for one direction of a stream, in bytes of credit cost (see [`cost`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SendCredit {
    window: u64,
    sent: u64,
    credited: u64,
}

impl SendCredit {
    pub(crate) const fn new(window: u64) -> Self {
        Self { window, sent: 0, credited: 0 }
    }

    /// Charges a message of cost `cost` if credit lets the message begin. Returns whether it may
    /// begin.
    #[inline]
    pub(crate) const fn charge(&mut self, cost: u64) -> bool {
        // A hostile receiver can credit a message that was charged and later refunded, so
        // `credited` may exceed `sent`. This harms only that receiver, whose own bound on unread
        // bytes no longer holds.
        let may_begin = fits(self.window, self.sent.saturating_sub(self.credited), cost);
        if may_begin {
            self.sent += cost;
        }
        may_begin
    }

    /// Gives the cost of a message back to the credit, because nothing of the message was sent.
    pub(crate) const fn refund(&mut self, cost: u64) {
        self.sent -= cost;
    }

    #[cfg(all(test, not(shuttle)))]
    pub(crate) const fn credited(&self) -> u64 {
        self.credited
    }

    /// Handles a record CREDIT: the application at the receiver has taken messages of `credited`
    /// bytes of cost in all.
    pub(crate) const fn received(&mut self, stream: u32, credited: u64) -> Result<(), Violation> {
        if credited < self.credited || credited > self.sent {
            return Err(Violation::Credit { stream, found: credited, max: self.sent });
        }
        self.credited = credited;
        Ok(())
    }
}

/// The receiver's counters for one direction of a stream, in bytes of credit cost (see [`cost`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RecvCredit {
    window: u64,
    received: u64,
    taken: u64,
    reported: u64,
}

impl RecvCredit {
    pub(crate) const fn new(window: u64) -> Self {
        Self { window, received: 0, taken: 0, reported: 0 }
    }

    /// Counts the cost of a message whose first bytes arrived. Fails if the sender had no credit
    /// for that message.
    #[inline]
    pub(crate) const fn arrived(&mut self, stream: u32, cost: u64) -> Result<(), Violation> {
        if !fits(self.window, self.received - self.reported, cost) {
            let max = self.window.saturating_sub(self.received - self.reported);
            return Err(Violation::Credit { stream, found: cost, max });
        }
        self.received += cost;
        Ok(())
    }

    /// Counts a message that the application took. Returns whether to report CREDIT to the sender.
    #[inline]
    pub(crate) const fn took(&mut self, cost: u64) -> bool {
        self.taken += cost;
        self.is_due()
    }

    /// Whether the application has taken half the window since the last CREDIT record, so that the
    /// next CREDIT record is due.
    #[inline]
    const fn is_due(&self) -> bool {
        let unreported = self.taken - self.reported;
        unreported > 0 && unreported >= self.window / 2
    }

    /// Whether the application has taken so much since the last report that a CREDIT record is sent
    /// now, unless the credit is deferred (decision 0063).
    #[inline]
    pub(crate) const fn is_overdue(&self) -> bool {
        self.taken - self.reported > self.window / 4 * 3
    }

    /// Whether the application has taken a quarter of the window since the last report, so that the
    /// next message the other way carries credit (decision 0068).
    #[inline]
    pub(crate) fn is_worth_carrying(&self) -> bool {
        if seeded_fault("due_credit_only") {
            return self.is_due();
        }
        let unreported = self.taken - self.reported;
        unreported > 0 && unreported >= self.window / 4
    }

    /// Returns the total cost of the messages that the application took, for the next CREDIT
    /// record.
    pub(crate) const fn due(&self) -> u64 {
        self.taken
    }

    /// Notes that a CREDIT record has reported the total `credited` to the sender.
    pub(crate) const fn report(&mut self, credited: u64) {
        self.reported = credited;
    }
}

/// Most bytes that one write to a byte stream sends, as one message. A longer buffer takes further
/// writes, so that one write needs no unbounded room.
///
/// A message of this length costs 64 KiB of credit, so the default window holds four such messages.
/// It would hold only three messages that are a few bytes longer.
#[expect(clippy::cast_possible_truncation, reason = "a header has 16 bytes")]
pub(crate) const WRITE_BYTES_MAX: usize = (64 << 10) - HEADER_BYTES as usize;

const fn fits(window: u64, outstanding: u64, cost: u64) -> bool {
    outstanding <= window / 2 || outstanding.saturating_add(cost) <= window
}

// The test needs the crate proptest, without which the models under shuttle are built.
#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Rule: an honest sender is never refused, and the unread bytes are bounded, however
        /// messages, credits and their delays interleave. A sender whose messages were all taken
        /// may always send another. Credit is reported when it is due, or carried by a message.
        #[test]
        fn honest_senders_are_neither_refused_nor_stuck(
            window in 0u64..2000,
            steps in proptest::collection::vec((0u8..5, 0usize..3000), 1..400),
        ) {
            let (mut sender, mut receiver) = (SendCredit::new(window), RecvCredit::new(window));
            let (mut wire, mut unread, mut back) = (Vec::new(), Vec::new(), Vec::new());
            let mut longest = 0;
            for (step, len) in steps {
                match step {
                    0 if sender.charge(cost(len)) => {
                        longest = longest.max(cost(len));
                        wire.push(cost(len));
                    }
                    1 if !wire.is_empty() => {
                        let cost = wire.remove(0);
                        prop_assert!(receiver.arrived(1, cost).is_ok());
                        unread.push(cost);
                        let held: u64 = unread.iter().sum();
                        prop_assert!(held <= window.max(window / 2 + longest));
                    }
                    2 if !unread.is_empty() && receiver.took(unread.remove(0)) => {
                        back.push(receiver.due());
                        receiver.report(receiver.due());
                    }
                    4 if receiver.is_worth_carrying() => {
                        back.push(receiver.due());
                        receiver.report(receiver.due());
                    }
                    3 if !back.is_empty() => prop_assert!(sender.received(1, back.remove(0)).is_ok()),
                    _ => {}
                }
            }
            for cost in wire {
                prop_assert!(receiver.arrived(1, cost).is_ok());
                unread.push(cost);
            }
            for cost in unread {
                if receiver.took(cost) {
                    back.push(receiver.due());
                    receiver.report(receiver.due());
                }
            }
            for credited in back {
                prop_assert!(sender.received(1, credited).is_ok());
            }
            prop_assert!(sender.charge(1 << 40));
        }
    }

    #[test]
    fn credit_is_carried_from_a_quarter_of_the_window_and_due_from_half() {
        for (window, carried, due) in [(400, 100, 200), (3, 1, 1), (0, 1, 1)] {
            let mut receiver = RecvCredit::new(window);
            receiver.arrived(1, due).unwrap();
            assert!(!receiver.is_worth_carrying());
            for taken in 1..=due {
                assert_eq!(receiver.took(1), taken >= due, "window {window}");
                assert_eq!(receiver.is_worth_carrying(), taken >= carried, "window {window}");
            }
            receiver.report(receiver.due());
            assert!(!receiver.is_worth_carrying());
        }
    }

    #[test]
    fn default_window_holds_four_of_the_longest_writes_to_a_byte_stream() {
        let mut sender = SendCredit::new(crate::config::Config::default().stream_window);
        let charged = (0..10).filter(|_| sender.charge(cost(WRITE_BYTES_MAX))).count();
        assert_eq!(charged, 4);
    }

    #[test]
    fn credit_for_a_message_that_was_given_up_is_harmless() {
        let mut sender = SendCredit::new(128);
        assert!(sender.charge(64));
        sender.received(1, 64).unwrap();
        sender.refund(64);
        assert!(sender.charge(128));
        assert!(sender.received(1, 0).is_err());
    }

    #[test]
    fn what_was_not_agreed_is_a_violation() {
        let mut receiver = RecvCredit::new(128);
        receiver.arrived(1, 128).unwrap();
        assert!(matches!(
            receiver.arrived(1, 64),
            Err(Violation::Credit { found: 64, max: 0, .. })
        ));
        let mut sender = SendCredit::new(128);
        assert!(sender.charge(64));
        assert!(sender.received(1, 128).is_err());
        sender.received(1, 64).unwrap();
        assert!(sender.received(1, 0).is_err());
    }
}
