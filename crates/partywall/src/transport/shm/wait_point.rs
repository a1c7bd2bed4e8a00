// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where one end of a side sleeps: one descriptor that its doorbell, a hang-up and the death of the
//! peer make readable.
//!
//! ```text
//!   epoll set ◀── own doorbell (eventfd), edge-triggered: waking up by it needs no read
//!             ◀── socket: hang-up; bytes as well if doorbells come on the control socket
//!             ◀── pidfd of the peer: a forked child of it may keep the socket open
//! ```
//!
//! The doorbell is edge-triggered, so a wait is one system call and the counter of the eventfd is
//! never read. An edge that no thread waited for ends the next sleep early, once. Before an
//! external event loop polls, a sleep with a deadline in the past consumes it (SPEC 6.2).

use partywall_sys::epoll::EventFlags;
use partywall_sys::{Doorbell, EpollSet, PidFd, Socket};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

const DOORBELL: u64 = 0;
const SOCKET: u64 = 1;
const PROCESS: u64 = 2;

/// Where one end sleeps.
#[derive(Debug)]
pub(crate) struct WaitPoint {
    set: EpollSet,
    doorbell: Doorbell,
}

/// Events that woke an end; none at the deadline.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Woken {
    /// Bytes came on the socket, or the peer hung up.
    pub socket: bool,
    /// The process of the peer died.
    pub died: bool,
}

impl WaitPoint {
    /// `wakes_on_bytes`: doorbells come as bytes on the socket.
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

    /// Sleeps until an event or the deadline.
    pub(crate) fn sleep(&self, deadline: Option<Instant>) -> io::Result<Woken> {
        let tokens = self.set.wait_tokens(deadline)?;
        Ok(Woken { socket: tokens & 1 << SOCKET != 0, died: tokens & 1 << PROCESS != 0 })
    }

    /// Wakes the end from within this process.
    pub(crate) fn notify_self(&self) {
        // Notifying an eventfd of this process cannot fail.
        let _ = self.doorbell.notify();
    }
}

impl AsFd for WaitPoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}
