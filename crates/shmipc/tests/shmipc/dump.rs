// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `inspect`, which reads shared memory without writing to it, and reports its lists,
//! slices and queues. The memory is in use, or damaged.

use partywall_shmipc::regions::{
    Backing, BufferRegion, Class, Element, Queue, QueueLayout, Report, Side, inspect, read_memory,
};
use partywall_sys::SharedMap;
use proptest::prelude::*;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;

const CLASSES: [Class; 2] = [Class { size: 60, percent: 50 }, Class { size: 252, percent: 50 }];
const LAYOUT: QueueLayout = QueueLayout::NATIVE;

fn path(backing: &Backing) -> PathBuf {
    format!("/proc/self/fd/{}", backing.fd().as_fd().as_raw_fd()).into()
}

fn look_at(region: &Backing, queue: &Backing) -> Report {
    let queue = read_memory(&path(queue)).unwrap();
    inspect(&read_memory(&path(region)).unwrap(), &[&queue], LAYOUT).unwrap()
}

#[test]
fn pending_held_and_lost_slices_are_distinguished() {
    let (region_memory, map) = Backing::create_memfd("/region", 4096).unwrap();
    let region = BufferRegion::create(map, &CLASSES).unwrap();
    let (queue_memory, map) =
        Backing::create_memfd("/queue", Queue::size_bytes(16).unwrap()).unwrap();
    let queue = Queue::create(map, 16, LAYOUT).unwrap();
    let (mut sender, _) = queue.split(Side::Client).unwrap();
    let report = look_at(&region_memory, &queue_memory);
    assert_eq!(report.broken, [""; 0]);
    assert_eq!(report.unaccounted().count(), 0);
    assert!(report.to_string().contains("everything that was checked holds"));

    let mut held = region.reserve(8).unwrap();
    held.as_mut_slice().copy_from_slice(b"held\n\x00ok");
    let mut chain = region.reserve_chain(300).unwrap();
    chain[0].as_mut_slice().fill(b'a');
    let offset = region.send(chain).unwrap();
    sender.put(Element { stream: 5, offset, status: 0 }).unwrap();
    sender.mark_working();
    sender.put(Element { stream: 5, offset: 0, status: 1 }).unwrap();

    let report = look_at(&region_memory, &queue_memory);
    assert_eq!(report.broken, [""; 0]);
    assert_eq!(report.unaccounted().count(), 1);
    assert_eq!(report.lists[1].slices.iter().filter(|slice| slice.stream == Some(5)).count(), 2);
    assert_eq!(report.queues[0].rings[0].pending.len(), 2);
    assert!(report.queues[0].rings[0].is_working && !report.queues[0].rings[1].is_working);
    let text = report.to_string();
    assert!(text.contains(r"held\n\x00ok"), "{text}");
    assert!(text.contains("pending on stream 5: \"aaaa"), "{text}");
    assert!(text.contains("1 slices are neither free nor in a pending message"), "{text}");
    // The report cannot tell whether a process holds the missing slice, unless `with_owners` says
    // if any process uses the memory.
    assert_eq!(text.matches("held or leaked").count(), 2, "{text}");
    for (has, what) in [(true, "held by a process, or kept by it for reuse"), (false, "leaked")] {
        let known = report.with_owners(has).to_string();
        assert_eq!(known, text.replace("held or leaked", what));
    }

    // Input: a damaged list of free slices. The first free slice of list 0 no longer refers to the
    // next free slice.
    let seen = SharedMap::map(region_memory.fd(), 4096).unwrap();
    let list = region.geometry().lists()[0];
    seen.store_byte((list.area() + list.relative(1)) as usize + 16, 0);
    let report = look_at(&region_memory, &queue_memory);
    assert!(report.broken.iter().any(|what| what.contains("are cut at 0x50")), "{report}");
    assert!(report.broken.iter().any(|what| what.contains("1 slices can be reached")), "{report}");
    std::mem::forget(held);
}

proptest! {
    #[test]
    fn any_bytes_are_looked_at(
        changes in proptest::collection::vec((0_usize..1100, 0_u32..5000), 0..40),
        garbage in proptest::collection::vec(any::<u8>(), 0..600),
    ) {
        let (region_memory, map) = Backing::create_memfd("/region", 4096).unwrap();
        BufferRegion::create(map, &CLASSES).unwrap();
        let (queue_memory, map) =
            Backing::create_memfd("/queue", Queue::size_bytes(16).unwrap()).unwrap();
        Queue::create(map, 16, LAYOUT).unwrap();
        let mut region = read_memory(&path(&region_memory)).unwrap();
        let mut queue = read_memory(&path(&queue_memory)).unwrap();
        for (at, word) in changes {
            let into = if at < 1024 { &mut region[at * 4..] } else { &mut queue[(at - 1024) * 4..] };
            into[..4].copy_from_slice(&word.to_le_bytes());
        }
        if let Ok(report) = inspect(&region, &[&queue, &queue], LAYOUT) {
            report.to_string();
        }
        let _ = inspect(&garbage, &[], LAYOUT);
        let _ = inspect(&region, &[&garbage], LAYOUT);
    }
}
