// SPDX-License-Identifier: MIT OR Apache-2.0
//! `idle`: a pair of channels without messages, on which a blocked receiver should use no CPU time.
//!
//! ```text
//! parent: (unused)          ─channel A─  thread in receive :child     each sleeping thread is
//!         thread in receive ─channel B─  (unused)                     observed, then woken
//! ```
//! An observed thread that neither went to sleep again nor used a nanosecond of CPU time made no
//! system call during the observation.

use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use crate::harness::cell::Cell;
use crate::harness::clock::nanoseconds;
use crate::harness::control::{Control, Done, Request};
use crate::harness::footprint::{Activity, ThreadFiles};
use crate::harness::pair::Pair;
use crate::harness::round::{Round, SessionCost, histogram};
use crate::transport::{Acceptor, Endpoint};

/// Measures the scenario `idle` in the parent process: observes a receiver that sleeps there, and
/// returns the measurements.
pub fn measure<E: Endpoint + Send + 'static>(
    cell: Cell,
    connect: impl Fn() -> Result<E>,
    duration: Duration,
    pair: &mut Pair,
) -> Result<Round> {
    let mut outgoing = connect()?;
    let incoming = connect()?;
    let amount = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let batch = pair.run(amount, || observe_sleeper(cell, incoming, duration))?;
    let (activity, sleeper) = batch.value;
    outgoing.send(cell.size, |m| cell.touch.fill(m, 0))?;
    outgoing.settle()?;
    pair.run(0, || join(sleeper))?;
    let cost = SessionCost {
        wakeups: Some(activity.sleeps),
        idle_cpu_ns: Some(activity.cpu_ns),
        ..SessionCost::default()
    };
    Ok(Round {
        latency: histogram()?,
        ops: 0,
        elapsed_ns: nanoseconds(duration),
        bytes: 0,
        cpu_parent_ns: activity.cpu_ns,
        cpu_child_ns: batch.done.session.and_then(|s| s.idle_cpu_ns).unwrap_or(0),
        session: Some(cost.worse(batch.done.session.unwrap_or_default())),
        memory: None,
        over_socket: None,
        carrier: None,
    })
}

/// Runs the scenario `idle` in the child process: observes a receiver that sleeps there, and then
/// wakes the receiver of the parent process.
pub fn serve<A: Acceptor<Endpoint: Send + 'static>>(
    cell: Cell,
    acceptor: &mut A,
    control: &Control,
) -> Result<()> {
    let mut incoming = Some(acceptor.accept()?);
    let mut outgoing = acceptor.accept()?;
    let mut sleeper = None;
    control.serve(|request| {
        let Request::Run { amount } = request else { bail!("idle has no other request than run") };
        let Some(endpoint) = incoming.take() else {
            // In the second batch both processes have finished their observations. So the child now
            // sends a message. It wakes the parent's sleeping receiver, whose thread then ends.
            outgoing.send(cell.size, |m| cell.touch.fill(m, 0))?;
            outgoing.settle()?;
            return Ok(Done::default());
        };
        let (activity, thread) = observe_sleeper(cell, endpoint, Duration::from_millis(amount))?;
        sleeper = Some(thread);
        let session = SessionCost {
            wakeups: Some(activity.sleeps),
            idle_cpu_ns: Some(activity.cpu_ns),
            ..SessionCost::default()
        };
        Ok(Done { session: Some(session), ..Done::default() })
    })?;
    sleeper.map_or(Ok(()), join)
}

/// Starts a thread that receives, waits until the thread sleeps, and observes the thread for
/// `duration`.
fn observe_sleeper<E: Endpoint + Send + 'static>(
    cell: Cell,
    mut endpoint: E,
    duration: Duration,
) -> Result<(Activity, JoinHandle<Result<()>>)> {
    let (sender, files) = channel();
    let sleeper = thread::spawn(move || {
        sender.send(ThreadFiles::of_this_thread()?).context("the observing thread has gone")?;
        drop(sender);
        endpoint.receive(cell.size, |m| cell.touch.verify(m, 0))??;
        Ok(())
    });
    let files = files.recv().context("the sleeping thread did not start")?;
    let before = once_asleep(&files)?;
    thread::sleep(duration);
    let after = files.activity()?;
    let activity =
        Activity { sleeps: after.sleeps - before.sleeps, cpu_ns: after.cpu_ns - before.cpu_ns };
    Ok((activity, sleeper))
}

/// Waits until the observed thread sleeps and its counters have not changed for 100 ms (`SETTLE`);
/// returns the counters. (On a busy machine the thread may start late.)
fn once_asleep(files: &ThreadFiles) -> Result<Activity> {
    let mut last = files.activity()?;
    for _ in 0..CHECKS_MAX {
        thread::sleep(SETTLE);
        let now = files.activity()?;
        if now == last && files.is_asleep()? {
            return Ok(now);
        }
        last = now;
    }
    bail!("a thread that waits for a message never sleeps")
}

fn join(sleeper: JoinHandle<Result<()>>) -> Result<()> {
    sleeper.join().map_err(|_| anyhow!("the sleeping thread panicked"))?
}

/// Pause between two checks whether the thread sleeps: 100 ms, far longer than an adaptive receiver
/// spins before it sleeps.
const SETTLE: Duration = Duration::from_millis(100);
/// Maximum number of checks whether the observed thread sleeps: with 100 ms between them
/// (`SETTLE`), 30 seconds in total. If the thread does not sleep by then, the measurement fails.
const CHECKS_MAX: u32 = 300;
