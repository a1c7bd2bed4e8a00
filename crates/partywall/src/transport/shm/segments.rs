// SPDX-License-Identifier: MIT OR Apache-2.0
//! The neighbour's slab memory as we see it: which segments are mapped, and views of blocks in them
//! (SPEC 5.2 to 5.4).
//!
//! ```text
//!   Segments (the receiver's)  number, views made ─┐         bytes still looked at: made − returned
//!   View ─ offset, length, id ─────────────────────┴▶ Memory ─ pages, views returned ─▶ Wall
//! ```
//!
//! A view keeps its segment mapped and its block reserved; dropping it, in any order and on any
//! thread, gives the block back. Views outlive the connection. A view costs one reference count, of the
//! segment's memory.

use super::blob::Held;
use super::{SharedMemory, lock};
use partywall_layout::record_ring::{BlobBody, SegmentBody};
use partywall_layout::{RecordHeader, Violation};
use partywall_ring::PeerMem;
use partywall_sys::MapError;
use partywall_sys::memory::map_memory;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use zerocopy::FromBytes;

/// The neighbour's segments that are mapped now.
#[derive(Debug)]
pub(super) struct Segments {
    mapped: Vec<Segment>,
    /// Retired segments that views may keep mapped.
    retired: Vec<Retired>,
    /// Bytes mapped in all, the half and what was retired under a view included.
    bytes: u64,
    /// Segment numbers rise and are never used again.
    last_number: u32,
}

#[derive(Debug)]
struct Segment {
    number: u32,
    /// How many views of it were made.
    views: u64,
    memory: Arc<Memory>,
}

#[derive(Debug)]
struct Retired {
    bytes: u64,
    views: u64,
    memory: Weak<Memory>,
}

/// A segment's memory, as the receiver and the views of it share it.
#[derive(Debug)]
struct Memory {
    pages: PeerMem,
    shm: Arc<SharedMemory>,
    /// How many views of it were dropped: written while blocks are given back, one at a time.
    returned: AtomicU64,
}

/// Why a segment could not be mapped.
#[derive(Debug)]
pub(super) enum SegmentError {
    /// The neighbour broke a rule.
    Violation(Violation),
    /// This process lacks something.
    System(io::Error),
}

impl From<Violation> for SegmentError {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

impl Segments {
    /// The slab of the half is segment 0.
    pub(super) fn new(shm: &Arc<SharedMemory>, slab: PeerMem, region_bytes: u64) -> Self {
        Self {
            mapped: vec![Segment::new(shm, 0, slab)],
            retired: Vec::new(),
            bytes: region_bytes,
            last_number: 0,
        }
    }

    /// Maps the segment that a SEGMENT record tells of.
    pub(super) fn add(
        &mut self,
        shm: &Arc<SharedMemory>,
        record: &RecordHeader,
        body: &[u8],
    ) -> Result<(), SegmentError> {
        let body = segment_body(record, body)?;
        let (number, size) = (body.number.get(), body.size.get());
        let bad = |what, found| Violation::Body { position: record.position.0, what, found };
        if number <= self.last_number {
            return Err(bad("segment number", number.into()).into());
        }
        self.forget_unseen();
        // The half's own slab is not counted among the segments.
        let there = self.mapped.len() + self.retired.len();
        if there > shm.limits.segments as usize {
            let (wanted, max) = (there as u64, shm.limits.segments.into());
            return Err(Violation::Segments { wanted, max }.into());
        }
        let wanted = self.bytes.saturating_add(size);
        if wanted > shm.limits.map {
            return Err(Violation::Memory { wanted, max: shm.limits.map }.into());
        }
        let (descriptor, news) = lock(&shm.control_socket).take_segment(&shm.socket, number)?;
        if news.doorbell {
            shm.wake_own_room();
        }
        let mapped = map_memory(descriptor.as_fd(), size, shm.limits.map);
        let pages = mapped.map_err(|error| {
            if error.is_violation() {
                SegmentError::Violation(bad(map_violation(&error), size))
            } else {
                SegmentError::System(io::Error::other(error.to_string()))
            }
        })?;
        self.mapped.push(Segment::new(shm, number, pages));
        self.bytes = wanted;
        self.last_number = number;
        Ok(())
    }

