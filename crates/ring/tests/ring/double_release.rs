// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test that a block which the peer returns twice is a violation, even if the block's memory is in
//! flight again.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a test")]

use partywall_layout::Violation;
use partywall_ring::{Slab, mem};

#[test]
fn block_returned_twice_at_once_is_violation() {
    let mut slab = Slab::new(1);
    slab.add_segment(0, mem::pair(64).0);
    let block = slab.allocate(64).unwrap();
    let id = slab.commit(block).id;
    assert_eq!(slab.reclaim(id), Ok(()));
    assert_eq!(slab.reclaim(id), Err(Violation::Block { id }));
}

#[test]
fn block_returned_after_reuse_is_violation() {
    let mut slab = Slab::new(1);
    slab.add_segment(0, mem::pair(64).0);
    let block = slab.allocate(64).unwrap();
    let first = slab.commit(block);
    assert_eq!(slab.reclaim(first.id), Ok(()));
    let block = slab.allocate(64).unwrap();
    let second = slab.commit(block);
    assert_eq!(second.offset, first.offset);
    assert_eq!(slab.reclaim(first.id), Err(Violation::Block { id: first.id }));
    assert_eq!(slab.in_flight(), 1, "the second is still in flight");
    assert_eq!(slab.reclaim(second.id), Ok(()));
}
