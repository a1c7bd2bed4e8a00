// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with a peer that writes any words into shared memory, or truncates it. This process does
//! not panic or loop for ever, and it never uses one byte for two messages at the same time.

use crate::support_hostile;

use partywall_shmipc::regions::{
    BufferRegion, Class, MemoryRules, PeerMemory, Queue, QueueLayout, Side, open_buffer,
};
use partywall_sys::SharedMap;
use partywall_sys::shared_file::create_memfd;
use proptest::prelude::*;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_region_that_the_peer_scribbles_over(input in proptest::collection::vec(any::<u8>(), 0..1600)) {
        support_hostile::region(&input);
    }

    #[test]
    fn a_queue_that_the_peer_scribbles_over(input in proptest::collection::vec(any::<u8>(), 0..800)) {
        support_hostile::queue(&input);
    }

    #[test]
    fn memory_that_was_never_a_region(input in proptest::collection::vec(any::<u8>(), 0..2000)) {
        support_hostile::image(&input);
    }

    /// Input: a region of which each list header keeps the rules by itself, while the lists may
    /// overlap or exceed the region. Expected: this side refuses the region, or uses it without
    /// harm.
    #[test]
    fn lists_that_the_peer_made_up(
        lists in 0_u16..5,
        field in 0_u32..5000,
        words in proptest::collection::vec((0_u32..40, 0_u32..80), 4),
    ) {
        let mut bytes = vec![0; 4096];
        bytes[..2].copy_from_slice(&lists.to_le_bytes());
        bytes[4..8].copy_from_slice(&field.to_le_bytes());
        let mut header = 8;
        for (slices, quarter) in words {
            let capacity = quarter * 4;
            let Some(into) = bytes.get_mut(header..header + 36) else { break };
            into[..4].copy_from_slice(&slices.to_le_bytes());
            into[4..8].copy_from_slice(&slices.to_le_bytes());
            into[16..20].copy_from_slice(&capacity.to_le_bytes());
            header += 36 + (slices * (capacity + 20)) as usize;
        }
        support_hostile::image(&bytes);
    }
}

/// Sends a message of two slices, lets `change` modify the slices as a peer could, and receives the
/// message.
fn received_after(change: impl FnOnce(&SharedMap, usize, usize)) -> (String, Vec<usize>) {
    let (ours, theirs) = support_hostile::mappings(4096);
    let classes = [Class { size: 60, percent: 50 }, Class { size: 252, percent: 50 }];
    let region = BufferRegion::create(ours, &classes).unwrap();
    let offset = region.send(region.reserve_chain(300).unwrap()).unwrap();
    let first = offset as usize;
    change(&theirs, first, first + 272);
    let error = region.receive(offset).unwrap_err();
    (error.to_string(), region.counts().iter().map(|list| list.held).collect())
}

#[test]
fn each_false_header_has_its_own_error_and_no_slice_stays_claimed() {
    type Change = fn(&SharedMap, usize, usize);
    let lies: [(Change, &str); 9] = [
        (|map, first, _| map.store(first, 60), "another capacity"),
        (|map, _, second| map.store(second, 0), "another capacity"),
        (|map, first, _| map.store(first + 4, 253), "longer than the slice"),
        (|map, first, _| map.store(first + 8, 1), "longer than the slice"),
        (|map, first, _| map.store(first + 8, u32::MAX), "longer than the slice"),
        (|map, first, _| map.store(first + 12, u32::MAX - 3), "no slice begins"),
        (|map, first, _| map.store(first + 12, 44 + 4), "no slice begins"),
        (|map, first, second| map.store(first + 12, second as u32 + 2), "no slice begins"),
        (
            |map, first, second| {
                map.store(second + 12, first as u32);
                map.store_byte(second + 16, 1);
            },
            "in use on this side",
        ),
    ];
    for (number, (change, expected)) in lies.into_iter().enumerate() {
        let (error, held) = received_after(change);
        assert!(error.contains(expected), "{number}: {error}");
        assert_eq!(held, [0, 0], "{number}");
    }
}

