// SPDX-License-Identifier: MIT OR Apache-2.0
//! The task that drives a session on tokio: it handles the peer's records while they arrive, then
//! waits for the descriptors of the session.
//!
//! ```text
//!   turn ── records were handled ──▶ let other tasks run, turn again
//!     └─ no record ─▶ waiting policy ── spin ──▶ let other tasks run, turn again
//!                           └─ block: arm ── a record or room is there ──▶ turn
//!                                        └─ neither ──▶ wait for records and, if a sender
//!                                                waits, for room; once the session is over,
//!                                                until the linger time has passed
//!   woken ─▶ clear the readiness of the records' descriptor ─▶ turn
//! ```
//!
//! The runtime reports an event of a descriptor once, and remembers it as readiness until the task
//! clears it. The event that woke the task is cleared before the turn that handles its records. If
//! it were left for the next sleep, it would end that sleep at once. Records that arrive after the
//! readiness was cleared cause another event, so none is missed.

use super::runtime::watch_readable;
use crate::config::Config;
use crate::error::Fault;
use crate::handshake::Established;
use crate::session::{Driver, Handle, Sleep, Turn};
use partywall_layout::seeded_fault;
use partywall_sys::Timer as Clock;
use partywall_wait::{IdlePolicy, IdleStep};
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::unix::AsyncFd;
use tokio::task::spawn_blocking;
use tokio::time::{Sleep as Timer, sleep};

pub(super) fn start(established: Established, config: &Config) -> io::Result<Handle> {
    let (shared, driver) = Driver::new(established, config);
    let handle = Handle::new(shared);
    let mut task = DriverTask {
        records: watch_readable(driver.records_descriptor())?,
        room: watch_readable(driver.room_descriptor())?,
        idle: IdlePolicy::new(config.wait, config.spin_budget),
        is_asleep: false,
        timer: None,
        leaving: None,
        driver,
    };
    tokio::spawn(async move {
        (&mut task).await;
        let DriverTask { driver, records, room, leaving, .. } = task;
        // The descriptors are dropped before the driver, so that they are closed once users of the
        // session learn of the driver's end.
        drop((records, room, leaving));
        if driver.may_linger() {
            // Dropping the driver waits for a peer that does not read. Within the task itself, that
            // would block a worker thread of the runtime.
            let _ = spawn_blocking(move || drop(driver)).await;
        }
    });
    Ok(handle)
}

/// The task that drives a session: the session's driver, and the descriptors for which the task
/// waits.
struct DriverTask {
    driver: Driver,
    records: AsyncFd<OwnedFd>,
    room: AsyncFd<OwnedFd>,
    idle: IdlePolicy,
    /// Whether the task went to sleep in its last poll, so that this poll may be a wake-up.
    is_asleep: bool,
    timer: Option<Pin<Box<Timer>>>,
    /// A timer's descriptor, readable once the driver of an ended session has lingered for the
    /// configured time. The runtime's own timers are not used, because the runtime may have them
    /// disabled.
    leaving: Option<AsyncFd<OwnedFd>>,
}

impl Future for DriverTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let task = &mut *self;
        // The driver's waker is registered before the driver's turn. A user of the session that
        // calls the waker during the turn then causes another poll of the task.
        task.driver.register(context.waker());
        if let Err(fault) = task.wake_up(context) {
            task.driver.fail(fault);
            return Poll::Ready(());
        }
        loop {
            match task.driver.turn() {
                Turn::Over => return Poll::Ready(()),
                Turn::Busy => {
                    task.idle.busy();
                    return again(context);
                }
                Turn::Idle => {}
            }
            let next = task.idle.idle();
            if next == IdleStep::Poll {
                return again(context);
            }
            match task.poll_sleep(context, next) {
                Ok(Poll::Pending) => {
                    task.is_asleep = true;
                    return Poll::Pending;
                }
                Ok(Poll::Ready(())) => {}
                Err(fault) => {
                    task.driver.fail(fault);
                    return Poll::Ready(());
                }
            }
        }
    }
}

fn failed(error: io::Error) -> Fault {
    Fault::system("waiting", error)
}

/// Returns `Pending`, so that the runtime lets other tasks run and then polls this task again.
fn again(context: &Context<'_>) -> Poll<()> {
    context.waker().wake_by_ref();
    Poll::Pending
}

impl DriverTask {
    /// Ends the sleep of the task, if it slept: clears the readiness of the records' descriptor.
    /// The caller then handles the records that caused the readiness.
    fn wake_up(&mut self, context: &mut Context<'_>) -> Result<(), Fault> {
        if !std::mem::take(&mut self.is_asleep) || seeded_fault("readiness_is_kept") {
            return Ok(());
        }
        if let Poll::Ready(guard) = self.records.poll_read_ready(context) {
            guard.map_err(failed)?.clear_ready();
        }
        Ok(())
    }

    /// Completes when the driver may have records to handle or to send. With
    /// `IdleStep::BlockFor(period)`, completes at the latest after `period`.
    fn poll_sleep(&mut self, context: &mut Context<'_>, next: IdleStep) -> Result<Poll<()>, Fault> {
        let is_quiet = matches!(next, IdleStep::BlockFor(_));
        if let IdleStep::BlockFor(period) = next {
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(period)));
            if timer.as_mut().poll(context).is_ready() {
                self.timer = None;
                return Ok(Poll::Ready(()));
            }
        }
        let sleeping = self.driver.arm(is_quiet)?;
        if sleeping == Sleep::No {
            return Ok(Poll::Ready(()));
        }
        let mut is_ready = false;
        if let Poll::Ready(guard) = self.records.poll_read_ready(context) {
            guard.map_err(failed)?.clear_ready();
            is_ready = true;
        }
        if sleeping == Sleep::ForBoth {
            if let Poll::Ready(guard) = self.room.poll_read_ready(context) {
                guard.map_err(failed)?.clear_ready();
                self.driver.found_room();
                is_ready = true;
            }
        }
        is_ready |= self.poll_leaving(context).map_err(failed)?;
        Ok(if is_ready { Poll::Ready(()) } else { Poll::Pending })
    }

    /// Whether the time is over in which an ended session may write its last records.
    fn poll_leaving(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        let Some(deadline) = self.driver.linger_until() else { return Ok(false) };
        let leaving = match &mut self.leaving {
            Some(leaving) => leaving,
            place => {
                let clock = Clock::new()?;
                clock.set(Some(deadline))?;
                place.insert(watch_readable(clock.as_fd())?)
            }
        };
        // The timer's descriptor is not read, so it stays readable. That does no harm, because the
        // driver ends in its next turn.
        Ok(leaving.poll_read_ready(context).map_ok(drop)?.is_ready())
    }
}
