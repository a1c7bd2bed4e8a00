// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one measurement of one cell yields, and how rounds are put together.
//!
//! Latencies go into an HdrHistogram (three significant digits, 1 ns to 100 s); CPU time is that of both ends, all
//! threads, over the measured operations. In `parallel` no operation is timed by itself, as the rival does not
//! either: there the histogram is empty and the cost per operation is elapsed time over operations.

use std::time::Duration;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use partywall_sys::cpu;

/// One cell, measured in one round.
#[derive(Clone, Debug)]
pub struct Round {
    /// Latency of each operation in nanoseconds; empty in `parallel`.
    pub latency: Histogram<u64>,
    /// Round trips done, over all streams.
    pub ops: u64,
    /// Wall-clock time they took, in nanoseconds.
    pub elapsed_ns: u64,
    /// Payload bytes that crossed, both directions.
    pub bytes: u64,
    /// CPU time of both ends, in nanoseconds.
    pub cpu_ns: u64,
    /// Messages that a shared-memory transport sent over its socket because memory had run out.
    pub over_socket: u64,
}

impl Round {
    /// Elapsed time per operation (the inverse of throughput, *not* a latency), in nanoseconds.
    pub fn ns_per_op(&self) -> f64 {
        ratio(self.elapsed_ns, self.ops)
    }

    /// CPU time per operation, both ends, in nanoseconds.
    pub fn cpu_per_op(&self) -> f64 {
        ratio(self.cpu_ns, self.ops)
    }
}

/// Adds up rounds of the same cell; `None` if there are none.
pub fn pool<'a>(mut rounds: impl Iterator<Item = &'a Round>) -> Option<Round> {
    let mut sum = rounds.next()?.clone();
    for round in rounds {
        sum.latency.add(&round.latency).ok()?; // same bounds everywhere, so nothing can fall outside
        sum.ops += round.ops;
        sum.elapsed_ns += round.elapsed_ns;
        sum.bytes += round.bytes;
        sum.cpu_ns += round.cpu_ns;
        sum.over_socket += round.over_socket;
    }
    Some(sum)
}

/// An empty histogram with the bounds used everywhere.
pub fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).context("making a histogram")
}

/// `a / b` as a float, 0 if there is nothing to divide by.
#[expect(clippy::cast_precision_loss, reason = "a quotient for people; 52 bits are plenty")]
pub fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

/// A duration in nanoseconds; 584 years at most.
pub fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// CPU time of all threads of this process so far, in nanoseconds.
pub fn process_cpu_ns() -> u64 {
    nanoseconds(cpu::process_cpu_time())
}

/// Values above count as this one.
const LATENCY_NS_MAX: u64 = 100_000_000_000;
