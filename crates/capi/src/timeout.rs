// SPDX-License-Identifier: MIT OR Apache-2.0
//! The timeout argument of functions that may wait.
//!
//! ```text
//!   timeout_ns   < 0  no limit       0  never waits       > 0  at most so many nanoseconds
//! ```

use crate::failure::Failure;
use std::time::{Duration, Instant};

/// How long a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timeout {
    /// The call waits without a limit.
    Unlimited,
    /// The call never waits.
    Zero,
    /// The call waits at most for this number of nanoseconds.
    After(u64),
}

impl Timeout {
    /// Reads the argument `timeout_ns` of an exported function.
    pub(crate) const fn new(timeout_ns: i64) -> Self {
        match timeout_ns {
            0 => Self::Zero,
            ..0 => Self::Unlimited,
            _ => Self::After(timeout_ns.unsigned_abs()),
        }
    }

    /// Returns the time at which the call gives up; `None` if it has no limit.
    pub(crate) fn deadline(self) -> Option<Instant> {
        match self {
            Self::Unlimited => None,
            Self::Zero => Some(Instant::now()),
            Self::After(time_ns) => Instant::now().checked_add(Duration::from_nanos(time_ns)),
        }
    }

    /// Fails unless the timeout is 0: a call on an object in an event loop never waits, because
    /// only the loop waits.
    pub(crate) fn require_zero(self) -> Result<(), Failure> {
        if self == Self::Zero {
            return Ok(());
        }
        Err(Failure::argument(
            "timeout_ns must be 0, because the object is in a loop: wait by partywall_loop_wait",
        ))
    }
}

/// Returns the nanoseconds until a timer is due, in the form in which exported functions write
/// them: -1 if no timer is set.
pub(crate) fn nanoseconds_until(timer: Option<Instant>) -> i64 {
    timer.map_or(-1, |timer| {
        let left = timer.saturating_duration_since(Instant::now()).as_nanos();
        i64::try_from(left).unwrap_or(i64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_until_a_timer_is_never_negative() {
        let now = Instant::now();
        assert_eq!(nanoseconds_until(None), -1);
        assert_eq!(nanoseconds_until(Some(now)), 0);
        assert!(nanoseconds_until(now.checked_add(Duration::from_secs(1000))) > 0);
    }

    #[test]
    fn sign_of_the_argument_chooses_the_limit() {
        assert_eq!(Timeout::new(-1), Timeout::Unlimited);
        assert_eq!(Timeout::new(i64::MIN), Timeout::Unlimited);
        assert_eq!(Timeout::new(0), Timeout::Zero);
        assert_eq!(Timeout::new(7), Timeout::After(7));
        assert_eq!(Timeout::new(-1).deadline(), None);
        assert!(Timeout::new(i64::MAX).deadline().is_some());
        assert!(Timeout::new(7).require_zero().is_err());
        assert!(Timeout::new(0).require_zero().is_ok());
    }
}
