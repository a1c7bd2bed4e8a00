// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages that were received over the socket into this process's heap, with a limit on their
//! unread bytes.

use partywall::Message;
use partywall::protocol::{DriverWaker, RecvBuffer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counts the unread bytes on the heap, of all streams of a connection together.
#[derive(Clone, Debug)]
pub(super) struct Heap {
    shared: Arc<Used>,
}

#[derive(Debug)]
struct Used {
    bytes: AtomicU64,
    bytes_max: u64,
    /// Set while the session's driver does not read the socket, because too many bytes on the heap
    /// are unread.
    is_held: AtomicBool,
    driver_waker: DriverWaker,
}

impl Heap {
    pub(super) fn new(bytes_max: u64, driver_waker: DriverWaker) -> Self {
        let (bytes, is_held) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { shared: Arc::new(Used { bytes, bytes_max, is_held, driver_waker }) }
    }

    /// Creates a message on the heap. Its bytes count as unread until the message is dropped.
    pub(super) fn message(&self, bytes: Vec<u8>) -> Message {
        // ORDER: Relaxed: the addition only updates the number of unread bytes. `holds`, which
        // compares it with the limit, orders its own load.
        self.shared.bytes.fetch_add(weight(&bytes), Ordering::Relaxed);
        Message::from_recv_buffer(Box::new(OnHeap { bytes, heap: self.clone() }))
    }

    /// Whether the session's driver must stop reading the socket, because too many received bytes
    /// on the heap are unread. Once the application has freed enough of them, the driver is woken.
    pub(super) fn holds(&self) -> bool {
        if !self.is_full() {
            return false;
        }
        // ORDER: SeqCst: this thread stores `is_held` and then loads the number of unread bytes. A
        // thread that drops a message subtracts its bytes and then loads `is_held`. So either that
        // thread sees `is_held` and wakes the session's driver, or this thread sees that the bytes
        // were freed.
        self.shared.is_held.store(true, Ordering::SeqCst);
        let holds = self.is_full();
        if !holds {
            // ORDER: Relaxed: another thread that still sees `is_held` set only wakes the session's
            // driver needlessly.
            self.shared.is_held.store(false, Ordering::Relaxed);
        }
        holds
    }

    fn is_full(&self) -> bool {
        // ORDER: SeqCst: the session's driver stores `is_held`, then loads the number of unread
        // bytes here, and stops reading if there are too many. A thread that drops a message
        // subtracts the message's bytes and then loads `is_held`. So either the driver sees that
        // the bytes were freed, or the other thread sees `is_held` and wakes the driver.
        self.shared.bytes.load(Ordering::SeqCst) > self.shared.bytes_max
    }
}

struct OnHeap {
    bytes: Vec<u8>,
    heap: Heap,
}

impl RecvBuffer for OnHeap {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self, from: usize) -> &[u8] {
        &self.bytes[from..]
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    fn is_zero_copy(&self) -> bool {
        false
    }
}

impl Drop for OnHeap {
    fn drop(&mut self) {
        let used = &self.heap.shared;
        // ORDER: SeqCst: this thread subtracts the message's bytes and then loads `is_held`. The
        // session's driver stores `is_held` and then loads the number of unread bytes. So either
        // this thread sees `is_held` and wakes the driver, or the driver sees that the bytes were
        // freed.
        used.bytes.fetch_sub(weight(&self.bytes), Ordering::SeqCst);
        // ORDER: SeqCst: this thread has subtracted the message's bytes and now loads `is_held`.
        // The session's driver stores `is_held` and then loads the number of unread bytes. So one
        // of the two sees the other's change, and a driver that stopped reading is woken.
        if used.is_held.load(Ordering::SeqCst) && !self.heap.is_full() {
            // ORDER: Relaxed: before the session's driver stops reading the socket again, it sets
            // `is_held` again, in `Heap::holds`.
            used.is_held.store(false, Ordering::Relaxed);
            used.driver_waker.wake();
        }
    }
}

/// Heap bytes that a message takes, with its overhead. Without the overhead, many small messages
/// could use far more memory than the limit.
fn weight(bytes: &[u8]) -> u64 {
    bytes.len() as u64 + MESSAGE_BYTES
}

/// Approximate heap bytes of a message besides its payload: the message value, its place in a
/// queue, and the allocator's overhead.
const MESSAGE_BYTES: u64 = 192;
