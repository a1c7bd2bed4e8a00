// SPDX-License-Identifier: MIT OR Apache-2.0
//! A wait of a receiver that another thread can end, and during which the receiver is free for
//! short calls, such as one for its counters.
//!
//! ```text
//!   thread that receives   try_recv ─ Empty ─▶ arm_parker ─ WillNotify ─▶ park ──▶ try_recv
//!   any other thread                                       wake ───────────┘
//! ```

use crate::error::Fault;
use crate::transport::shm::SharedMemory;
use std::sync::{Arc, Weak};
use std::time::Instant;

/// Blocks a thread until its receiver may have a message, or another thread wakes it. Made by
/// [`Receiver::parker`](crate::Receiver::parker). Clones belong to the same receiver.
#[derive(Clone, Debug)]
pub struct ReceiverParker {
    shm: Weak<SharedMemory>,
}

impl ReceiverParker {
    pub(super) fn new(shm: &Arc<SharedMemory>) -> Self {
        Self { shm: Arc::downgrade(shm) }
    }

    /// Blocks, without spinning, until a message may have arrived, the peer may have ended, another
    /// thread calls [`wake`](Self::wake), or the deadline has come. Call it after
    /// [`Receiver::arm_parker`](crate::Receiver::arm_parker), and then call `try_recv`. No other
    /// thread may receive meanwhile, because it would take the notification.
    ///
    /// # Errors
    /// [`Fault`] if the channel is broken.
    pub fn park(&self, deadline: Option<Instant>) -> Result<(), Fault> {
        self.shm.upgrade().map_or(Ok(()), |shm| shm.park_receiver(deadline))
    }

    /// Ends the wait of another thread in [`park`](Self::park); if no thread waits, the next call
    /// of `park` returns at once. What the woken thread is to do, the caller must store elsewhere.
    /// The call has no effect once the channel is gone, or in a forked child.
    pub fn wake(&self) {
        if let Some(shm) = self.shm.upgrade() {
            shm.wake_receiver();
        }
    }
}
