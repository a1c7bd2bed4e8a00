// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that new regions and queues have the same bytes as those that shmipc-go and shmipc-rs
//! create.

use partywall_shmipc::regions::{
    Backing, BufferRegion, CLASSES_DEFAULT, Class, Element, Geometry, ListGeometry, PlanError,
    Queue, QueueLayout, Side, create_buffer, open_buffer,
};
use partywall_sys::SharedMap;
use std::os::fd::AsFd;

const REGION_BYTES: usize = 32 << 20;

fn twice(size: usize) -> (SharedMap, SharedMap) {
    let (backing, map) = Backing::create_memfd("/golden", size).unwrap();
    (map, SharedMap::map(backing.fd().as_fd(), size).unwrap())
}

fn read(map: &SharedMap, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    map.copy_out(offset, &mut bytes);
    bytes
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn the_default_region_is_the_golden_image() {
    let (map, seen) = twice(REGION_BYTES);
    let region = BufferRegion::create(map, &CLASSES_DEFAULT).unwrap();
    assert_eq!(read(&seen, 0, 8), [3, 0, 0, 0, 0x6c, 0x60, 0xff, 1]);

    let golden = [
        ListGeometry { header: 8, slices: 2047, capacity: 8172 },
        ListGeometry { header: 16_769_068, slices: 307, capacity: 32_748 },
        ListGeometry { header: 26_828_880, slices: 51, capacity: 131_052 },
    ];
    assert_eq!(region.geometry().lists(), golden);
    assert_eq!(region.geometry().end(), 33_513_588);
    assert_eq!(region.chain_bytes_max(), 33_293_400);
    let tails = [16_760_832, 10_027_008, 6_553_600];
    for (list, tail) in golden.iter().zip(tails) {
        let header = words(&[list.slices, list.slices, 0, tail, list.capacity, 0, 0, 0, 0]);
        assert_eq!(read(&seen, list.header as usize, 36), header);
        let area = list.area() as usize;
        let stride = list.stride();
        assert_eq!(read(&seen, area, 20), words(&[list.capacity, 0, 0, stride, 1]));
        let second = area + stride as usize;
        assert_eq!(read(&seen, second, 20), words(&[list.capacity, 0, 0, 2 * stride, 1]));
        assert_eq!(read(&seen, area + tail as usize, 20), words(&[list.capacity, 0, 0, 0, 0]));
    }
    assert_eq!(golden[0].area(), 44);
    assert_eq!(golden[1].area(), 16_769_104);
    assert_eq!(golden[2].area(), 26_828_916);

    let mapped = BufferRegion::map(seen).unwrap();
    assert_eq!(mapped.geometry(), region.geometry());
    assert!(mapped.is_all_free());
    assert_eq!(mapped.walk_free(), [Some(2047), Some(307), Some(51)]);
}

#[test]
fn the_default_queue_is_the_golden_image() {
    let size = Queue::size_bytes(8192).unwrap();
    assert_eq!(size, 196_656);
    for layout in [QueueLayout::LEGACY, QueueLayout::ALIGNED] {
        let (map, seen) = twice(size);
        Queue::create(map, 8192, layout).unwrap();
        let mut golden = vec![0; size];
        golden[..4].copy_from_slice(&8192_u32.to_le_bytes());
        golden[98_328..98_332].copy_from_slice(&8192_u32.to_le_bytes());
        assert!(read(&seen, 0, size) == golden);
        assert_eq!(Queue::map(seen, layout).unwrap().capacity(), 8192);
    }
}

#[test]
fn elements_and_counters_lie_where_the_peers_look() {
    for (layout, head, tail, flag) in
        [(QueueLayout::LEGACY, 4, 12, 20), (QueueLayout::ALIGNED, 8, 16, 4)]
    {
        let (map, seen) = twice(Queue::size_bytes(16).unwrap());
        let half = 24 + 16 * 12;
        let (mut sender, _) = Queue::create(map, 16, layout).unwrap().split(Side::Client).unwrap();
        let element = Element { stream: 2, offset: 44, status: 0 };
        sender.put(element).unwrap();
        assert!(sender.mark_working());
        assert!(!sender.mark_working());
        assert_eq!(read(&seen, 24, 12), words(&[2, 44, 0]));
        assert_eq!(read(&seen, tail, 8), words(&[1, 0]));
        assert_eq!(read(&seen, head, 8), words(&[0, 0]));
        assert_eq!(read(&seen, flag, 4), words(&[1]));
        assert_eq!(read(&seen, half, 24), [&words(&[16])[..], &[0; 20]].concat());
    }
}

#[test]
fn a_message_lies_in_memory_as_the_peers_read_it() {
    let (map, seen) = twice(1 << 20);
    let classes = [Class { size: 64, percent: 50 }, Class { size: 256, percent: 50 }];
    let region = BufferRegion::create(map, &classes).unwrap();
    let mut chain = region.reserve_chain(300).unwrap();
    for (slice, byte) in chain.iter_mut().zip([7, 8]) {
        slice.as_mut_slice().fill(byte);
    }
    let list = region.geometry().lists()[1];
    let offset = region.send(chain).unwrap();
    assert_eq!(offset, list.area());
    let (first, second) = (offset as usize, offset as usize + 276);
    assert_eq!(read(&seen, first, 20), words(&[256, 256, 0, offset + 276, 3]));
    assert_eq!(read(&seen, first + 20, 256), [7; 256]);
    assert_eq!(read(&seen, second, 20), words(&[256, 44, 0, 0, 2]));
    assert_eq!(read(&seen, second + 20, 44), [8; 44]);
    // The expected header of the list, after the creator has allocated two of the list's slices.
    let header =
        words(&[list.slices - 2, list.slices, 2 * 276, (list.slices - 1) * 276, 256, 2, 0]);
    assert_eq!(read(&seen, list.header as usize, 28), header);

    let mapper = BufferRegion::map(seen).unwrap();
    drop(mapper.receive(offset).unwrap());
    assert!(region.is_all_free());
    assert_eq!(mapper.counts()[1].counters, [2, -2]);
    assert_eq!(mapper.walk_free()[1], Some(list.slices));
}

#[test]
fn impossible_layout_is_refused_with_advice() {
    let plan = |bytes, classes: &[Class]| Geometry::plan(bytes, classes);
    let class = |size, percent| Class { size, percent };
    assert_eq!(plan(1 << 20, &[]), Err(PlanError::ClassCount { count: 0 }));
    assert_eq!(
        plan(1 << 20, &[class(64, 60), class(64, 40)]),
        Err(PlanError::SliceSize { size: 64 })
    );
    assert_eq!(plan(1 << 20, &[class(0, 100)]), Err(PlanError::SliceSize { size: 0 }));
    assert_eq!(plan(1 << 20, &[class(64, 101)]), Err(PlanError::Percents { sum: 101 }));
    assert_eq!(plan(10, &[class(64, 100)]), Err(PlanError::RegionSize { bytes: 10 }));
    let few = PlanError::TooFew { size: 1 << 20, percent: 100, slices: 0 };
    assert_eq!(plan(1 << 20, &[class(1 << 20, 100)]), Err(few));
    assert_eq!(plan(5 << 30, &[class(64, 100)]), Err(PlanError::RegionSize { bytes: 5 << 30 }));
    // Sizes of slices that would misalign later headers are rounded up. The order in which the
    // settings list the sizes does not matter.
    let lists = plan(1 << 20, &[class(1000, 50), class(61, 50)]).unwrap();
    assert_eq!(lists.lists()[0].capacity, 64);
    assert_eq!(lists.lists()[1].capacity, 1000);
}

#[test]
fn a_region_given_twice_is_mapped_once() {
    use partywall_shmipc::regions::{MemoryRules, PeerMemory};
    let (backing, map) = Backing::create_memfd("/twice", 1 << 20).unwrap();
    let classes = [Class { size: 4096, percent: 100 }];
    let region = create_buffer(&backing, map, &classes).unwrap();
    let given = || {
        let fd = backing.fd().try_clone_to_owned().unwrap();
        PeerMemory::descriptor(fd, &MemoryRules::new(1 << 20, None)).unwrap()
    };
    assert!(given().is_sealed());
    let first = open_buffer(&given()).unwrap();
    assert!(region.is_same_as(&first));
}
