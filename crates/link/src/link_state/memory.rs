// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of one end: who made it, where its parts are, and the two commits that change what a later owner finds.
//!
//! ```text
//!   class      where all of it lies                                             a neighbour may be shown it
//!   Crash      in the file (SPEC 13)                                            yes, where /proc is mounted
//!   Volatile   in a sealed memfd, or on the heap: it dies with this process     the memfd
//! ```

use std::os::fd::OwnedFd;

use partywall_layout::link::{LinkGeometry, LinkHeader, SENDING_STREAM, StateImage};
use partywall_layout::record_ring::{RingSize, SLOT_BYTES};
use partywall_layout::segment::{ASLEEP_RECORDS, ASLEEP_ROOM, LINE_BYTES, PAGE_BYTES};
use partywall_reconcile::{AckedOffset, Incarnation, Position, StoreId, StreamId};
use partywall_ring::{OwnMem, Sleeper, Writable};
use partywall_sys::{MemfdError, memfd};
use zerocopy::IntoBytes;

use crate::store::DurableState;
use crate::store::file::Cut;
use crate::store::owner;
use crate::store::{ConsumedSlots, StateSlots};
use crate::store::{FileHandle, OwnFile, Sizes};
use partywall_sys::memory::create_memory;
use partywall_sys::nonce;

/// Which memory it is, and the how many-th owner has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Provenance {
    /// Made by chance with the memory.
    pub store_id: StoreId,
    /// This owner.
    pub incarnation: Incarnation,
}

/// What a [`LinkState`](super::LinkState) is opened from.
#[derive(Debug)]
pub(crate) struct Parts {
    pub provenance: Provenance,
    pub state: StateSlots,
    pub consumed: ConsumedSlots,
    pub ring_size: RingSize,
    pub ring: OwnMem,
    pub slab: OwnMem,
    /// Messages up to so many bytes go into the ring.
    pub inline_max: usize,
    /// What it takes to share it; `None` if it cannot be shared.
    pub showing: Option<Showing>,
}

/// What a memory needs to be read by a neighbour.
#[derive(Debug)]
pub(crate) struct Showing {
    /// The control page from `asleep_records` on.
    pub control: OwnMem,
    /// What a neighbour maps.
    pub source: Source,
}

/// Where a descriptor to be sent comes from.
#[derive(Debug)]
pub(crate) enum Source {
    /// A file, opened anew for each connection: with thousands of links, not a descriptor more for each.
    File(FileHandle),
    /// One through which nothing can be written.
    Descriptor(OwnedFd),
}

impl Parts {
    /// Those of a file that this process owns.
    pub(crate) fn of_file(file: OwnFile, inline_max: usize) -> Self {
        let store_id = StoreId(u128::from_le_bytes(file.image.header.store_id));
        let incarnation = Incarnation(file.incarnation);
        Self {
            provenance: Provenance { store_id, incarnation },
            showing: Some(Showing { control: file.control, source: Source::File(file.handle) }),
            ring_size: file.image.geometry.ring,
            state: file.state,
            consumed: file.consumed,
            ring: file.ring,
            slab: file.slab,
            inline_max,
        }
    }

    /// Those of a link that is to live no longer than this process. `None` if no ring or slab can be so large or small, or there is
    /// not so much memory.
    pub(crate) fn volatile(sizes: Sizes, inline_max: usize) -> Option<Self> {
        let ring_size = RingSize::new(sizes.ring)?;
        // The allocator would not say so: it would end the process.
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
            showing: None,
        })
    }

    /// As [`volatile`](Self::volatile), in memory that a neighbour can be shown. `names` are local, remote, link.
    pub(crate) fn volatile_shown(
        sizes: Sizes,
        names: [&str; 3],
        inline_max: usize,
    ) -> Result<Self, VolatileFault> {
        let geometry = LinkGeometry::new(sizes.ring, sizes.entries, sizes.slab);
        let geometry = geometry.ok_or(VolatileFault::Impossible)?;
        let store_id = nonce();
        let header = LinkHeader::new(&geometry, names, store_id, owner::now_ns());
        let header = header.ok_or(VolatileFault::Impossible)?;
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
            showing: Some(Showing { control, source: Source::Descriptor(descriptor) }),
        })
    }
}

/// There is no such memory.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VolatileFault {
    /// No ring or slab can be so large or small, or no name so long.
    #[error("no link has such sizes, or such names")]
    Impossible,
    /// The system has none.
    #[error(transparent)]
    Memory(#[from] MemfdError),
}

