// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helper of the ring tests: one direction of a connection within one process, as a producer and
//! the consumer of its ring.

use partywall_layout::{RingSize, segment};
use partywall_ring::{Consumer, Producer, mem};

const _: () = assert!(segment::CONSUMED == 0, "one line is control page enough");

/// Creates the producer and the consumer of a zeroed ring of `bytes` bytes.
pub fn ring(bytes: u64) -> (Producer, Consumer) {
    let size = RingSize::new(bytes).unwrap();
    let (ring, ring_seen) = mem::pair(bytes as usize);
    let (consumed, consumed_seen) = mem::pair(64);
    (Producer::new(ring, size, consumed_seen), Consumer::new(ring_seen, size, consumed))
}
