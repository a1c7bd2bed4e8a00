// SPDX-License-Identifier: MIT OR Apache-2.0
//! The wait point of one end of a socket: the end sleeps on it until the socket has bytes or room,
//! or the peer's process dies.
//!
//! ```text
//!   socket: bytes, or room ───┐              first sleeps: ppoll
//!   pidfd of the peer       ──┴▶ WaitPoint ─┤
//!                                            later sleeps: an epoll set
//! ```
//!
//! An epoll set costs three system calls to make and one descriptor to keep, which is too much for
//! a connection that is soon closed. So an end makes its set after a few sleeps, or when an event
//! loop asks for a descriptor.

use partywall_sys::epoll::EventFlags;
use partywall_sys::poll::{self, PollFd, PollFlags};
use partywall_sys::{EpollSet, PidFd, Socket};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// The event on a socket for which the sender or the receiver waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// The receiver waits for bytes, or for a hang-up of the peer.
    Bytes,
    /// The sender waits until the socket has room, so that the kernel accepts bytes.
    Space,
}

/// The object on which the sender or the receiver of a socket sleeps.
#[derive(Debug)]
pub(super) struct WaitPoint {
    awaited: Awaited,
    /// Number of sleeps on this wait point so far, counted only until its epoll set is made.
    sleeps: Mutex<u32>,
    /// The epoll set for later sleeps. The inner `Option` is `None` if an event loop asked for the
    /// set and it could not be made.
    set: OnceLock<Option<Arc<EpollSet>>>,
}

/// The events that ended a sleep on a socket; none if the deadline passed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Woken {
    /// Whether the socket has the awaited bytes or room.
    pub socket: bool,
    /// Whether the process of the peer died.
    pub died: bool,
}

impl WaitPoint {
    pub(super) fn new(awaited: Awaited) -> Self {
        Self { awaited, sleeps: Mutex::new(0), set: OnceLock::new() }
    }

    /// Blocks until the socket has the bytes or the room that the caller waits for, the peer's
    /// process dies, or the deadline passes.
    pub(super) fn sleep(
        &self,
        deadline: Option<Instant>,
        socket: &Socket,
        process: Option<&PidFd>,
    ) -> io::Result<Woken> {
        if self.set.get().is_none() {
            let mut sleeps = self.sleeps.lock().unwrap_or_else(PoisonError::into_inner);
            *sleeps += 1;
            let is_due = *sleeps > POLLED_SLEEPS;
            drop(sleeps);
            // If the epoll set cannot be made, the sender or receiver continues to sleep by
            // `ppoll`.
            if let Some(set) = is_due.then(|| self.make_set(socket, process)).and_then(Result::ok) {
                let _ = self.set.set(Some(Arc::new(set)));
            }
        }
        let Some(Some(set)) = self.set.get() else {
            return self.poll(deadline, socket, process);
        };
        let tokens = set.wait_tokens(deadline)?;
        Ok(Woken { socket: tokens & 1 << SOCKET != 0, died: tokens & 1 << PROCESS != 0 })
    }

    fn poll(
        &self,
        deadline: Option<Instant>,
        socket: &Socket,
        process: Option<&PidFd>,
    ) -> io::Result<Woken> {
        let interest = match self.awaited {
            Awaited::Bytes => PollFlags::IN | PollFlags::RDHUP,
            Awaited::Space => PollFlags::OUT,
        };
        let socket = PollFd::new(socket, interest);
        let Some(process) = process else {
            let mut events = [socket];
            poll::wait(&mut events, deadline)?;
            return Ok(Woken { socket: !events[0].revents().is_empty(), died: false });
        };
        let mut events = [socket, PollFd::new(process, PollFlags::IN)];
        poll::wait(&mut events, deadline)?;
        let [socket, died] = events.map(|event| !event.revents().is_empty());
        Ok(Woken { socket, died })
    }

    fn make_set(&self, socket: &Socket, process: Option<&PidFd>) -> io::Result<EpollSet> {
        let set = EpollSet::new()?;
        let interest = match self.awaited {
            Awaited::Bytes => EventFlags::IN | EventFlags::RDHUP,
            Awaited::Space => EventFlags::OUT,
        };
        set.add(socket, interest, SOCKET)?;
        if let Some(process) = process {
            set.add(process, EventFlags::IN, PROCESS)?;
        }
        Ok(set)
    }

