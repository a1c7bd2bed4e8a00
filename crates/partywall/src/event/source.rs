// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sources of events in other crates, which an event loop polls. A group of links is such a source.

use super::registration::Registration;
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

/// A source of events of another crate, such as a group of links. An event loop does the source's
/// work in the loop's thread.
///
/// The loop watches the source's descriptor, which becomes readable when
/// [`try_poll`](Self::try_poll) has work to do. The loop calls `try_poll` when the descriptor is
/// readable, and when [`next_timer`](Self::next_timer) is due.
pub trait Source: AsFd + Send {
    /// Does the work that is due, without blocking. Returns whether the source has events, so that
    /// the loop reports the source's tag as readable. The loop calls `try_poll` again in each turn
    /// until it returns false.
    ///
    /// # Errors
    /// Fails if the source can do no more work. The turn of the loop then returns the error.
    fn try_poll(&self) -> io::Result<bool>;

    /// Returns the time at which the loop must call [`try_poll`](Self::try_poll) although the
    /// descriptor is not readable, or `None`.
    fn next_timer(&self) -> Option<Instant>;
}

/// A [`Source`] in an event loop. Dropping this value removes the source from the loop.
#[must_use = "dropping the value removes the source from the loop"]
pub struct Attached {
    pub(super) registration: Arc<Registration>,
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.registration.remove_task();
    }
}

impl fmt::Debug for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attached").finish_non_exhaustive()
    }
}
