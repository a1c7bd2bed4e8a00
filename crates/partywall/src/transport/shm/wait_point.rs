// SPDX-License-Identifier: MIT OR Apache-2.0
//! A wait point: the object on which the sender or the receiver of one side sleeps. The doorbell, a
//! hang-up and the death of the peer wake the sleeping end.
//!
//! ```text
//!   doorbell (eventfd)     ──┐                 first sleeps: ppoll, then the doorbell is drained
//!   socket: hang-up, bytes ──┼─▶ WaitPoint ─┤
//!   pidfd of the peer      ──┘                 later sleeps: an epoll set, edge-triggered
//! ```
//!
//! The pidfd is polled because a forked child of the peer may keep the socket open. Bytes wake the
//! end only if doorbells come on the control socket.
//!
//! An epoll set costs four system calls to make and one descriptor to keep, which is too much for a
//! connection that is soon closed. So an end makes its set after a few sleeps. In the set the
//! doorbell is edge-triggered: a wait is one system call, and the counter of the eventfd is not
//! read. An edge that comes while no thread waits ends the next sleep early, once. Before an
//! external event loop polls, a sleep with a deadline in the past consumes such an edge (SPEC 6.2).

use super::lock;
use partywall_sys::epoll::EventFlags;
use partywall_sys::poll::{self, PollFd, PollFlags};
use partywall_sys::{Doorbell, EpollSet, PidFd, Socket};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

const DOORBELL: u64 = 0;
const SOCKET: u64 = 1;
const PROCESS: u64 = 2;

/// The object on which one end of a side, its sender or its receiver, sleeps until an event.
#[derive(Debug)]
pub(crate) struct WaitPoint {
    doorbell: Doorbell,
    /// Whether the peer's doorbells come as bytes on the control socket.
    wakes_on_bytes: bool,
    /// Number of sleeps on this wait point, counted only until its epoll set is made.
    sleeps: Mutex<u32>,
    /// The epoll set for later sleeps. The inner `Option` is `None` if an event loop asked for the
    /// set and it could not be made.
    set: OnceLock<Option<Arc<EpollSet>>>,
}

/// The descriptors that a wait point watches besides its doorbell: the control socket and the pidfd
/// of the peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventSources<'a> {
    pub socket: &'a Socket,
    pub process: Option<&'a PidFd>,
}

/// The events that ended a sleep. Both fields are false if only a doorbell or the deadline ended
/// the sleep.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Woken {
    /// Whether bytes came on the socket, or the peer hung up.
    pub socket: bool,
    /// Whether the process of the peer died.
    pub died: bool,
}

impl WaitPoint {
    /// Makes a wait point that opens no descriptor of its own yet.
    pub(crate) fn new(doorbell: Doorbell, wakes_on_bytes: bool) -> Self {
        let (sleeps, set) = (Mutex::new(0), OnceLock::new());
        Self { doorbell, wakes_on_bytes, sleeps, set }
    }

    /// Blocks until the doorbell, the socket or the peer's process reports an event, or until the
    /// deadline.
    pub(crate) fn sleep(
        &self,
        deadline: Option<Instant>,
        sources: EventSources<'_>,
    ) -> io::Result<Woken> {
        if self.set.get().is_none() {
            let mut sleeps = lock(&self.sleeps);
            *sleeps += 1;
            let is_due = *sleeps > POLLED_SLEEPS;
            drop(sleeps);
            // If the epoll set cannot be made, the sender or receiver continues to sleep by
            // `ppoll`.
            if let Some(set) = is_due.then(|| self.make_set(sources)).and_then(Result::ok) {
                let _ = self.set.set(Some(Arc::new(set)));
            }
        }
        let Some(Some(set)) = self.set.get() else { return self.poll(deadline, sources) };
        let tokens = set.wait_tokens(deadline)?;
        Ok(Woken { socket: tokens & 1 << SOCKET != 0, died: tokens & 1 << PROCESS != 0 })
    }

    /// Blocks until the doorbell, the socket or the peer's process reports an event, or until the
    /// deadline: by `ppoll`, while this wait point has no epoll set.
    fn poll(&self, deadline: Option<Instant>, sources: EventSources<'_>) -> io::Result<Woken> {
        let mut interest = PollFlags::RDHUP;
        interest.set(PollFlags::IN, self.wakes_on_bytes);
        let doorbell = PollFd::new(&self.doorbell, PollFlags::IN);
        let socket = PollFd::new(sources.socket, interest);
        let Some(process) = sources.process else {
            let mut events = [doorbell, socket];
            poll::wait(&mut events, deadline)?;
            return self.woken(&events);
        };
        let mut events = [doorbell, socket, PollFd::new(process, PollFlags::IN)];
        poll::wait(&mut events, deadline)?;
        self.woken(&events)
    }