/// What may be committed at any time.
#[derive(Debug)]
pub(super) struct Memory {
    provenance: Provenance,
    state: StateSlots,
    consumed: ConsumedSlots,
    shown: Option<ShownWords>,
}

/// What of the control page is for a neighbour that reads it, besides `consumed`.
#[derive(Debug)]
struct ShownWords {
    records: Sleeper,
    room: Sleeper,
    /// The word at `SENDING_STREAM`.
    stream: OwnMem,
    source: Source,
}

impl ShownWords {
    fn new(showing: Showing) -> Self {
        let Showing { control, source } = showing;
        let (records, rest) = control.split_at(LINE);
        let (room, rest) = rest.split_at(LINE / 2);
        let (stream, _) = rest.split_at(LINE / 2);
        let (mut records, mut room) = (Sleeper::new(records), Sleeper::new(room));
        // What an earlier owner left there is of no sleep of ours.
        records.disarm();
        room.disarm();
        Self { records, room, stream, source }
    }
}

const _: () = {
    assert!(ASLEEP_RECORDS == LINE_BYTES && ASLEEP_ROOM == 2 * LINE_BYTES);
    assert!(SENDING_STREAM == ASLEEP_ROOM + LINE_BYTES / 2);
};

impl Memory {
    pub(super) fn new(
        provenance: Provenance,
        state: StateSlots,
        consumed: ConsumedSlots,
        showing: Option<Showing>,
    ) -> Self {
        Self { provenance, state, consumed, shown: showing.map(ShownWords::new) }
    }

    /// What a neighbour can be sent, to read this memory.
    pub(super) fn descriptor(&self) -> Option<OwnedFd> {
        match &self.shown.as_ref()?.source {
            Source::File(handle) => handle.read_only().ok(),
            Source::Descriptor(descriptor) => descriptor.try_clone().ok(),
        }
    }

    /// Says of which stream the records in the ring are: before the first of another is written there.
    pub(super) fn show_stream(&mut self, stream: StreamId) {
        if let Some(shown) = &mut self.shown {
            shown.stream.publish(0, stream.0.get());
            // A neighbour that sees a byte of the new stream sees this, too (SPEC 16.4).
            shown.stream.order_stores();
        }
    }

    /// Declares that this side is about to sleep.
    pub(super) fn arm(&mut self, for_records: bool, for_room: bool) {
        if let Some(shown) = &mut self.shown {
            if for_records {
                shown.records.arm(false);
            }
            if for_room {
                shown.room.arm(false);
            }
        }
    }

    /// Declares that it is awake.
    pub(super) fn disarm(&mut self) {
        if let Some(shown) = &mut self.shown {
            shown.records.disarm();
            shown.room.disarm();
        }
    }

    pub(super) fn provenance(&self) -> Provenance {
        self.provenance
    }

    /// Puts the books in force, whole.
    pub(super) fn commit(&mut self, durable: &DurableState) {
        self.state.commit(&durable.write());
    }

    /// How far messages of `stream` were handed out, as an earlier owner noted it.
    pub(super) fn delivered(&self, stream: StreamId) -> Option<Position> {
        // A word without a seal: what can be no position is rot, and says nothing.
        let delivered = self.consumed.delivered(stream.0.get());
        delivered.filter(|position| position % SLOT_BYTES == 0).map(Position)
    }

    /// Notes how far messages of `stream` are handed out.
    #[inline(always)]
    pub(super) fn note_delivered(&mut self, stream: StreamId, position: Position) {
        self.consumed.note_delivered(stream.0.get(), position.0);
    }

    /// The owner before is counted.
    pub(super) fn forget_delivered(&mut self) {
        self.consumed.forget_delivered();
    }

    /// Puts in force how far was consumed.
    #[inline]
    pub(super) fn consume(&mut self, acked_offset: AckedOffset) {
        self.consumed.commit(
            acked_offset.stream.0.get(),
            acked_offset.position.0,
            acked_offset.digest.0,
        );
    }
}

/// Zeros, of which `len` from `start` on are aligned as `OwnMem` wants them. The bytes are never moved.
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
    // Bytes, so that the system hands out zeroed pages when they are first used and not before.
    let bytes = vec![0; len.checked_add(LINE_ALIGN)?];
    let start = bytes.as_ptr().align_offset(LINE_ALIGN);
    (start <= LINE_ALIGN).then(|| OwnMem::new(Box::new(Heap { bytes, start, len })))
}

/// What `OwnMem` wants.
const LINE_ALIGN: usize = 64;

/// As a size in memory.
const LINE: usize = 128;

const _: () = assert!(LINE as u64 == LINE_BYTES);
