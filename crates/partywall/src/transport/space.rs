// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks a sending thread until there is room to send. The code is the same for all transports,
//! and for senders of one or of several threads.
//!
//! ```text
//!   take a snapshot ─▶ try to send: Full ─▶ spin until a new snapshot differs, or spinning ends
//!     ─▶ arm the notification ─▶ take a new snapshot ─▶ sleep, if it does not differ
//! ```

use super::TransportSender;
use super::memory::Memory;
use crate::error::Fault;
use partywall_wait::{SpinOutcome, Spinner, Wait, has_passed};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

/// The object on which a sender waits for room. The sender and all threads that wait share it.
pub(crate) trait SpaceWaiter: fmt::Debug + Send + Sync {
    /// Whether the calling process is a forked child. In a child, shared memory is not mapped, and
    /// unwritten bytes of a socket belong to the parent.
    fn is_inherited(&self) -> bool;

    /// Returns numbers that change when room is freed. A thread that waits for room compares
    /// these numbers with an earlier snapshot. On a socket they never change, because only a system
    /// call can find room.
    fn snapshot(&self) -> ProgressSnapshot {
        ProgressSnapshot([0; 3])
    }

    /// Whether the kernel reports that the socket has room. Shared memory reports room by the
    /// snapshot.
    fn is_writable(&self) -> bool {
        false
    }

    /// Whether a waiting thread should spin on the snapshot. On a socket, only a system call can
    /// find room, and that call can block instead of spinning.
    fn can_spin(&self) -> bool {
        false
    }

    /// Blocks until a notification, a hang-up of the peer, or `deadline`. Returns whether the peer
    /// hung up.
    fn sleep(&self, deadline: Option<Instant>) -> io::Result<bool>;

    /// Wakes a thread that waits for room, because this side has freed some room. On a socket,
    /// only the peer frees room.
    fn notify_self(&self) {}

    /// Frees reserved memory in which no message was sent, without access to the sender. A sender
    /// that waits for room is notified.
    fn give_back(&self, memory: Memory) {
        drop(memory);
    }

    /// Returns the descriptor that becomes readable when there may be room.
    fn descriptor(&self) -> BorrowedFd<'_>;
}

/// Numbers that change when room is freed. A thread that waits for room takes snapshots, until
/// one differs from its first snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProgressSnapshot(pub [u64; 3]);

/// How a wait for room or for a record ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// The wait ended because there may be room, or something to receive.
    Again,
    /// The wait for a record ended because a short message has come. It is the receiver's current
    /// message. A wait for room never ends so.
    Found,
    TimedOut,
}

/// Blocks until there may be room, which a snapshot that differs from `seen` shows. The closure
/// `with` gives access to the sender. For a sender that threads share, the closure takes the
/// sender's lock, which is not held while the thread waits.
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
        // The deadline is checked first: the snapshot may differ each time although there is never
        // enough room.
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
            // The caller tries again: another thread of this side may have freed room, which no
            // snapshot shows.
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

/// Returns when to wake at the latest: at the deadline, or after the period of `Wait::Poll`.
pub(crate) fn until(wait: Wait, deadline: Option<Instant>) -> Option<Instant> {
    let Wait::Poll(period) = wait else { return deadline };
    let Some(next) = Instant::now().checked_add(period) else { return deadline };
    Some(deadline.map_or(next, |deadline| deadline.min(next)))
}
