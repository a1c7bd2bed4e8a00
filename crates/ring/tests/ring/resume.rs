// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests in which a process resumes the ring of a process that has ended. A new producer and a new
//! consumer continue at any position.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use partywall_layout::record_ring::{Kind, word0};
use partywall_layout::{Position, RingSize, Violation};
use partywall_ring::{AppendError, Consumer, OwnMem, PeerMem, Producer, mem};

/// Creates the ring of a process that has ended. Each slot has a word that is a valid record header
/// at its position of the lap that begins at `records_at`.
fn old_ring(records_at: Position) -> (OwnMem, PeerMem, RingSize) {
    let (mut ring, seen) = mem::pair(512);
    for slot in 0..8 {
        let position = Position(records_at.0 + slot * 64);
        ring.store((position.0 % 512) as usize, word0(position, Kind::Data));
    }
    (ring, seen, RingSize::new(512).unwrap())
}

#[test]
fn old_words_after_resumed_tail_are_not_read() {
    let (base, tail) = (Position(1024), Position(1024 + 192));
    let (ring, seen, size) = old_ring(base);
    let mut producer = Producer::resume(ring, size, base, tail);
    let (word, reported) = mem::pair(64);
    let mut consumer = Consumer::at(seen, size, word, base);
    assert_eq!(reported.load(0), base.0, "`consumed` reports where the consumer resumes");
    for position in [1024, 1088, 1152] {
        assert_eq!(producer.retained(Position(position)).unwrap().0.position, Position(position));
        let header = consumer.peek().unwrap().unwrap();
        assert_eq!(header.position, Position(position));
        consumer.advance(&header);
    }
    assert_eq!(consumer.peek(), Ok(None));
    assert!(producer.retained(tail).is_none() && producer.retained(Position(960)).is_none());
    producer.append(Kind::Data, 7, b"next").unwrap();
    assert_eq!(consumer.peek(), Ok(None), "not published");
    producer.publish();
    let header = consumer.peek().unwrap().unwrap();
    assert_eq!((header.position, consumer.payload(&header)), (tail, &b"next"[..]));
    let (found, bytes) = producer.retained(tail).unwrap();
    assert_eq!((found, &bytes[16..]), (header, &b"next"[..]));
    consumer.advance(&header);
    assert_eq!(consumer.peek(), Ok(None), "the old word behind it was zeroed");
}

#[test]
fn room_of_resumed_ring_follows_set_consumed() {
    let (base, tail) = (Position(1024), Position(1024 + 320));
    let (ring, _, size) = old_ring(base);
    let mut producer = Producer::resume(ring, size, base, tail);
    producer.append(Kind::Data, 0, b"").unwrap();
    assert_eq!(producer.append(Kind::Data, 0, b""), Err(AppendError::Full));
    for wrong in [960, 1025, 1024 + 384] {
        let violation = Violation::Consumed { found: wrong, from: base.0, to: tail.0 };
        assert_eq!(producer.set_consumed(Position(wrong)), Err(violation));
    }
    producer.set_consumed(Position(1088)).unwrap();
    assert_eq!(producer.consumed(), Position(1088));
    producer.append(Kind::Data, 0, b"").unwrap();
    assert_eq!(producer.append(Kind::Data, 0, b""), Err(AppendError::Full));
}

/// Input: the producer writes a payload into the ring before it appends the record, and then never
/// appends it. Rule: the consumer reads no word of that payload as a record header.
#[test]
fn abandoned_payload_ahead_is_no_record() {
    let (ring, seen) = mem::pair(1024);
    let size = RingSize::new(1024).unwrap();
    let mut producer = Producer::resume(ring, size, Position(0), Position(0));
    let mut consumer = Consumer::at(seen, size, mem::pair(64).0, Position(0));
    producer.prepare_ahead();
    let ahead = producer.payload_ahead(200).unwrap();
    for slot in [64_usize, 128, 192] {
        let word = word0(Position(slot as u64), Kind::Data).to_le_bytes();
        ahead[slot - 16..slot - 8].copy_from_slice(&word);
    }
    assert_eq!(producer.next_position(200), Position(0));
    for _ in 0..2 {
        producer.append(Kind::Data, 0, b"x").unwrap();
        producer.publish();
        let header = consumer.peek().unwrap().unwrap();
        consumer.advance(&header);
        assert_eq!(consumer.peek(), Ok(None));
    }
    producer.payload_ahead(5).unwrap().copy_from_slice(b"ahead");
    producer.append_with(Kind::Data, 0, 5, |payload| assert_eq!(payload, b"ahead")).unwrap();
    producer.publish();
    let header = consumer.peek().unwrap().unwrap();
    assert_eq!(consumer.payload(&header), b"ahead");
}

#[test]
#[should_panic(expected = "more than a ring")]
fn resume_with_more_records_than_fit_panics() {
    let (ring, _, size) = old_ring(Position(0));
    let _ = Producer::resume(ring, size, Position(0), Position(512));
}
