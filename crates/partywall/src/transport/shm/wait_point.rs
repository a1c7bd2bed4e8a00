// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a sleeper sleeps: one descriptor that its bell, the neighbour's hang-up and the neighbour's
//! death make readable.
//!
//! ```text
//!   epoll set ◀── own bell (eventfd), edge-triggered: waking by it needs no read
//!             ◀── socket: hang-up; with bells on the socket also bytes
//!             ◀── pidfd of the neighbour: a forked child of it may keep the socket open
//! ```
//!
//! The bell is edge-triggered, so a wait is one system call and the counter of the eventfd is never
//! read: each ring is an edge. An edge that nobody waited for wakes the next sleep in vain, once; before
//! a foreign event loop polls, it is taken by a sleep of no time (SPEC 6.2).

use partywall_sys::epoll::EventFlags;
use partywall_sys::{Doorbell, EpollSet, PidFd, Socket};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

const DOORBELL: u64 = 0;
const SOCKET: u64 = 1;
const PROCESS: u64 = 2;

/// Where one sleeper sleeps.
#[derive(Debug)]
pub(crate) struct WaitPoint {
    set: EpollSet,
    doorbell: Doorbell,
}

/// What woke a sleeper; nothing of it at the deadline.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Woken {
    /// Something happened on the socket: bytes, or the neighbour hung up.
    pub socket: bool,
    /// The neighbour's process died.
    pub died: bool,
}

impl WaitPoint {
    /// `wakes_on_bytes`: bells come as bytes on the socket.
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

    /// Sleeps until something happens or the deadline has come.
    pub(crate) fn sleep(&self, deadline: Option<Instant>) -> io::Result<Woken> {
        let tokens = self.set.wait_tokens(deadline)?;
        Ok(Woken { socket: tokens & 1 << SOCKET != 0, died: tokens & 1 << PROCESS != 0 })
    }

    /// Wakes the sleeper from within this process.
    pub(crate) fn notify_self(&self) {
        // An eventfd that only we hold always takes a ring.
        let _ = self.doorbell.notify();
    }
}

impl AsFd for WaitPoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}
