// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs batches of measured operations in which parent and child process both take part, and
//! calibrates the number of operations per batch.

use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;

use super::clock::{nanoseconds, process_cpu_ns};
use super::control::{Child, Done, Request};
use super::round::Round;
use super::watchdog::Watchdog;

/// The parent's handles for a run: the child process, and the watchdog, which ends the parent if a
/// measurement hangs. The child then exits, because its stdin ends.
pub struct Pair {
    /// The child process, which runs one end of each connection; the parent process runs the other
    /// end.
    pub child: Child,
    /// The argument with which this program is started again, as the client process of one
    /// connection.
    pub child_command: &'static str,
    /// The watchdog, which ends the run if a measurement hangs.
    pub watchdog: Watchdog,
}

/// The results of one batch of operations, as parent and child process measured them.
pub struct Batch<R> {
    /// The result of the closure that performed the parent's part of the batch of operations.
    pub value: R,
    /// Elapsed time of the batch from its first operation to its last, in nanoseconds.
    pub elapsed_ns: u64,
    /// CPU time of the parent process in the batch of operations, in nanoseconds.
    pub cpu_ns: u64,
    /// The measurements that the child process made during its part of the batch of operations.
    pub done: Done,
}

impl<R> Batch<R> {
    /// The results of the batch as a [`Round`] of `ops` operations that carried `bytes` bytes of
    /// payload.
    pub fn round(&self, ops: u64, bytes: u64, latency: Histogram<u64>) -> Round {
        Round {
            latency,
            ops,
            elapsed_ns: self.elapsed_ns,
            bytes,
            cpu_parent_ns: self.cpu_ns,
            cpu_child_ns: self.done.cpu_ns,
            session: None,
            memory: None,
            over_socket: None,
            carrier: None,
        }
    }
}

impl Pair {
    /// Runs one batch of operations: calls `body` in this process while the child performs its
    /// part, which `request` describes.
    pub fn batch<R>(
        &mut self,
        request: &Request,
        body: impl FnOnce() -> Result<R>,
    ) -> Result<Batch<R>> {
        self.child.begin(request)?;
        let batch = alone(body)?;
        Ok(Batch { done: self.child.finish()?, ..batch })
    }

    /// Runs a batch of `amount` operations, sessions or milliseconds, as the scenario defines the
    /// unit.
    pub fn run<R>(&mut self, amount: u64, body: impl FnOnce() -> Result<R>) -> Result<Batch<R>> {
        self.batch(&Request::Run { amount }, body)
    }

    /// Returns how many operations take about `duration`; its batches also warm both processes up.
    /// `body` performs as many operations as its argument says.
    pub fn calibrate(
        &mut self,
        duration: Duration,
        mut body: impl FnMut(u64) -> Result<()>,
    ) -> Result<u64> {
        calibrate(OPS_MIN, duration, |ops| Ok(self.run(ops, || body(ops))?.elapsed_ns))
    }
}

/// Runs a batch of operations in which the child process takes no part: calls `body` in this
/// process, and measures its elapsed time and CPU time.
pub fn alone<R>(body: impl FnOnce() -> Result<R>) -> Result<Batch<R>> {
    let cpu_before_ns = process_cpu_ns();
    let start = Instant::now();
    let value = body()?;
    let elapsed_ns = nanoseconds(start.elapsed());
    let cpu_ns = process_cpu_ns() - cpu_before_ns;
    Ok(Batch { value, elapsed_ns, cpu_ns, done: Done::default() })
}

/// Returns how many operations take about `duration`, at least `ops_min`. `batch` performs as many
/// operations as its argument says and returns the elapsed time in nanoseconds.
pub fn calibrate(
    ops_min: u64,
    duration: Duration,
    mut batch: impl FnMut(u64) -> Result<u64>,
) -> Result<u64> {
    let enough_ns = nanoseconds((duration / 10).min(CALIBRATION_MAX)).max(1);
    let mut ops = ops_min;
    loop {
        let elapsed_ns = batch(ops)?.max(1);
        if elapsed_ns >= enough_ns || ops >= OPS_MAX {
            let wanted = u128::from(ops) * duration.as_nanos() / u128::from(elapsed_ns);
            return Ok(u64::try_from(wanted).unwrap_or(OPS_MAX).clamp(ops_min, OPS_MAX));
        }
        ops *= 4;
    }
}

/// Shortest elapsed time of a batch of operations from which the number of operations per duration
/// is computed; a tenth of the wanted duration if that is shorter.
const CALIBRATION_MAX: Duration = Duration::from_millis(20);

/// Minimum and maximum number of operations of one batch. The caller may set another minimum.
const OPS_MIN: u64 = 8;
const OPS_MAX: u64 = 1 << 28;

#[cfg(test)]
mod tests {
    use super::*;

    /// Calibrates with simulated batches, in which each operation takes `op_ns` nanoseconds.
    /// Returns the calibrated number of operations, and the size of each batch.
    fn calibrated(ops_min: u64, duration: Duration, op_ns: u64) -> (u64, Vec<u64>) {
        let mut batches = Vec::new();
        let amount = calibrate(ops_min, duration, |ops| {
            batches.push(ops);
            Ok(ops.saturating_mul(op_ns))
        });
        (amount.unwrap(), batches)
    }

    #[test]
    fn amounts_scale_with_time_and_stay_in_bounds() {
        let duration = Duration::from_millis(100);
        let (amount, batches) = calibrated(OPS_MIN, duration, 1000);
        assert_eq!(amount, 100_000);
        // Expected result of the calibration: each batch has four times as many operations as the
        // batch before, and the last batch takes at least a tenth of `duration`.
        assert!(batches.is_sorted_by(|a, b| 4 * a == *b), "{batches:?}");
        assert!(batches.last().is_some_and(|last| (10_000..40_000).contains(last)), "{batches:?}");
        // Input: one operation takes longer than the whole duration. Expected result of the
        // calibration: the minimum number of operations, in a single batch.
        assert_eq!(calibrated(1, duration, 10_000_000_000), (1, vec![1]));
        assert_eq!(calibrated(OPS_MIN, duration, 10_000_000_000), (OPS_MIN, vec![OPS_MIN]));
        // Input: operations that take no time at all. Expected result of the calibration: the
        // maximum number of operations.
        let (amount, batches) = calibrated(OPS_MIN, Duration::from_secs(100), 0);
        assert_eq!(amount, OPS_MAX);
        assert!(batches.last().is_some_and(|last| *last < 4 * OPS_MAX), "{batches:?}");
    }
}
