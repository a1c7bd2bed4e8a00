// SPDX-License-Identifier: MIT OR Apache-2.0
//! The object on which a sender waits for space, if its connection may move from the socket to
//! shared memory.
//!
//! ```text
//!   CurrentSpace ─┬─ before the sender switches ─▶ SocketShared: the socket has space
//!                 └─ after it                   ─▶ SharedMemory: the ring has space
//! ```
//!
//! Threads that wait hold this object while another thread switches the sender. So the switch
//! notifies the new wait point once: a thread that armed nothing there wakes and tries again.
//! The descriptor stays the same: the epoll set of the socket is handed over.

use super::SocketShared;
use crate::transport::shm::SharedMemory;
use crate::transport::{Memory, ProgressSnapshot, SpaceWaiter};
use partywall_sys::{EpollSet, ForkGuard, Socket};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Instant;

/// The space waiter of the transport that a sender uses now.
#[derive(Debug)]
pub(crate) struct CurrentSpace {
    guard: ForkGuard,
    /// The socket, which closes once both ends of this side have left it.
    socket: Weak<SocketShared>,
    /// The descriptor that an event loop asked for before the switch.
    asked: OnceLock<Asked>,
    shm: OnceLock<Arc<SharedMemory>>,
    /// Locked while the descriptor is handed over, and while a thread asks for it.
    hand_over: Mutex<()>,
}

/// A descriptor that shows when there may be space.
#[derive(Debug)]
enum Asked {
    Set(Arc<EpollSet>),
    /// No epoll set could be made. The sender's `arm` reports that.
    Socket(Arc<Socket>),
}

impl CurrentSpace {
    pub(super) fn new(socket: &Arc<SocketShared>) -> Self {
        let guard = socket.connection_state.guard;
        let (socket, asked) = (Arc::downgrade(socket), OnceLock::new());
        Self { guard, socket, asked, shm: OnceLock::new(), hand_over: Mutex::new(()) }
    }

    /// From now on, space means that of shared memory. Wakes every thread that waits.
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
            // The socket closes only after the switch.
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
        // What the socket reported says nothing of the transport that took its place meanwhile: the
        // thread tries again there.
        if !was_shared && self.shm.get().is_some() { Ok(false) } else { slept }
    }

    fn notify_self(&self) {
        let _ = self.current(|space| space.notify_self());
    }

    fn give_back(&self, memory: Memory) {
        // Only shared memory needs it back, and its memory was reserved after the switch.
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
