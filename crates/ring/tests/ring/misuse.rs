// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that a mistake in the calling code panics with the reason, before anything becomes visible
//! to the peer.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use crate::one_way;

use partywall_layout::RingSize;
use partywall_layout::record_ring::Kind;
use partywall_ring::{Consumer, Producer, Slab, mem};

#[test]
#[should_panic(expected = "records are consumed in order")]
fn advance_twice_over_one_record_panics() {
    let (mut producer, mut consumer) = one_way::ring(4096);
    producer.append(Kind::Data, 0, &[1]).unwrap();
    producer.publish();
    let header = consumer.peek().unwrap().unwrap();
    consumer.advance(&header);
    consumer.advance(&header);
}

#[test]
#[should_panic(expected = "beyond the record")]
fn copy_beyond_record_panics() {
    let (mut producer, mut consumer) = one_way::ring(4096);
    producer.append(Kind::Data, 0, &[1, 2]).unwrap();
    producer.publish();
    let header = consumer.peek().unwrap().unwrap();
    consumer.copy(&header, 1, &mut [0; 2]);
}

#[test]
#[should_panic(expected = "never fits this ring")]
fn record_beyond_quarter_of_ring_panics() {
    let (mut producer, _) = one_way::ring(4096);
    let _ = producer.append(Kind::Data, 0, &[0; 1009]);
}

#[test]
#[should_panic(expected = "a batch is half the ring")]
fn batch_beyond_half_of_ring_panics() {
    let (mut producer, _) = one_way::ring(4096);
    producer.append(Kind::Data, 0, &[0; 1008]).unwrap();
    producer.append(Kind::Data, 0, &[0; 1008]).unwrap();
    let _ = producer.append(Kind::Data, 0, &[]);
}

/// Mistake: the caller appends one more record to a batch that fills half of a full ring. The call
/// panics instead of returning `Full`. `Full` would make the caller wait for ever: the consumer
/// cannot free the slots of a batch that is not published.
#[test]
#[should_panic(expected = "a batch is half the ring")]
fn batch_beyond_half_of_full_ring_panics() {
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
fn close_within_batch_panics() {
    let (mut producer, _) = one_way::ring(4096);
    producer.append(Kind::Data, 0, &[]).unwrap();
    producer.close(Kind::CloseWrite, 0);
}

/// Mistake: the caller closes a full ring twice. The second call panics, because a second closing
/// record would overwrite an unread record.
#[test]
#[should_panic(expected = "the ring was closed before")]
fn second_close_of_full_ring_panics() {
    let (mut producer, _) = one_way::ring(4096);
    while producer.append(Kind::Data, 0, &[]).is_ok() {
        producer.publish();
    }
    producer.close(Kind::CloseWrite, 0);
    producer.close(Kind::CloseWrite, 0);
}

#[test]
#[should_panic(expected = "the ring's memory has the ring's size")]
fn producer_with_other_ring_size_panics() {
    let _ = Producer::new(mem::pair(8192).0, RingSize::new(4096).unwrap(), mem::pair(64).1);
}

#[test]
#[should_panic(expected = "the ring's memory has the ring's size")]
fn consumer_with_other_ring_size_panics() {
    let _ = Consumer::new(mem::pair(8192).1, RingSize::new(4096).unwrap(), mem::pair(64).0);
}

#[test]
#[should_panic(expected = "beyond the block")]
fn write_beyond_block_panics() {
    let mut slab = Slab::new(1);
    slab.add_segment(0, mem::pair(64).0);
    slab.allocate(10).unwrap().write(5, &[0; 6]);
}

#[test]
#[should_panic(expected = "only adjacent parts can be joined")]
fn join_of_separate_memory_panics() {
    let (first, rest) = mem::pair(192).0.split_at(64);
    let (_middle, last) = rest.split_at(64);
    let _ = first.join(last);
}

#[test]
#[should_panic(expected = "beyond the memory")]
fn copy_beyond_memory_panics() {
    let (_, peer) = mem::pair(128);
    peer.copy_onto(64, 65, &mut Vec::new());
}
