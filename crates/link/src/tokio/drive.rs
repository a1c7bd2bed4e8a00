// SPDX-License-Identifier: MIT OR Apache-2.0
//! The task that drives a group: an event loop as any other, with the group's descriptor and its next timer.
//!
//! ```text
//!   turn ─▶ hand on the news ─▶ anything ready still? ─ yes ─▶ let the others run, turn again
//!                                   └ no ─▶ sleep: descriptor, timer, nudge ─▶ turn
//! ```
//!
//! # No future is left asleep
//!
//! A future is registered with its link's news before it looks. So it is enough that after every change somebody tells the news.
//!
//! - What the task's own turn changes, the group lists, and the task hands it on after the turn.
//! - What an operation of another task changes at its own link, that task tells when it is done (`Notices::acted`).
//! - An operation on a link without a connection makes a turn by itself, and so may find what is the task's to find: descriptors
//!   that were ready, the bell, timers, links for a server. It nudges afterwards, and the task looks at everything: only the task takes
//!   anything off the group's list, and it reads the next timer when the turn of the other is over.
//! - Closing (`closing.rs`) has a thread that drives until all is out. Meanwhile the task looks at intervals, and is nudged at the end.
//! - An acknowledgement that is owed rings the group's bell, whoever owes it; so does a link whose neighbour is to ring it from now
//!   on, and one that has news which the task did not find.
//!
//! The runtime tells of the descriptor once, when it becomes ready; what a turn leaves, as when more is ready than it takes at a
//! time, it would not tell of again. So the descriptor itself is asked before sleeping.

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

/// Starts the task of a group, of which there is a hold.
pub(super) fn start(shared: Arc<GroupShared>) -> io::Result<()> {
    let clock = Clock::new()?;
    let mut drive = Drive {
        descriptor: watch_readable(shared.group.as_fd())?,
        time: watch_readable(clock.as_fd())?,
        clock,
        set_to: None,
        shared: Arc::clone(&shared),
    };
    // A runtime that ends, or a callback that panics, ends the task without a word of its own.
    let over = Over(shared);
    tokio::spawn(async move {
        if let Err(fault) = drive.run().await {
            over.0.over(fault);
        }
    });
    Ok(())
}

/// See the module.
struct Drive {
    shared: Arc<GroupShared>,
    descriptor: AsyncFd<OwnedFd>,
    /// A descriptor, because a runtime may have no timers.
    clock: Clock,
    time: AsyncFd<OwnedFd>,
    set_to: Option<Instant>,
}

/// Tells all who wait that nobody drives any more.
struct Over(Arc<GroupShared>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.over(io::Error::other("the task that drives this group of links has ended"));
    }
}

impl Drive {
    /// Drives until nobody holds the group.
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

    /// Sleeps until there may be something to do; whether that is what the group does not know.
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

/// How often the task looks while a link is being closed.
const LOOKED_EVERY: Duration = Duration::from_millis(5);
