// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mistakes of this side's own code end in a panic with the reason, before anything is shared.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use crate::one_way;

use partywall_layout::RingSize;
use partywall_layout::record_ring::Kind;
use partywall_ring::{Consumer, Producer, Slab, mem};

#[test]
#[should_panic(expected = "records are consumed in order")]
fn advancing_twice_over_one_record() {
    let (mut producer, mut consumer) = one_way::ring(4096);
    producer.append(Kind::Data, 0, &[1]).unwrap();
    producer.publish();
    let header = consumer.peek().unwrap().unwrap();
    consumer.advance(&header);
    consumer.advance(&header);
}

#[test]
#[should_panic(expected = "beyond the record")]
fn copying_beyond_the_record() {
    let (mut producer, mut consumer) = one_way::ring(4096);
    producer.append(Kind::Data, 0, &[1, 2]).unwrap();
    producer.publish();
    let header = consumer.peek().unwrap().unwrap();
    consumer.copy(&header, 1, &mut [0; 2]);
}

#[test]
#[should_panic(expected = "never fits this ring")]
fn a_record_beyond_a_quarter_of_the_ring() {
    let (mut producer, _) = one_way::ring(4096);
    let _ = producer.append(Kind::Data, 0, &[0; 1009]);
}

#[test]
#[should_panic(expected = "a batch is half the ring")]
fn a_batch_beyond_half_the_ring() {
    let (mut producer, _) = one_way::ring(4096);
    producer.append(Kind::Data, 0, &[0; 1008]).unwrap();
    producer.append(Kind::Data, 0, &[0; 1008]).unwrap();
    let _ = producer.append(Kind::Data, 0, &[]);
}

/// "Full" would be a trap: of a ring that holds this batch alone nothing more will ever be read.
#[test]
#[should_panic(expected = "a batch is half the ring")]
fn a_batch_beyond_half_a_ring_that_is_full() {
    let (mut producer, _) = one_way::ring(4096);
    for _ in 0..30 {
        producer.append(Kind::Data, 0, &[]).unwrap();
        producer.publish();
    }
    for _ in 0..32 {
        producer.append(Kind::Data, 0, &[]).unwrap();
    }
    assert_eq!(producer.has_room(0), Ok(false));
    let _ = producer.append(Kind::Data, 0, &[]);
}

#[test]
#[should_panic(expected = "a batch is open")]
fn closing_within_a_batch() {
    let (mut producer, _) = one_way::ring(4096);
    producer.append(Kind::Data, 0, &[]).unwrap();
    producer.close(Kind::CloseWrite, 0);
}

/// The second closing record would overwrite what nobody has read.
#[test]
#[should_panic(expected = "the ring was closed before")]
fn closing_a_full_ring_twice() {
    let (mut producer, _) = one_way::ring(4096);
    while producer.append(Kind::Data, 0, &[]).is_ok() {
        producer.publish();
    }
    producer.close(Kind::CloseWrite, 0);
    producer.close(Kind::CloseWrite, 0);
}

#[test]
#[should_panic(expected = "the ring's memory has the ring's size")]
fn a_ring_of_another_size() {
    let _ = Producer::new(mem::pair(8192).0, RingSize::new(4096).unwrap(), mem::pair(64).1);
}

#[test]
#[should_panic(expected = "the ring's memory has the ring's size")]
fn a_ring_of_another_size_to_read() {
    let _ = Consumer::new(mem::pair(8192).1, RingSize::new(4096).unwrap(), mem::pair(64).0);
}

#[test]
#[should_panic(expected = "beyond the block")]
fn writing_beyond_a_block() {
    let mut slab = Slab::new(1);
    slab.add_segment(0, mem::pair(64).0);
    slab.allocate(10).unwrap().write(5, &[0; 6]);
}

#[test]
#[should_panic(expected = "only adjacent parts can be joined")]
fn joining_memory_that_does_not_touch() {
    let (first, rest) = mem::pair(192).0.split_at(64);
    let (_middle, last) = rest.split_at(64);
    let _ = first.join(last);
}

#[test]
#[should_panic(expected = "beyond the memory")]
fn copying_beyond_the_memory() {
    let (_, peer) = mem::pair(128);
    peer.copy_onto(64, 65, &mut Vec::new());
}
