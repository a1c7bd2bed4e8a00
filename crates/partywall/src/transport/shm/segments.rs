// SPDX-License-Identifier: MIT OR Apache-2.0
//! The peer's memory for large messages, as the receiver maps it: segments, and views of their
//! blocks (SPEC 5.2 to 5.4). A view is a received message that is read in the peer's memory.
//!
//! ```text
//!   the receiver's Segments  number of a segment, count of views made ─┐
//!   a View                   offset, length and id of a block ─────────┴▶ SegmentMemory
//!   SegmentMemory            mapped pages, count of views returned ─▶ SharedMemory
//!   Views in use of a segment: those made minus those returned.
//! ```
//!
//! A view keeps its segment mapped and its block reserved. Dropping a view, in any order and on any
//! thread, releases the block to the peer. Views may outlive the connection. Making a view costs
//! one increment of the segment's reference count.

use super::{SharedMemory, lock};
use crate::message::{BlockMemory, Message, View};
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

/// The segments of the peer's memory that the receiver has mapped, retired ones included.
#[derive(Debug)]
pub(super) struct Segments {
    mapped: Vec<Segment>,
    /// Retired segments that views may still keep mapped.
    retired: Vec<Retired>,
    /// Number of mapped bytes: the region, the segments, and the retired segments that still have
    /// views.
    bytes: u64,
    /// The highest segment number so far. Numbers rise and are never reused.
    last_number: u32,
}

#[derive(Debug)]
struct Segment {
    number: u32,
    /// Number of views that were made of messages in this segment, dropped views included.
    views: u64,
    memory: Arc<SegmentMemory>,
}

#[derive(Debug)]
struct Retired {
    bytes: u64,
    views: u64,
    memory: Weak<SegmentMemory>,
}

/// The memory of one segment, shared by the receiver and the segment's views.
#[derive(Debug)]
struct SegmentMemory {
    pages: PeerMem,
    shm: Arc<SharedMemory>,
    /// Number of the segment's views that were dropped, written only under the lock of the release
    /// ring.
    returned: AtomicU64,
}

/// A message outside the ring that the receiver has found and its caller has not taken yet.
#[derive(Debug)]
pub(super) enum Held {
    View(View),
    /// A message that the receiver holds in private memory of this process.
    Whole(Vec<u8>),
}

impl Held {
    #[inline]
    pub(super) fn as_slice(&self) -> &[u8] {
        match self {
            Self::View(view) => view.as_slice(),
            Self::Whole(bytes) => bytes,
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Self::View(view) => view.len,
            Self::Whole(bytes) => bytes.len(),
        }
    }

    #[inline]
    pub(super) fn into_message(self) -> Message {
        match self {
            Self::View(view) => Message::from_view(view),
            Self::Whole(bytes) => Message::from_vec(bytes),
        }
    }
}

/// The reason why the receiver could not map a segment of the peer.
#[derive(Debug)]
pub(super) enum SegmentError {
    Violation(Violation),
    /// Mapping failed, for lack of memory or address space in this process.
    System(io::Error),
}

impl From<Violation> for SegmentError {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

impl Segments {
    /// Makes the set of mapped segments, with one member: `slab`, the slab of the peer's region, as
    /// segment 0.
    pub(super) fn new(shm: &Arc<SharedMemory>, slab: PeerMem, region_bytes: u64) -> Self {
        Self {
            mapped: vec![Segment::new(shm, 0, slab)],
            retired: Vec::new(),
            bytes: region_bytes,
            last_number: 0,
        }
    }

    /// Maps the segment that a SEGMENT record announces.
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
        self.forget_unviewed();
        // The limit of mapped segments counts added ones only: the slab of the region, segment 0,
        // does not count.
        let known = self.mapped.len() + self.retired.len();
        if known > shm.limits.segments as usize {
            let (wanted, max) = (known as u64, shm.limits.segments.into());
            return Err(Violation::Segments { wanted, max }.into());
        }
        let wanted = self.bytes.saturating_add(size);
        if wanted > shm.limits.map {
            return Err(Violation::Memory { wanted, max: shm.limits.map }.into());
        }
        let (descriptor, events) = lock(&shm.control_socket).take_segment(&shm.socket, number)?;
        if events.notified {
            shm.space.notify_self();
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

    /// Unmaps the segment that a SEGMENT_RETIRE record names, once no views of it are left.
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
        self.forget_unviewed();
        Ok(())
    }

