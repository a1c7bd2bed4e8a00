// SPDX-License-Identifier: MIT OR Apache-2.0
//! Deadlines for tests: instants, conditions, futures, and a watchdog that aborts a test that
//! hangs.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;

/// The longest time that a test waits: an operation that takes longer has failed, even on a loaded
/// machine.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// The instant at which the time limit of tests ([`TIMEOUT`]), counted from now, is over: a
/// deadline that only a faulty program misses.
pub fn soon() -> Instant {
    within(TIMEOUT)
}

/// The instant that is `limit` from now.
pub fn within(limit: Duration) -> Instant {
    Instant::now() + limit
}

/// Returns a duration of `count` milliseconds.
pub const fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Waits until `holds` returns true, and panics after the time limit of tests ([`TIMEOUT`]). The
/// calling thread yields the processor between two checks.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = soon();
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within {TIMEOUT:?}");
        std::thread::yield_now();
    }
}

/// Aborts the process if a test does not end in time. So a hang is noticed even in a call that has
/// no deadline.
#[derive(Debug)]
pub struct Watchdog {
    _alive: Sender<()>,
}

impl Watchdog {
    /// Starts a watchdog for a test. If the returned value is not dropped within `limit`, the
    /// process prints `what` and aborts.
    pub fn new(what: &'static str, limit: Duration) -> Self {
        let (alive, ended) = channel();
        std::thread::spawn(move || {
            if ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{what}: hung for {limit:?}");
                std::process::abort();
            }
        });
        Self { _alive: alive }
    }
}

/// Waits until `future` is done, and fails after the time limit of tests ([`TIMEOUT`]).
pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(TIMEOUT, future).await;
    waited.unwrap_or_else(|_| panic!("{what}: not within {TIMEOUT:?}"))
}

/// Lets other tasks run until `holds` returns true, and fails after the time limit of tests
/// ([`TIMEOUT`]).
pub async fn until_async(what: &str, mut holds: impl FnMut() -> bool) {
    in_time(what, async {
        while !holds() {
            tokio::time::sleep(millis(1)).await;
        }
    })
    .await;
}

/// Runs a future on a runtime of two threads, and fails after `limit`.
pub fn run<T>(what: &str, limit: Duration, future: impl Future<Output = T>) -> T {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let ended = runtime.block_on(async { tokio::time::timeout(limit, future).await });
    let ended = ended.unwrap_or_else(|_| panic!("{what}: hung for {limit:?}"));
    runtime.shutdown_timeout(Duration::from_secs(10));
    ended
}

/// Runs a future on a runtime that uses only the thread of the test, and fails after `limit`.
pub fn run_alone<T>(what: &str, limit: Duration, future: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let ended = runtime.block_on(async { tokio::time::timeout(limit, future).await });
    ended.unwrap_or_else(|_| panic!("{what}: hung for {limit:?}"))
}

/// Polls a future `polls` times and then drops it, as a caller does that cancels an operation.
pub async fn give_up_after<F: Future>(polls: u64, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    })
    .await
}