#[test]
fn a_list_that_is_seen_to_be_wrong_is_not_taken_from_again() {
    let (ours, theirs) = support_hostile::mappings(4096);
    let classes = [Class { size: 60, percent: 50 }, Class { size: 252, percent: 50 }];
    let region = BufferRegion::create(ours, &classes).unwrap();
    let held = region.reserve(60).unwrap();
    // The peer makes an allocated slice the head of a list of free slices. A delayed thread of a
    // peer has the same effect when it installs a stale head (the ABA problem).
    let list = region.geometry().lists()[0];
    theirs.store(list.header as usize + 8, 0);
    theirs.store_byte(list.area() as usize + 16, 1);
    let other = region.reserve(60).unwrap();
    assert_eq!(other.capacity(), 252);
    let counts = region.counts();
    assert!(counts[0].is_stopped && counts[0].violations == 1 && !counts[1].is_stopped);
    // The peer makes the head of list 1 an offset that is out of range.
    theirs.store(region.geometry().lists()[1].header as usize + 8, 3);
    assert!(region.reserve(60).is_none());
    assert!(region.counts()[1].is_stopped);
    drop((held, other));
}

/// Input: a thread, as the peer, writes random words into the region while this side uses the
/// region.
#[test]
fn a_region_is_used_while_the_peer_scribbles() {
    let (ours, theirs) = support_hostile::mappings(1 << 16);
    let classes = [Class { size: 60, percent: 50 }, Class { size: 1020, percent: 50 }];
    let region = BufferRegion::create(ours, &classes).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut word = 1_u32;
            while !is_over.load(Ordering::Relaxed) {
                word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                // Offset and value of the word that the peer writes. The word lies in the list
                // headers or in the first slices, and its new value is mostly a small number.
                let at = (word >> 20) as usize % 64 * 4;
                theirs.store(at, if word & 8 == 0 { word >> 22 } else { word });
            }
        });
        for turn in 0..20_000_usize {
            let slices = region.reserve_chain(1 + turn % 3000);
            if let Some(offset) = slices.and_then(|slices| region.send(slices)) {
                if let Ok(chain) = region.receive(offset) {
                    assert_eq!(chain.as_slice().len(), chain.len());
                }
            }
            let _ = region.receive((turn as u32 * 4) % (1 << 16));
            drop(region.reserve(1 + turn % 1000));
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn truncated_memory_ends_the_session_and_nothing_else() {
    const SIZE: usize = 1 << 20;
    let fd = create_memfd("unsealed", SIZE).unwrap();
    let file = File::from(fd.try_clone().unwrap());
    let classes = [Class { size: 4096, percent: 100 }];
    let theirs = BufferRegion::create(SharedMap::map(fd.as_fd(), SIZE).unwrap(), &classes).unwrap();
    let given = PeerMemory::descriptor(fd, &MemoryRules::new(SIZE as u64, None)).unwrap();
    assert!(!given.is_sealed());
    let region = open_buffer(&given).unwrap();
    let mut slice = theirs.reserve(4096).unwrap();
    slice.as_mut_slice().fill(7);
    let chain = region.receive(theirs.send_one(slice).unwrap()).unwrap();
    let mut ours = region.reserve(10).unwrap();

    file.set_len(0).unwrap();
    // This test's own mapping as the peer is not guarded, and the memory behind it is truncated. An
    // access would kill the process, so not even the code that drops the mapping may run.
    std::mem::forget(theirs);
    ours.as_mut_slice().fill(1);
    assert_eq!(chain.as_slice(), [0; 4096]);
    assert!(region.is_damaged());
    assert!(region.reserve(1).is_none() && region.reserve_chain(1).is_none());
    let error = region.receive(44).unwrap_err();
    assert!(error.to_string().contains("truncated"), "{error}");
    drop((chain, ours));
}

#[test]
fn a_truncated_queue_is_damaged_or_empty() {
    let size = Queue::size_bytes(8192).unwrap();
    let fd = create_memfd("unsealed", size).unwrap();
    let file = File::from(fd.try_clone().unwrap());
    let map = SharedMap::map(fd.as_fd(), size).unwrap();
    Queue::create(map, 8192, QueueLayout::NATIVE).unwrap();
    let given = PeerMemory::descriptor(fd, &MemoryRules::new(size as u64, None)).unwrap();
    let queue = Queue::map(given.map().unwrap(), QueueLayout::NATIVE).unwrap();
    let (sender, mut receiver) = queue.split(Side::Server).unwrap();
    file.set_len(0).unwrap();
    assert_eq!(receiver.pop(), Ok(None));
    assert!(receiver.is_damaged() && sender.is_damaged());
}
