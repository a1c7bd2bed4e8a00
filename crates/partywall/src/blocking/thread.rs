// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that drives a session without a runtime: it handles the peer's records while they
//! arrive, then blocks.
//!
//! ```text
//!   turn ── records were handled ──▶ turn again
//!     └─ no record ─▶ waiting policy ── spin ──▶ turn
//!                           └─ block: arm ── a record or room is there ──▶ turn
//!                                        └─ neither ──▶ poll(2) for records, for a call of the
//!                                                waker and, if a sender waits, for room ──▶ turn
//! ```
//!
//! Dropping the last handle of a session waits until the thread has ended. Otherwise a process that
//! exits immediately would lose unwritten records. The driver bounds the wait (`Config::linger`).

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

/// Starts the thread of a session. The caller must drop the returned `Handle` before the
/// `ThreadHandle`, whose drop waits for the thread: the thread ends only after the last `Handle`
/// was dropped.
pub(super) fn start(
    established: Established,
    config: &Config,
) -> io::Result<(Handle, Arc<ThreadHandle>)> {
    let (shared, mut driver) = Driver::new(established, config);
    driver.defer_credit();
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

/// A session's thread. Each user of the session has a `ThreadHandle`, declared after its session
/// handle. Dropping the last session handle ends the session. Dropping the last `ThreadHandle`
/// waits for the thread's end.
#[derive(Debug)]
pub(super) struct ThreadHandle {
    thread: Option<JoinHandle<()>>,
    guard: ForkGuard,
}

impl Drop for ThreadHandle {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if self.guard.is_child() {
            // In a forked child, the session's thread does not exist, because it runs in the parent
            // only. So the child cannot join it.
            std::mem::forget(thread);
            return;
        }
        // The session's thread never joins itself: the thread owns no session handle, and calls no
        // waker that drops a session handle. A thread that panicked has closed the session while
        // unwinding.
        let _ = thread.join();
    }
}

/// The waker of a session's thread. It notifies a doorbell, which ends the `poll(2)` of the thread.
struct ThreadWaker {
    doorbell: Doorbell,
}

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Only this process holds the eventfd, so no other process can fill its counter, and a
        // notification never fails.
        let _ = self.doorbell.notify();
    }
}

struct DriverThread {
    driver: Driver,
    idle: IdlePolicy,
    waker_target: Arc<ThreadWaker>,
}

impl DriverThread {
    fn run(&mut self) {
        let waker = Waker::from(Arc::clone(&self.waker_target));
        loop {
            // The driver's waker is registered before the driver's turn. A user of the session that
            // calls the waker during the turn then causes another turn.
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
