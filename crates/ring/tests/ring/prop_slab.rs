// SPDX-License-Identifier: MIT OR Apache-2.0
//! Property tests that a slab allocates blocks that do not overlap, and gets all their memory back.
//! Any sequence of the slab's operations runs against a plain list of each byte's owner.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use partywall_layout::Violation;
use partywall_ring::{Block, PeerMem, Place, Slab, mem};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Step {
    Allocate(usize),
    /// Shorten the message of a reserved block. The first number selects the block, the second is
    /// the new length.
    Truncate(usize, usize),
    Commit(usize),
    Free(usize),
    Reclaim(usize),
    /// Reclaim an id that is not in flight: an unknown or old id, a future one, or one that was
    /// returned twice.
    ReclaimWrong(u64),
    AddSegment(usize),
    TakeIdleSegment,
}

struct Reserved {
    block: Block,
    pattern: u8,
    units: u64,
}

struct Out {
    place: Place,
    pattern: u8,
    units: u64,
}

struct Run {
    slab: Slab,
    blocks_max: usize,
    /// The slab's segments as the peer has mapped them, by number.
    segments: BTreeMap<u32, PeerMem>,
    next_segment: u32,
    reserved: Vec<Reserved>,
    out: Vec<Out>,
    /// Ids of the slab's blocks that the peer has returned; returning one of them again must fail.
    past: Vec<u64>,
    made: u8,
}

const SEGMENTS_MAX: usize = 6;

