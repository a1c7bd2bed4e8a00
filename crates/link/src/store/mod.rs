// SPDX-License-Identifier: MIT OR Apache-2.0
//! The store of one end of a link: the file or memory with its messages and state, which outlives
//! its connections (SPEC 13).
//!
//! ```text
//!  place of the store                                   may a peer map it?
//!  a file (SPEC 13): it survives this process           yes, where /proc is mounted
//!  a sealed memfd: it dies with this process            yes
//!  the heap: it dies with this process                  no
//!
//!  directory.rs  where the files are            inspect.rs  reads a file and changes nothing
//!  key.rs        the three names of an end      repair.rs   an operator adopts or resets a file
//!  file.rs       the file of this process: created, checked, owned, mapped, cut into parts
//!  owner.rs      one owner at a time          sync.rs      each write to the disk
//!  reboot.rs     a file of another boot, and what it proves (evidence.rs)
//!  list.rs       the links of a directory
//!  slots.rs      images that replace each other whole: the state, and the acked offset
//!  durable.rs    the state in the terms of `partywall_reconcile`
//! ```
//!
//! `Store` holds every part except the ring and the slab, which `retained/` writes. It stores what
//! a later owner must find, each change as a whole.

mod directory;
pub(crate) mod durable;
mod error;
mod evidence;
pub(crate) mod file;
mod inspect;
mod key;
mod list;
pub(crate) mod owner;
mod reboot;
mod repair;
pub(crate) mod slots;
pub(crate) mod sync;

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
pub use evidence::Evidence;
pub use file::{FileHandle, OwnFile, Sizes};
pub use inspect::{
    Found, Inspection, MemorySizes, Owner, OwnerStatus, PreviousStream, QuarantineSnapshot,
    ReportSnapshot, inspect, inspect_file, inspect_link, missing_files,
};
pub use key::{Key, KeyError};
pub use reboot::AfterReboot;
pub use repair::{Adopted, RepairError, Reset, adopt, reset};
pub use slots::{ConsumedSlots, StateSlots};

/// The identity of a store, and the number of this process among its owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Provenance {
    /// A random number that was drawn when the store was created.
    pub store_id: StoreId,
    /// The number of this process among the owners of the store.
    pub incarnation: Incarnation,
}

/// The parts of a store, from which the state of a link is opened.
#[derive(Debug)]
pub(crate) struct StoreParts {
    pub provenance: Provenance,
    pub state: StateSlots,
    pub consumed: ConsumedSlots,
    pub ring_size: RingSize,
    pub ring: OwnMem,
    pub slab: OwnMem,
    /// The maximum length in bytes of a message in the ring; longer messages go into the slab.
    pub inline_max: usize,
    /// The parts of the store by which a peer can map and read it; `None` if the store cannot be
    /// mapped.
    pub export: Option<Export>,
    /// Whether the store was adopted after another boot with only the messages that it proves
    /// whole, and no application has taken the events about that.
    pub is_adopted: bool,
    /// Whether this process made the store's file, although the link had a file before in this
    /// boot.
    pub is_replaced: bool,
}

/// The parts of a store by which a peer can map and read it: a source of descriptors, and words
/// that the peer reads.
#[derive(Debug)]
pub(crate) struct Export {
    /// The control page from the word `asleep_records` on: whether this end sleeps, and which
    /// stream its ring holds.
    pub control: OwnMem,
    /// The file or memfd that a peer maps.
    pub source: ExportSource,
}

/// The source of the descriptor that this end sends to a peer, which maps its memory.
#[derive(Debug)]
pub(crate) enum ExportSource {
    /// A link file. It is opened again for each connection, so that thousands of links keep no
    /// second descriptor open.
    File(FileHandle),
    /// A descriptor of a memfd, through which nothing can be written.
    Descriptor(Arc<OwnedFd>),
}

