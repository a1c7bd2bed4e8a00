// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages received into our heap, with a limit on their unread bytes.

use partywall::Message;
use partywall::protocol::{DriverWaker, RecvBuffer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Unread bytes on our heap, of all streams together.
#[derive(Clone, Debug)]
pub(super) struct Heap {
    shared: Arc<Used>,
}

#[derive(Debug)]
struct Used {
    bytes: AtomicU64,
    bytes_max: u64,
    /// The driver reads no more until there are fewer.
    is_held: AtomicBool,
    driver_waker: DriverWaker,
}

impl Heap {
    pub(super) fn new(bytes_max: u64, driver_waker: DriverWaker) -> Self {
        let (bytes, is_held) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { shared: Arc::new(Used { bytes, bytes_max, is_held, driver_waker }) }
    }

    /// A message on the heap; it counts until it is dropped.
    pub(super) fn message(&self, bytes: Vec<u8>) -> Message {
        // ORDER: Relaxed: only a running total. `holds` loads it again after its store of
        // `is_held`, which orders the check.
        self.shared.bytes.fetch_add(weight(&bytes), Ordering::Relaxed);
        Message::from_recv_buffer(Box::new(OnHeap { bytes, heap: self.clone() }))
    }

    /// Whether to read no more. When that changes, the driver is woken.
    pub(super) fn holds(&self) -> bool {
        if !self.is_full() {
            return false;
        }
        // ORDER: SeqCst, with the load below and the accesses in `drop`. Either the last reader
        // sees `is_held` and wakes the driver, or the load below sees its subtraction.
        self.shared.is_held.store(true, Ordering::SeqCst);
        let holds = self.is_full();
        if !holds {
            // ORDER: Relaxed: one wake-up too many does no harm.
            self.shared.is_held.store(false, Ordering::Relaxed);
        }
        holds
    }

    fn is_full(&self) -> bool {
        // ORDER: SeqCst: see `holds`.
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
        // ORDER: SeqCst: see `Heap::holds`.
        used.bytes.fetch_sub(weight(&self.bytes), Ordering::SeqCst);
        // ORDER: SeqCst: see `Heap::holds`.
        if used.is_held.load(Ordering::SeqCst) && !self.heap.is_full() {
            // ORDER: Relaxed: the driver sets it again before it relies on it.
            used.is_held.store(false, Ordering::Relaxed);
            used.driver_waker.wake();
        }
    }
}

/// Heap bytes of a message, with overhead: many small messages use memory too.
fn weight(bytes: &[u8]) -> u64 {
    bytes.len() as u64 + MESSAGE_BYTES
}

/// Approximate overhead of a message in bytes: the value, its place in a queue, and the allocator.
const MESSAGE_BYTES: u64 = 192;
