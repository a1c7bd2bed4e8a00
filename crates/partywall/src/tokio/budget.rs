// SPDX-License-Identifier: MIT OR Apache-2.0
//! The budget that tokio gives a task before it has to let others run.
//!
//! ```text
//!   poll ─ budget left? ─ yes ─▶ the operation ─ ready ─▶ one less
//!            └─ no ─▶ pending: the task is woken when the others have run
//! ```
//!
//! Without it a task whose messages are always there would never let go of its worker. Operations that
//! find nothing, and those that never wait (`try_…`), cost nothing of it.

use std::task::{Context, Poll, ready};
use tokio::task::coop::poll_proceed;

/// Polls an operation if the task may go on, and charges it when it is done.
#[inline]
pub(super) fn within_budget<T>(
    context: &mut Context<'_>,
    poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
) -> Poll<T> {
    // Asked before: what was taken could not be given back.
    let budget = ready!(poll_proceed(context));
    let polled = poll(context);
    if polled.is_ready() {
        budget.made_progress();
    }
    polled
}
