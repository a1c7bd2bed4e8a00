// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where one end of a side sleeps, in a model under shuttle: on shuttle's condition variable
//! instead of an epoll set, which shuttle cannot see.
//!
//! ```text
//!   Side ◀── notify: records, space ── the peer's SharedMemory
//!        ◀── hang_up: for good      ── the peer's last end
//!        ◀── wake                   ── wakers of this side
//! ```
//!
//! A thread that is not notified sleeps for ever, which shuttle reports as a deadlock.

use super::Sleeping;
use partywall_sys::{Doorbell, PidFd, Socket};
use shuttle::sync::{Condvar, Mutex, MutexGuard};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

/// Where one end sleeps.
#[derive(Debug)]
pub(crate) struct WaitPoint {
    side: Arc<Side>,
    sleeping: Sleeping,
}

/// Events that woke an end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Woken {
    /// The peer hung up.
    pub socket: bool,
    /// The process of the peer died: never in a model.
    pub died: bool,
}

impl WaitPoint {
    /// For a connection that is no model's: nothing notifies it.
    pub(crate) fn new(
        _: Doorbell,
        _: &Socket,
        _: Option<&PidFd>,
        _wakes_on_bytes: bool,
    ) -> io::Result<Self> {
        Ok(Self::of_side(&Arc::default(), Sleeping::ForRecords))
    }

    pub(crate) fn of_side(side: &Arc<Side>, sleeping: Sleeping) -> Self {
        Self { side: Arc::clone(side), sleeping }
    }

    /// Consumes the events of this end. The drivers of sessions sleep on the whole side, so no end
    /// sleeps here alone.
    pub(crate) fn sleep(&self, deadline: Option<Instant>) -> io::Result<Woken> {
        assert!(deadline.is_some(), "in a model, a driver sleeps on its side");
        let mut events = self.side.lock();
        match self.sleeping {
            Sleeping::ForRecords => events.records = false,
            Sleeping::ForSpace => events.space = false,
        }
        Ok(Woken { socket: events.hung_up, died: false })
    }

    /// Wakes the end from within its own side.
    pub(crate) fn notify_self(&self) {
        self.side.notify(self.sleeping);
    }
}

impl AsFd for WaitPoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        unreachable!("a driver in a model polls its side")
    }
}

/// Where the driver of one side sleeps, for both ends.
#[derive(Debug, Default)]
pub(crate) struct Side {
    events: Mutex<Events>,
    changed: Condvar,
}

/// Events since they were last consumed.
#[derive(Debug, Default)]
struct Events {
    records: bool,
    space: bool,
    /// A waker of this side was called.
    woken: bool,
    /// For good.
    hung_up: bool,
}

impl Side {
    /// Wakes the driver from within its own side.
    pub(crate) fn wake(&self) {
        self.change(|events| events.woken = true);
    }

    /// The peer is gone, in whatever way.
    pub(crate) fn hang_up(&self) {
        self.change(|events| events.hung_up = true);
    }

    /// Notifies one of the two ends.
    pub(super) fn notify(&self, sleeping: Sleeping) {
        self.change(|events| match sleeping {
            Sleeping::ForRecords => events.records = true,
            Sleeping::ForSpace => events.space = true,
        });
    }

    /// Polls both ends without blocking, and consumes what it finds: records, space. Space only if
    /// the driver waits for it.
    pub(crate) fn poll(&self, for_space: bool) -> (bool, bool) {
        let mut events = self.lock();
        let records = std::mem::take(&mut events.records) || events.hung_up;
        let space = for_space && (std::mem::take(&mut events.space) || events.hung_up);
        (records, space)
    }

    /// Blocks until woken, notified or hung up.
    pub(crate) fn sleep(&self, for_space: bool) {
        let mut events = self.lock();
        while !(events.woken || events.records || events.hung_up || for_space && events.space) {
            events = self.changed.wait(events).unwrap_or_else(PoisonError::into_inner);
        }
        events.woken = false;
    }

    fn change(&self, change: impl FnOnce(&mut Events)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
