// SPDX-License-Identifier: MIT OR Apache-2.0
//! Early notification: the receiver wakes up while the sender still writes.

/// Decides whether to notify a sleeping receiver before the record is published.
///
/// ```text
///   receiver on another CPU    the sender notifies, writes and publishes while the receiver wakes
///                              up; then the receiver polls and finds the record
///   receiver on the same CPU   the sender notifies; the receiver runs at once, finds no record and
///                              sleeps; the sender writes, publishes and has to notify again
/// ```
///
/// The sender cannot know on which CPU the receiver will run. An early notification that has to be
/// repeated shows that the receiver runs on the sender's CPU. A number of later notifications then
/// come after the publication of their record. Each further early notification that has to be
/// repeated doubles that number.
#[derive(Debug, Default)]
pub(super) struct EarlyNotify {
    /// Whether the sender has notified the receiver for a record that is not published yet.
    has_notified: bool,
    /// Number of further notifications that the sender gives only after it has published the
    /// record. While the number is not 0, the sender gives no early notification.
    held_off: u32,
    /// The number of notifications after the publication to which `held_off` was last set; 0 after
    /// an early notification that sufficed.
    hold_off: u32,
}

impl EarlyNotify {
    /// Whether the sender should notify a sleeping receiver before it publishes the record. The
    /// answer is `true` at most once for each publication.
    #[inline]
    pub(super) const fn is_worth_it(&self) -> bool {
        self.held_off == 0 && !self.has_notified
    }

    /// Notes that the sender notified the receiver before the record was published.
    pub(super) const fn notified(&mut self) {
        self.has_notified = true;
    }

    /// Notes that the record was published. Returns whether the receiver was notified before the
    /// publication.
    #[inline]
    pub(super) const fn take(&mut self) -> bool {
        core::mem::replace(&mut self.has_notified, false)
    }

    /// Notes that an early notification sufficed: the receiver needed no notification after the
    /// publication of the record.
    pub(super) const fn was_enough(&mut self) {
        self.hold_off = 0;
    }

    /// Notes that the sender notified the receiver after the publication of the record. `again` is
    /// whether the receiver had also been notified before the publication, which did not suffice.
    pub(super) fn was_needed(&mut self, again: bool) {
        if again {
            self.hold_off = (self.hold_off * 2).clamp(HOLD_OFF_FIRST, HOLD_OFF_MAX);
            self.held_off = self.hold_off;
        } else {
            self.held_off = self.held_off.saturating_sub(1);
        }
    }
}

/// Number of notifications to the receiver that the sender gives only after it has published their
/// record, once a notification before the publication had to be repeated. Each further repetition
/// doubles this number.
const HOLD_OFF_FIRST: u32 = 16;
const HOLD_OFF_MAX: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns after how many notifications `EarlyNotify` allows an early notification again. Each
    /// counted notification comes after the publication of its record.
    fn notifies_until_early(early: &mut EarlyNotify) -> u32 {
        let mut count = 0;
        while !early.is_worth_it() {
            early.was_needed(false);
            count += 1;
        }
        count
    }

    #[test]
    fn early_notify_in_vain_again_is_held_off_twice_as_long() {
        let mut early = EarlyNotify::default();
        assert!(early.is_worth_it());
        let held_off: Vec<_> = (0..10)
            .map(|_| {
                early.was_needed(true);
                notifies_until_early(&mut early)
            })
            .collect();
        assert_eq!(held_off, [16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 4096]);
    }

    #[test]
    fn early_notify_that_was_enough_is_tried_again() {
        let mut early = EarlyNotify::default();
        for _ in 0..5 {
            early.was_needed(true);
            notifies_until_early(&mut early);
        }
        early.was_enough();
        assert!(early.is_worth_it());
        early.was_needed(true);
        assert_eq!(notifies_until_early(&mut early), HOLD_OFF_FIRST);
    }

    #[test]
    fn early_notify_counts_for_one_record() {
        let mut early = EarlyNotify::default();
        assert!(!early.take());
        early.notified();
        assert!(!early.is_worth_it(), "again before anything was published");
        assert!(early.take() && !early.take());
        assert!(early.is_worth_it());
    }
}
