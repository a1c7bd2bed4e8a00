// SPDX-License-Identifier: MIT OR Apache-2.0
//! A peer that writes any words into a region or a queue while this side uses it. Property tests
//! and the fuzzer use it.
//!
//! ```text
//!   input: steps of eight bytes  │ what │ which │ u16 │ u32 │   the peer stores a word, or this
//!                                                 side allocates, sends, receives or frees
//! ```
//!
//! For any input this side never panics, never loops for ever, and never uses one byte for two
//! slices at the same time.

// Not every test that includes this file uses both the region and the queue.
#![allow(dead_code)]

use partywall_shmipc::regions::{
    Backing, BufferRegion, Chain, Class, Element, ListGeometry, PutError, Queue, QueueLayout, Side,
    Slice,
};
use partywall_sys::SharedMap;
use std::collections::VecDeque;
use std::sync::Arc;

const CLASSES: [Class; 3] = [
    Class { size: 20, percent: 20 },
    Class { size: 60, percent: 40 },
    Class { size: 252, percent: 40 },
];
const REGION_BYTES: usize = 4096;
const QUEUE_CAPACITY: u32 = 16;
const HELD_MAX: usize = 24;

/// Two mappings of the same memory: one for this side, and one for the peer.
pub fn mappings(size: usize) -> (SharedMap, SharedMap) {
    let (backing, ours) = Backing::create_memfd("/hostile", size).expect("memory");
    let theirs = SharedMap::map(backing.fd(), size).expect("memory");
    (ours, theirs)
}

struct Step {
    what: u8,
    which: u8,
    short: u16,
    long: u32,
}

fn steps(input: &[u8]) -> impl Iterator<Item = Step> + '_ {
    input.chunks_exact(8).map(|bytes| Step {
        what: bytes[0],
        which: bytes[1],
        short: u16::from_le_bytes([bytes[2], bytes[3]]),
        long: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
    })
}

/// Performs the steps of `input` on a region: this side uses the region, or the peer writes a word
/// into it. Checks after each step that no byte belongs to two slices of this side.
pub fn region(input: &[u8]) {
    let (ours, theirs) = mappings(REGION_BYTES);
    let mut game = RegionGame {
        region: BufferRegion::create(ours, &CLASSES).expect("a sensible plan"),
        theirs,
        slices: VecDeque::new(),
        chains: VecDeque::new(),
        sent: VecDeque::new(),
    };
    for step in steps(input) {
        game.play(&step);
        game.check();
    }
}

/// Maps and uses a region whose bytes are `input`, and then queues with the same bytes, as a peer
/// could have written them. No call may panic.
pub fn image(input: &[u8]) {
    let size = input.len().max(1);
    let (ours, theirs) = mappings(size);
    theirs.copy_in(0, input);
    if let Ok(region) = BufferRegion::map(ours) {
        assert!(region.geometry().end() as usize <= size);
        let slices = region.reserve_chain(size / 2);
        region.reserve(1);
        drop(slices);
        for offset in (0..size).step_by(4) {
            let _ = region.receive(offset as u32);
        }
        region.walk_free();
    }
    // The bytes of `input` are also mapped as a queue, in the layouts of both processors (x86-64
    // and arm64).
    for layout in [QueueLayout::LEGACY, QueueLayout::ALIGNED] {
        let ours = mappings(size).0;
        ours.copy_in(0, input);
        let split = Queue::map(ours, layout).and_then(|queue| queue.split(Side::Server));
        if let Ok((mut sender, mut receiver)) = split {
            let element = Element { stream: 1, offset: 2, status: 3 };
            while sender.put(element).is_ok() {}
            while let Ok(Some(_)) = receiver.pop() {}
        }
    }
}

struct RegionGame {
    region: Arc<BufferRegion>,
    theirs: SharedMap,
    slices: VecDeque<Slice>,
    chains: VecDeque<Chain>,
    sent: VecDeque<u32>,
}

impl RegionGame {
    fn play(&mut self, step: &Step) {
        let len = usize::from(step.short) % 600;
        match step.what % 12 {
            0 => self.theirs.store(usize::from(step.short) * 4 % REGION_BYTES, step.long),
            1 => self.theirs.store(self.header_word(step), self.plausible(step)),
            2 => self.theirs.store_byte(self.slice(step) as usize + 16, step.long as u8 & 3),
            3 => self.hold(self.region.reserve(len)),
            4 => self
                .region
                .reserve_chain(len)
                .into_iter()
                .flatten()
                .for_each(|slice| self.hold(Some(slice))),
            5 => self.send(usize::from(step.which) % 4),
            6 => self.receive(self.slice(step)),
            7 => self.receive(step.long),
            8 => {
                if let Some(offset) = self.sent.pop_front() {
                    self.receive(offset);
                }
            }
            9 => drop(self.slices.pop_front()),
            10 => drop(self.chains.pop_front()),
            _ => {
                self.region.walk_free();
                self.region.counts();
            }
        }
    }

