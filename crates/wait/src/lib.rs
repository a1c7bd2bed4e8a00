// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a thread waits: wait strategies, spinning, deadlines, and the pacing of a fast receiver.
//!
//! ```text
//!   wait.rs          Wait (what the user chooses) · Spinner and its SpinBudget (grows on hits)
//!   yields.rs        Yields: a thread that is about to block lets a peer on its processor run
//!   short_sleeps.rs  ShortSleeps: while a thread sleeps often, its processor keeps its tick
//!   idle.rs          IdlePolicy: a driver that shares its thread polls again, or blocks
//!   pacer.rs         Pacer: a receiver that is faster than its sender pauses before it polls
//!   turn_pacer.rs    TurnPacer: the driver of many busy streams lets records collect
//!   here             deadlines: deadline_after, has_passed
//! ```
//!
//! `partywall` and `partywall-link` are built on this crate. It reads the number of CPUs and the
//! CPU quota at most once, starts no thread and knows no transport. The caller itself blocks its
//! thread, and before that asks the peer to wake the thread ("arms" it).
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::cast_possible_truncation))]
#![forbid(unsafe_code)]

mod idle;
mod pacer;
mod short_sleeps;
mod turn_pacer;
mod wait;
mod yields;

pub use idle::{IdlePolicy, IdleStep};
pub use pacer::{Pacer, Pause};
pub use short_sleeps::ShortSleeps;
pub use turn_pacer::TurnPacer;
pub use wait::{SPIN_CHECK_EVERY, SpinBudget, SpinOutcome, Spinner, Wait, poll_for};

use std::time::{Duration, Instant};

/// The instant that is `timeout` from now. A timeout above a year counts as a year, so that
/// arithmetic on the result cannot overflow.
#[must_use]
pub fn deadline_after(timeout: Duration) -> Instant {
    Instant::now() + timeout.min(TIMEOUT_MAX)
}

/// Whether `deadline` has passed. A deadline of `None` never passes.
#[must_use]
pub fn has_passed(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

/// The longest timeout, one year: `Instant` cannot represent every later instant.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadline_after_any_timeout_fits_arithmetic() {
        let in_a_century = Instant::now() + Duration::from_secs(100 * 365 * 24 * 3600);
        assert!(deadline_after(Duration::MAX) < in_a_century);
        assert!(deadline_after(Duration::ZERO) <= Instant::now());
    }

    #[test]
    fn deadline_after_timeout_beyond_a_year_is_in_a_year() {
        let year = deadline_after(TIMEOUT_MAX);
        assert!(deadline_after(Duration::MAX) >= year && deadline_after(Duration::ZERO) < year);
    }
}
