// SPDX-License-Identifier: MIT OR Apache-2.0
//! The store of one end of a link: the file or memory that outlives its connections (SPEC 13).
//!
//! ```text
//!  where it lies                                        may a peer map it?
//!  a file (SPEC 13): it survives this process           yes, where /proc is mounted
//!  a sealed memfd: it dies with this process            yes
//!  the heap: it dies with this process                  no
//!
//!  directory.rs  where the files are            inspect.rs  looks into a file and changes nothing
//!  key.rs        the three names of an end      repair.rs   an operator adopts or resets a file
//!  file.rs       our own file: created, checked, owned, mapped, cut into parts
//!  owner.rs      one owner at a time
//!  slots.rs      images that replace each other whole: the state, and how far was consumed
//!  durable.rs    the state in the terms of `partywall_reconcile`
//! ```
//!
//! `Store` holds the parts but the ring and the slab, which `retained/` writes, and commits what
//! a later owner must find.

mod directory;
pub(crate) mod durable;
mod error;
pub(crate) mod file;
mod inspect;
mod key;
pub(crate) mod owner;
mod repair;
pub(crate) mod slots;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use partywall_layout::link::{LinkGeometry, LinkHeader, SENDING_STREAM, StateImage};
use partywall_layout::record_ring::{RingSize, SLOT_BYTES};
use partywall_layout::segment::{ASLEEP_RECORDS, ASLEEP_ROOM, LINE_BYTES, PAGE_BYTES};
use partywall_reconcile::{AckedOffset, Incarnation, Position, StoreId, StreamId};
use partywall_ring::{OwnMem, Sleeper, Writable};
use partywall_sys::memory::create_memory;
use partywall_sys::{MemfdError, memfd, nonce};
use zerocopy::IntoBytes;

use self::file::Cut;

pub use directory::Directory;
pub use durable::{DurableState, Quarantine};
pub use error::StorageError;
pub use file::{FileHandle, OwnFile, Sizes};
pub use inspect::{
    Found, Inspection, MemorySizes, Owner, OwnerStatus, PreviousStream, QuarantineSnapshot,
    ReportSnapshot, inspect, inspect_link,
};
pub use key::{Key, KeyError};
pub use repair::{Adopted, RepairError, Reset, adopt, reset};
pub use slots::{ConsumedSlots, StateSlots};

/// Which store it is, and which of its owners this process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Provenance {
    /// A random number, made with the store.
    pub store_id: StoreId,
    /// The number of this owner.
    pub incarnation: Incarnation,
}

/// The parts that a link is opened from.
#[derive(Debug)]
pub(crate) struct StoreParts {
    pub provenance: Provenance,
    pub state: StateSlots,
    pub consumed: ConsumedSlots,
    pub ring_size: RingSize,
    pub ring: OwnMem,
    pub slab: OwnMem,
    /// Messages up to this many bytes go into the ring.
    pub inline_max: usize,
    /// The parts that a peer needs to map the store; `None` if it cannot be mapped.
    pub export: Option<Export>,
}

/// The parts of a store that let a peer read it.
#[derive(Debug)]
pub(crate) struct Export {
    /// The control page from `asleep_records` on.
    pub control: OwnMem,
    /// The file or memfd that a peer maps.
    pub source: ExportSource,
}

/// Where a descriptor for a peer comes from.
#[derive(Debug)]
pub(crate) enum ExportSource {
    /// A file, opened again for each connection: thousands of links keep no further descriptor
    /// each.
    File(FileHandle),
    /// A descriptor through which nothing can be written.
    Descriptor(Arc<OwnedFd>),
}

