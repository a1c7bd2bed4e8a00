// SPDX-License-Identifier: MIT OR Apache-2.0
//! The task that drives a session on tokio: it handles the peer's records while they arrive, then
//! waits for the descriptors of the session.
//!
//! ```text
//!   turn ── records were handled ──▶ let other tasks run, turn again
//!     └─ no record ─▶ waiting policy ── spin ──▶ let other tasks run, perhaps pause, turn again
//!                           └─ block: arm ── a record or room is there ──▶ turn
//!                                        └─ neither ──▶ wait for records and, if a sender
//!                                                waits, for room; once the session is over,
//!                                                until the linger time has passed
//!   woken ─▶ clear the readiness of the records' descriptor ─▶ turn
//! ```
//!
//! A reader or writer of a byte stream may take records in place of the task, by the seat of the
//! driver (`session/seat.rs`). While it does, the task yields.
//!
//! The runtime reports an event of a descriptor once, and remembers it as readiness until the task
//! clears it. The event that woke the task is cleared before the turn that handles its records. If
//! it were left for the next sleep, it would end that sleep at once. Records that arrive after the
//! readiness was cleared cause another event, so none is missed.

use super::runtime::watch_readable;
use crate::config::Config;
use crate::error::Fault;
use crate::handshake::Established;
use crate::session::{Driver, Handle, SeatHold, Sleep, Turn};
use partywall_layout::seeded_fault;
use partywall_sys::Timer as Clock;
use partywall_wait::{IdlePolicy, IdleStep, has_passed};
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::io::unix::AsyncFd;
use tokio::task::spawn_blocking;
use tokio::time::{Sleep as Timer, sleep};

pub(super) fn start(established: Established, config: &Config) -> io::Result<Handle> {
    let (shared, mut driver) = Driver::new(established, config);
    driver.defer_credit();
    let handle = Handle::new(shared);
    let bed = Bed {
        records: watch_readable(driver.records_descriptor())?,
        room: watch_readable(driver.room_descriptor())?,
        timer: None,
        leaving: None,
    };
    let idle = IdlePolicy::new(config.wait, config.spin_budget);
    let seat = SeatHold::new(driver);
    let mut task = DriverTask { bed, idle, is_asleep: false, paused_until: None, seat };
    tokio::spawn(async move {
        (&mut task).await;
        let DriverTask { bed, seat, .. } = task;
        // The descriptors are dropped before the driver, so that they are closed once users of the
        // session learn of the driver's end.
        drop(bed);
        let Some(driver) = seat.take() else { return };
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
    // Declared before `seat`, so that an aborted task closes the descriptors before its driver.
    bed: Bed,
    idle: IdlePolicy,
    /// Whether the task went to sleep in its last poll, so that this poll may be a wake-up.
    is_asleep: bool,
    /// The time until which the task leaves the records to collect, as the driver's pacer says.
    paused_until: Option<Instant>,
    seat: SeatHold,
}

/// The descriptors and timers for which the task sleeps.
struct Bed {
    records: AsyncFd<OwnedFd>,
    room: AsyncFd<OwnedFd>,
    timer: Option<Pin<Box<Timer>>>,
    /// A timer's descriptor, readable once the driver of an ended session has lingered for the
    /// configured time. The runtime's own timers are not used, because the runtime may have them
    /// disabled.
    leaving: Option<AsyncFd<OwnedFd>>,
}

impl Future for DriverTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Self { bed, idle, is_asleep, paused_until, seat } = &mut *self;
        if paused_until.is_some() {
            if !has_passed(*paused_until) {
                return again(context);
            }
            *paused_until = None;
        }
        // A user of the session holds the seat for the time of a few records, which it delivers.
        let Some(mut seat) = seat.try_lock() else {
            return if seat.is_lost() { Poll::Ready(()) } else { again(context) };
        };
        let Some(seated) = seat.get() else { return Poll::Ready(()) };
        seated.is_asleep = false;
        if std::mem::take(&mut seated.was_busy) {
            idle.busy();
        }
        // The driver's waker is registered before the driver's turn. A user of the session that
        // calls the waker during the turn then causes another poll of the task.
        seated.driver.register(context.waker());
        let polled = bed.wake_up(std::mem::take(is_asleep), context);
        let polled = polled.and_then(|()| bed.poll(&mut seated.driver, idle, context));
        match polled {
            Ok(Some(next)) => {
                *is_asleep = next == Next::Sleep;
                seated.is_asleep = *is_asleep;
                if let Next::AgainAt(time) = next {
                    *paused_until = Some(time);
                }
                if next == Next::Sleep { Poll::Pending } else { again(context) }
            }
            Ok(None) => Poll::Ready(()),
            Err(fault) => {
                seated.driver.fail(fault);
                Poll::Ready(())
            }
        }
    }
}

