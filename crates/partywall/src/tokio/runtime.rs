// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two services of the tokio runtime that sessions use: readable descriptors, and the task
//! budget.
//!
//! ```text
//!   watch_readable   descriptor ── readable ──▶ the runtime wakes the task
//!   within_budget    poll ─ budget is left ─▶ poll the operation ─ ready ─▶ charge the budget
//!                      └─ no budget is left ─▶ pending: the runtime polls other tasks first
//! ```
//!
//! Without the budget, a task whose messages have always arrived would never yield its worker
//! thread. Operations that stay pending, and those that never wait (`try_…`), use no budget.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::coop::poll_proceed;

/// Registers a duplicate of `descriptor` with the runtime, which reports when it is readable. The
/// duplicate stays open as long as the result lives.
///
/// # Errors
/// Returns the error of duplicating or registering the descriptor.
///
/// # Panics
/// Panics outside a tokio runtime with I/O enabled.
pub fn watch_readable(descriptor: BorrowedFd<'_>) -> io::Result<AsyncFd<OwnedFd>> {
    #[allow(deprecated, reason = "an OwnedFd keeps the promise that the new, unsafe name asks for")]
    AsyncFd::with_interest(descriptor.try_clone_to_owned()?, Interest::READABLE)
}

/// Polls an operation if the task has some of tokio's budget left, which bounds the work of a task
/// between two pauses. Charges the budget when the operation is ready.
#[inline]
pub(super) fn within_budget<T>(
    context: &mut Context<'_>,
    poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
) -> Poll<T> {
    // Tokio's budget of the task is checked before the poll, because a message that the poll
    // received could not be put back.
    let budget = ready!(poll_proceed(context));
    let polled = poll(context);
    if polled.is_ready() {
        budget.made_progress();
    }
    polled
}
