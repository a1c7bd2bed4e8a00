// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clock that all processes of a machine share.
//!
//! The standard library reads it too, but keeps the number to itself; two processes that compare times
//! need the number.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC_COARSE`: as [`monotonic`], in steps of some milliseconds, for a tenth of the price. For those who want to do
/// something now and then.
///
/// ```
/// let earlier = partywall_sys::clock::coarse();
/// assert!(partywall_sys::clock::coarse() >= earlier);
/// ```
#[inline]
pub fn coarse() -> Duration {
    // As below.
    Duration::try_from(clock_gettime(ClockId::MonotonicCoarse)).unwrap_or_default()
}

/// `CLOCK_MONOTONIC`: time since some moment around boot, the same in every process of the machine (of
/// the same time namespace).
///
/// ```
/// let earlier = partywall_sys::clock::monotonic();
/// assert!(partywall_sys::clock::monotonic() >= earlier);
/// ```
#[inline]
pub fn monotonic() -> Duration {
    // It counts up from boot, so the conversion cannot fail.
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}