    /// Returns the epoll set that an event loop polls, and makes the set if there is none. Returns
    /// `None` if it cannot be made.
    pub(super) fn set(&self, socket: &Socket, process: Option<&PidFd>) -> Option<&Arc<EpollSet>> {
        self.set.get_or_init(|| self.make_set(socket, process).ok().map(Arc::new)).as_ref()
    }

    /// The descriptor that an event loop polls: the epoll set. If the set cannot be made, the
    /// socket is returned in its place, and [`check_descriptor`](Self::check_descriptor) fails.
    pub(super) fn descriptor<'a>(
        &'a self,
        socket: &'a Socket,
        process: Option<&PidFd>,
    ) -> BorrowedFd<'a> {
        self.set(socket, process).map_or(socket.as_fd(), AsFd::as_fd)
    }

    /// Fails if an event loop polls the socket in place of an epoll set, because the socket does
    /// not show the death of a peer whose forked child keeps it open.
    pub(super) fn check_descriptor(&self) -> io::Result<()> {
        match self.set.get() {
            Some(None) => Err(io::Error::other("no descriptor left for a set to poll")),
            _ => Ok(()),
        }
    }

    /// Removes the socket and the process from the epoll set, and returns the set if there is one.
    /// An event loop that polls the set then sees the descriptors that the wait point of shared
    /// memory adds.
    pub(super) fn hand_over(
        &self,
        socket: &Socket,
        process: Option<&PidFd>,
    ) -> Option<Arc<EpollSet>> {
        let set = Arc::clone(self.set.get()?.as_ref()?);
        let _ = set.remove(socket);
        if let Some(process) = process {
            let _ = set.remove(process);
        }
        Some(set)
    }
}

// The epoll tokens of this file equal those of a wait point of shared memory. That wait point takes
// over the epoll set when the connection moves, while a thread may sleep on the set.
const SOCKET: u64 = 1;
const PROCESS: u64 = 2;

/// Number of times that the sender or the receiver sleeps by `ppoll` before it makes an epoll set,
/// which costs three system calls.
const POLLED_SLEEPS: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::IoSlice;
    use std::time::Duration;

    fn soon() -> Option<Instant> {
        Some(Instant::now() + Duration::from_secs(60))
    }

    #[test]
    fn bytes_and_hang_up_wake_before_and_after_the_set_is_made() {
        for sleeps_before in [0, POLLED_SLEEPS] {
            let (socket, peer) = Socket::pair().unwrap();
            let point = WaitPoint::new(Awaited::Bytes);
            for _ in 0..sleeps_before {
                assert!(!point.sleep(Some(Instant::now()), &socket, None).unwrap().socket);
            }
            peer.write(&[IoSlice::new(&[1])], true).unwrap();
            assert!(point.sleep(soon(), &socket, None).unwrap().socket);
            assert_eq!(point.set.get().is_some(), sleeps_before > 0);
            assert_eq!(socket.read(&mut [0; 8], true).unwrap(), 1);
            assert!(!point.sleep(Some(Instant::now()), &socket, None).unwrap().socket);
            drop(peer);
            assert!(point.sleep(soon(), &socket, None).unwrap().socket);
        }
    }

    #[test]
    fn space_wakes_at_once() {
        let (socket, _peer) = Socket::pair().unwrap();
        let point = WaitPoint::new(Awaited::Space);
        assert!(point.sleep(soon(), &socket, None).unwrap().socket);
    }

    #[test]
    fn set_that_was_handed_over_shows_the_socket_no_more() {
        let (socket, peer) = Socket::pair().unwrap();
        let point = WaitPoint::new(Awaited::Bytes);
        let number = |descriptor: BorrowedFd<'_>| std::os::fd::AsRawFd::as_raw_fd(&descriptor);
        let asked = number(point.descriptor(&socket, None));
        peer.write(&[IoSlice::new(&[1])], true).unwrap();
        let set = point.hand_over(&socket, None).unwrap();
        assert_eq!(number(set.as_fd()), asked);
        assert_eq!(set.wait_tokens(Some(Instant::now())).unwrap(), 0);
    }
}
