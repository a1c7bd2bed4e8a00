// SPDX-License-Identifier: MIT OR Apache-2.0
//! `crowd`: many ping-pong pairs at once, more runnable threads than cores; who spins takes time from others.
//!
//! ```text
//! parent: thread 0 ─lane 0─ thread 0 :child        each pair plays ping-pong until the time is over;
//!         thread 1 ─lane 1─ thread 1               the head of a message says whether it is the last
//!         …                 …
//!         busy × k          busy × k               optional threads that only burn CPU
//! ```
//! CPU time is that of the pairs: the busy threads' own is taken out.

use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use hdrhistogram::Histogram;

use super::cell::Cell;
use super::control::{Control, Done, Request};
use super::lane::{Door, Lane};
use super::measure::{Round, histogram};
use super::parent::{Pair, nanoseconds};
use super::pattern::REPLY;
use super::system;

/// The parent's part.
pub fn measure<L: Lane>(
    cell: Cell,
    connect: impl Fn() -> Result<L>,
    duration: Duration,
    pair: &mut Pair,
) -> Result<Round> {
    let mut lanes = (0..cell.streams).map(|_| connect()).collect::<Result<Vec<_>>>()?;
    pair.run(0, || play(cell, &mut lanes, WARM_UP))?;
    let batch = pair.run(0, || play(cell, &mut lanes, duration))?;
    let (latency, busy_cpu_ns) = &batch.value;
    let ops = latency.len();
    let round = batch.round(ops, 2 * ops * cell.size as u64, latency.clone());
    Ok(Round { cpu_parent_ns: round.cpu_parent_ns.saturating_sub(*busy_cpu_ns), ..round })
}

/// The child's part.
pub fn echo<D: Door>(cell: Cell, door: &mut D, control: &Control) -> Result<()> {
    let mut lanes = (0..cell.streams).map(|_| door.accept()).collect::<Result<Vec<_>>>()?;
    control.serve(|request| {
        let Request::Run { .. } = request else { bail!("crowd only runs") };
        let ((), busy_cpu_ns) = with_busy_threads(cell.busy, || {
            thread::scope(|scope| {
                let threads: Vec<_> = lanes
                    .iter_mut()
                    .map(|lane| scope.spawn(|| echo_until_last(cell, lane)))
                    .collect();
                threads.into_iter().try_for_each(join)
            })
        })?;
        Ok(Done { busy_cpu_ns, ..Done::default() })
    })
}

/// All pairs at once for `duration`; returns every latency and the CPU time of the busy threads.
fn play<L: Lane>(cell: Cell, lanes: &mut [L], duration: Duration) -> Result<(Histogram<u64>, u64)> {
    let end = Instant::now() + duration;
    with_busy_threads(cell.busy, || {
        thread::scope(|scope| {
            let threads: Vec<_> = lanes
                .iter_mut()
                .map(|lane| scope.spawn(move || ping_until(cell, lane, end)))
                .collect();
            let mut all = histogram()?;
            for thread in threads {
                all.add(join(thread)?).map_err(|error| anyhow!("adding up latencies: {error}"))?;
            }
            Ok(all)
        })
    })
}

fn ping_until(cell: Cell, lane: &mut impl Lane, end: Instant) -> Result<Histogram<u64>> {
    let Cell { size, touch, .. } = cell;
    let mut latency = histogram()?;
    let mut start = Instant::now();
    for sequence in 0.. {
        let is_last = start >= end;
        let head = if is_last { LAST } else { MORE };
        lane.send(size, |m| touch.fill_headed(m, head, sequence))?;
        lane.receive(size, |m| touch.verify(m, sequence | REPLY))??;
        let now = Instant::now();
        latency.saturating_record(nanoseconds(now - start));
        start = now;
        if is_last {
            break;
        }
    }
    Ok(latency)
}

fn echo_until_last(cell: Cell, lane: &mut impl Lane) -> Result<()> {
    let Cell { size, touch, .. } = cell;
    for sequence in 0.. {
        let head = lane.receive(size, |m| touch.verify_headed(m, sequence))??;
        lane.send(size, |m| touch.fill(m, sequence | REPLY))?;
        match head {
            MORE => {}
            LAST => break,
            other => bail!("the head of a message is {other:#x}"),
        }
    }
    lane.settle()
}

fn join<R>(thread: ScopedJoinHandle<'_, Result<R>>) -> Result<R> {
    thread.join().map_err(|_| anyhow!("a measuring thread panicked"))?
}

/// Runs `body` while `count` threads burn CPU; also returns how much they burnt, in nanoseconds.
fn with_busy_threads<R>(count: usize, body: impl FnOnce() -> Result<R>) -> Result<(R, u64)> {
    thread::scope(|scope| {
        let (threads, stops): (Vec<_>, Vec<Sender<()>>) = (0..count)
            .map(|_| {
                let (stop, stopped) = channel();
                (scope.spawn(move || burn(&stopped)), stop)
            })
            .unzip();
        let value = body();
        drop(stops);
        let mut burnt_ns = 0;
        for thread in threads {
            burnt_ns += thread.join().map_err(|_| anyhow!("a busy thread panicked"))?;
        }
        Ok((value?, burnt_ns))
    })
}

/// Computes until `stopped` is cut off; returns the CPU time it took.
fn burn(stopped: &Receiver<()>) -> u64 {
    let before_ns = system::thread_cpu_ns();
    let mut number = 1_u64;
    while stopped.try_recv() == Err(TryRecvError::Empty) {
        for _ in 0..BURN_STEPS {
            number = std::hint::black_box(number.wrapping_mul(3));
        }
    }
    system::thread_cpu_ns() - before_ns
}

/// Heads of messages: another will follow, or not.
const MORE: u64 = 0;
const LAST: u64 = 1;

/// How long the pairs play before they are measured.
const WARM_UP: Duration = Duration::from_millis(20);

/// Computations of a busy thread between two looks at whether it may stop.
const BURN_STEPS: u32 = 10_000;
