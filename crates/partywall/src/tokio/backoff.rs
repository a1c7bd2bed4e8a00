// SPDX-License-Identifier: MIT OR Apache-2.0
//! The waits between attempts to connect: each failure doubles the wait, within bounds. A random
//! part keeps clients apart that failed at the same time.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Computes how long a caller waits between two attempts to connect.
#[derive(Debug)]
pub(super) struct Backoff {
    min: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    /// Makes waits that grow from `min` to `max`. `min` is at least 1 ms, so that no caller spins.
    pub(super) fn new(min: Duration, max: Duration) -> Self {
        let min = min.max(Duration::from_millis(1));
        Self { min, max: max.max(min), next: min }
    }

    /// Returns the wait after a failure: a random time between half of the current wait and the
    /// whole current wait.
    pub(super) fn after_failure(&mut self) -> Duration {
        let whole = self.next;
        self.next = whole.saturating_mul(2).min(self.max);
        whole / 2 + (whole / 2).mul_f64(fraction(random()))
    }

    /// Notes how long a connection lasted. A connection that lasted at least `max` resets the wait
    /// to `min`.
    pub(super) fn after(&mut self, lived: Duration) {
        if lived >= self.max {
            self.next = self.min;
        }
    }
}

/// Returns random bits that differ by process and call. They are not fit for secrets.
pub(super) fn random() -> u64 {
    RandomState::new().hash_one(0)
}

/// Converts random bits to a random fraction from 0 to 1.
#[allow(clippy::cast_precision_loss, reason = "53 bits are exact")]
fn fraction(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: Duration = Duration::from_millis(10);
    const MAX: Duration = Duration::from_millis(100);

    #[test]
    fn waits_double_within_their_bounds_and_begin_anew_after_success() {
        let mut backoff = Backoff::new(MIN, MAX);
        for whole in [10, 20, 40, 80, 100, 100] {
            let whole = Duration::from_millis(whole);
            let wait = backoff.after_failure();
            assert!(wait >= whole / 2 && wait <= whole, "{wait:?} of {whole:?}");
        }
        backoff.after(MAX - Duration::from_millis(1));
        assert!(backoff.after_failure() >= MAX / 2, "a short life is no success");
        backoff.after(MAX);
        assert!(backoff.after_failure() <= MIN);
    }

    #[test]
    fn two_that_fail_together_do_not_return_together() {
        let waits: Vec<_> = (0..16).map(|_| Backoff::new(MAX, MAX).after_failure()).collect();
        assert!(waits.iter().any(|wait| *wait != waits[0]), "{waits:?}");
    }

    #[test]
    fn nothing_spins() {
        assert!(!Backoff::new(Duration::ZERO, Duration::ZERO).after_failure().is_zero());
    }
}
