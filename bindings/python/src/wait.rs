// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting without the GIL, ended by a message, a deadline or a signal.
//!
//! ```text
//!   try ─▶ nothing ─▶ spin (Wait::Adaptive) ─▶ arm ─▶ poll(fd) ─┬─ readable ─▶ try
//!                                                               ├─ EINTR ─▶ handlers of signals
//!                                                               └─ deadline ─▶ TimedOut
//! ```
//!
//! A thread that sleeps in `poll` has no timer of its own: it wakes for an event, its deadline or a
//! signal. The blocking calls of the Rust crate retry after EINTR, so they serve for short waits.

use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// The time at which a call gives up.
pub enum Deadline {
    /// The call waits for as long as it takes.
    Never,
    /// The call never waits.
    Now,
    /// The call waits until this instant.
    At(Instant),
}

impl Deadline {
    /// Makes the deadline of a call that may take `timeout` seconds; `None` is for ever, and 0
    /// never waits.
    pub fn after(timeout: Option<f64>) -> PyResult<Self> {
        let Some(seconds) = timeout else { return Ok(Self::Never) };
        if seconds == 0.0 {
            return Ok(Self::Now);
        }
        let time = duration(seconds)?;
        Ok(Instant::now().checked_add(time).map_or(Self::Never, Self::At))
    }

    pub fn has_passed(&self) -> bool {
        match self {
            Self::Never => false,
            Self::Now => true,
            Self::At(instant) => Instant::now() >= *instant,
        }
    }

    /// Returns the instant of this deadline, for calls that need one; a far one for `Never`.
    pub fn instant(&self) -> Instant {
        match self {
            Self::Never => Instant::now() + FAR,
            Self::Now => Instant::now(),
            Self::At(instant) => *instant,
        }
    }

    /// Returns the earlier of this deadline and the instant that is `slice` from now.
    pub fn within(&self, slice: Duration) -> Instant {
        let end = Instant::now() + slice.min(SIGNAL_CHECK_EVERY);
        match self {
            Self::At(instant) => end.min(*instant),
            Self::Now | Self::Never => end,
        }
    }

    pub fn timespec(&self) -> Option<Timespec> {
        match self {
            Self::Never => None,
            Self::Now => Some(Timespec::default()),
            Self::At(instant) => {
                let left = instant.saturating_duration_since(Instant::now());
                Some(Timespec::try_from(left).unwrap_or_default())
            }
        }
    }
}

/// Longest wait within the Rust crate, which signals do not end.
pub const SIGNAL_CHECK_EVERY: Duration = Duration::from_millis(20);

/// The wait of calls without a limit, for which the Rust crate needs one: a hundred years.
const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Converts `seconds` of Python into a duration.
///
/// # Errors
/// Fails if the number is negative, not finite or too large.
pub fn duration(seconds: f64) -> PyResult<Duration> {
    if seconds < 0.0 || seconds.is_nan() {
        return Err(PyValueError::new_err("a time must not be negative"));
    }
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| PyOverflowError::new_err("the time is too long"))
}

/// Blocks without the GIL until `descriptor` is readable, the deadline has passed, or a signal
/// came. The caller tries again after each of the three.
///
/// # Errors
/// Fails with the exception that a handler of a signal raised, such as KeyboardInterrupt.
pub fn wait_readable(
    py: Python<'_>,
    descriptor: BorrowedFd<'_>,
    deadline: &Deadline,
) -> PyResult<()> {
    wait_any_readable(py, &mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], deadline)
}

/// Blocks like [`wait_readable`], until one of `descriptors` is readable.
pub fn wait_any_readable(
    py: Python<'_>,
    descriptors: &mut [PollFd<'_>],
    deadline: &Deadline,
) -> PyResult<()> {
    let polled = py.detach(|| poll(descriptors, deadline.timespec().as_ref()));
    match polled {
        Ok(_) => Ok(()),
        Err(Errno::INTR) => py.check_signals(),
        Err(errno) => Err(std::io::Error::from(errno).into()),
    }
}