impl StoreParts {
    /// Those of a file that this process owns.
    pub(crate) fn of_file(file: OwnFile, inline_max: usize) -> Self {
        let store_id = StoreId(u128::from_le_bytes(file.image.header.store_id));
        let incarnation = Incarnation(file.incarnation);
        let source = ExportSource::File(file.handle);
        Self {
            provenance: Provenance { store_id, incarnation },
            export: Some(Export { control: file.control, source }),
            ring_size: file.image.geometry.ring,
            state: file.state,
            consumed: file.consumed,
            ring: file.ring,
            slab: file.slab,
            inline_max,
        }
    }

    /// Those of a link that dies with this process, on the heap.
    ///
    /// `None` if no ring or slab can have these sizes, or there is not enough memory.
    pub(crate) fn on_heap(sizes: Sizes, inline_max: usize) -> Option<Self> {
        let ring_size = RingSize::new(sizes.ring)?;
        // Asked before, because a failed allocation would end the process.
        sizes.ring.checked_add(sizes.slab).filter(|bytes| memfd::is_available(*bytes))?;
        let store_id = StoreId(u128::from_le_bytes(nonce()));
        Some(Self {
            provenance: Provenance { store_id, incarnation: Incarnation(1) },
            state: StateSlots::new(heap(PAGE_BYTES)?, StateImage::new()),
            consumed: ConsumedSlots::fresh(heap(LINE_BYTES)?),
            ring_size,
            ring: heap(sizes.ring)?,
            slab: heap(sizes.slab)?,
            inline_max,
            export: None,
        })
    }

    /// Those of a link that dies with this process, in a memfd that a peer can map.
    ///
    /// `names` are local, remote, link.
    pub(crate) fn in_memfd(
        sizes: Sizes,
        names: [&str; 3],
        inline_max: usize,
    ) -> Result<Self, MemoryStoreError> {
        let geometry = LinkGeometry::new(sizes.ring, sizes.entries, sizes.slab);
        let geometry = geometry.ok_or(MemoryStoreError::Impossible)?;
        let store_id = nonce();
        let header = LinkHeader::new(&geometry, names, store_id, owner::now_ns());
        let header = header.ok_or(MemoryStoreError::Impossible)?;
        let (mut memory, descriptor) = create_memory("partywall-link", geometry.file_bytes)?;
        memory.write(0, header.as_bytes());
        let Cut { state_page, line, control, ring, slab, .. } = Cut::new(memory, &geometry);
        let store_id = StoreId(u128::from_le_bytes(store_id));
        Ok(Self {
            provenance: Provenance { store_id, incarnation: Incarnation(1) },
            state: StateSlots::new(state_page, StateImage::new()),
            consumed: ConsumedSlots::fresh(line),
            ring_size: geometry.ring,
            ring,
            slab,
            inline_max,
            export: Some(Export { control, source: ExportSource::Descriptor(descriptor) }),
        })
    }
}

/// A store in memory cannot be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MemoryStoreError {
    /// No ring or slab can have these sizes, or a name is too long.
    #[error("no link has such sizes, or such names")]
    Impossible,
    /// The system refuses the memory.
    #[error(transparent)]
    Memory(#[from] MemfdError),
}

/// The store without ring and slab: what this owner may commit at any time.
#[derive(Debug)]
pub(crate) struct Store {
    provenance: Provenance,
    /// The state as this process knows it; [`commit`](Self::commit) puts it in force.
    pub(crate) durable: DurableState,
    state: StateSlots,
    /// How far was consumed: in force at once, without the rest of the state.
    pub(crate) consumed: ConsumedSlots,
    exported: Option<ExportedWords>,
}

/// The words of the control page that a peer reads, besides `consumed`.
#[derive(Debug)]
struct ExportedWords {
    records: Sleeper,
    room: Sleeper,
    /// The word at `SENDING_STREAM`.
    stream: OwnMem,
    source: ExportSource,
}

