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
//! signal. The blocking calls of the Rust crate go on after EINTR. So they are used for short waits
//! only, or run in a thread of their own (`Work`), while the caller sleeps in `poll` until it ends.

use crate::error;
use pyo3::exceptions::{PyKeyboardInterrupt, PyOverflowError, PyValueError};
use pyo3::prelude::*;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// The time at which a call gives up.
pub enum Deadline {
    Never,
    Now,
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

    /// Returns the instant at which a call gives up; for `Never` an instant in a hundred years.
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

/// Maximum time of one wait within the Rust crate, which a signal does not end: the calling thread
/// handles signals between two waits.
pub const SIGNAL_CHECK_EVERY: Duration = Duration::from_millis(20);

/// The deadline of a call without one, where the Rust crate requires one: a hundred years.
pub const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

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

/// Blocks without the GIL until `descriptor` is readable, the deadline has passed, or a signal has
/// come. After each of these the caller tries its operation again.
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

/// Blocks without the GIL until at least one of `descriptors` is readable, the deadline has passed,
/// or a signal has come.
pub fn wait_any_readable(
    py: Python<'_>,
    descriptors: &mut [PollFd<'_>],
    deadline: &Deadline,
) -> PyResult<()> {
    if take_interrupt() {
        return py.check_signals();
    }
    let polled = py.detach(|| poll(descriptors, deadline.timespec().as_ref()));
    match polled {
        Ok(_) => Ok(()),
        Err(Errno::INTR) => py.check_signals(),
        Err(errno) => Err(std::io::Error::from(errno).into()),
    }
}

/// A blocking call of the Rust crate that runs in a thread of its own, because a signal does not
/// end it.
pub struct Work<T> {
    done: Arc<OwnedFd>,
    results: mpsc::Receiver<T>,
}

/// Makes an eventfd readable when it is dropped, at the end of the thread of a [`Work`].
struct Notify(Arc<OwnedFd>);

impl Drop for Notify {
    fn drop(&mut self) {
        // The write does not wait, because this is the only write to the eventfd.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

impl<T: Send + 'static> Work<T> {
    /// Starts a thread called `name` that calls `act`. If this object is dropped, the thread goes
    /// on, and drops its result. The thread never takes the GIL unless `act` does.
    pub fn start(name: &str, act: impl FnOnce() -> T + Send + 'static) -> PyResult<Self> {
        let done = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(std::io::Error::from)?);
        let notify = Notify(Arc::clone(&done));
        let (sender, results) = mpsc::channel();
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            // This value is dropped after `sender`, also if the thread panics. So a caller that the
            // eventfd wakes finds either the result or the end of the thread without one.
            let _notify = notify;
            let sender = sender;
            let _ = sender.send(act());
        })?;
        Ok(Self { done, results })
    }

    /// Returns the result of the thread; `None` if it has not ended.
    ///
    /// # Errors
    /// Fails if the thread has panicked.
    pub fn try_take(&self, py: Python<'_>) -> PyResult<Option<T>> {
        match self.results.try_recv() {
            Ok(result) => Ok(Some(result)),
            Err(mpsc::TryRecvError::Empty) => Ok(None),
            Err(mpsc::TryRecvError::Disconnected) => {
                Err(error::numbered(py, 2, "a thread of the package has panicked"))
            }
        }
    }

    /// Waits for the result of the thread.
    ///
    /// # Errors
    /// Fails with the exception that a handler of a signal raised. The thread then goes on.
    pub fn wait(self, py: Python<'_>) -> PyResult<T> {
        loop {
            if let Some(result) = self.try_take(py)? {
                return Ok(result);
            }
            wait_readable(py, self.done.as_fd(), &Deadline::Never)?;
        }
    }
}

impl<T> AsFd for Work<T> {
    /// Returns a descriptor that is readable once the result of the thread is there.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.done.as_fd()
    }
}

thread_local! {
    /// Whether a callback that this thread ran while it waited has raised KeyboardInterrupt.
    static IS_INTERRUPTED: Cell<bool> = const { Cell::new(false) };
}

/// Reports the exception of a callback, which no Python code can catch. A KeyboardInterrupt is the
/// user's Ctrl-C and must not get lost, so it is raised again in the main thread.
pub fn report_raised(py: Python<'_>, raised: PyErr, callback: &Bound<'_, PyAny>) {
    if raised.is_instance_of::<PyKeyboardInterrupt>(py) {
        let again = py.import("_thread").and_then(|module| module.call_method0("interrupt_main"));
        if again.is_ok() {
            IS_INTERRUPTED.set(true);
            return;
        }
    }
    raised.write_unraisable(py, Some(callback));
}

/// Returns whether a callback of this thread has raised KeyboardInterrupt, and forgets it. If so,
/// the wait must look for signals before it sleeps, because no further signal will wake it.
pub fn take_interrupt() -> bool {
    IS_INTERRUPTED.take()
}