/// What the task does after a poll of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The task lets other tasks run, and polls the driver again.
    Again,
    /// The task lets other tasks run, and polls the driver again after this time.
    AgainAt(Instant),
    /// The task sleeps until it is woken.
    Sleep,
}

fn failed(error: io::Error) -> Fault {
    Fault::system("waiting", error)
}

/// Returns `Pending`, so that the runtime lets other tasks run and then polls this task again.
fn again(context: &Context<'_>) -> Poll<()> {
    context.waker().wake_by_ref();
    Poll::Pending
}

impl Bed {
    /// Ends the sleep of the task, if it slept: clears the readiness of the records' descriptor.
    /// The caller then handles the records that caused the readiness.
    fn wake_up(&mut self, was_asleep: bool, context: &mut Context<'_>) -> Result<(), Fault> {
        if !was_asleep || seeded_fault("readiness_is_kept") {
            return Ok(());
        }
        if let Poll::Ready(guard) = self.records.poll_read_ready(context) {
            guard.map_err(failed)?.clear_ready();
        }
        Ok(())
    }

    /// Runs the driver until the task has to yield or sleep; `None` once the session is over.
    #[inline]
    fn poll(
        &mut self,
        driver: &mut Driver,
        idle: &mut IdlePolicy,
        context: &mut Context<'_>,
    ) -> Result<Option<Next>, Fault> {
        loop {
            match driver.turn() {
                Turn::Over => return Ok(None),
                Turn::Busy => {
                    idle.busy();
                    return Ok(Some(Next::Again));
                }
                Turn::Idle => {}
            }
            let next = idle.idle();
            let pause = driver.pause_until(next == IdleStep::Poll);
            if next == IdleStep::Poll {
                // The pause ends with the spin budget at the latest.
                let end = pause.map(|until| idle.spins_until().map_or(until, |end| until.min(end)));
                return Ok(Some(end.map_or(Next::Again, Next::AgainAt)));
            }
            if self.poll_sleep(driver, context, next)?.is_pending() {
                return Ok(Some(Next::Sleep));
            }
        }
    }

    /// Completes when the driver may have records to handle or to send. With
    /// `IdleStep::BlockFor(period)`, completes at the latest after `period`.
    fn poll_sleep(
        &mut self,
        driver: &mut Driver,
        context: &mut Context<'_>,
        next: IdleStep,
    ) -> Result<Poll<()>, Fault> {
        let is_quiet = matches!(next, IdleStep::BlockFor(_));
        if let IdleStep::BlockFor(period) = next {
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(period)));
            if timer.as_mut().poll(context).is_ready() {
                self.timer = None;
                return Ok(Poll::Ready(()));
            }
        }
        let sleeping = driver.arm(is_quiet)?;
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
                driver.found_room();
                is_ready = true;
            }
        }
        is_ready |= self.poll_leaving(driver, context).map_err(failed)?;
        Ok(if is_ready { Poll::Ready(()) } else { Poll::Pending })
    }

    /// Whether the time is over in which an ended session may write its last records.
    fn poll_leaving(&mut self, driver: &Driver, context: &mut Context<'_>) -> io::Result<bool> {
        let Some(deadline) = driver.linger_until() else { return Ok(false) };
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
