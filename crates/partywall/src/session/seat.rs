// SPDX-License-Identifier: MIT OR Apache-2.0
//! The seat of a session's driver: whoever holds its lock may run the driver.
//!
//! ```text
//!   task of the session   try to lock ─▶ turn ─▶ idle: arm, note that the task sleeps ─▶ sleep
//!   user of a stream      nothing has arrived ─▶ try to lock ─▶ take records ─▶ look again
//!                                                  └─ the task sleeps: wake it
//! ```
//!
//! A user that reads a byte stream and finds nothing takes records itself, as a call of `read` on a
//! socket finds the bytes that have just arrived. Otherwise it would wait until the runtime runs
//! the task of the session, which may be behind the tasks of many other streams. No thread waits
//! for the lock, except to take the driver out at the end: whoever holds it also delivers the
//! records of the others.
//!
//! A user may take the records for which the task armed itself. The peer then takes this side for
//! awake, and no longer notifies it. So the user wakes the task, which arms itself again.

use super::driver::Driver;
use super::shared::{SessionShared, TakeRecords, Taken, WakeOnPanic};
use super::sync::{Mutex, MutexGuard, PoisonError};
use partywall_layout::seeded_fault;
use std::sync::{Arc, Weak};

/// The place of a session's driver; empty once the task of the session has taken the driver out.
#[derive(Debug)]
struct Seat(Mutex<Option<Seated>>);

/// A driver that users of its session may run.
#[derive(Debug)]
pub(crate) struct Seated {
    pub(crate) driver: Driver,
    /// Whether the task of the session sleeps and has armed the driver.
    pub(crate) is_asleep: bool,
    /// Whether users have taken records since the task last looked.
    pub(crate) was_busy: bool,
}

/// The task's hold of the seat. Dropping it drops the driver, which ends the session.
#[derive(Debug)]
pub(crate) struct SeatHold(Arc<Seat>);

/// The lock of a seat with a driver in it.
pub(crate) struct SeatGuard<'a>(MutexGuard<'a, Option<Seated>>);

impl Seat {
    #[inline]
    fn try_lock(&self) -> Option<SeatGuard<'_>> {
        let guard = self.0.try_lock().ok()?;
        guard.is_some().then_some(SeatGuard(guard))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Seated>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TakeRecords for Seat {
    fn take_records(&self) -> Taken {
        let Some(mut guard) = self.try_lock() else { return Taken::default() };
        let Some(seated) = guard.get() else { return Taken::default() };
        let was_armed = seated.is_asleep && seated.driver.is_armed();
        let any = seated.driver.receive();
        seated.was_busy |= any;
        // The user may have taken a record that concerns only memory, of which `any` says nothing.
        let must_wake = was_armed && !seated.driver.is_armed();
        seated.is_asleep &= !must_wake;
        Taken { any, must_wake: must_wake && !seeded_fault("taken_records_wake_nobody") }
    }
}

impl SeatGuard<'_> {
    #[inline]
    pub(crate) fn get(&mut self) -> Option<&mut Seated> {
        self.0.as_mut()
    }
}

impl SeatHold {
    /// Puts the driver into a seat, which the users of its session know from then on.
    pub(crate) fn new(driver: Driver) -> Self {
        let shared = Arc::clone(&driver.shared);
        let seated = Seated { driver, is_asleep: false, was_busy: false };
        let seat = Arc::new(Seat(Mutex::new(Some(seated))));
        let known: Weak<Seat> = Arc::downgrade(&seat);
        shared.seat.get_or_init(|| known);
        Self(seat)
    }

    /// Locks the seat, unless a user is taking records or the driver is lost.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<SeatGuard<'_>> {
        self.0.try_lock()
    }

    /// Whether a user panicked while it took records, so that the driver is in no known state.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_lost(&self) -> bool {
        self.0.0.is_poisoned()
    }

    /// Takes the driver out of the seat.
    pub(crate) fn take(&self) -> Option<Driver> {
        let seated = self.0.lock().take();
        seated.map(|seated| seated.driver)
    }
}

impl Drop for SeatHold {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl SessionShared {
    /// Takes the records that have arrived for any stream of the session, for a user that found
    /// none of its own. Returns whether the user should look again.
    pub(crate) fn receive(&self) -> bool {
        if self.check().is_err() {
            return false;
        }
        let Some(seat) = self.seat.get().and_then(Weak::upgrade) else { return false };
        // The task then ends the session.
        let on_panic = WakeOnPanic(self);
        let taken = seat.take_records();
        drop(on_panic);
        if taken.must_wake {
            self.wake_driver();
        }
        taken.any
    }
}