impl Run {
    fn new(blocks_max: u32, first_units: usize) -> Self {
        let mut run = Self {
            slab: Slab::new(blocks_max),
            blocks_max: blocks_max as usize,
            segments: BTreeMap::new(),
            next_segment: 0,
            reserved: Vec::new(),
            out: Vec::new(),
            past: Vec::new(),
            made: 0,
        };
        run.add_segment(first_units);
        run
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Allocate(len) => self.allocate(len),
            Step::Truncate(which, len) => {
                if let Some(index) = pick(which, self.reserved.len()) {
                    let block = &mut self.reserved[index].block;
                    let shorter = len.min(block.len());
                    block.truncate(len);
                    assert_eq!(block.len(), shorter);
                }
            }
            Step::Commit(which) => self.commit(which),
            Step::Free(which) => {
                if let Some(index) = pick(which, self.reserved.len()) {
                    let reserved = self.reserved.swap_remove(index);
                    assert!(reserved.block.as_slice().iter().all(|byte| *byte == reserved.pattern));
                    self.slab.free(reserved.block);
                }
            }
            Step::Reclaim(which) => self.reclaim(which),
            Step::ReclaimWrong(seed) => self.reclaim_wrong(seed),
            Step::AddSegment(units) => {
                if self.segments.len() < SEGMENTS_MAX {
                    self.add_segment(units);
                }
            }
            Step::TakeIdleSegment => {
                self.take_idle_segment();
            }
        }
        self.check_accounts();
    }

    fn allocate(&mut self, len: usize) {
        let is_at_limit = self.reserved.len() + self.out.len() >= self.blocks_max;
        assert_eq!(self.slab.is_at_block_limit(), is_at_limit);
        let Some(mut block) = self.slab.allocate(len) else {
            let largest = self.segments.values().map(PeerMem::len).max().unwrap_or(0);
            let is_all_free = self.reserved.is_empty() && self.out.is_empty();
            assert!(is_at_limit || !is_all_free || len > largest, "there is such memory");
            return;
        };
        assert!(!is_at_limit, "more blocks than the peer can return");
        assert_eq!(block.len(), len);
        self.made = self.made.wrapping_add(1);
        block.as_mut_slice().fill(self.made);
        let units = len.max(1).div_ceil(64) as u64;
        self.reserved.push(Reserved { block, pattern: self.made, units });
    }

    fn commit(&mut self, which: usize) {
        let Some(index) = pick(which, self.reserved.len()) else { return };
        let Reserved { block, pattern, units } = self.reserved.swap_remove(index);
        let len = block.len() as u64;
        let place = self.slab.commit(block);
        assert_eq!(place.length, len);
        let (start, end) = (place.offset, place.offset + units * 64);
        assert!(start % 64 == 0 && end <= self.segments[&place.segment].len() as u64);
        for other in self.out.iter().filter(|other| other.place.segment == place.segment) {
            let (from, to) = (other.place.offset, other.place.offset + other.units * 64);
            assert!(end <= from || to <= start, "two blocks share memory");
        }
        assert!(self.out.iter().all(|other| other.place.id != place.id), "two blocks, one id");
        assert!(!self.past.contains(&place.id), "an id that came home was given out again");
        self.out.push(Out { place, pattern, units });
    }

    fn reclaim(&mut self, which: usize) {
        let Some(index) = pick(which, self.out.len()) else { return };
        let Out { place, pattern, .. } = self.out.swap_remove(index);
        let seen = self.segments[&place.segment].part(place.offset, place.length).unwrap();
        let mut message = vec![0; seen.len()];
        seen.copy(0, &mut message);
        assert!(message.iter().all(|byte| *byte == pattern), "somebody wrote into a block");
        assert_eq!(self.slab.reclaim(place.id), Ok(()));
        self.past.push(place.id);
    }

    fn reclaim_wrong(&mut self, seed: u64) {
        let ticket_beyond = self.blocks_max as u64 + seed % 1000;
        let candidates = [
            ticket_beyond,
            u64::MAX,
            seed,
            self.past.get(seed as usize % self.past.len().max(1)).copied().unwrap_or(seed),
            self.out.first().map_or(seed, |out| out.place.id + (1 << 32)),
            self.out.last().map_or(seed, |out| out.place.id.wrapping_sub(1 << 32)),
        ];
        for id in candidates {
            if self.out.iter().all(|out| out.place.id != id) {
                assert_eq!(self.slab.reclaim(id), Err(Violation::Block { id }));
            }
        }
    }

    fn add_segment(&mut self, units: usize) {
        let (own, seen) = mem::pair(units * 64);
        self.slab.add_segment(self.next_segment, own);
        self.segments.insert(self.next_segment, seen);
        self.next_segment += 1;
    }

    fn take_idle_segment(&mut self) -> bool {
        let has_idle = self.slab.has_idle_segment();
        let taken = self.slab.take_idle_segment();
        assert_eq!(taken.is_some(), has_idle);
        let Some((number, own)) = taken else { return false };
        assert_ne!(number, 0, "the slab of the half itself stays");
        let seen = self.segments.remove(&number).expect("a segment that is there");
        assert_eq!(own.len(), seen.len(), "not the whole of it");
        assert!(self.out.iter().all(|out| out.place.segment != number), "it was in use");
        true
    }

    fn check_accounts(&self) {
        let units = self.reserved.iter().map(|reserved| reserved.units).sum::<u64>()
            + self.out.iter().map(|out| out.units).sum::<u64>();
        let bytes = self.segments.values().map(|segment| segment.len() as u64).sum();
        assert_eq!(self.slab.used(), units * 64);
        assert_eq!(self.slab.bytes(), bytes);
        assert_eq!(self.slab.in_flight(), self.out.len() as u64);
        assert_eq!(self.slab.segments(), self.segments.len());
    }

    /// Frees every block, and checks that the free chunks of each segment were joined into one.
    fn check_whole(mut self) {
        while !self.reserved.is_empty() {
            self.step(&Step::Commit(0));
        }
        while !self.out.is_empty() {
            self.step(&Step::Reclaim(self.out.len() / 2));
        }
        let mut sizes: Vec<usize> = self.segments.values().map(PeerMem::len).collect();
        sizes.sort_unstable();
        sizes.reverse();
        let count = sizes.len().min(self.blocks_max);
        let whole: Vec<Block> = sizes[..count]
            .iter()
            .map(|size| self.slab.allocate(*size).expect("a segment in pieces"))
            .collect();
        assert!(!self.slab.has_idle_segment() || count < sizes.len());
        whole.into_iter().for_each(|block| self.slab.free(block));
        while self.take_idle_segment() {}
        self.check_accounts();
        assert_eq!(self.slab.segments(), 1);
    }
}

fn pick(which: usize, count: usize) -> Option<usize> {
    (count > 0).then(|| which % count)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0usize..300).prop_map(Step::Allocate),
        3 => (0usize..9000).prop_map(Step::Allocate),
        1 => (any::<usize>(), 0usize..9000).prop_map(|(which, len)| Step::Truncate(which, len)),
        4 => any::<usize>().prop_map(Step::Commit),
        1 => any::<usize>().prop_map(Step::Free),
        4 => any::<usize>().prop_map(Step::Reclaim),
        1 => any::<u64>().prop_map(Step::ReclaimWrong),
        1 => (1usize..200).prop_map(Step::AddSegment),
        1 => Just(Step::TakeIdleSegment),
    ];
    prop::collection::vec(step, 1..250)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn blocks_never_overlap_and_all_memory_returns(
        blocks_max in 1u32..40,
        first_units in 1usize..300,
        steps in steps(),
    ) {
        let mut run = Run::new(blocks_max, first_units);
        for step in &steps {
            run.step(step);
        }
        run.check_whole();
    }
}
