// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first process of a measurement: it opens a cell in the second, measures it once, and closes it.
//!
//! Each round makes a new connection, so no lucky or unlucky placement of memory lasts for a whole run.
//!
//! It does *not* know the scenarios' inner workings; they are one file each.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use hdrhistogram::Histogram;

use super::cell::{Cell, Scenario};
use super::control::{Child, Done, Request};
use super::lane::{Setup, Transport, Work, dispatch};
use super::measure::Round;
use super::watchdog::Watchdog;
use super::{connect, crowd, duplex, flood, idle, parallel, ping, rate, system};

/// The two processes, ready to measure.
pub struct Pair {
    /// The other one.
    pub child: Child,
    /// Ends everything if a measurement hangs.
    pub watchdog: Watchdog,
}

/// One batch, seen from both sides.
pub struct Batch<R> {
    /// What the parent's part returned.
    pub value: R,
    /// Wall-clock time from the first operation to the last, in nanoseconds.
    pub elapsed_ns: u64,
    /// CPU time of this process, in nanoseconds.
    pub cpu_ns: u64,
    /// The child's part.
    pub done: Done,
}

impl<R> Batch<R> {
    /// What the batch says of `ops` operations that carried `bytes` of payload.
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
        }
    }
}

impl Pair {
    /// Measures `cell` once, for about `duration`.
    pub fn measure(&mut self, cell: Cell, setup: &Setup, duration: Duration) -> Result<Round> {
        self.watchdog.arm(duration * DURATION_FACTOR + DURATION_ALLOWANCE);
        let measured = match cell.scenario {
            Scenario::Parallel => parallel::measure(cell, setup, duration, self),
            _ => dispatch(cell.transport, Part { cell, setup, duration, pair: self }),
        };
        self.watchdog.disarm();
        measured
            .map_err(|error| match self.child.failure() {
                Some(why) => anyhow!("{error:#}; the second process says: {why}"),
                None => error,
            })
            .with_context(|| format!("measuring {cell}"))
    }

    /// Runs one batch: `body` here, its counterpart in the child.
    pub fn batch<R>(
        &mut self,
        request: &Request,
        body: impl FnOnce() -> Result<R>,
    ) -> Result<Batch<R>> {
        self.child.begin(request)?;
        let batch = alone(body)?;
        Ok(Batch { done: self.child.finish()?, ..batch })
    }

    /// Runs a batch of `amount` operations (what they are is up to the scenario).
    pub fn run<R>(&mut self, amount: u64, body: impl FnOnce() -> Result<R>) -> Result<Batch<R>> {
        self.batch(&Request::Run { amount }, body)
    }

    /// Finds how many operations take about `duration`, warming everything up on the way. `body` does
    /// as many as it is told.
    pub fn calibrate(
        &mut self,
        duration: Duration,
        mut body: impl FnMut(u64) -> Result<()>,
    ) -> Result<u64> {
        calibrate(OPS_MIN, duration, |ops| Ok(self.run(ops, || body(ops))?.elapsed_ns))
    }
}

/// The parent's part in one cell.
struct Part<'a> {
    cell: Cell,
    setup: &'a Setup,
    duration: Duration,
    pair: &'a mut Pair,
}

impl Work for Part<'_> {
    type Output = Round;

    fn on<T: Transport>(self) -> Result<Round> {
        let Self { cell, setup, duration, pair } = self;
        let address = pair.child.open(cell, setup)?;
        let connect = || T::connect(setup, &address);
        let round = match cell.scenario {
            Scenario::Ping => ping::measure(cell, connect()?, duration, pair),
            Scenario::Flood => flood::measure(cell, connect()?, duration, pair),
            Scenario::Duplex => duplex::measure(cell, connect()?, duration, pair),
            Scenario::Rate => rate::measure(cell, connect()?, duration, pair),
            Scenario::Crowd => crowd::measure(cell, connect, duration, pair),
            Scenario::Connect => connect::measure(cell, connect, duration, pair),
            Scenario::Idle => idle::measure(cell, connect, duration, pair),
            Scenario::Parallel => bail!("parallel has lanes of its own"),
        }?;
        pair.child.close()?;
        Ok(round)
    }
}

/// Runs `body` without a counterpart in the child.
pub fn alone<R>(body: impl FnOnce() -> Result<R>) -> Result<Batch<R>> {
    let cpu_before_ns = system::process_cpu_ns();
    let start = Instant::now();
    let value = body()?;
    let elapsed_ns = nanoseconds(start.elapsed());
    let cpu_ns = system::process_cpu_ns() - cpu_before_ns;
    Ok(Batch { value, elapsed_ns, cpu_ns, done: Done::default() })
}

/// Finds how many operations take about `duration`, beginning with `ops_min`. `batch` does as many as it is told, and
/// returns how long that took.
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

/// A duration in nanoseconds; 584 years at most.
pub fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A slow moment may stretch a measurement this much, and then some, before it counts as hung.
const DURATION_FACTOR: u32 = 10;
const DURATION_ALLOWANCE: Duration = Duration::from_secs(20);

/// Warming up takes no longer than this for the batch that ends it.
const CALIBRATION_MAX: Duration = Duration::from_millis(20);

/// Operations of the smallest batch, unless told otherwise, and of the largest.
const OPS_MIN: u64 = 8;
const OPS_MAX: u64 = 1 << 28;
