// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages that were received on our heap, of which only so much may lie unread.

use partywall::Message;
use partywall::protocol::{DriverWaker, RecvBuffer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How much of our heap lies unread, of all streams together.
#[derive(Clone, Debug)]
pub(super) struct Heap {
    shared: Arc<Used>,
}

#[derive(Debug)]
struct Used {
    bytes: AtomicU64,
    bytes_max: u64,
    /// The driver takes no more before there is less.
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
        // ORDER: Relaxed: a sum. Who holds reads it behind what says so.
        self.shared.bytes.fetch_add(weight(&bytes), Ordering::Relaxed);
        Message::from_recv_buffer(Box::new(OnHeap { bytes, heap: self.clone() }))
    }

    /// Whether to take no more: the driver is called when that changes.
    pub(super) fn holds(&self) -> bool {
        if !self.is_full() {
            return false;
        }
        // ORDER: SeqCst, with the load below and those of `drop`: either the last reader sees that we hold, and
        // calls, or we see what it gave back.
        self.shared.is_held.store(true, Ordering::SeqCst);
        let holds = self.is_full();
        if !holds {
            // ORDER: Relaxed: a call too many does no harm.
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

/// What a message takes of the heap: many small ones are not free.
fn weight(bytes: &[u8]) -> u64 {
    bytes.len() as u64 + MESSAGE_BYTES
}

/// What a message takes besides its bytes, about: itself, its place in a queue, and what the allocator adds.
const MESSAGE_BYTES: u64 = 192;
