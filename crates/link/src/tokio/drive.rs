// SPDX-License-Identifier: MIT OR Apache-2.0
//! The task that drives a group: an event loop over the group's descriptor and its next timer.
//!
//! ```text
//!   turn ─▶ deliver notices ─▶ is anything still ready? ─ yes ─▶ let other tasks run, turn again
//!                                   └ no ─▶ sleep: descriptor, timer, nudge ─▶ turn
//! ```
//!
//! # No future is left asleep
//!
//! A future registers with its link's notices before it checks the link. So every change of a link
//! must be followed by a notice:
//!
//! - The group lists the links that the task's own turn changed, and the task delivers their
//!   notices after the turn.
//! - Another task that changes a link notifies its futures after the change (`Notices::acted`).
//! - An operation on a link without a connection makes a turn of the group by itself. That turn may
//!   consume what the driver task would have found: ready descriptors, the doorbell, timers, links
//!   for a server. The operation then nudges the driver task (`GroupShared::nudge`), and the task
//!   checks everything. Only the driver task removes links from the group's list, and it reads the
//!   next timer after such a turn.
//! - Closing a link (`shutdown.rs`) uses a thread that drives until all bytes are out. Meanwhile
//!   the task checks at intervals, and the thread nudges the task at the end.
//! - The group's doorbell is notified if a link has an acknowledgement to send, or has to announce
//!   to its peer that it sleeps. It is also notified if a link has events that the task did not
//!   find.
//!
//! The runtime reports the descriptor only once when it becomes ready. It does not report readiness
//! that is left after a turn, for example if more was ready than one turn handles. So the task
//! polls the descriptor itself before it sleeps.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use partywall_sys::Timer as Clock;
use partywall_sys::poll::{self, PollFd, PollFlags};
use tokio::io::unix::AsyncFd;
use tokio::task::yield_now;

use super::group::GroupShared;
use partywall::tokio::watch_readable;

/// Spawns the driver task of a group. The caller must already have a `Hold`, a reference that keeps
/// the task running: without one the task ends.
pub(super) fn start(shared: Arc<GroupShared>) -> io::Result<()> {
    let clock = Clock::new()?;
    let mut drive = Drive {
        descriptor: watch_readable(shared.group.as_fd())?,
        time: watch_readable(clock.as_fd())?,
        clock,
        set_to: None,
        shared: Arc::clone(&shared),
    };
    // If the runtime shuts down or a callback panics, the driver task ends at an await, and the
    // guard `Over` is dropped, which wakes the futures that wait for the task.
    let over = Over(shared);
    tokio::spawn(async move {
        if let Err(fault) = drive.run().await {
            over.0.over(fault);
        }
    });
    Ok(())
}

struct Drive {
    shared: Arc<GroupShared>,
    descriptor: AsyncFd<OwnedFd>,
    /// A timer descriptor for the group's next timer. A timer of tokio would not do, because the
    /// application's runtime may have timers disabled.
    clock: Clock,
    time: AsyncFd<OwnedFd>,
    set_to: Option<Instant>,
}

/// A guard of the driver task. When the task ends, the guard is dropped and wakes all futures of
/// the group.
struct Over(Arc<GroupShared>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.over(io::Error::other("the task that drives this group of links has ended"));
    }
}

impl Drive {
    /// Drives the group until the last `Hold` is dropped; a hold is a reference that keeps this
    /// task running.
    async fn run(&mut self) -> io::Result<()> {
        let mut is_nudged = false;
        loop {
            self.shared.group.try_poll()?;
            self.shared.deliver(is_nudged);
            if !self.shared.is_held() {
                return Ok(());
            }
            if self.is_ready()? {
                is_nudged = false;
                yield_now().await;
                continue;
            }
            is_nudged = self.sleep().await?;
        }
    }

    fn is_ready(&self) -> io::Result<bool> {
        let mut descriptors = [PollFd::from_borrowed_fd(self.shared.group.as_fd(), PollFlags::IN)];
        Ok(poll::wait(&mut descriptors, Some(Instant::now()))? > 0)
    }

    /// Makes the driver task sleep until there may be work. Returns true if the group itself does
    /// not know of that work, so that all links and servers have to be checked.
    async fn sleep(&mut self) -> io::Result<bool> {
        let is_closing = self.shared.has_closings();
        let look = is_closing.then(|| Instant::now() + LOOKED_EVERY);
        let until = self.shared.group.next_timer().into_iter().chain(look).min();
        if until != self.set_to {
            self.clock.set(until)?;
            self.set_to = until;
        }
        tokio::select! {
            biased;
            () = self.shared.nudge.notified() => return Ok(true),
            ready = self.descriptor.readable() => ready?.clear_ready(),
            ready = self.time.readable() => {
                ready?.clear_ready();
                self.set_to = None;
            }
        }
        Ok(is_closing)
    }
}

/// Interval at which the driver task checks all links while a blocking thread closes a link. That
/// thread may consume the readiness that the group's descriptor would report to the task.
const LOOKED_EVERY: Duration = Duration::from_millis(5);
