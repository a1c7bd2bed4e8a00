// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the sender or the receiver sleeps: one descriptor that becomes readable by a doorbell, by
//! a hang-up, or by the death of the peer.
//!
//! ```text
//!   epoll set ◀── own doorbell (eventfd), edge-triggered: waking up needs no read of it
//!             ◀── socket: hang-up; bytes as well if doorbells come on the control socket
//!             ◀── pidfd of the peer: a forked child of it may keep the socket open
//! ```
//!
//! The doorbell is edge-triggered, so a wait is one system call, and the counter of the eventfd is
//! never read. A notification for which no thread waited ends the next sleep early, once. Before an
//! external event loop polls, a sleep with a deadline in the past consumes such a notification
//! (SPEC 6.2).

use partywall_sys::epoll::EventFlags;
use partywall_sys::{Doorbell, EpollSet, PidFd, Socket};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

const DOORBELL: u64 = 0;
const SOCKET: u64 = 1;
const PROCESS: u64 = 2;

/// The object on which the sender or the receiver sleeps.
#[derive(Debug)]
pub(crate) struct WaitPoint {
    set: EpollSet,
    doorbell: Doorbell,
}

/// The events that ended a sleep; none if the deadline passed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Woken {
    /// Whether bytes arrived on the socket, or the peer hung up.
    pub socket: bool,
    /// Whether the peer's process died.
    pub died: bool,
}

impl WaitPoint {
    /// Makes a wait point. `wakes_on_bytes` is whether doorbells are bytes on the socket.
    pub(crate) fn new(
        doorbell: Doorbell,
        socket: &Socket,
        process: Option<&PidFd>,
        wakes_on_bytes: bool,
    ) -> io::Result<Self> {
        let set = EpollSet::new()?;
        set.add(&doorbell, EventFlags::IN | EventFlags::ET, DOORBELL)?;
        let mut interest = EventFlags::RDHUP;
        interest.set(EventFlags::IN, wakes_on_bytes);
        set.add(socket, interest, SOCKET)?;
        if let Some(process) = process {
            set.add(process, EventFlags::IN, PROCESS)?;
        }
        Ok(Self { set, doorbell })
    }

    /// Sleeps until an event or the deadline. Returns the events.
    pub(crate) fn sleep(&self, deadline: Option<Instant>) -> io::Result<Woken> {
        let tokens = self.set.wait_tokens(deadline)?;
        Ok(Woken { socket: tokens & 1 << SOCKET != 0, died: tokens & 1 << PROCESS != 0 })
    }

    /// Wakes the sleeping thread from another thread of this process.
    pub(crate) fn notify_self(&self) {
        // Only this process holds the eventfd, so a notification never fails for lack of space.
        let _ = self.doorbell.notify();
    }
}

impl AsFd for WaitPoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}
