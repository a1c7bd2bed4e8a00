// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks a thread until an operation that it polls has a result: the thread spins for a while,
//! then parks.
//!
//! ```text
//!   poll ─ ready ─▶ the result is returned
//!     └─ pending ─▶ spin and poll ─▶ park until the waker unparks the thread ─▶ poll …
//!                                     └─ the deadline passes ─▶ no result
//! ```
//!
//! The waker is a thread-local value, which is destroyed when its thread ends. Destructors of other
//! thread-local values may still call blocking operations afterwards. The thread then has no waker,
//! and polls the operation at intervals.

use partywall_wait::{SpinOutcome, Spinner, Wait};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    static WAKER: Waker = Waker::from(Arc::new(Unpark(thread::current())));
}

/// Polls an operation until its result is ready, and blocks the calling thread between two polls.
/// Returns `None` if the deadline passes first.
pub(super) fn wait_for<T>(
    wait: Wait,
    spinner: &mut Spinner,
    deadline: Option<Instant>,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Option<T> {
    let waker = WAKER.try_with(Waker::clone).ok();
    let mut context = Context::from_waker(waker.as_ref().unwrap_or(Waker::noop()));
    loop {
        if let Poll::Ready(value) = poll(&mut context) {
            return Some(value);
        }
        let mut found = None;
        let spun = spinner.spin(wait, || {
            if let Poll::Ready(value) = poll(&mut context) {
                found = Some(value);
            }
            found.is_some()
        });
        if let Some(value) = found {
            return Some(value);
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return None;
        }
        if spun == SpinOutcome::Exhausted {
            match left {
                _ if waker.is_none() => thread::sleep(left.unwrap_or(POLL_EVERY).min(POLL_EVERY)),
                Some(left) => thread::park_timeout(left),
                None => thread::park(),
            }
        }
    }
}

/// Interval between two polls of a thread without a waker: the thread is ending, and its
/// thread-local waker is destroyed already.
const POLL_EVERY: Duration = Duration::from_millis(1);

pub(super) fn poll_once<T>(poll: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Option<T> {
    match poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}
