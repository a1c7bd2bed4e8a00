// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that drives a session: it receives while records come, then sleeps.
//!
//! ```text
//!   turn ── busy ──▶ turn again
//!     └─── idle ──▶ patience ── look again ──▶ turn
//!                      └─ sleep: arm ── something ──▶ turn
//!                                  └─ nothing ──▶ poll: records, a call, and room if wanted
//! ```
//!
//! Dropping the last handle of the session waits until the thread has ended. Otherwise a process
//! that exits at once would lose records that are still to be written. `Config::linger` bounds that
//! time.

use crate::config::Config;
use crate::error::Fault;
use crate::handshake::Established;
use crate::session::{Driver, Handle, Sleep, Turn};
use crate::transport::waiting_failed;
use partywall_sys::poll::{self, PollFd, PollFlags};
use partywall_sys::{Doorbell, ForkGuard};
use partywall_wait::{IdlePolicy, IdleStep, deadline_after};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

/// Starts a session's thread. Returns the first handle, which must be dropped before the thread's.
pub(super) fn start(
    established: Established,
    config: &Config,
) -> io::Result<(Handle, Arc<ThreadHandle>)> {
    let (shared, driver) = Driver::new(established, config);
    let handle = Handle::new(shared);
    let waker_target = Arc::new(ThreadWaker { doorbell: Doorbell::new()? });
    let mut task = DriverThread {
        driver,
        idle: IdlePolicy::new(config.wait, config.spin_budget),
        waker_target,
    };
    let guard = ForkGuard::current();
    let thread = std::thread::Builder::new().name("partywall".into()).spawn(move || task.run())?;
    Ok((handle, Arc::new(ThreadHandle { thread: Some(thread), guard })))
}

/// The users' hold on a session's thread. Each user drops its session handle first. The session
/// ends with the last handle, and the last of these waits for the thread.
#[derive(Debug)]
pub(super) struct ThreadHandle {
    thread: Option<JoinHandle<()>>,
    guard: ForkGuard,
}

impl Drop for ThreadHandle {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if self.guard.is_child() {
            // The thread runs in the parent only.
            std::mem::forget(thread);
            return;
        }
        // The caller is never the session's thread, which holds no handle. A thread that panicked
        // has closed the session while unwinding.
        let _ = thread.join();
    }
}

/// Wakes the sleeping thread.
struct ThreadWaker {
    doorbell: Doorbell,
}

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // An eventfd that only this process holds accepts every notification.
        let _ = self.doorbell.notify();
    }
}

/// The state of a session's thread.
struct DriverThread {
    driver: Driver,
    idle: IdlePolicy,
    waker_target: Arc<ThreadWaker>,
}

impl DriverThread {
    fn run(&mut self) {
        let waker = Waker::from(Arc::clone(&self.waker_target));
        loop {
            // Registered before the poll, so that a later call wakes the thread.
            self.driver.register(&waker);
            match self.driver.turn() {
                Turn::Over => return,
                Turn::Busy => {
                    self.idle.busy();
                    continue;
                }
                Turn::Idle => {}
            }
            let deadline = match self.idle.idle() {
                IdleStep::Poll => {
                    std::hint::spin_loop();
                    continue;
                }
                IdleStep::Block => None,
                IdleStep::BlockFor(period) => Some(period),
            };
            if let Err(fault) = self.sleep(deadline) {
                self.driver.fail(fault);
                return;
            }
        }
    }

    /// Sleeps until an event may have occurred.
    fn sleep(&mut self, period: Option<Duration>) -> Result<(), Fault> {
        let sleeping = self.driver.arm(period.is_some())?;
        if sleeping == Sleep::No {
            return Ok(());
        }
        let deadline =
            [period.map(deadline_after), self.driver.linger_until()].into_iter().flatten().min();
        let readable = |descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN);
        let mut descriptors = [
            readable(self.waker_target.doorbell.as_fd()),
            readable(self.driver.records_descriptor()),
            readable(self.driver.room_descriptor()),
        ];
        let count = if sleeping == Sleep::ForBoth { 3 } else { 2 };
        poll::wait(&mut descriptors[..count], deadline).map_err(waiting_failed)?;
        let was_called = !descriptors[0].revents().is_empty();
        let has_room = count == 3 && !descriptors[2].revents().is_empty();
        if was_called {
            let _ = self.waker_target.doorbell.drain();
        }
        if has_room {
            self.driver.found_room();
        }
        Ok(())
    }
}