    /// Stops counting the retired segments that have no views, so that their bytes are free for new
    /// segments.
    fn forget_unviewed(&mut self) {
        let bytes = &mut self.bytes;
        self.retired.retain(|retired| {
            let memory = retired.memory.upgrade();
            let is_viewed = memory.is_some_and(|memory| memory.returned() < retired.views);
            *bytes -= if is_viewed { 0 } else { retired.bytes };
            is_viewed
        });
    }

    /// Stores the message to which a BLOB record refers in `place`: as a view of one of the
    /// segments, or as a copy if the peer is untrusted. Returns its length in bytes. Drops the
    /// message that was in `place`, unless the record breaks a rule.
    #[inline]
    pub(super) fn hold_into(
        &mut self,
        place: &mut Option<Held>,
        shm: &SharedMemory,
        record: &RecordHeader,
        body: &[u8],
    ) -> Result<u64, Box<Violation>> {
        let bad =
            |what, found| Box::new(Violation::Body { position: record.position.0, what, found });
        let Ok(body) = BlobBody::read_from_bytes(body) else {
            return Err(bad("blob length", record.len.into()));
        };
        if body.zero.get() != 0 {
            return Err(bad("blob zero field", body.zero.get().into()));
        }
        let (number, bytes) = (body.segment.get(), body.length.get());
        if bytes > shm.limits.message {
            let max = shm.limits.message;
            return Err(Box::new(Violation::MessageLength { len: bytes, max }));
        }
        let segment = self.mapped.iter_mut().find(|segment| segment.number == number);
        let segment = segment.ok_or_else(|| bad("blob segment", number.into()))?;
        let range = segment.memory.pages.range(body.offset.get(), bytes);
        let range = range.ok_or_else(|| bad("blob offset", body.offset.get()))?;
        segment.views += 1;
        let (offset, len, block) = (range.start, range.len(), body.block.get());
        let view = |memory| View { memory, offset, len, block };
        let memory = Arc::clone(&segment.memory);
        if !shm.is_untrusted() {
            if place.is_some() {
                // The compiler then knows that nothing is dropped when the message is stored.
                *place = None;
            }
            *place = Some(Held::View(view(memory)));
            return Ok(bytes);
        }
        let _view = view(memory);
        // The message of an untrusted peer is copied before anything reads it. Dropping the view
        // after the copy releases the block.
        let mut copy = vec![0; len];
        segment.memory.pages.copy(offset, &mut copy);
        *place = Some(Held::Whole(copy));
        Ok(bytes)
    }
}

impl Segment {
    fn new(shm: &Arc<SharedMemory>, number: u32, pages: PeerMem) -> Self {
        let memory = SegmentMemory { pages, shm: Arc::clone(shm), returned: AtomicU64::new(0) };
        Self { number, views: 0, memory: Arc::new(memory) }
    }
}

impl SegmentMemory {
    fn returned(&self) -> u64 {
        // The lock of the release ring is held while a view is dropped. So taking the lock waits
        // until the drop is complete. During the drop the peer may already see the view's block as
        // free, while `returned` does not count the view yet.
        let _releasing = self.shm.releaser.lock();
        // ORDER: Relaxed: `returned` is written only under the lock of the release ring, which this
        // thread holds.
        self.returned.load(Ordering::Relaxed)
    }
}

impl BlockMemory for SegmentMemory {
    #[inline]
    fn slice(&self, offset: usize, len: usize) -> &[u8] {
        self.pages.slice(offset, len)
    }

    #[inline]
    fn release(&self, block: u64) {
        self.shm.release(block, || {
            // ORDER: Relaxed for load and store: `returned` is written only by this closure, which
            // runs under the lock of the release ring.
            self.returned.store(self.returned.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        });
    }
}

fn segment_body(record: &RecordHeader, body: &[u8]) -> Result<SegmentBody, Violation> {
    SegmentBody::read_from_bytes(body).map_err(|_| Violation::Body {
        position: record.position.0,
        what: "segment length",
        found: record.len.into(),
    })
}

/// Returns the name of the rule that the descriptor of a peer's segment breaks.
const fn map_violation(error: &MapError) -> &'static str {
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
