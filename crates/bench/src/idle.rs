// SPDX-License-Identifier: MIT OR Apache-2.0
//! `idle`: a pair of channels that nobody uses; what should happen is nothing.
//!
//! ```text
//! parent: (nobody)        ─lane A─  thread in receive :child     each sleeping thread is watched for the
//!         thread in receive ─lane B─  (nobody)                   whole time; then one message ends its wait
//! ```
//! A thread that neither went to sleep again nor took a nanosecond of CPU has made no system call.

use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use super::cell::Cell;
use super::control::{Control, Done, Request};
use super::footprint::{Activity, ThreadFiles};
use super::lane::{Door, Lane};
use super::measure::{Round, SessionCost, histogram};
use super::parent::{Pair, nanoseconds};

/// The parent's part.
pub fn measure<L: Lane>(
    cell: Cell,
    connect: impl Fn() -> Result<L>,
    duration: Duration,
    pair: &mut Pair,
) -> Result<Round> {
    let mut outgoing = connect()?;
    let incoming = connect()?;
    let amount = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let batch = pair.run(amount, || watch_sleeper(cell, incoming, duration))?;
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
    })
}

/// The child's part.
pub fn hold<D: Door>(cell: Cell, door: &mut D, control: &Control) -> Result<()> {
    let mut incoming = Some(door.accept()?);
    let mut outgoing = door.accept()?;
    let mut sleeper = None;
    control.serve(|request| {
        let Request::Run { amount } = request else { bail!("idle only runs") };
        let Some(lane) = incoming.take() else {
            // The second batch: neither side watches any more, so the other's sleeper may wake.
            outgoing.send(cell.size, |m| cell.touch.fill(m, 0))?;
            outgoing.settle()?;
            return Ok(Done::default());
        };
        let (activity, thread) = watch_sleeper(cell, lane, Duration::from_millis(amount))?;
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

/// Starts a thread that receives, lets it fall asleep, and watches it for `duration`.
fn watch_sleeper<L: Lane>(
    cell: Cell,
    mut lane: L,
    duration: Duration,
) -> Result<(Activity, JoinHandle<Result<()>>)> {
    let (sender, files) = channel();
    let sleeper = thread::spawn(move || {
        sender.send(ThreadFiles::of_this_thread()?).context("the watching thread has gone")?;
        drop(sender);
        lane.receive(cell.size, |m| cell.touch.verify(m, 0))??;
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

/// Waits until the thread sleeps, and has done nothing for a while: it may be late on a busy machine.
fn once_asleep(files: &ThreadFiles) -> Result<Activity> {
    let mut last = files.activity()?;
    for _ in 0..LOOKS_MAX {
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

/// Time for a receiver to give up spinning and fall asleep.
const SETTLE: Duration = Duration::from_millis(100);
/// So often it is looked whether it has; spinning ends sooner than this by far.
const LOOKS_MAX: u32 = 300;
