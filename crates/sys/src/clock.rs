// SPDX-License-Identifier: MIT OR Apache-2.0
//! The monotonic clock, as a number that all processes of a machine share; and the time of day.
//!
//! The `Instant` of the standard library reads the same clock, but hides the number. Two processes
//! need the number to compare their times.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// Time of `CLOCK_MONOTONIC_COARSE`: like [`monotonic`], but in steps of some milliseconds and at a
/// tenth of the cost. Callers use the function for periodic work.
///
/// ```
/// let earlier = partywall_sys::clock::coarse();
/// assert!(partywall_sys::clock::coarse() >= earlier);
/// ```
#[inline]
pub fn coarse() -> Duration {
    // The monotonic clock counts up from boot, so the conversion cannot fail.
    Duration::try_from(clock_gettime(ClockId::MonotonicCoarse)).unwrap_or_default()
}

/// Time of `CLOCK_MONOTONIC`: it counts from about the boot, and is the same in all processes of
/// one time namespace.
///
/// ```
/// let earlier = partywall_sys::clock::monotonic();
/// assert!(partywall_sys::clock::monotonic() >= earlier);
/// ```
#[inline]
pub fn monotonic() -> Duration {
    // The monotonic clock counts up from boot, so the conversion cannot fail.
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

/// The time of day in nanoseconds since 1970, for tools and operators; 0 if the clock is set before
/// 1970 or after 2554. It takes no system call where the kernel offers its clock as a function.
///
/// ```
/// assert!(partywall_sys::clock::unix_time_ns() > 1_700_000_000_000_000_000);
/// ```
pub fn unix_time_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(0)
}
