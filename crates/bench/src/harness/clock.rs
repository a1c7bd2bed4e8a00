// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clocks of a measurement in nanoseconds: the monotonic clock, which all processes share, and
//! CPU time.

use std::time::Duration;

use partywall_sys::{clock, cpu};

/// The present time of `CLOCK_MONOTONIC` in nanoseconds: one clock for all processes of the
/// machine.
#[inline]
pub fn monotonic_ns() -> u64 {
    nanoseconds(clock::monotonic())
}

/// CPU time of all threads of this process so far, in nanoseconds.
pub fn process_cpu_ns() -> u64 {
    nanoseconds(cpu::process_cpu_time())
}

/// CPU time of the calling thread so far, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    nanoseconds(cpu::thread_cpu_time())
}

/// Converts a duration to nanoseconds; the result holds up to 584 years.
#[inline]
pub fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
