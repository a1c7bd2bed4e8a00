// SPDX-License-Identifier: MIT OR Apache-2.0
//! The monotonic clock, as a number that all processes of a machine share.
//!
//! The standard library reads the same clock but hides the number, which two processes need to
//! compare times.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC_COARSE`: as [`monotonic`], in steps of some milliseconds, at a tenth of the
/// cost. For periodic work.
///
/// ```
/// let earlier = partywall_sys::clock::coarse();
/// assert!(partywall_sys::clock::coarse() >= earlier);
/// ```
#[inline]
pub fn coarse() -> Duration {
    // It counts up from boot, so the conversion cannot fail.
    Duration::try_from(clock_gettime(ClockId::MonotonicCoarse)).unwrap_or_default()
}

/// `CLOCK_MONOTONIC`: time since about boot, the same in every process of the machine that is in
/// the same time namespace.
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
