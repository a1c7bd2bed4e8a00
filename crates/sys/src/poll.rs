// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for a few descriptors at once, up to a deadline: `ppoll`.
//!
//! This file is meant for few descriptors that change from call to call; a long-lived set belongs
//! in [`EpollSet`](crate::EpollSet).
//!
//! # Invariants
//!
//! - A signal never ends a wait early: the wait continues for the remaining time.
//! - A wait ends before its deadline only if a descriptor is ready. With a deadline in the past, a
//!   wait polls once without blocking.

use std::io;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::time::Timespec;

pub use rustix::event::{PollFd, PollFlags};

/// Waits until one of `fds` is ready or `deadline` has come (`None`: no deadline). Returns the
/// number of ready descriptors, 0 at the deadline. The events of each descriptor are in
/// [`PollFd::revents`].
///
/// # Errors
///
/// `EINVAL` for more descriptors than RLIMIT_NOFILE, `ENOMEM`.
///
/// ```
/// use partywall_sys::{Doorbell, poll::{PollFd, PollFlags, wait}};
///
/// let doorbell = Doorbell::new()?;
/// doorbell.notify()?;
/// let mut fds = [PollFd::new(&doorbell, PollFlags::IN)];
/// assert_eq!(wait(&mut fds, None)?, 1);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn wait(fds: &mut [PollFd<'_>], deadline: Option<Instant>) -> io::Result<usize> {
    loop {
        let left = time_left(deadline);
        match rustix::event::poll(fds, left.as_ref()) {
            Ok(0) if !has_passed(deadline) => continue, // the time was capped at WAIT_MAX
            Err(Errno::INTR) => continue,
            other => return Ok(other?),
        }
    }
}

/// The time from now to `deadline`, but at most [`WAIT_MAX`]; `None` without a deadline.
pub(crate) fn time_left(deadline: Option<Instant>) -> Option<Timespec> {
    let left = deadline?.saturating_duration_since(Instant::now()).min(WAIT_MAX);
    Some(timespec(left))
}

pub(crate) fn has_passed(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

/// Converts a duration for the kernel; the result saturates at some hundred billion years.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// Longest wait of one system call; a longer wait takes several calls. (Before Linux 5.11 epoll
/// counts milliseconds in an i32.)
const WAIT_MAX: Duration = Duration::from_secs(24 * 3600);
