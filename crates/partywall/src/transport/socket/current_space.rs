// SPDX-License-Identifier: MIT OR Apache-2.0
//! The object on which a sender waits for room, if its connection may move from the socket to
//! shared memory.
//!
//! ```text
//!   CurrentSpace ─┬─ before the sender switches ─▶ SocketShared: the socket has room
//!                 └─ after it                   ─▶ SharedMemory: the ring has room
//! ```
//!
//! Threads may wait on this object while another thread switches the sender. So the switch notifies
//! the wait point of shared memory once: a waiting thread that has not announced its wait to the
//! peer in shared memory wakes and tries again.
//!
//! The descriptor stays the same, because shared memory takes over the epoll set of the socket.

use super::SocketShared;
use crate::transport::shm::SharedMemory;
use crate::transport::{Memory, ProgressSnapshot, SpaceWaiter};
use partywall_sys::{EpollSet, ForkGuard, Socket};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Instant;

/// The object on which a sender waits for room: the socket at first, shared memory after the
/// switch.
#[derive(Debug)]
pub(crate) struct CurrentSpace {
    guard: ForkGuard,
    /// The socket, which is closed once this side's sender and receiver have both left it.
    socket: Weak<SocketShared>,
    /// The descriptor that an external event loop requested before the switch.
    asked: OnceLock<Asked>,
    shm: OnceLock<Arc<SharedMemory>>,
    /// Locked while the epoll set is handed over to shared memory, and while a thread asks for the
    /// descriptor.
    hand_over: Mutex<()>,
}

/// The descriptor that an external event loop polls for room on the socket.
#[derive(Debug)]
enum Asked {
    Set(Arc<EpollSet>),
    /// The socket itself, because no epoll set could be made. `arm` of the sender then fails.
    Socket(Arc<Socket>),
}

impl CurrentSpace {
    pub(super) fn new(socket: &Arc<SocketShared>) -> Self {
        let guard = socket.connection_state.guard;
        let (socket, asked) = (Arc::downgrade(socket), OnceLock::new());
        Self { guard, socket, asked, shm: OnceLock::new(), hand_over: Mutex::new(()) }
    }

    /// Makes threads wait for room in shared memory from now on, and wakes every thread that waits
    /// already.
    pub(super) fn switch(&self, socket: &SocketShared, shm: &Arc<SharedMemory>) {
        let locked = self.hand_over.lock().unwrap_or_else(PoisonError::into_inner);
        shm.adopt_space_set(socket.hand_over_space_set());
        let _ = self.shm.set(Arc::clone(shm));
        drop(locked);
        shm.notify_self();
    }

    fn current<T>(&self, ask: impl Fn(&dyn SpaceWaiter) -> T) -> Option<T> {
        if let Some(shm) = self.shm.get() {
            return Some(ask(&**shm));
        }
        match self.socket.upgrade() {
            Some(socket) => Some(ask(&*socket)),
            // The socket is gone, so the switch to shared memory has happened meanwhile.
            None => self.shm.get().map(|shm| ask(&**shm)),
        }
    }
}

impl SpaceWaiter for CurrentSpace {
    fn is_inherited(&self) -> bool {
        self.guard.is_child()
    }

    fn snapshot(&self) -> ProgressSnapshot {
        self.shm.get().map_or(ProgressSnapshot([0; 3]), |shm| shm.snapshot())
    }

    fn is_writable(&self) -> bool {
        self.current(|space| space.is_writable()).unwrap_or(false)
    }

    fn can_spin(&self) -> bool {
        self.shm.get().is_some()
    }

    fn sleep(&self, deadline: Option<Instant>) -> io::Result<bool> {
        let was_shared = self.shm.get().is_some();
        let slept = self.current(|space| space.sleep(deadline)).unwrap_or(Ok(true));
        // The sender switched to shared memory while this thread slept until the socket had room.
        // The socket's events mean nothing for shared memory, so the thread tries again.
        if !was_shared && self.shm.get().is_some() { Ok(false) } else { slept }
    }

    fn notify_self(&self) {
        let _ = self.current(|space| space.notify_self());
    }

    fn give_back(&self, memory: Memory) {
        // Only the memory of a shared memory transport has to be freed, and such memory can only be
        // reserved after the switch.
        if let Some(shm) = self.shm.get() {
            shm.give_back(memory);
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        let _locked = self.hand_over.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shm) = self.shm.get() {
            return shm.descriptor();
        }
        let asked = self.asked.get_or_init(|| match self.socket.upgrade() {
            None => unreachable!("a sender keeps its socket until it switches"),
            Some(socket) => match socket.space_set() {
                Some(set) => Asked::Set(Arc::clone(set)),
                None => Asked::Socket(Arc::clone(&socket.socket)),
            },
        });
        match asked {
            Asked::Set(set) => set.as_fd(),
            Asked::Socket(socket) => socket.as_fd(),
        }
    }
}
