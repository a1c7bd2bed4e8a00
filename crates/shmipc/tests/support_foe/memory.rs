// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shared memory of a hostile peer. `region`, `producer` and `consumer` use the memory by the
//! rules; through `queue_map` and `buffer_map` a test writes any words.

use partywall_shmipc::regions::{
    BufferRegion, Class, Consumer, Producer, Queue, QueueLayout, Side,
};
use partywall_sys::shared_file::{create_memfd, seal_size};
use partywall_sys::{SharedFileStat, SharedMap};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The queue and buffer region of a hostile peer, and the ends of the two rings that it uses.
#[derive(Debug)]
pub struct Memory {
    pub queue_map: SharedMap,
    pub buffer_map: SharedMap,
    pub region: Arc<BufferRegion>,
    pub producer: Producer,
    pub consumer: Consumer,
    queue_file: File,
    buffer_file: File,
}

impl Memory {
    pub fn client(buffer_bytes: usize, queue_entries: u32, is_sealed: bool) -> Self {
        let queue_bytes = Queue::size_bytes(queue_entries).unwrap();
        let buffer = create_memfd("foe-buffer", buffer_bytes).unwrap();
        let queue = create_memfd("foe-queue", queue_bytes).unwrap();
        let memory = Self::client_of(buffer, queue, queue_entries);
        if is_sealed {
            seal_size(memory.buffer()).unwrap();
            seal_size(memory.queue()).unwrap();
        }
        memory
    }

    /// Creates the memory of a hostile client in the files of these descriptors, whose bytes are
    /// all 0.
    pub fn client_of(buffer: OwnedFd, queue: OwnedFd, queue_entries: u32) -> Self {
        let classes = [Class { size: 4096, percent: 50 }, Class { size: 65_536, percent: 50 }];
        let region = BufferRegion::create(map(&buffer), &classes).unwrap();
        let made = Queue::create(map(&queue), queue_entries, QueueLayout::NATIVE).unwrap();
        Self::new((buffer, queue), region, made.split(Side::Client).unwrap())
    }

    /// Opens the memory whose descriptors a hostile server received.
    pub fn server(buffer: OwnedFd, queue: OwnedFd) -> Self {
        let region = BufferRegion::map(map(&buffer)).unwrap();
        let made = Queue::map(map(&queue), QueueLayout::NATIVE).unwrap();
        Self::new((buffer, queue), region, made.split(Side::Server).unwrap())
    }

    fn new(
        (buffer, queue): (OwnedFd, OwnedFd),
        region: Arc<BufferRegion>,
        (producer, consumer): (Producer, Consumer),
    ) -> Self {
        let (queue_map, buffer_map) = (map(&queue), map(&buffer));
        let (queue_file, buffer_file) = (queue.into(), buffer.into());
        Self { queue_map, buffer_map, region, producer, consumer, queue_file, buffer_file }
    }

    pub fn buffer(&self) -> BorrowedFd<'_> {
        self.buffer_file.as_fd()
    }

    pub fn queue(&self) -> BorrowedFd<'_> {
        self.queue_file.as_fd()
    }

    pub fn identity(&self) -> partywall_sys::FileIdentity {
        SharedFileStat::of(self.buffer()).unwrap().identity
    }

    /// Writes a message that follows the rules into slices; returns the message's offset.
    pub fn message(&self, bytes: &[u8]) -> u32 {
        let mut slices = self.region.reserve_chain(bytes.len()).unwrap();
        let mut rest = bytes;
        for slice in &mut slices {
            let (part, behind) = rest.split_at(slice.len());
            slice.as_mut_slice().copy_from_slice(part);
            rest = behind;
        }
        self.region.send(slices).unwrap()
    }

    pub fn truncate(&self, buffer: bool, queue: bool) {
        if buffer {
            self.buffer_file.set_len(0).unwrap();
        }
        if queue {
            self.queue_file.set_len(0).unwrap();
        }
    }
}

fn map(fd: &OwnedFd) -> SharedMap {
    let size = SharedFileStat::of(fd.as_fd()).unwrap().size;
    let map = SharedMap::map(fd.as_fd(), usize::try_from(size).unwrap()).unwrap();
    // The hostile peer runs in the test's process, which must survive its own access to memory that
    // the peer has truncated.
    map.guard().unwrap();
    map
}
