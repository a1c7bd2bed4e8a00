// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for room, the same for all transports and for senders of one thread or of many.
//!
//! ```text
//!   glance ─▶ attempt: Full ─▶ spin until the glance differs ─▶ declare ─▶ glance again ─▶ sleep
//! ```

use super::protocol::ProtocolRoom;
use super::shm::SharedMemory;
use super::socket::Line;
use super::{ProgressSnapshot, SendWire};
use crate::error::Fault;
use partywall_wait::has_passed;
use partywall_wait::{SpinOutcome, Spinner, Wait};
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// Where a sender waits for room.
#[derive(Clone, Debug)]
pub(crate) enum SpaceWaiter {
    SharedMemory(Arc<SharedMemory>),
    Socket(Arc<Line>),
    Protocol(Arc<ProtocolRoom>),
    #[cfg(shuttle)]
    Twin(Arc<super::twin::Lane>),
}

impl SpaceWaiter {
    /// Whether this is a forked child, where the shared memory is not mapped, and what is left to be written to
    /// a socket is its parent's.
    pub(crate) fn is_inherited(&self) -> bool {
        match self {
            Self::SharedMemory(shm) => shm.is_inherited(),
            Self::Socket(line) => line.is_inherited(),
            Self::Protocol(room) => room.is_inherited(),
            #[cfg(shuttle)]
            Self::Twin(_) => false,
        }
    }

    #[inline]
    pub(crate) fn snapshot(&self) -> ProgressSnapshot {
        match self {
            Self::SharedMemory(shm) => shm.snapshot(),
            Self::Socket(_) => ProgressSnapshot([0; 3]),
            Self::Protocol(room) => room.snapshot(),
            #[cfg(shuttle)]
            Self::Twin(lane) => lane.snapshot(),
        }
    }

    /// Whether the system says that there is room, which no glance shows: on a socket.
    pub(crate) fn is_writable(&self) -> bool {
        match self {
            Self::Socket(line) => line.is_writable(),
            Self::Protocol(room) => room.is_writable(),
            _ => false,
        }
    }

    /// Spins until the glance differs from `seen`; `Pause` also where spinning makes no sense.
    fn spin(&self, spinner: &mut Spinner, wait: Wait, seen: ProgressSnapshot) -> SpinOutcome {
        match self {
            Self::SharedMemory(shm) => spinner.spin(wait, || shm.snapshot() != seen),
            // Only a system call can tell whether a socket has room: then it may as well wait.
            Self::Socket(_) => SpinOutcome::Exhausted,
            // Channels, which wait here, do not speak protocols.
            Self::Protocol(_) => SpinOutcome::Exhausted,
            #[cfg(shuttle)]
            Self::Twin(_) => SpinOutcome::Exhausted,
        }
    }

    /// Sleeps until rung, hung up, or the deadline; whether the other side hung up.
    pub(crate) fn sleep(&self, deadline: Option<Instant>) -> io::Result<bool> {
        match self {
            Self::SharedMemory(shm) => shm.sleep_for_room(deadline),
            Self::Socket(line) => line.sleep_for_room(deadline),
            Self::Protocol(room) => room.sleep(deadline),
            #[cfg(shuttle)]
            Self::Twin(_) => unreachable!("a twin is waited for at its door"),
        }
    }

    /// Wakes whoever sleeps here, because something became free on our own side. On a socket, room
    /// comes from the other side only.
    pub(crate) fn nudge(&self) {
        if let Self::SharedMemory(shm) = self {
            shm.wake_own_room();
        }
    }

    /// The descriptor that becomes readable when there may be room.
    pub(crate) fn descriptor(&self) -> std::os::fd::BorrowedFd<'_> {
        match self {
            Self::SharedMemory(shm) => shm.room_descriptor(),
            Self::Socket(line) => line.room_descriptor(),
            Self::Protocol(room) => room.descriptor(),
            #[cfg(shuttle)]
            Self::Twin(_) => unreachable!("a twin is waited for at its door"),
        }
    }
}

/// How waiting for room ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// There may be room.
    Again,
    /// The deadline passed.
    TimedOut,
}

/// Waits until a glance would differ from `seen`. The closures reach the sender: directly, or through
/// the lock of a shared one, which is not held while waiting.
pub(crate) fn wait_for_room(
    room: &SpaceWaiter,
    seen: ProgressSnapshot,
    wait: Wait,
    spinner: &mut Spinner,
    deadline: Option<Instant>,
    mut with: impl FnMut(&mut dyn FnMut(&mut SendWire) -> Result<(), Fault>) -> Result<(), Fault>,
) -> Result<Waited, Fault> {
    if has_passed(deadline) {
        // Also when the glance differs every time, but there never is room.
        return Ok(Waited::TimedOut);
    }
    match room.spin(spinner, wait, seen) {
        SpinOutcome::Ready => return Ok(Waited::Again),
        SpinOutcome::Exhausted => {}
        SpinOutcome::CheckDue => {
            if room.sleep(Some(Instant::now())).map_err(waiting_failed)? {
                with(&mut |wire| {
                    wire.note_hang_up();
                    Ok(())
                })?;
            }
            // Something may have become free on our own side, which no glance shows.
            return Ok(Waited::Again);
        }
    }
    if has_passed(deadline) {
        return Ok(Waited::TimedOut);
    }
    let quiet = matches!(wait, Wait::Poll(_));
    with(&mut |wire| wire.arm(quiet))?;
    let slept = if room.snapshot() == seen {
        room.sleep(until(wait, deadline)).map_err(waiting_failed)
    } else {
        Ok(false)
    };
    with(&mut |wire| {
        wire.disarm();
        if matches!(slept, Ok(true)) {
            wire.note_hang_up();
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