    fn hold(&mut self, slice: Option<Slice>) {
        let Some(mut slice) = slice else { return };
        slice.as_mut_slice().fill(0xa5);
        self.slices.push_back(slice);
        self.slices.truncate(HELD_MAX);
    }

    fn send(&mut self, count: usize) {
        let count = count.min(self.slices.len());
        let slices = self.slices.drain(..count).collect();
        self.sent.extend(self.region.send(slices));
        self.sent.truncate(HELD_MAX);
    }

    fn receive(&mut self, offset: u32) {
        if let Ok(chain) = self.region.receive(offset) {
            self.chains.push_back(chain);
            self.chains.truncate(HELD_MAX);
        }
    }

    fn list(&self, step: &Step) -> ListGeometry {
        let lists = self.region.geometry().lists();
        lists[usize::from(step.which) % lists.len()]
    }

    fn slice(&self, step: &Step) -> u32 {
        let list = self.list(step);
        list.area() + list.relative(u32::from(step.short) % list.slices)
    }

    /// Offset of a random word of a list header or of a slice header, which `step` selects.
    fn header_word(&self, step: &Step) -> usize {
        let word = step.long as usize >> 16;
        if step.which & 0x80 == 0 {
            self.slice(step) as usize + word % 5 * 4
        } else {
            self.list(step).header as usize + word % 9 * 4
        }
    }

    /// Returns a number that the header of a list or slice could contain: an offset in a list or in
    /// the region, a small number, or a capacity.
    fn plausible(&self, step: &Step) -> u32 {
        let list = self.list(step);
        let index = step.long % list.slices;
        match step.long >> 8 & 3 {
            0 => list.relative(index),
            1 => list.area() + list.relative(index),
            2 => step.long & 0xff,
            _ => list.capacity,
        }
    }

    /// Asserts that no byte belongs to two of the slices and messages that this side holds.
    fn check(&self) {
        let mut ranges = Vec::new();
        for slice in &self.slices {
            let bytes = slice.as_slice().as_ptr_range();
            ranges.push((bytes.start.addr(), bytes.start.addr() + slice.capacity()));
        }
        for chain in &self.chains {
            let mut from = 0;
            while !chain.chunk(from).is_empty() {
                let bytes = chain.chunk(from);
                ranges.push((bytes.as_ptr_range().start.addr(), bytes.as_ptr_range().end.addr()));
                from += bytes.len();
            }
            assert_eq!(from, chain.len());
            assert_eq!(chain.as_slice().len(), chain.len());
            assert!(chain.len() <= REGION_BYTES);
        }
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0), "a byte has two owners");
    }
}

/// Performs the steps of `input` on a queue: this side uses the queue, or the peer writes a word
/// into it.
pub fn queue(input: &[u8]) {
    let layouts = [QueueLayout::LEGACY, QueueLayout::ALIGNED];
    let layout = layouts[usize::from(input.first().copied().unwrap_or(0)) % 2];
    let size = Queue::size_bytes(QUEUE_CAPACITY).expect("small");
    let (ours, theirs) = mappings(size);
    let queue = Queue::create(ours, QUEUE_CAPACITY, layout).expect("of this size");
    let (mut sender, mut receiver) = queue.split(Side::Client).expect("fresh");
    for step in steps(input) {
        match step.what % 6 {
            0 => theirs.store(usize::from(step.short) * 4 % size, step.long),
            // The peer writes a small number, near the valid values, to a word of the header of one
            // of the queue's two rings.
            1 => theirs.store(usize::from(step.short) % 6 * 4, step.long % 40),
            2 => theirs.store(size / 2 + usize::from(step.short) % 6 * 4, step.long % 40),
            3 => {
                let element = Element { stream: step.long, offset: 0, status: 1 };
                match sender.put(element) {
                    Ok(()) => drop(sender.mark_working()),
                    Err(PutError::Full) => assert_eq!(sender.room(), Ok(0)),
                    Err(PutError::Damaged(_)) => assert!(sender.room().is_err()),
                }
            }
            4 => {
                if receiver.pending().is_ok() {
                    assert!(receiver.pop().is_ok());
                } else {
                    // The peer's counter of the ring has an impossible value. This side's consumer
                    // still takes the elements of which it knew before. That changes its own
                    // counter, so the peer's counter may be possible again.
                    let mut taken = 0;
                    while let Ok(Some(_)) = receiver.pop() {
                        taken += 1;
                        assert!(taken <= 2 * QUEUE_CAPACITY);
                    }
                }
            }
            _ => drop(receiver.set_idle_if_empty()),
        }
    }
    assert!(sender.room().unwrap_or(0) <= QUEUE_CAPACITY);
    assert!(receiver.pending().unwrap_or(0) <= QUEUE_CAPACITY);
}
