// SPDX-License-Identifier: MIT OR Apache-2.0
//! The wait point of a model test under shuttle. A sender or receiver sleeps on shuttle's condition
//! variable in place of an epoll set, which shuttle cannot observe.
//!
//! ```text
//!   Side ◀── notify: records, room  ── the peer's SharedMemory
//!        ◀── hang_up, never reset   ── the peer's last end, when it is dropped
//!        ◀── wake                   ── wakers of this side
//! ```
//!
//! A thread that is never notified sleeps for ever, which shuttle reports as a deadlock.

use super::Sleeping;
use partywall_sys::{Doorbell, EpollSet, PidFd, Socket};
use shuttle::sync::{Condvar, Mutex, MutexGuard};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

/// The object from which the sender or the receiver of a model test takes its events.
#[derive(Debug)]
pub(crate) struct WaitPoint {
    side: Arc<Side>,
    sleeping: Sleeping,
}

/// The descriptors that a wait point of a model test would watch besides its doorbell.
#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "in a model, nothing watches a descriptor")]
pub(crate) struct EventSources<'a> {
    pub socket: &'a Socket,
    pub process: Option<&'a PidFd>,
}

/// The events that ended a sleep on a wait point of a model test.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Woken {
    /// Whether the peer hung up, which is the only event of the socket in a model test.
    pub socket: bool,
    /// Whether the peer's process died: always false in a model test.
    pub died: bool,
}

impl WaitPoint {
    /// Makes a wait point that nothing ever notifies, for a connection that no model test made.
    pub(crate) fn new(_: Doorbell, _wakes_on_bytes: bool) -> Self {
        Self::of_side(&Arc::default(), Sleeping::ForRecords)
    }

    pub(crate) fn of_side(side: &Arc<Side>, sleeping: Sleeping) -> Self {
        Self { side: Arc::clone(side), sleeping }
    }

    /// Consumes the events for the sender or for the receiver, whichever has this wait point. The
    /// call never blocks: the driver of a session sleeps on the object `Side`, which is notified
    /// for the sender and for the receiver.
    pub(crate) fn sleep(
        &self,
        deadline: Option<Instant>,
        _: EventSources<'_>,
    ) -> io::Result<Woken> {
        assert!(deadline.is_some(), "in a model, a driver sleeps on its side");
        let mut events = self.side.lock();
        match self.sleeping {
            Sleeping::ForRecords => events.records = false,
            Sleeping::ForSpace => events.space = false,
        }
        Ok(Woken { socket: events.hung_up, died: false })
    }

    pub(crate) fn descriptor(&self, _: EventSources<'_>) -> BorrowedFd<'_> {
        unreachable!("a driver in a model polls its side")
    }

    /// Does nothing, because no event loop polls a wait point of a model test.
    pub(crate) fn adopt(&self, _: Arc<EpollSet>, _: EventSources<'_>) {}

    /// Always succeeds, because a wait point of a model test has no descriptors that could be
    /// missing.
    pub(crate) fn check_descriptor(&self) -> io::Result<()> {
        Ok(())
    }

    /// Notifies the sender or the receiver that sleeps on this wait point. The caller is another
    /// thread of the same side.
    pub(crate) fn notify_self(&self) {
        self.side.notify(self.sleeping);
    }
}

/// In a model test under shuttle: the object on which the driver of one side's session sleeps, for
/// the side's sender and receiver.
#[derive(Debug, Default)]
pub(crate) struct Side {
    events: Mutex<Events>,
    changed: Condvar,
}

/// Events on one side of a model test that happened since the side's driver last consumed them.
#[derive(Debug, Default)]
struct Events {
    records: bool,
    space: bool,
    /// Whether a waker of this side was called since the driver of the side's session last consumed
    /// the events.
    woken: bool,
    /// Whether the peer of a model test hung up. This event is never consumed.
    hung_up: bool,
}

impl Side {
    /// Wakes the driver of this side of the model test, from another thread of the same side.
    pub(crate) fn wake(&self) {
        self.change(|events| events.woken = true);
    }

    /// Notes that the peer closed the connection or died, and wakes the driver.
    pub(crate) fn hang_up(&self) {
        self.change(|events| events.hung_up = true);
    }

    /// Notifies this side that there are records for its receiver or room for its sender.
    pub(super) fn notify(&self, sleeping: Sleeping) {
        self.change(|events| match sleeping {
            Sleeping::ForRecords => events.records = true,
            Sleeping::ForSpace => events.space = true,
        });
    }

    /// Returns whether there are events for the receiver and for the sender, and consumes these
    /// events. Never blocks. The sender's events count only if `for_space` is true, which means
    /// that the driver waits for room.
    pub(crate) fn poll(&self, for_space: bool) -> (bool, bool) {
        let mut events = self.lock();
        let records = std::mem::take(&mut events.records) || events.hung_up;
        let space = for_space && (std::mem::take(&mut events.space) || events.hung_up);
        (records, space)
    }

    /// Blocks until a waker is called, the receiver is notified, or the peer hangs up. If
    /// `for_space` is true, a notification of the sender ends the sleep, too.
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
