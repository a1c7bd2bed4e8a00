// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for space to send, the same for all transports, and for senders of one thread or of
//! many.
//!
//! ```text
//!   snapshot ─▶ attempt: Full ─▶ spin until the snapshot differs ─▶ arm ─▶ snapshot again ─▶ sleep
//! ```

use super::TransportSender;
use crate::error::Fault;
use partywall_wait::{SpinOutcome, Spinner, Wait, has_passed};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

/// Where a sender waits for space. It is shared by the sender and by threads that wait for it.
pub(crate) trait SpaceWaiter: fmt::Debug + Send + Sync {
    /// Whether this is a forked child. There, shared memory is not mapped, and bytes that are left
    /// to be written to a socket belong to the parent.
    fn is_inherited(&self) -> bool;

    /// Numbers that differ once there is more space. A socket has none.
    fn snapshot(&self) -> ProgressSnapshot {
        ProgressSnapshot([0; 3])
    }

    /// Whether the system reports space that no snapshot shows: on a socket.
    fn is_writable(&self) -> bool {
        false
    }

    /// Whether spinning on the snapshot makes sense. A socket needs a system call to find space,
    /// which may as well block.
    fn can_spin(&self) -> bool {
        false
    }

    /// Blocks until notified, the peer hangs up, or `deadline`; whether the peer hung up.
    fn sleep(&self, deadline: Option<Instant>) -> io::Result<bool>;

    /// Wakes a thread that sleeps here, because space was freed on our own side. On a socket, only
    /// the peer frees space.
    fn notify_self(&self) {}

    /// The descriptor that becomes readable when there may be space.
    fn descriptor(&self) -> BorrowedFd<'_>;
}

/// Numbers that a thread waiting for space compares: it waits until they differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProgressSnapshot(pub [u64; 3]);

/// How waiting ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// There may be space, or something to receive.
    Again,
    /// The deadline passed.
    TimedOut,
}

/// Blocks until a snapshot would differ from `seen`. The closure `with` reaches the sender:
/// directly, or through the lock of a shared one, which is not held while waiting.
pub(crate) fn wait_for_space(
    space: &dyn SpaceWaiter,
    seen: ProgressSnapshot,
    wait: Wait,
    spinner: &mut Spinner,
    deadline: Option<Instant>,
    mut with: impl FnMut(
        &mut dyn FnMut(&mut dyn TransportSender) -> Result<(), Fault>,
    ) -> Result<(), Fault>,
) -> Result<Waited, Fault> {
    if has_passed(deadline) {
        // Also when the snapshot differs every time, but there never is enough space.
        return Ok(Waited::TimedOut);
    }
    let spun = if space.can_spin() {
        spinner.spin(wait, || space.snapshot() != seen)
    } else {
        SpinOutcome::Exhausted
    };
    match spun {
        SpinOutcome::Ready => return Ok(Waited::Again),
        SpinOutcome::Exhausted => {}
        SpinOutcome::CheckDue => {
            if space.sleep(Some(Instant::now())).map_err(waiting_failed)? {
                with(&mut |sender| {
                    sender.note_hang_up();
                    Ok(())
                })?;
            }
            // Space may have been freed on our own side, which no snapshot shows.
            return Ok(Waited::Again);
        }
    }
    if has_passed(deadline) {
        return Ok(Waited::TimedOut);
    }
    let quiet = matches!(wait, Wait::Poll(_));
    with(&mut |sender| sender.arm(quiet))?;
    let slept = if space.snapshot() == seen {
        space.sleep(until(wait, deadline)).map_err(waiting_failed)
    } else {
        Ok(false)
    };
    with(&mut |sender| {
        sender.disarm();
        if matches!(slept, Ok(true)) {
            sender.note_hang_up();
        }
        Ok(())
    })?;
    slept.map(|_| Waited::Again)
}

pub(crate) fn waiting_failed(source: io::Error) -> Fault {
    Fault::system("waiting", source)
}

/// When to wake at the latest: at the deadline, or after the period of `Wait::Poll`.
pub(crate) fn until(wait: Wait, deadline: Option<Instant>) -> Option<Instant> {
    let Wait::Poll(period) = wait else { return deadline };
    let Some(next) = Instant::now().checked_add(period) else { return deadline };
    Some(deadline.map_or(next, |deadline| deadline.min(next)))
}
