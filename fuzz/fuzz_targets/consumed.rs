// SPDX-License-Identifier: MIT OR Apache-2.0
//! The peer stores any value in its `consumed` word: the producer continues, or reports the
//! violation (SPEC 4.6).
//!
//! ```text
//!  Each step of the input is four bytes. Its first byte chooses the action:
//!    0  the producer appends a record
//!    1  the producer publishes its open batch
//!    2  the producer aborts its open batch
//!    3  the peer raises `consumed` by 0 to 7 slots
//!    4  the peer stores any value in `consumed`
//!    5  the producer checks whether the ring has room for a record
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use partywall_layout::record_ring::footprint;
use partywall_layout::{Kind, RingSize, SLOT_BYTES, segment};
use partywall_ring::{AppendError, OwnMem, Producer, mem};

struct World {
    producer: Producer,
    control: OwnMem,
    /// The present value of the peer's `consumed` word. It shows whether a violation that the
    /// producer reports is one.
    consumed: u64,
    /// Highest valid value of the peer's `consumed` word so far, of those that the producer could
    /// load.
    believed: u64,
}

fuzz_target!(|input: &[u8]| {
    let Some((choice, input)) = input.split_first() else { return };
    let Some(size) = RingSize::new(256 << (choice % 5)) else { return };
    let (ring, _) = mem::pair(size.bytes() as usize);
    let (control, seen) = mem::pair(segment::PAGE_BYTES as usize);
    let producer = Producer::new(ring, size, seen);
    let mut world = World { producer, control, consumed: 0, believed: 0 };
    for step in input.chunks_exact(4) {
        let value = u16::from_le_bytes([step[2], step[3]]);
        if !world.step(step[0] % 6, step[1], value) {
            return;
        }
    }
    // At the end of each run the ring still has room for a closing record, whatever the steps were.
    world.producer.abort();
    world.producer.close(Kind::CloseWrite, 0);
});

impl World {
    /// Performs the step that these bytes of the input describe; `false` if the producer reported a
    /// violation by the peer.
    fn step(&mut self, what: u8, choice: u8, value: u16) -> bool {
        match what {
            0 => return self.append(usize::from(value)),
            1 => self.producer.publish(),
            2 => self.producer.abort(),
            3 => self.say(self.consumed.wrapping_add(u64::from(choice % 8) * SLOT_BYTES)),
            4 => self.say(u64::from(value) << (choice % 49)),
            _ => {
                self.remember();
                let len = usize::from(value) % (self.producer.size().payload_max() as usize + 1);
                return match self.producer.has_room(len) {
                    Ok(_) => true,
                    Err(violation) => self.is_true(violation.code()),
                };
            }
        }
        true
    }

    fn say(&mut self, consumed: u64) {
        self.consumed = consumed;
        self.control.publish(segment::CONSUMED as usize, consumed);
    }

    fn append(&mut self, len: usize) -> bool {
        let size = self.producer.size();
        let len = len % (size.payload_max() as usize + 1);
        // The caller of the producer keeps an open batch within `batch_max` bytes: it publishes the
        // batch before a record that would exceed them.
        if self.producer.open_bytes() + footprint(len as u64) > size.batch_max() {
            self.producer.publish();
        }
        self.remember();
        match self.producer.append_with(Kind::Data, 0, len, |payload| payload.fill(0x5a)) {
            Ok(()) => {
                let tail = self.producer.published().0 + self.producer.open_bytes();
                let reach = self.believed + size.bytes();
                assert!(tail + 2 * SLOT_BYTES <= reach, "beyond what was consumed");
                true
            }
            Err(AppendError::Full) => true,
            Err(AppendError::Violation(violation)) => self.is_true(violation.code()),
        }
    }

    /// Keeps the value of the peer's `consumed` word in `believed`, if it is valid. Called before
    /// each operation in which the producer may load the word.
    fn remember(&mut self) {
        let published = self.producer.published().0;
        if self.consumed <= published && self.consumed % SLOT_BYTES == 0 {
            self.believed = self.believed.max(self.consumed);
        }
    }

    /// Checks a violation that the producer reported: the peer's `consumed` word must really break
    /// a rule.
    fn is_true(&self, code: u32) -> bool {
        assert_eq!(code, 8);
        let published = self.producer.published().0;
        assert!(
            self.consumed < self.believed
                || self.consumed > published
                || self.consumed % SLOT_BYTES != 0
        );
        false
    }
}