    /// Returns the events that `ppoll` found, and drains the doorbell. Afterwards the caller checks
    /// in shared memory for records or room.
    fn woken(&self, events: &[PollFd<'_>]) -> io::Result<Woken> {
        let is_ready = |index: usize| events.get(index).is_some_and(|e| !e.revents().is_empty());
        if is_ready(0) {
            self.doorbell.drain()?;
        }
        Ok(Woken { socket: is_ready(1), died: is_ready(2) })
    }

    fn make_set(&self, sources: EventSources<'_>) -> io::Result<EpollSet> {
        let set = EpollSet::new()?;
        self.fill(&set, sources)?;
        Ok(set)
    }

    /// Uses `set` as the epoll set of this wait point from now on. An event loop polls `set`
    /// already, because the connection began on a socket.
    pub(crate) fn adopt(&self, set: Arc<EpollSet>, sources: EventSources<'_>) {
        let filled = self.fill(&set, sources).is_ok();
        let _ = self.set.set(filled.then_some(set));
    }

    fn fill(&self, set: &EpollSet, sources: EventSources<'_>) -> io::Result<()> {
        set.add(&self.doorbell, EventFlags::IN | EventFlags::ET, DOORBELL)?;
        let mut interest = EventFlags::RDHUP;
        interest.set(EventFlags::IN, self.wakes_on_bytes);
        set.add(sources.socket, interest, SOCKET)?;
        if let Some(process) = sources.process {
            set.add(process, EventFlags::IN, PROCESS)?;
        }
        Ok(())
    }

    /// The descriptor that an event loop polls: the epoll set. If the set cannot be made, the
    /// doorbell is returned in its place, and [`check_descriptor`](Self::check_descriptor) fails.
    pub(crate) fn descriptor(&self, sources: EventSources<'_>) -> BorrowedFd<'_> {
        let set = self.set.get_or_init(|| self.make_set(sources).ok().map(Arc::new));
        set.as_ref().map_or(self.doorbell.as_fd(), AsFd::as_fd)
    }

    /// Fails if an event loop polls the doorbell in place of an epoll set, because the doorbell
    /// does not show the end of the peer.
    pub(crate) fn check_descriptor(&self) -> io::Result<()> {
        match self.set.get() {
            Some(None) => Err(io::Error::other("no descriptor left for a set to poll")),
            _ => Ok(()),
        }
    }

    /// Wakes the thread that sleeps on this wait point, from another thread of this process.
    pub(crate) fn notify_self(&self) {
        // The doorbell is an eventfd of this process, so notifying it cannot fail.
        let _ = self.doorbell.notify_edge();
    }
}

/// Number of times that the sender or the receiver sleeps by `ppoll` before it makes an epoll set,
/// which costs four system calls.
const POLLED_SLEEPS: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn soon() -> Option<Instant> {
        Some(Instant::now() + Duration::from_secs(60))
    }

    #[test]
    fn notification_and_hang_up_wake_before_and_after_the_set_is_made() {
        for sleeps_before in [0, POLLED_SLEEPS] {
            let (socket, peer) = Socket::pair().unwrap();
            let point = WaitPoint::new(Doorbell::new().unwrap(), false);
            let sources = EventSources { socket: &socket, process: None };
            for _ in 0..sleeps_before {
                assert!(!point.sleep(Some(Instant::now()), sources).unwrap().socket);
            }
            point.notify_self();
            let woken = point.sleep(soon(), sources).unwrap();
            assert!(!woken.socket && !woken.died);
            assert_eq!(point.set.get().is_some(), sleeps_before > 0);
            // Expected: the previous sleep on this wait point has consumed the notification, so
            // this sleep ends at its deadline.
            assert!(!point.sleep(Some(Instant::now()), sources).unwrap().socket);
            drop(peer);
            assert!(point.sleep(soon(), sources).unwrap().socket);
        }
    }

    #[test]
    fn notification_before_the_descriptor_is_asked_for_makes_it_readable() {
        let (socket, _peer) = Socket::pair().unwrap();
        let point = WaitPoint::new(Doorbell::new().unwrap(), false);
        let sources = EventSources { socket: &socket, process: None };
        point.notify_self();
        let descriptor = point.descriptor(sources);
        let mut events = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
        assert_eq!(poll::wait(&mut events, soon()).unwrap(), 1);
        point.check_descriptor().unwrap();
    }
}
