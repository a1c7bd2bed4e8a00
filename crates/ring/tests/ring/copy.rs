// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test that a copy of the peer's memory, into a buffer or onto a vector, equals that memory.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use partywall_ring::mem;
use proptest::prelude::*;

proptest! {
    #[test]
    fn copy_is_appended_after_existing_bytes(
        bytes in prop::collection::vec(any::<u8>(), 1024),
        before in prop::collection::vec(any::<u8>(), 0..100),
        capacity in 0_usize..2048,
        offset in 0_usize..=1024,
        len in 0_usize..=1024,
    ) {
        let (mut own, peer) = mem::pair(1024);
        own.write(0, &bytes);
        let len = len.min(1024 - offset);
        let mut onto = Vec::with_capacity(capacity);
        onto.extend_from_slice(&before);
        peer.copy_onto(offset, len, &mut onto);
        let (here, copied) = onto.split_at(before.len());
        prop_assert_eq!(here, &before[..]);
        prop_assert_eq!(copied, &bytes[offset..offset + len]);
        let mut into = vec![0; len];
        peer.copy(offset, &mut into);
        prop_assert_eq!(copied, &into[..]);
    }
}