impl StoreParts {
    /// Returns the parts of a store, such as its ring, its slab and the state of the link. All of
    /// them lie in a link file that this process owns.
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
            is_adopted: file.is_adopted,
            is_replaced: file.is_replaced,
        }
    }

    /// Allocates a store on the heap, which dies with this process.
    ///
    /// Returns `None` if no ring or slab can have these sizes, or memory is insufficient.
    pub(crate) fn on_heap(sizes: Sizes, inline_max: usize) -> Option<Self> {
        let ring_size = RingSize::new(sizes.ring)?;
        // The available memory is checked before ring and slab are allocated, because a failed
        // allocation would abort the process.
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
            is_adopted: false,
            is_replaced: false,
        })
    }

    /// Creates a store in a memfd that a peer can map and that dies with this process.
    ///
    /// `names` are the local name, the remote name and the link name.
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
            is_adopted: false,
            is_replaced: false,
        })
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum MemoryStoreError {
    /// No ring or slab can have these sizes, or a name is too long.
    #[error("no link has such sizes, or such names")]
    Impossible,
    /// The system refuses to create or size the memfd.
    #[error(transparent)]
    Memory(#[from] MemfdError),
}

/// The store without ring and slab: the state, the position up to which this end has acknowledged,
/// and the words that a peer reads.
#[derive(Debug)]
pub(crate) struct Store {
    provenance: Provenance,
    /// The state as this process has changed it. After [`commit`](Self::commit), which stores it as
    /// a whole, a later owner finds this state.
    pub(crate) durable: DurableState,
    state: StateSlots,
    /// The acked offset. A later owner finds a change of it at once, without an update of the state
    /// image.
    pub(crate) consumed: ConsumedSlots,
    exported: Option<ExportedWords>,
}

/// The words of the control page that a peer reads (whether this end sleeps, and which stream the
/// ring holds), except the acked offset (`consumed`).
#[derive(Debug)]
struct ExportedWords {
    records: Sleeper,
    room: Sleeper,
    /// The word of the control page (at `SENDING_STREAM`) in which a peer reads the id of the
    /// stream in the ring.
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
        // An earlier owner that died may have left sleeper words in the control page that say that
        // it sleeps. So both words, for records and for room, are reset.
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

    /// Returns a descriptor for the peer, through which the peer can only read this store.
    pub(crate) fn descriptor(&self) -> Option<OwnedFd> {
        match &self.exported.as_ref()?.source {
            ExportSource::File(handle) => handle.read_only().ok(),
            ExportSource::Descriptor(descriptor) => descriptor.try_clone().ok(),
        }
    }

    /// Publishes to the peer the id of the stream that the ring holds. The caller must do so before
    /// it writes the first record of a new stream.
    pub(crate) fn publish_stream(&mut self, stream: StreamId) {
        if let Some(exported) = &mut self.exported {
            exported.stream.publish(0, stream.0.get());
            // The fence orders the store of the stream id before later stores into the ring: a peer
            // that sees a byte of the new stream also sees the new stream's id (SPEC 16.4).
            exported.stream.order_stores();
        }
    }

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

    pub(crate) fn disarm(&mut self) {
        if let Some(exported) = &mut self.exported {
            exported.records.disarm();
            exported.room.disarm();
        }
    }

    /// The file of this store; `None` if it is kept in memory.
    pub(crate) fn file(&self) -> Option<&FileHandle> {
        match &self.exported.as_ref()?.source {
            ExportSource::File(handle) => Some(handle),
            ExportSource::Descriptor(_) => None,
        }
    }

    pub(crate) fn state_sequence(&self) -> u64 {
        self.state.state().sequence.get()
    }

    /// Stores the whole state in one update: from now on a later owner finds it.
    pub(crate) fn commit(&mut self) {
        self.state.commit(&self.durable.write());
    }

    /// The position up to which an earlier owner delivered messages of `stream`, if it recorded
    /// one.
    pub(crate) fn delivered(&self, stream: StreamId) -> Option<Position> {
        // The word with the delivered position has no checksum. A value that no position can have
        // is corrupt, and ignored.
        let delivered = self.consumed.delivered(stream.0.get());
        delivered.filter(|position| position % SLOT_BYTES == 0).map(Position)
    }

    /// Stores this end's acked offset. The peer and a later owner then find it.
    #[inline]
    pub(crate) fn consume(&mut self, acked_offset: AckedOffset) {
        let AckedOffset { stream, position, digest } = acked_offset;
        self.consumed.commit(stream.0.get(), position.0, digest.0);
    }
}

/// Zeroed heap memory for a store. Its `len` bytes from `start` on are aligned as `OwnMem`, the
/// type of a store's memory, requires, and are never moved.
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
    // The bytes are requested as zeros, because the system then allocates each page only when it is
    // first used.
    let bytes = vec![0; len.checked_add(LINE_ALIGN)?];
    let start = bytes.as_ptr().align_offset(LINE_ALIGN);
    (start <= LINE_ALIGN).then(|| OwnMem::new(Box::new(Heap { bytes, start, len })))
}

/// The alignment in bytes that `OwnMem`, the type of a store's memory, requires.
const LINE_ALIGN: usize = 64;

/// The length in bytes of a line of the control page as `usize`; it equals [`LINE_BYTES`].
const LINE: usize = 128;

const _: () = assert!(LINE as u64 == LINE_BYTES);
