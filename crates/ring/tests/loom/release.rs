// SPDX-License-Identifier: MIT OR Apache-2.0
//! Models in which a block of the slab is written, read by the peer, released, and reused. The
//! reader never sees the later content, and the returned id is that of the block in flight.
//!
//! The slab has room for one block, so each message waits until the reader has returned the block
//! of the message before it. Block ids differ only in their generation, and the slab would refuse a
//! stale entry of the release ring.
//!
//! In loom a load never returns a store that has not run yet. So these models cannot show that
//! reads end *before* `released` is stored; the ORDER comment in `src/release.rs` gives the
//! argument.
//!
//! | model | blocks | concurrent messages | preemptions | executions |
//! |---|---|---|---|---|
//! | block_is_reused_only_after_release | 1 | 3 | 5 | 4,896 |
//! | blocks_return_in_any_order | 2 | 4 | 5 | 13,841 |
#![cfg(loom)]
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use crate::model;
use crate::one_way;

use loom::thread;
use model::{explore, payload};
use partywall_layout::record_ring::Kind;
use partywall_ring::{Consumer, PeerMem, Producer, Reclaimer, Releaser, Slab, mem};

const BLOCK_WORDS: usize = 2;

/// The side that owns the slab, and sends messages in blocks of that slab.
struct Owner {
    producer: Producer,
    slab: Slab,
    reclaimer: Reclaimer,
}

impl Owner {
    /// Waits for a free block, writes message `number` into it, and publishes the block's location.
    fn send(&mut self, number: u32) {
        let mut block = loop {
            while let Some(id) = self.reclaimer.next(self.slab.in_flight()).unwrap() {
                self.slab.reclaim(id).expect("an id that is out");
            }
            match self.slab.allocate(BLOCK_WORDS * 8) {
                Some(block) => break block,
                None => thread::yield_now(),
            }
        };
        block.write(0, &payload(number, BLOCK_WORDS));
        let place = self.slab.commit(block);
        let body = [place.id.to_le_bytes(), place.offset.to_le_bytes()].concat();
        self.producer.append(Kind::Blob, number, &body).expect("a ring that is large enough");
        self.producer.publish();
    }
}

/// The peer of the slab's owner: reads the blocks, and returns their ids.
struct Reader {
    consumer: Consumer,
    slab: PeerMem,
    releaser: Releaser,
}

impl Reader {
    /// Receives the next message, which must be message `number`. Returns the id and the offset of
    /// its block.
    fn next(&mut self, number: u32) -> (u64, usize) {
        let record = loop {
            match self.consumer.peek().unwrap() {
                Some(record) => break record,
                None => thread::yield_now(),
            }
        };
        assert_eq!((record.kind, record.stream), (Kind::Blob, number));
        let (mut id, mut offset) = ([0; 8], [0; 8]);
        self.consumer.copy(&record, 0, &mut id);
        self.consumer.copy(&record, 8, &mut offset);
        self.consumer.advance(&record);
        (u64::from_le_bytes(id), u64::from_le_bytes(offset) as usize)
    }

    fn check(&self, number: u32, offset: usize) {
        let mut found = vec![0; BLOCK_WORDS * 8];
        self.slab.copy(offset, &mut found);
        assert_eq!(found, payload(number, BLOCK_WORDS), "not what was sent");
    }
}

/// Creates the owner and the reader of a slab of `blocks` blocks, each of which was in flight and
/// returned once.
fn sides(blocks: u32) -> (Owner, Reader) {
    let (producer, consumer) = one_way::ring(1024);
    let (own, slab_seen) = mem::pair(64 * blocks as usize);
    let mut slab = Slab::new(blocks);
    slab.add_segment(0, own);
    let (ring, ring_seen) = mem::pair(64);
    let (released, released_seen) = mem::pair(64);
    let reclaimer = Reclaimer::new(ring_seen, released_seen, 0);
    let mut owner = Owner { producer, slab, reclaimer };
    let mut reader = Reader { consumer, slab: slab_seen, releaser: Releaser::new(ring, released) };
    for number in 0..blocks {
        owner.send(100 + number);
        let (id, offset) = reader.next(100 + number);
        reader.check(100 + number, offset);
        reader.releaser.release(id);
    }
    (owner, reader)
}

#[test]
fn block_is_reused_only_after_release() {
    explore("block_is_reused_only_after_release", 5, || {
        let (mut owner, mut reader) = sides(1);
        let sender = thread::spawn(move || {
            for number in 0..3 {
                owner.send(number);
            }
        });
        for number in 0..3 {
            let (id, offset) = reader.next(number);
            reader.check(number, offset);
            reader.releaser.release(id);
        }
        sender.join().unwrap();
    });
}

#[test]
fn blocks_return_in_any_order() {
    explore("blocks_return_in_any_order", 5, || {
        let (mut owner, mut reader) = sides(2);
        let sender = thread::spawn(move || {
            for number in 0..4 {
                owner.send(number);
            }
        });
        let (first, first_offset) = reader.next(0);
        let (second, second_offset) = reader.next(1);
        reader.check(1, second_offset);
        reader.releaser.release(second);
        let (third, third_offset) = reader.next(2);
        reader.check(0, first_offset);
        reader.releaser.release(first);
        let (_, fourth_offset) = reader.next(3);
        reader.check(2, third_offset);
        reader.releaser.release(third);
        reader.check(3, fourth_offset);
        sender.join().unwrap();
    });
}
