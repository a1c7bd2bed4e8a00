// SPDX-License-Identifier: MIT OR Apache-2.0
//! The peer releases any block ids: the slab's allocation state stays consistent (SPEC 5.3).
//!
//! ```text
//!  Each step of the input is six bytes. Its first byte chooses the action:
//!    0  this process allocates a block
//!    1  this process commits a block, which is then in flight
//!    2  this process frees a block that it has not committed
//!    3  the peer writes the id of a block in flight into its release ring
//!    4  the peer writes any id into its release ring
//!    5  the peer raises its `released` word by 0 to 3 entries
//!    6  the peer stores any value in its `released` word
//!    7  this process reclaims the released blocks
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use partywall_layout::segment;
use partywall_ring::{Block, OwnMem, Reclaimer, Slab, mem};

const ENTRIES: u64 = 8;
const SLAB_BYTES: usize = 4096;

struct World {
    slab: Slab,
    reserved: Vec<Block>,
    out: Vec<u64>,
    reclaimer: Reclaimer,
    /// The memory of the peer's release ring; `written` counts the entries that the peer has
    /// written.
    entries: OwnMem,
    written: u64,
    /// The memory of the peer's control page; `released` is the value of the `released` word in it.
    control: OwnMem,
    released: u64,
}

fuzz_target!(|input: &[u8]| {
    let mut world = World::new();
    for step in input.chunks_exact(6) {
        let value = u32::from_le_bytes([step[2], step[3], step[4], step[5]]);
        if !world.step(step[0] % 8, step[1], value) {
            return;
        }
        world.check();
    }
});

impl World {
    fn new() -> Self {
        let (entries, entries_seen) = mem::pair(ENTRIES as usize * 8);
        let (control, control_seen) = mem::pair(segment::PAGE_BYTES as usize);
        let (memory, _) = mem::pair(SLAB_BYTES);
        let mut slab = Slab::new(ENTRIES as u32);
        slab.add_segment(0, memory);
        let reclaimer = Reclaimer::new(entries_seen, control_seen, segment::RELEASED as usize);
        let (reserved, out) = (Vec::new(), Vec::new());
        Self { slab, reserved, out, reclaimer, entries, written: 0, control, released: 0 }
    }

    /// Performs the step that these bytes of the input describe; `false` if this side reported a
    /// violation by the peer.
    fn step(&mut self, what: u8, choice: u8, value: u32) -> bool {
        match what {
            0 => self.allocate(value as usize % (SLAB_BYTES + 64)),
            1 => {
                if let Some(block) = self.reserved.pop() {
                    self.out.push(self.slab.commit(block).id);
                }
            }
            2 => {
                if !self.reserved.is_empty() {
                    let index = usize::from(choice) % self.reserved.len();
                    self.slab.free(self.reserved.swap_remove(index));
                }
            }
            3 => {
                if !self.out.is_empty() {
                    self.write(self.out[usize::from(choice) % self.out.len()]);
                }
            }
            4 => self.write(u64::from(value) << (choice % 33)),
            5 => self.publish(self.released.wrapping_add(u64::from(choice) % 4)),
            6 => self.publish(u64::from(value) << (choice % 33)),
            _ => return self.reclaim(),
        }
        true
    }

    fn allocate(&mut self, len: usize) {
        let Some(mut block) = self.slab.allocate(len) else { return };
        assert_eq!(block.as_mut_slice().len(), len);
        block.as_mut_slice().fill(0xa5);
        self.reserved.push(block);
    }

    fn write(&mut self, id: u64) {
        self.entries.store((self.written % ENTRIES) as usize * 8, id);
        self.written += 1;
    }

    fn publish(&mut self, released: u64) {
        self.released = released;
        self.control.publish(segment::RELEASED as usize, released);
    }

    fn reclaim(&mut self) -> bool {
        // At most as many blocks as are in flight can be reclaimed, because the id of any other
        // block is a violation, which ends the loop.
        for _ in 0..=ENTRIES {
            let before = self.slab.in_flight();
            match self.reclaimer.next(before) {
                Ok(None) => return true,
                Ok(Some(id)) => {
                    let known = self.out.iter().position(|out| *out == id);
                    let taken = self.slab.reclaim(id);
                    assert_eq!(taken.is_ok(), known.is_some(), "{id:#x} of {:?}", self.out);
                    let Some(known) = known else { return false };
                    self.out.swap_remove(known);
                    assert_eq!(self.slab.in_flight(), before - 1);
                }
                Err(violation) => {
                    assert_eq!(violation.code(), 9);
                    return false;
                }
            }
        }
        panic!("more blocks came home than were out");
    }

    fn check(&self) {
        assert_eq!(self.slab.in_flight(), self.out.len() as u64);
        assert!(self.slab.in_flight() + self.reserved.len() as u64 <= ENTRIES);
        assert!(self.slab.used() <= self.slab.bytes());
        if self.out.is_empty() && self.reserved.is_empty() {
            assert_eq!(self.slab.used(), 0);
        }
    }
}
