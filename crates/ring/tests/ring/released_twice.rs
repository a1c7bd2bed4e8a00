// SPDX-License-Identifier: MIT OR Apache-2.0
//! A neighbour that gives a block back twice is refused, even if its place is out again by then.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a test")]

use partywall_layout::Violation;
use partywall_ring::{Slab, mem};

#[test]
fn at_once() {
    let mut slab = Slab::new(1);
    slab.add_segment(0, mem::pair(64).0);
    let block = slab.allocate(64).unwrap();
    let id = slab.commit(block).id;
    assert_eq!(slab.reclaim(id), Ok(()));
    assert_eq!(slab.reclaim(id), Err(Violation::Block { id }));
}

#[test]
fn after_its_place_was_given_out_again() {
    let mut slab = Slab::new(1);
    slab.add_segment(0, mem::pair(64).0);
    let block = slab.allocate(64).unwrap();
    let first = slab.commit(block);
    assert_eq!(slab.reclaim(first.id), Ok(()));
    let block = slab.allocate(64).unwrap();
    let second = slab.commit(block);
    assert_eq!(second.offset, first.offset);
    assert_eq!(slab.reclaim(first.id), Err(Violation::Block { id: first.id }));
    assert_eq!(slab.in_flight(), 1, "the second is still out");
    assert_eq!(slab.reclaim(second.id), Ok(()));
}
