// SPDX-License-Identifier: MIT OR Apache-2.0
//! A descriptor on which a sender waits for room: in the ring, in the region, or in the socket's
//! buffer. The peer does not notify when it has taken elements or freed slices, so a timer makes
//! the sender check again. The system notifies when the socket accepts bytes.

use crate::memory::queue::RoomWatch;
use crate::region::BufferRegion;
use partywall::protocol::ConnectionSpace;
use partywall_sys::epoll::EventFlags;
use partywall_sys::poll::{self, PollFd, PollFlags};
use partywall_sys::{EpollSet, Socket, Timer};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct SpaceWaiter {
    set: EpollSet,
    timer: Timer,
    socket: Arc<Socket>,
    ring: RoomWatch,
    region: Arc<BufferRegion>,
    /// Whether the sender waits for the socket, because bytes are buffered for it.
    waits_for_socket: AtomicBool,
    /// Whether the peer had hung up when the sender last prepared the descriptor for a wait.
    has_hung_up: AtomicBool,
}

impl SpaceWaiter {
    pub(super) fn new(
        socket: &Arc<Socket>,
        ring: RoomWatch,
        region: Arc<BufferRegion>,
    ) -> io::Result<Self> {
        let (set, timer) = (EpollSet::new()?, Timer::new()?);
        set.add(&timer, EventFlags::IN, 0)?;
        let (waits_for_socket, has_hung_up) = (AtomicBool::new(false), AtomicBool::new(false));
        let socket = Arc::clone(socket);
        Ok(Self { set, timer, socket, ring, region, waits_for_socket, has_hung_up })
    }

    /// Prepares the descriptor for a wait of the sender. If `for_socket`, the descriptor becomes
    /// readable when the socket accepts bytes or the peer hangs up; otherwise it becomes readable
    /// after [`RETRY_AFTER`].
    pub(super) fn arm(&self, for_socket: bool) -> io::Result<()> {
        self.watch(for_socket)?;
        // ORDER: Relaxed: only the sender's thread, which executes this function, relies on
        // `has_hung_up`.
        self.has_hung_up.store(self.has_hung_up(), Ordering::Relaxed);
        self.timer.set((!for_socket).then(|| Instant::now() + RETRY_AFTER))
    }

    pub(super) fn disarm(&self) {
        // Errors of the timer and of the epoll set are ignored, because the sender sets both again
        // before it next waits.
        let _ = self.timer.set(None);
        let _ = self.timer.drain();
        let _ = self.watch(false);
    }

    /// Whether the peer has hung up or shut down its write direction. In either case the peer takes
    /// no more messages. A waiting sender must call this function, because the receiving end does
    /// not read the socket while too many bytes are unread.
    pub(super) fn has_hung_up(&self) -> bool {
        self.shows(PollFlags::RDHUP)
    }

    fn shows(&self, flags: PollFlags) -> bool {
        let mut descriptors = [PollFd::from_borrowed_fd(self.socket.as_fd(), flags)];
        poll::wait(&mut descriptors, Some(Instant::now())).is_ok_and(|ready| ready > 0)
    }

    /// Adds the connection's socket to the epoll set on which the sender waits if `is_polled`;
    /// otherwise removes the socket. A socket that stayed in the set would report a hang-up for
    /// ever.
    fn watch(&self, is_polled: bool) -> io::Result<()> {
        // ORDER: Relaxed: one thread at a time changes what the descriptor waits for; for other
        // threads `waits_for_socket` is only a hint.
        if self.waits_for_socket.swap(is_polled, Ordering::Relaxed) == is_polled {
            return Ok(());
        }
        match is_polled {
            true => self.set.add(self.socket.as_fd(), EventFlags::OUT | EventFlags::RDHUP, 1),
            false => self.set.remove(self.socket.as_fd()),
        }
    }
}

impl ConnectionSpace for SpaceWaiter {
    fn snapshot(&self) -> [u64; 3] {
        [u64::from(self.ring.snapshot()), self.region.largest_free(), 0]
    }

    fn is_writable(&self) -> bool {
        // ORDER: Relaxed: only the sender's thread stores `waits_for_socket` and `has_hung_up`; for
        // other threads they are hints.
        self.has_hung_up.load(Ordering::Relaxed)
            || self.waits_for_socket.load(Ordering::Relaxed) && self.shows(PollFlags::OUT)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

/// Time between two checks of a waiting sender for room in the ring or the region. The peer does
/// not notify of such room, so this time bounds how late the sender notices the room.
const RETRY_AFTER: Duration = Duration::from_millis(1);
