// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether ringing a sleeper before the record is published saves time or costs it.
//!
//! ```text
//!   two processors   ring ─▶ (it wakes up) ─▶ looks: there it is          write, publish meanwhile
//!   one processor    ring ─▶ it runs at once ─▶ looks in vain, sleeps ─▶ write, publish, ring again
//! ```
//!
//! Nobody knows before where the sleeper will run. But a ring that has to be repeated tells, and then the next ones
//! come after the record: longer and longer, as long as a trial now and then is in vain.

/// See the module.
#[derive(Debug, Default)]
pub(super) struct EarlyNotify {
    /// It was rung for what is not published yet.
    has_notified: bool,
    /// So many rings still come after the record.
    rest: u32,
    /// How many did after the last trial that was in vain.
    pause: u32,
}

/// After the first early ring in vain; twice as many after each further one.
const PAUSE_MIN: u32 = 16;
const PAUSE_MAX: u32 = 4096;

impl EarlyNotify {
    /// Whether a sleeper is to be rung before there is something: once for each publication.
    #[inline]
    pub(super) const fn is_worth_it(&self) -> bool {
        self.rest == 0 && !self.has_notified
    }

    /// It was.
    pub(super) const fn notified(&mut self) {
        self.has_notified = true;
    }

    /// Something was published. Whether it was rung for before.
    #[inline]
    pub(super) const fn take(&mut self) -> bool {
        core::mem::replace(&mut self.has_notified, false)
    }

    /// The ring before was enough.
    pub(super) const fn was_enough(&mut self) {
        self.pause = 0;
    }

    /// A ring was needed after the record; `again`: in spite of one before.
    pub(super) fn was_needed(&mut self, again: bool) {
        if again {
            self.pause = (self.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
            self.rest = self.pause;
        } else {
            self.rest = self.rest.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rings until the next that would be early.
    fn notifies_until_early(ring: &mut EarlyNotify) -> u32 {
        let mut rings = 0;
        while !ring.is_worth_it() {
            ring.was_needed(false);
            rings += 1;
        }
        rings
    }

    #[test]
    fn each_trial_in_vain_makes_the_next_one_rarer() {
        let mut ring = EarlyNotify::default();
        assert!(ring.is_worth_it());
        let pauses: Vec<_> = (0..10)
            .map(|_| {
                ring.was_needed(true);
                notifies_until_early(&mut ring)
            })
            .collect();
        assert_eq!(pauses, [16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 4096]);
    }

    #[test]
    fn one_that_was_enough_is_trusted_again() {
        let mut ring = EarlyNotify::default();
        for _ in 0..5 {
            ring.was_needed(true);
            notifies_until_early(&mut ring);
        }
        ring.was_enough();
        assert!(ring.is_worth_it());
        ring.was_needed(true);
        assert_eq!(notifies_until_early(&mut ring), PAUSE_MIN);
    }

    #[test]
    fn a_ring_counts_for_one_record() {
        let mut ring = EarlyNotify::default();
        assert!(!ring.take());
        ring.notified();
        assert!(!ring.is_worth_it(), "again before anything was published");
        assert!(ring.take() && !ring.take());
        assert!(ring.is_worth_it());
    }
}