    /// Forgets the segment that a SEGMENT_RETIRE record tells of; views of it keep it mapped.
    pub(super) fn retire(&mut self, record: &RecordHeader, body: &[u8]) -> Result<(), Violation> {
        let body = segment_body(record, body)?;
        let (number, size) = (body.number.get(), body.size.get());
        let bad = |what, found| Violation::Body { position: record.position.0, what, found };
        let known = self.mapped.iter().position(|segment| segment.number == number);
        let Some(index) = known.filter(|_| number != 0) else {
            return Err(bad("segment number", number.into()));
        };
        if self.mapped[index].memory.pages.len() as u64 != size {
            return Err(bad("segment size", size));
        }
        let Segment { views, memory, .. } = self.mapped.swap_remove(index);
        self.retired.push(Retired { bytes: size, views, memory: Arc::downgrade(&memory) });
        drop(memory);
        self.forget_unseen();
        Ok(())
    }

    /// Stops counting what was retired and nobody looks at any more.
    fn forget_unseen(&mut self) {
        let bytes = &mut self.bytes;
        self.retired.retain(|retired| {
            let memory = retired.memory.upgrade();
            let is_seen = memory.is_some_and(|memory| memory.returned() < retired.views);
            *bytes -= if is_seen { 0 } else { retired.bytes };
            is_seen
        });
    }

    /// Holds the message that a BLOB record tells of, as a view, or as a copy if the neighbour is isolated;
    /// its length.
    #[inline]
    pub(super) fn hold(
        &mut self,
        held: &mut Option<Held>,
        shm: &SharedMemory,
        record: &RecordHeader,
        body: &[u8],
    ) -> Result<u64, Violation> {
        let bad = |what, found| Violation::Body { position: record.position.0, what, found };
        let Ok(body) = BlobBody::read_from_bytes(body) else {
            return Err(bad("blob length", record.len.into()));
        };
        if body.zero.get() != 0 {
            return Err(bad("blob zero field", body.zero.get().into()));
        }
        let (number, len) = (body.segment.get(), body.length.get());
        if len > shm.limits.message {
            return Err(Violation::MessageLength { len, max: shm.limits.message });
        }
        let segment = self.mapped.iter_mut().find(|segment| segment.number == number);
        let segment = segment.ok_or_else(|| bad("blob segment", number.into()))?;
        let place = segment.memory.pages.range(body.offset.get(), len);
        let place = place.ok_or_else(|| bad("blob offset", body.offset.get()))?;
        segment.views += 1;
        let memory = Arc::clone(&segment.memory);
        let view = View { memory, offset: place.start, len: place.len(), id: body.block.get() };
        if shm.is_untrusted() {
            // Copied before anybody looks at it; the view ends here, so the block goes home.
            let mut copy = vec![0; view.len];
            view.memory.pages.copy(view.offset, &mut copy);
            *held = Some(Held::Whole(copy));
        } else {
            *held = Some(Held::View(view));
        }
        Ok(len)
    }
}

impl Segment {
    fn new(shm: &Arc<SharedMemory>, number: u32, pages: PeerMem) -> Self {
        let memory = Memory { pages, shm: Arc::clone(shm), returned: AtomicU64::new(0) };
        Self { number, views: 0, memory: Arc::new(memory) }
    }
}

impl Memory {
    fn returned(&self) -> u64 {
        // While a block is given back, the neighbour may know it and its view not be counted yet.
        let _giving_back = lock(&self.shm.releaser);
        // ORDER: Relaxed: only written under the lock.
        self.returned.load(Ordering::Relaxed)
    }
}

fn segment_body(record: &RecordHeader, body: &[u8]) -> Result<SegmentBody, Violation> {
    SegmentBody::read_from_bytes(body).map_err(|_| Violation::Body {
        position: record.position.0,
        what: "segment length",
        found: record.len.into(),
    })
}

/// Which rule a descriptor breaks.
pub(super) const fn map_violation(error: &MapError) -> &'static str {
    match error {
        MapError::NotMemfd { .. } => "descriptor: not a memfd",
        MapError::MissingSeals { .. } => "descriptor: not sealed",
        MapError::NotTmpfs { .. } => "descriptor: not ordinary shared memory",
        MapError::TooLarge { .. } => "descriptor: larger than agreed",
        MapError::BadSize { .. } => "descriptor: size not in 64 KiB",
        MapError::SizeMismatch { .. } => "descriptor: not of the announced size",
        MapError::Sparse { .. } => "descriptor: has holes",
        _ => "descriptor",
    }
}

/// A block of the neighbour's memory that we look at; it goes home when this is dropped.
#[derive(Debug)]
pub(crate) struct View {
    memory: Arc<Memory>,
    offset: usize,
    len: usize,
    id: u64,
}

impl View {
    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.memory.pages.slice(self.offset, self.len)
    }
}

impl Drop for View {
    #[inline]
    fn drop(&mut self) {
        let Memory { shm, returned, .. } = &*self.memory;
        shm.release(self.id, || {
            // ORDER: Relaxed: one at a time, under the releaser's lock.
            returned.store(returned.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        });
    }
}
