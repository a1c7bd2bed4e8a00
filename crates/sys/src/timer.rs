// SPDX-License-Identifier: MIT OR Apache-2.0
//! A point in time as a descriptor: `timerfd` on the monotonic clock.
//!
//! A timer fires once; to fire again, it must be set again.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::{Errno, read, retry_on_intr};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags};
use rustix::time::{timerfd_create, timerfd_settime};

use crate::poll::timespec;

/// A descriptor that becomes readable at the time that was chosen by [`set`](Timer::set).
#[derive(Debug)]
pub struct Timer {
    fd: OwnedFd,
}

impl Timer {
    /// Creates a timer that does not fire until [`set`](Timer::set) chooses a time.
    ///
    /// # Errors
    ///
    /// `EMFILE` or `ENFILE` if no descriptor is left, `ENOMEM`.
    pub fn new() -> io::Result<Timer> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Timer { fd: timerfd_create(TimerfdClockId::Monotonic, flags)? })
    }

    /// Sets the time at which the timer fires next, once (`None`: never). The call discards a time
    /// that was set before, and an expiry that was not drained.
    ///
    /// # Errors
    ///
    /// A call on a valid timer never fails.
    pub fn set(&self, deadline: Option<Instant>) -> io::Result<()> {
        let left = match deadline {
            // To the kernel a timer set to zero never fires. So for a deadline in the past the
            // timer is set to the shortest time that is not zero.
            Some(time) => time.saturating_duration_since(Instant::now()).max(NOW),
            None => Duration::ZERO,
        };
        let once = Itimerspec { it_interval: timespec(Duration::ZERO), it_value: timespec(left) };
        timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }

    /// Whether the timer has fired since it was set or last drained. The call never blocks.
    ///
    /// # Errors
    ///
    /// A call on a valid timer never fails.
    pub fn drain(&self) -> io::Result<bool> {
        let mut count = [0; 8];
        match retry_on_intr(|| read(&self.fd, &mut count)) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

const NOW: Duration = Duration::from_nanos(1);
