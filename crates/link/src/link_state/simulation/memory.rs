// SPDX-License-Identifier: MIT OR Apache-2.0
//! A store for tests that outlives its owner, as a link file does: an unnamed file that one owner
//! after another maps, and that peers map.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;

use partywall_layout::link::{
    CONSUMED_SLOT, ConsumedRecord, LINK_CONTROL_OFFSET, LinkGeometry, LinkHeader, PARTS_OFFSET,
    STATE_OFFSET, StateImage, consumed, state,
};
use partywall_layout::record_ring::RingSize;
use partywall_reconcile::{Incarnation, StoreId};
use partywall_ring::{OwnMem, Writable};
use partywall_sys::FileMap;
use partywall_sys::persistent_file::reopen_read_only;
use zerocopy::IntoBytes;

use crate::link_state::PeerMapping;
use crate::store::file::Cut;
use crate::store::{ConsumedSlots, StateSlots};
use crate::store::{Export, ExportSource};
use crate::store::{Provenance, StoreParts};

pub(in crate::link_state) const RING: u64 = 4096;
pub(in crate::link_state) const SLAB: u64 = 16384;
pub(in crate::link_state) const INLINE_MAX: usize = 200;
const FILE_BYTES: usize = 65536;

pub(in crate::link_state) struct TestStore {
    store_id: u128,
    owners: u64,
    file: File,
}

impl TestStore {
    pub(in crate::link_state) fn new(store_id: u128) -> Self {
        let file = tempfile::tempfile().unwrap();
        file.set_len(FILE_BYTES as u64).unwrap();
        let mut memory = map(&file);
        let names = ["a", "b", "l"];
        let header = LinkHeader::new(&geometry(), names, store_id.to_le_bytes(), 1).unwrap();
        memory.write(0, header.as_bytes());
        memory.write(index(STATE_OFFSET), StateImage::new().as_bytes());
        let nothing = ConsumedRecord::new(1, 0, 0, 0);
        memory.write(index(LINK_CONTROL_OFFSET + CONSUMED_SLOT), nothing.as_bytes());
        Self { store_id, owners: 0, file }
    }

    /// Opens the store for its next owner, after the previous owner has been dropped.
    pub(in crate::link_state) fn open(&mut self) -> StoreParts {
        self.owners += 1;
        let memory = map(&self.file);
        let image = state::check(memory.slice(index(STATE_OFFSET), 4096)).unwrap();
        let record = consumed::check(memory.slice(index(LINK_CONTROL_OFFSET), 4096)).unwrap();
        let cut = Cut::new(memory, &geometry());
        let descriptor = reopen_read_only(self.file.as_fd()).unwrap();
        StoreParts {
            provenance: Provenance {
                store_id: StoreId(self.store_id),
                incarnation: Incarnation(self.owners),
            },
            state: StateSlots::new(cut.state_page, image),
            consumed: ConsumedSlots::new(cut.line, record),
            ring_size: RingSize::new(RING).unwrap(),
            ring: cut.ring,
            slab: cut.slab,
            inline_max: INLINE_MAX,
            is_adopted: false,
            is_replaced: false,
            export: Some(Export {
                control: cut.control,
                source: ExportSource::Descriptor(Arc::new(descriptor)),
            }),
        }
    }

    /// Maps the store as a peer of its owner would, and returns the mapping.
    pub(in crate::link_state) fn mapping(&self) -> PeerMapping {
        let descriptor = reopen_read_only(self.file.as_fd()).unwrap();
        PeerMapping::map(descriptor.as_fd(), FILE_BYTES as u64).unwrap()
    }

    pub(in crate::link_state) fn file(&self) -> &File {
        &self.file
    }
}

/// Returns the sizes of the store, with so small a slab that it is often full.
fn geometry() -> LinkGeometry {
    LinkGeometry {
        file_bytes: FILE_BYTES as u64,
        ring_offset: PARTS_OFFSET,
        ring: RingSize::new(RING).unwrap(),
        release_offset: PARTS_OFFSET + RING,
        peer_blocks_max: 8,
        slab_offset: PARTS_OFFSET + RING + 4096,
        slab_bytes: SLAB,
    }
}

fn map(file: &File) -> OwnMem {
    OwnMem::new(Box::new(Mapped(FileMap::writable(file.as_fd(), FILE_BYTES).unwrap())))
}

struct Mapped(FileMap);

impl Writable for Mapped {
    fn as_mut_slice(&mut self) -> &mut [u8] {
        self.0.as_mut_slice()
    }
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}
