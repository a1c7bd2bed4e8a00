// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a ring that has any content, and that changes between reads (SPEC 4).
//!
//! ```text
//!  input:  size of the ring | initial content of the ring | steps of ten bytes
//!  After each poll of the consumer, one step changes the ring. Its first byte chooses the change:
//!    0  store any word at any offset
//!    1  write a record's header at the reader's position
//!    2  change nothing
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use partywall_layout::record_ring::{KIND_MASK, word1};
use partywall_layout::{RecordHeader, RingSize, SLOT_BYTES, segment};
use partywall_ring::{Consumer, OwnMem, mem};

fuzz_target!(|input: &[u8]| {
    let Some((choice, input)) = input.split_first() else { return };
    let Some(size) = RingSize::new(256 << (choice % 5)) else { return };
    let bytes = size.bytes() as usize;
    let (mut ring, seen) = mem::pair(bytes);
    let (own, _) = mem::pair(segment::LINE_BYTES as usize);
    let mut consumer = Consumer::new(seen, size, own);

    let (image, steps) = input.split_at(input.len().min(bytes));
    ring.write(0, image);
    for step in steps.chunks_exact(10) {
        if !read(&mut consumer, size) {
            return;
        }
        mutate(&mut ring, &consumer, size, step);
    }
    // From here on the ring does not change. A record's first word is valid at one ring position
    // only, so the reader stops after at most one lap.
    for _ in 0..=size.bytes() / SLOT_BYTES {
        let before = consumer.position();
        if !read(&mut consumer, size) || consumer.position() == before {
            return;
        }
    }
    panic!("more records than slots");
});

/// Reads one record from the ring; `false` if the consumer reported a violation.
fn read(consumer: &mut Consumer, size: RingSize) -> bool {
    let Ok(found) = consumer.peek() else { return false };
    let Some(header) = found else {
        consumer.report();
        return true;
    };
    check(&header, consumer, size);
    consumer.advance(&header);
    if consumer.is_report_due() {
        consumer.report();
    }
    true
}

fn check(header: &RecordHeader, consumer: &Consumer, size: RingSize) {
    assert_eq!(header.position, consumer.position());
    assert!(header.footprint() <= size.record_max());
    assert!(size.offset(header.position) + header.footprint() <= size.bytes());
    let payload = consumer.payload(header);
    assert_eq!(payload.len(), header.len as usize);
    let mut copy = vec![0; payload.len()];
    consumer.copy(header, 0, &mut copy);
    assert_eq!(copy, payload);
}

fn mutate(ring: &mut OwnMem, consumer: &Consumer, size: RingSize, step: &[u8]) {
    let word = u64::from_le_bytes([
        step[2], step[3], step[4], step[5], step[6], step[7], step[8], step[9],
    ]);
    match step[0] % 3 {
        0 => {
            let offset = usize::from(step[1]) * 8 % size.bytes() as usize;
            ring.store(offset, word);
        }
        1 => {
            let position = consumer.position();
            let offset = size.offset(position) as usize;
            ring.store(offset + 8, word1(word as u32 % (2 * size.record_max() as u32), 0));
            ring.store(offset, position.0 | (u64::from(step[1]) & KIND_MASK) | 1);
        }
        _ => {}
    }
}
