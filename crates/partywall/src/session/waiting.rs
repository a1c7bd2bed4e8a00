// SPDX-License-Identifier: MIT OR Apache-2.0
//! Those who wait for something that all of a session share: a number, a stream, an answer, the end.
//!
//! ```text
//!   register ─▶ wakers, each once ─▶ take ─▶ wake, once no lock is held
//! ```

use std::task::{Context, Waker};

/// Wakers of those who wait for one kind of thing, each once.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    wakers: Vec<Waker>,
    /// So many may be noted before those who gave up are sorted out.
    bound: usize,
}

/// The least of such bounds.
const WAITING_BOUND_MIN: usize = 64;

impl Waiting {
    /// Notes who waits; those to be woken once no lock is held. Nobody tells when he gives up: now and then all
    /// are woken, and those who still wait come again.
    pub(super) fn register(&mut self, context: &Context<'_>) -> Vec<Waker> {
        if self.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            return Vec::new();
        }
        let mut woken = Vec::new();
        if self.wakers.len() >= self.bound.max(WAITING_BOUND_MIN) {
            woken = self.take();
            self.bound = 2 * woken.len();
        } else if self.wakers.is_empty() {
            self.bound = WAITING_BOUND_MIN;
        }
        self.wakers.push(context.waker().clone());
        woken
    }

    pub(super) fn take(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.wakers)
    }
}

/// Wakes all of them; no lock of ours may be held.
pub(super) fn wake(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}
