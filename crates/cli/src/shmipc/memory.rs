// SPDX-License-Identifier: MIT OR Apache-2.0
//! A copy of a file or memfd (`Memory`), and the kind of shmipc region that the copy holds: a
//! buffer region or a queue region.
//!
//! ```text
//!   name    /dev/shm/shmipc_4242_buffer    /dev/shm/shmipc_4242_queue_0
//!           └──────── family ──┘           └──────── family ──┘
//! ```
//!
//! The contents of the copy decide the kind, never the name. The buffer region is tried first,
//! because its first bytes could pass for a very short queue.

use partywall_shmipc::regions::{Queue, QueueLayout, inspect};

/// A copy of a file or memfd that may hold a region of shmipc.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Path of the file, or name of the memfd.
    pub name: String,
    /// The file, process or mapping from which the bytes were copied.
    pub source: String,
    /// The bytes of the file or memfd at the time of the copy.
    pub bytes: Vec<u8>,
}

/// The kind of region that a memory holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The memory holds a buffer region.
    Buffers,
    /// The memory holds a queue region, with a queue in each direction.
    Queues,
    /// The memory holds neither kind of region; the value is the reason why its bytes are no buffer
    /// region.
    Neither(String),
}

impl Memory {
    /// Makes a `Memory` from bytes that were copied from a mapping. A mapping consists of whole
    /// pages, so it may be longer than the region. A queue region is cut to its own size, because
    /// its second queue begins at the middle.
    pub fn of_mapping(name: String, source: String, bytes: Vec<u8>) -> Self {
        let mut memory = Self { name, source, bytes };
        let is_neither = matches!(memory.kind(), Kind::Neither(_));
        if let Some(size) = memory.queues_bytes().filter(|_| is_neither) {
            memory.bytes.truncate(size);
        }
        memory
    }

    /// Size of the queue region in bytes. `None` if the memory is no queue region, or if a page or
    /// more follows the region in the mapping.
    fn queues_bytes(&self) -> Option<usize> {
        let first = self.capacity(0).filter(|entries| *entries != 0)?;
        let (least, most) = sizes(first);
        let (least, most) = (usize::try_from(least).ok()?, usize::try_from(most).ok()?);
        let size = self.bytes.len();
        let fits = |end: &usize| *end <= size && size - *end < PAGE_BYTES_MOST;
        let mut ends = (least..=most).step_by(8).filter(fits);
        ends.find(|end| self.capacity(end / 2) == Some(first))
    }

    fn capacity(&self, at: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(*self.bytes.get(at..)?.first_chunk()?))
    }

    /// Decides from the bytes of the copy which kind of region they are.
    pub fn kind(&self) -> Kind {
        match inspect(&self.bytes, &[], LAYOUT) {
            Ok(_) => Kind::Buffers,
            Err(_) if self.has_queues() => Kind::Queues,
            Err(damage) => Kind::Neither(damage.to_string()),
        }
    }

    /// Whether the memory is as large as two queues of the capacity in its first bytes, and both
    /// queues state that capacity.
    fn has_queues(&self) -> bool {
        let Some(entries) = self.capacity(0) else { return false };
        let (least, most) = sizes(entries);
        let size = self.bytes.len();
        entries != 0
            && (least..=most).contains(&(size as u64))
            && self.capacity(size / 2) == Some(entries)
    }

    /// The family of the memory's name: the part that the names of all regions of one connection
    /// have in common.
    pub fn family(&self) -> &str {
        family(&self.name)
    }
}

/// Smallest and largest size in bytes of a region with two queues of `entries` elements. Other
/// implementations of shmipc round sizes up less than Partywall does.
fn sizes(entries: u32) -> (u64, u64) {
    let least = u64::from(entries) * 2 * ELEMENT_BYTES + 2 * HEADER_BYTES;
    (least, Queue::size_bytes(entries).map_or(0, |bytes| bytes as u64))
}

/// Returns the family of a region: the first part of its name, which the names of all regions of
/// one connection have in common. For a file that is not named like a region it is the whole name.
pub fn family(name: &str) -> &str {
    if let Some(family) = name.strip_suffix("_buffer") {
        return family;
    }
    match name.rsplit_once("_queue_") {
        Some((family, index)) if is_number(index) => family,
        _ => name,
    }
}

/// Whether `name` has the form of a region's name: it ends with `_buffer`, or with `_queue_` and a
/// number.
pub fn is_named_like_a_region(name: &str) -> bool {
    family(name).len() != name.len()
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The queue layout of this machine. The inspected regions have the same layout, because programs
/// on this machine created them.
pub const LAYOUT: QueueLayout = QueueLayout::NATIVE;
/// Size in bytes of an element of a queue.
const ELEMENT_BYTES: u64 = 12;
/// Size in bytes of the header before the elements of each queue.
const HEADER_BYTES: u64 = 24;
/// Largest page size of any Linux system, in bytes. It bounds the bytes that may follow a region in
/// its last page.
const PAGE_BYTES_MOST: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_of_one_connection_have_one_family() {
        for name in ["/dev/shm/a_7_buffer", "/dev/shm/a_7_queue_0", "/dev/shm/a_7_queue_12"] {
            assert_eq!(family(name), "/dev/shm/a_7");
            assert!(is_named_like_a_region(name));
        }
        for name in ["/dev/shm/a_queue_", "/dev/shm/a_queue_x", "buffer", ""] {
            assert_eq!(family(name), name);
            assert!(!is_named_like_a_region(name));
        }
    }

    #[test]
    fn queue_of_another_size_than_its_capacity_is_none() {
        let queues = |size: usize, entries: u32| {
            let mut bytes = vec![0; size];
            bytes[..4].copy_from_slice(&entries.to_ne_bytes());
            bytes[size / 2..size / 2 + 4].copy_from_slice(&entries.to_ne_bytes());
            Memory { name: String::new(), source: String::new(), bytes }.kind()
        };
        assert_eq!(queues(432, 16), Kind::Queues);
        assert_eq!(queues(2 * (24 + 12 * 9), 9), Kind::Queues, "as peers make them");
        assert!(matches!(queues(432, 17), Kind::Neither(_)));
        assert!(matches!(queues(4320, 16), Kind::Neither(_)));
        assert!(matches!(queues(432, 0), Kind::Neither(_)));
    }

    #[test]
    fn bytes_after_queues_in_their_last_page_are_removed() {
        let mapped = |queues: usize, mapping: usize, entries: u32| {
            let mut bytes = vec![0; mapping];
            for at in [0, queues / 2] {
                bytes[at..at + 4].copy_from_slice(&entries.to_ne_bytes());
            }
            Memory::of_mapping(String::new(), String::new(), bytes)
        };
        for (size, mapping, entries) in [
            (196_656, 200_704, 8192),
            (432, 4096, 16),
            (264, 4096, 9),
            (432, 65_536, 16),
            (432, 432, 16),
        ] {
            let memory = mapped(size, mapping, entries);
            assert_eq!(
                (memory.bytes.len(), memory.kind()),
                (size, Kind::Queues),
                "{size} in {mapping}"
            );
        }
        // Expected result: the copy of a mapping (`of_mapping`) keeps all bytes if more than a page
        // follows the region, or if no second queue begins in the middle.
        assert_eq!(mapped(432, 432 + 65_536, 16).bytes.len(), 432 + 65_536);
        assert_eq!(mapped(440, 4096, 16).bytes.len(), 4096);
    }
}
