// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a thread waits: wait strategies, spinning, deadlines, and the pacing of a fast receiver.
//!
//! ```text
//!   wait.rs   Wait (what the user chooses) · Spinner (spins, and learns whether it pays)
//!   lag.rs    Lag: a receiver that is faster than its sender pauses before it polls
//!   here      deadlines: deadline_after, has_passed
//! ```
//!
//! `partywall` and `partywall-link` both stand on it. It asks the system for the number of CPUs once,
//! starts no thread and
//! knows no transport: declaring oneself asleep and sleeping belong to the caller.
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::cast_possible_truncation))]
#![forbid(unsafe_code)]

mod lag;
mod wait;

pub use lag::{Lag, Pause};
pub use wait::{Budget, SPIN_CHECK_EVERY, Spinner, Spun, Wait, after, look_for};

use std::time::{Duration, Instant};

/// The deadline `timeout` from now. Time-outs above a year count as a year, so that the result
/// fits any arithmetic.
#[must_use]
pub fn deadline_after(timeout: Duration) -> Instant {
    after(timeout)
}

/// Whether `deadline` has passed. `None` never passes.
#[must_use]
pub fn has_passed(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadline_after_any_timeout_fits_arithmetic() {
        let in_a_century = Instant::now() + Duration::from_secs(100 * 365 * 24 * 3600);
        assert!(deadline_after(Duration::MAX) < in_a_century);
        assert!(deadline_after(Duration::ZERO) <= Instant::now());
    }
}
