// SPDX-License-Identifier: MIT OR Apache-2.0
//! Credit that is due, and that waits for the next message of its stream in the other direction
//! (SPEC 11.4, decision 0063).
//!
//! ```text
//!   user    takes a message ─▶ lists the stream ─▶ fence ─▶ if the driver sleeps, the user
//!                                                           reports the credit itself
//!   driver  goes to sleep: notes that it sleeps ─▶ fence ─▶ reports the credit of listed streams
//!           awake: reports it after eight records for each listed stream, or 64 turns
//!   sender  of a listed stream: its message carries the credit, and nothing is left to report
//! ```
//!
//! Once the application has taken more than three quarters of the window, its credit would need a
//! record CREDIT of its own. That is so for each message of such a length. A stream whose user
//! answers each message needs none of these records. Credit is deferred only if a user has sent a
//! message on the stream since it took the message before, and only while the driver is awake. So
//! the peer waits for it at most until the driver sleeps, or for some turns of the driver.
//!
//! Either the driver finds the stream in the list, or the user finds that the driver sleeps,
//! because one of the two fences comes first.

use super::stream::StreamShared;
use super::sync::{AsymmetricMutex, AtomicBool, Ordering, fence};
use partywall_layout::seeded_fault;
use std::sync::Arc;

/// The streams of a session whose credit is deferred, and whether the driver is awake to report it.
#[derive(Debug, Default)]
pub(super) struct DeferredCredit {
    /// Streams whose flag `is_deferred` is set. The credit of some may be reported already.
    streams: AsymmetricMutex<Vec<Arc<StreamShared>>>,
    is_driver_awake: AtomicBool,
}

impl DeferredCredit {
    /// Adds a stream whose flag `is_deferred` the caller has set. Returns whether the driver is
    /// awake, and so reports the credit if no message carries it. Otherwise the caller empties the
    /// list and reports the credit itself.
    #[cold]
    pub(super) fn add(&self, stream: &Arc<StreamShared>) -> bool {
        self.streams.lock().push(Arc::clone(stream));
        // ORDER: SeqCst, against the fence in `driver_sleeps`: the stream is listed before this
        // thread looks whether the driver is awake.
        fence(Ordering::SeqCst);
        self.is_driver_awake() || seeded_fault("no_look_after_deferring")
    }

    /// Takes all listed streams. The caller reports the credit that no message has carried.
    pub(super) fn take(&self) -> Listed<'_> {
        Listed { streams: std::mem::take(&mut *self.streams.lock()), list: self }
    }

    /// Whether the driver is awake: only a hint, unless the caller has executed the fence of `add`.
    pub(super) fn is_driver_awake(&self) -> bool {
        // ORDER: Relaxed: the fence in `add` and that in `driver_sleeps` order the accesses.
        self.is_driver_awake.load(Ordering::Relaxed)
    }

    /// Notes that the driver is awake, so that credit may be deferred.
    pub(super) fn driver_wakes(&self) {
        // ORDER: Relaxed: a user that does not see the flag yet reports its credit itself.
        self.is_driver_awake.store(true, Ordering::Relaxed);
    }

    /// Notes that the driver is about to sleep. The caller then empties the list.
    pub(super) fn driver_sleeps(&self) {
        // ORDER: Relaxed: the two fences order the accesses.
        self.is_driver_awake.store(false, Ordering::Relaxed);
        // ORDER: SeqCst, against the fence in `add`: users see that the driver sleeps before the
        // driver looks for listed streams.
        fence(Ordering::SeqCst);
    }
}

/// Streams that were taken from the list. Those that the iterator has not returned when it is
/// dropped, because a waker panicked, are listed again.
#[derive(Debug)]
pub(super) struct Listed<'a> {
    streams: Vec<Arc<StreamShared>>,
    list: &'a DeferredCredit,
}

impl Listed<'_> {
    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }
}

impl Iterator for Listed<'_> {
    type Item = Arc<StreamShared>;

    fn next(&mut self) -> Option<Self::Item> {
        let stream = self.streams.pop()?;
        stream.lock().is_deferred = false;
        Some(stream)
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        if !self.streams.is_empty() {
            self.list.streams.lock().append(&mut self.streams);
        }
    }
}
