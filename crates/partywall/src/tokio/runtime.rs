// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two services of the tokio runtime that sessions use: descriptors and the task budget.
//!
//! ```text
//!   watch_readable   descriptor ── readable ──▶ the runtime wakes the task
//!   within_budget    poll ─ budget left? ─ yes ─▶ the operation ─ ready ─▶ one less
//!                             └─ no ─▶ pending: the runtime polls the other tasks first
//! ```
//!
//! Without the budget, a task whose messages are always there would never yield its worker.
//! Operations that stay pending and those that never wait (`try_…`) cost nothing of it.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::coop::poll_proceed;

/// Registers a duplicate of `descriptor` with the runtime, which then reports when it is readable.
/// The duplicate stays open as long as the result lives.
///
/// # Errors
/// Duplicating the descriptor or registering it fails.
///
/// # Panics
/// Outside a tokio runtime with I/O enabled.
pub fn watch_readable(descriptor: BorrowedFd<'_>) -> io::Result<AsyncFd<OwnedFd>> {
    #[allow(deprecated, reason = "an OwnedFd keeps the promise that the new, unsafe name asks for")]
    AsyncFd::with_interest(descriptor.try_clone_to_owned()?, Interest::READABLE)
}

/// Polls an operation if the task has budget left, and charges the budget when it is ready.
#[inline]
pub(super) fn within_budget<T>(
    context: &mut Context<'_>,
    poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
) -> Poll<T> {
    // Before the poll: a message that the operation received could not be put back.
    let budget = ready!(poll_proceed(context));
    let polled = poll(context);
    if polled.is_ready() {
        budget.made_progress();
    }
    polled
}
