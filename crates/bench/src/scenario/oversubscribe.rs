// SPDX-License-Identifier: MIT OR Apache-2.0
//! `oversubscribe`: many ping-pong pairs at once, more runnable threads than cores.
//!
//! ```text
//! parent: thread 0 ─pair 0─ thread 0 :child     each pair exchanges messages until the end;
//!         thread 1 ─pair 1─ thread 1            the head of a message marks the last one
//!         …                 …
//!         busy × k          busy × k               optional threads that only burn CPU
//! ```
//! The head of a message is its first word. A receiver that spins takes CPU time from other pairs.
//! The reported CPU time is that of the pairs: the time of the busy threads is subtracted.

use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use hdrhistogram::Histogram;

use crate::harness::cell::Cell;
use crate::harness::clock::nanoseconds;
use crate::harness::clock::thread_cpu_ns;
use crate::harness::control::{Control, Done, Request};
use crate::harness::pair::Pair;
use crate::harness::pattern::REPLY;
use crate::harness::round::{Round, histogram};
use crate::transport::{Acceptor, Endpoint};

/// Measures `oversubscribe` in the parent process, which has one thread of each pair, and returns
/// the measurements.
pub fn measure<E: Endpoint + Send + 'static>(
    cell: Cell,
    connect: impl Fn() -> Result<E>,
    duration: Duration,
    pair: &mut Pair,
) -> Result<Round> {
    let mut endpoints = (0..cell.streams).map(|_| connect()).collect::<Result<Vec<_>>>()?;
    pair.run(0, || exchange(cell, &mut endpoints, WARM_UP))?;
    let batch = pair.run(0, || exchange(cell, &mut endpoints, duration))?;
    let (latency, busy_cpu_ns) = &batch.value;
    let ops = latency.len();
    let round = batch.round(ops, 2 * ops * cell.size as u64, latency.clone());
    Ok(Round { cpu_parent_ns: round.cpu_parent_ns.saturating_sub(*busy_cpu_ns), ..round })
}

/// Runs the scenario `oversubscribe` in the child process, which has the other thread of each pair.
pub fn serve<A: Acceptor<Endpoint: Send + 'static>>(
    cell: Cell,
    acceptor: &mut A,
    control: &Control,
) -> Result<()> {
    let mut endpoints = (0..cell.streams).map(|_| acceptor.accept()).collect::<Result<Vec<_>>>()?;
    control.serve(|request| {
        let Request::Run { .. } = request else {
            bail!("oversubscribe has no other request than run")
        };
        let ((), busy_cpu_ns) = with_busy_threads(cell.busy, || {
            thread::scope(|scope| {
                let threads: Vec<_> = endpoints
                    .iter_mut()
                    .map(|endpoint| scope.spawn(|| echo_until_last(cell, endpoint)))
                    .collect();
                threads.into_iter().try_for_each(join)
            })
        })?;
        Ok(Done { busy_cpu_ns, ..Done::default() })
    })
}

/// Lets all pairs of threads exchange messages at once for `duration`; returns their latencies and
/// the CPU time of the busy threads.
fn exchange<E: Endpoint + Send>(
    cell: Cell,
    endpoints: &mut [E],
    duration: Duration,
) -> Result<(Histogram<u64>, u64)> {
    let end = Instant::now() + duration;
    with_busy_threads(cell.busy, || {
        thread::scope(|scope| {
            let threads: Vec<_> = endpoints
                .iter_mut()
                .map(|endpoint| scope.spawn(move || ping_until(cell, endpoint, end)))
                .collect();
            let mut all = histogram()?;
            for thread in threads {
                all.add(join(thread)?).map_err(|error| anyhow!("adding up latencies: {error}"))?;
            }
            Ok(all)
        })
    })
}

fn ping_until(cell: Cell, endpoint: &mut impl Endpoint, end: Instant) -> Result<Histogram<u64>> {
    let Cell { size, touch, .. } = cell;
    let mut latency = histogram()?;
    let mut start = Instant::now();
    for sequence in 0.. {
        let is_last = start >= end;
        let head = if is_last { LAST } else { MORE };
        endpoint.send(size, |m| touch.fill_headed(m, head, sequence))?;
        endpoint.receive(size, |m| touch.verify(m, sequence | REPLY))??;
        let now = Instant::now();
        latency.saturating_record(nanoseconds(now - start));
        start = now;
        if is_last {
            break;
        }
    }
    Ok(latency)
}

fn echo_until_last(cell: Cell, endpoint: &mut impl Endpoint) -> Result<()> {
    let Cell { size, touch, .. } = cell;
    for sequence in 0.. {
        let head = endpoint.receive(size, |m| touch.verify_headed(m, sequence))??;
        endpoint.send(size, |m| touch.fill(m, sequence | REPLY))?;
        match head {
            MORE => {}
            LAST => break,
            other => bail!("the head of a message is {other:#x}"),
        }
    }
    endpoint.settle()
}

fn join<R>(thread: ScopedJoinHandle<'_, Result<R>>) -> Result<R> {
    thread.join().map_err(|_| anyhow!("a measuring thread panicked"))?
}

/// Runs `body` while `count` threads burn CPU; also returns their CPU time in nanoseconds.
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

/// Computes until the sender of `stopped` is dropped; returns the thread's CPU time in nanoseconds.
fn burn(stopped: &Receiver<()>) -> u64 {
    let before_ns = thread_cpu_ns();
    let mut number = 1_u64;
    while stopped.try_recv() == Err(TryRecvError::Empty) {
        for _ in 0..BURN_STEPS {
            number = std::hint::black_box(number.wrapping_mul(3));
        }
    }
    thread_cpu_ns() - before_ns
}

/// Values of the first word of a message (its head): `MORE` if another message follows, `LAST` if
/// this message is the last.
const MORE: u64 = 0;
const LAST: u64 = 1;

/// Duration of the warm-up: the pairs exchange messages before the measurement, and their latencies
/// in that time are not recorded.
const WARM_UP: Duration = Duration::from_millis(20);

/// Number of multiplications of a busy thread between two checks whether it has to stop; it is
/// large, so that the checks take no noticeable time.
const BURN_STEPS: u32 = 10_000;