impl ExportedWords {
    fn new(export: Export) -> Self {
        let Export { control, source } = export;
        let (records, rest) = control.split_at(LINE);
        let (room, rest) = rest.split_at(LINE / 2);
        let (stream, _) = rest.split_at(LINE / 2);
        let (mut records, mut room) = (Sleeper::new(records), Sleeper::new(room));
        // An earlier owner may have left its sleeps there.
        records.disarm();
        room.disarm();
        Self { records, room, stream, source }
    }
}

const _: () = {
    assert!(ASLEEP_RECORDS == LINE_BYTES && ASLEEP_ROOM == 2 * LINE_BYTES);
    assert!(SENDING_STREAM == ASLEEP_ROOM + LINE_BYTES / 2);
};

impl Store {
    pub(crate) fn new(
        provenance: Provenance,
        durable: DurableState,
        state: StateSlots,
        consumed: ConsumedSlots,
        export: Option<Export>,
    ) -> Self {
        let exported = export.map(ExportedWords::new);
        Self { provenance, durable, state, consumed, exported }
    }

    pub(crate) fn provenance(&self) -> Provenance {
        self.provenance
    }

    /// A descriptor that a peer can be sent, to read this store.
    pub(crate) fn descriptor(&self) -> Option<OwnedFd> {
        match &self.exported.as_ref()?.source {
            ExportSource::File(handle) => handle.read_only().ok(),
            ExportSource::Descriptor(descriptor) => descriptor.try_clone().ok(),
        }
    }

    /// Names the stream whose records are in the ring, before the first record of another is
    /// written.
    pub(crate) fn publish_stream(&mut self, stream: StreamId) {
        if let Some(exported) = &mut self.exported {
            exported.stream.publish(0, stream.0.get());
            // A peer that sees a byte of the new stream sees this word, too (SPEC 16.4).
            exported.stream.order_stores();
        }
    }

    /// Declares that this side is about to sleep.
    pub(crate) fn arm(&mut self, for_records: bool, for_room: bool) {
        if let Some(exported) = &mut self.exported {
            if for_records {
                exported.records.arm(false);
            }
            if for_room {
                exported.room.arm(false);
            }
        }
    }

    /// Declares that this side is awake.
    pub(crate) fn disarm(&mut self) {
        if let Some(exported) = &mut self.exported {
            exported.records.disarm();
            exported.room.disarm();
        }
    }

    /// Puts the state in force, whole.
    pub(crate) fn commit(&mut self) {
        self.state.commit(&self.durable.write());
    }

    /// How far messages of `stream` were delivered, as an earlier owner noted it.
    pub(crate) fn delivered(&self, stream: StreamId) -> Option<Position> {
        // The word has no seal: a value that can be no position is rot, and ignored.
        let delivered = self.consumed.delivered(stream.0.get());
        delivered.filter(|position| position % SLOT_BYTES == 0).map(Position)
    }

    /// Puts in force how far was consumed.
    #[inline]
    pub(crate) fn consume(&mut self, acked_offset: AckedOffset) {
        let AckedOffset { stream, position, digest } = acked_offset;
        self.consumed.commit(stream.0.get(), position.0, digest.0);
    }
}

/// Zeros, of which `len` from `start` on are aligned as `OwnMem` requires. The bytes are never
/// moved.
struct Heap {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Writable for Heap {
    fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

fn heap(bytes: u64) -> Option<OwnMem> {
    let len = usize::try_from(bytes.next_multiple_of(LINE_ALIGN as u64)).ok()?;
    // Bytes, so that the system hands out zeroed pages only when they are first used.
    let bytes = vec![0; len.checked_add(LINE_ALIGN)?];
    let start = bytes.as_ptr().align_offset(LINE_ALIGN);
    (start <= LINE_ALIGN).then(|| OwnMem::new(Box::new(Heap { bytes, start, len })))
}

/// The alignment that `OwnMem` requires.
const LINE_ALIGN: usize = 64;

/// [`LINE_BYTES`] as a size in memory.
const LINE: usize = 128;

const _: () = assert!(LINE as u64 == LINE_BYTES);
