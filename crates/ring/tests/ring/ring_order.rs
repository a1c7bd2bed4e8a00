// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test that records arrive whole and in order from one thread to another, over many laps of a
//! small ring.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use partywall_layout::record_ring::Kind;
use partywall_layout::{RingSize, segment};
use partywall_ring::{AppendError, Consumer, Producer, mem};

#[test]
fn million_records_arrive_in_order() {
    const RECORDS: u64 = 1_000_000;
    let size = RingSize::new(4096).unwrap();
    let (ring, ring_seen) = mem::pair(4096);
    let (control, control_seen) = mem::pair(4096);
    let mut producer = Producer::new(ring, size, control_seen);
    let (consumed, _) = control.split_at(segment::LINE_BYTES as usize);
    let mut consumer = Consumer::new(ring_seen, size, consumed);

    let writer = std::thread::spawn(move || {
        for number in 0..RECORDS {
            let len = (number * 7 % 1000) as usize;
            let payload = [number as u8; 1000];
            while producer.append(Kind::Data, number as u32, &payload[..len])
                == Err(AppendError::Full)
            {
                std::thread::yield_now();
            }
            producer.publish();
        }
    });
    let mut number = 0;
    while number < RECORDS {
        let Some(record) = consumer.peek().unwrap() else {
            std::thread::yield_now();
            continue;
        };
        assert_eq!(record.stream, number as u32);
        assert_eq!(u64::from(record.len), number * 7 % 1000);
        assert!(consumer.payload(&record).iter().all(|byte| *byte == number as u8));
        consumer.advance(&record);
        if consumer.is_report_due() {
            consumer.report();
        }
        number += 1;
    }
    writer.join().unwrap();
}
