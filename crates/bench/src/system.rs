// SPDX-License-Identifier: MIT OR Apache-2.0
//! The few things that only measuring needs from the kernel: a clock both processes share, CPU time as numbers,
//! timers that are on time, and an eventfd that blocks.

use std::io;
use std::os::fd::OwnedFd;

use partywall_sys::{clock, cpu, eventfd};

use super::parent::nanoseconds;

/// Nanoseconds of `CLOCK_MONOTONIC`: the same clock in every process of the machine.
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

/// Asks for timers of the main thread that are not late on purpose (the default allows the kernel 50 µs).
///
/// Where the kernel refuses, pauses end later and the sender spins less; what is measured stays right.
pub fn sleep_precisely() {
    let _ = std::fs::write("/proc/self/timerslack_ns", "1");
}

/// A counter that blocks its reader while it is 0; the library's own bells never block.
pub fn blocking_eventfd() -> io::Result<OwnedFd> {
    eventfd::blocking_counter()
}
