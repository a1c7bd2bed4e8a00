// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that old payload and aborted batches never become records. Each slot of each payload holds
//! a forged record header that will be valid at that slot some laps of the ring later (SPEC 4.5).
//!
//! Positions are predictable, so the author of a payload, such as a client of a proxy, can write
//! such words. The zero that the producer stores after each batch keeps such words invisible. With
//! the seeded fault `no_zero_next_slot`, these tests fail.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use crate::one_way;

use partywall_layout::RingSize;
use partywall_layout::record_ring::{HEADER_BYTES, Kind, Position, footprint, word0, word1};
use partywall_ring::{AppendError, Consumer, Producer};
use std::collections::VecDeque;

/// The stream number of forged headers; no real record has it.
const FORGED: u32 = 0xdead;

/// State of a test: a sender of hostile payloads, and a reader that must read the forged headers as
/// payloads only.
struct Run {
    producer: Producer,
    consumer: Consumer,
    /// Stream number and payload of each record that was published and is still unread.
    sent: VecDeque<(u32, Vec<u8>)>,
    open: Vec<(u32, Vec<u8>)>,
    number: u32,
}

impl Run {
    fn new(ring_bytes: u64) -> Self {
        let (producer, consumer) = one_way::ring(ring_bytes);
        Self { producer, consumer, sent: VecDeque::new(), open: Vec::new(), number: 0 }
    }

    fn size(&self) -> RingSize {
        self.producer.size()
    }

    /// Appends a record whose `len` bytes of payload are headers that become valid `laps` laps
    /// later. Returns `false` if the ring or the batch has no room.
    fn append(&mut self, len: usize, laps: u64) -> bool {
        let taken = footprint(len as u64);
        if self.producer.open_bytes() + taken > self.size().batch_max() {
            return false;
        }
        let start = self.next_start(taken);
        let payload = forged_payload(self.size(), start, len, laps);
        match self.producer.append(Kind::Data, self.number, &payload) {
            Ok(()) => {
                self.open.push((self.number, payload));
                self.number = (self.number + 1) % FORGED;
                true
            }
            Err(AppendError::Full) => false,
            Err(AppendError::Violation(violation)) => panic!("{violation}"),
        }
    }

    /// Position at which the next record begins, if it takes `taken` bytes; padding may precede the
    /// record.
    fn next_start(&self, taken: u64) -> Position {
        let tail = self.producer.published().plus(self.producer.open_bytes());
        let until_end = self.size().until_end(tail);
        if taken > until_end { tail.plus(until_end) } else { tail }
    }

    fn publish(&mut self) {
        self.producer.publish();
        match self.sent.len() % 3 {
            0 => {}
            1 => self.producer.prepare(false),
            _ => (0..4).for_each(|_| self.producer.prepare(true)),
        }
        self.sent.extend(self.open.drain(..));
    }

    fn abort(&mut self) {
        self.producer.abort();
        self.open.clear();
    }

    /// Reads all published records, and checks that the ring delivers exactly the records that were
    /// sent.
    fn read_all(&mut self) {
        while let Some(header) = self.consumer.peek().expect("no word of another position") {
            assert_eq!(self.consumer.peek_data(), Some(header));
            assert_ne!(header.stream, FORGED, "a payload became a record");
            let (number, payload) = self.sent.pop_front().expect("a record that was never sent");
            assert_eq!((header.kind, header.stream), (Kind::Data, number));
            assert_eq!(self.consumer.payload(&header), payload);
            self.consumer.advance(&header);
        }
        assert!(self.sent.is_empty(), "a record is missing");
        self.consumer.report();
    }
}

/// A payload for a record at `start`, whose every slot begins with a header that becomes valid
/// `laps` laps later.
fn forged_payload(size: RingSize, start: Position, len: usize, laps: u64) -> Vec<u8> {
    let mut payload = vec![0xff; len];
    let first_line = 64 - HEADER_BYTES as usize;
    for at in (first_line..len).step_by(64) {
        let position = start.plus(at as u64 + HEADER_BYTES + laps * size.bytes());
        let header = [word0(position, Kind::Data), word1(8, FORGED)].map(u64::to_le_bytes).concat();
        let end = len.min(at + header.len());
        payload[at..end].copy_from_slice(&header[..end - at]);
    }
    payload
}

/// Returns a deterministic sequence of pseudo-random numbers (xorshift), each below the bound that
/// the caller passes.
fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed * 2 + 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    }
}

#[test]
fn old_payload_never_becomes_a_record() {
    for seed in 0..50 {
        let mut next = numbers(seed);
        let mut run = Run::new(4096);
        for _ in 0..2000 {
            let len = next(1009) as usize;
            if !run.append(len, 1 + next(2)) {
                run.publish();
                run.read_all();
            }
            // The test publishes and reads at random steps, to vary the batch sizes and the
            // reader's lag.
            if next(3) > 0 {
                run.publish();
            }
            if next(4) == 0 {
                run.read_all();
            }
        }
        run.publish();
        run.read_all();
    }
}

/// Rule: the reader takes no forged header in old payload for a record. Input: one lap of the ring
/// with large records of forged headers, then a lap of small records, each of which ends where such
/// a header lies.
#[test]
fn no_slot_of_old_payload_becomes_a_record() {
    let mut run = Run::new(4096);
    for _ in 0..100 {
        while run.append(1008, 1) {
            run.publish();
            run.read_all();
            if run.producer.published().0 % 4096 == 0 {
                break;
            }
        }
        for _ in 0..64 {
            assert!(run.append(8, 1));
            run.publish();
            run.read_all();
        }
    }
}

#[test]
fn aborted_batch_leaves_no_ghost_records() {
    for seed in 0..50 {
        let mut next = numbers(seed);
        let mut run = Run::new(4096);
        for _ in 0..500 {
            let first = next(500) as usize;
            for len in [first, 8, next(100) as usize] {
                assert!(run.append(len, 1));
            }
            run.abort();
            run.read_all();
            // The appended record ends exactly where the second record of the aborted batch began.
            // The aborted record must not become visible.
            assert!(run.append(first, 1));
            run.publish();
            run.read_all();
        }
    }
}

#[test]
fn batch_of_killed_writer_is_not_visible() {
    for seed in 0..200 {
        let mut next = numbers(seed);
        let mut run = Run::new(4096);
        for _ in 0..next(100) {
            assert!(run.append(next(1009) as usize, 1));
            run.publish();
            run.read_all();
        }
        for _ in 0..next(3) {
            assert!(run.append(next(200) as usize, 1));
            run.publish();
        }
        for _ in 0..2 + next(3) {
            assert!(run.append(next(200) as usize, 1));
        }
        // Dropping the producer leaves its last batch unpublished. The reader must read the
        // published records, and none of that batch.
        let Run { producer, mut consumer, sent, .. } = run;
        drop(producer);
        for (number, payload) in sent {
            let header = consumer.peek().unwrap().expect("a record is missing");
            assert_eq!(header.stream, number);
            assert_eq!(consumer.payload(&header), payload);
            consumer.advance(&header);
        }
        assert_eq!(consumer.peek(), Ok(None), "a record of the open batch");
    }
}
