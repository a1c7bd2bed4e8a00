// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sender's shared memory for large messages. Blocks are allocated from segments, which are
//! added when needed and retired when idle (SPEC 5.4).
//!
//! ```text
//!   segment 0    the slab of the region
//!   segments 1…  each as large as all earlier added segments, or as the message if that is larger
//!   adding       sends the descriptor over the control socket, then SEGMENT in the ring; later
//!                BLOB records may name blocks of the segment
//!   retiring     takes the segment out of the slab, unmaps it, sends SEGMENT_RETIRE in the ring
//! ```
//!
//! SEGMENT and SEGMENT_RETIRE records stay pending until they are published, so aborting a batch
//! does not lose them. `BlobMemory` does not write to the ring: the sender appends these records.

use super::SharedMemory;
use crate::config::{BackPressure, Config};
use crate::error::{Fault, Limit, TooLarge};
use crate::transport::{Memory, SpaceWaiter};
use partywall_layout::Violation;
use partywall_layout::control::ControlSegment;
use partywall_layout::record_ring::{BlobBody, Kind, Position, SegmentBody, footprint};
use partywall_layout::segment::{GRAIN_BYTES, RELEASED};
use partywall_ring::{Block, OwnMem, PeerMem, Reclaimer, Slab};
use partywall_sys::memory::create_memory;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

/// The shared memory in which a sender stores large messages: its segments, and the blocks in them.
#[derive(Debug)]
pub(super) struct BlobMemory {
    slab: Slab,
    reclaimer: Reclaimer,
    limits: super::Limits,
    /// Whether the back-pressure policy is `Overflow`, so that messages for which there is no
    /// memory are sent in fragments.
    has_overflow: bool,
    first_bytes: u64,
    next_number: u32,
    /// Number and size in bytes of each segment except segment 0.
    segments: Vec<(u32, u64)>,
    /// SEGMENT and SEGMENT_RETIRE records that were not published yet, oldest first.
    pending: VecDeque<(Kind, SegmentBody)>,
    /// Number of the pending records that the open batch contains. If the batch is discarded, these
    /// records stay pending.
    in_batch: usize,
    /// Ids of the blocks to which records of the open batch refer.
    batch_blocks: Vec<u64>,
    /// Ring positions of the ends of published SEGMENT records that the peer may not have read yet.
    /// The peer may have to hold the descriptor of each such segment.
    published_segments: VecDeque<Position>,
    idle_timeout: Duration,
    /// When the sender first found an idle segment; `None` while no segment is idle.
    idle_since: Option<Instant>,
    /// Number of large messages since the last check for idle segments, which is not made for every
    /// message.
    unchecked: u32,
    /// When this side had last notified the peer, as known at the last check for idle segments. If
    /// the next check gets another time, this side has notified the peer since.
    notified_at: Option<Instant>,
}

/// The reason why no block of shared memory was allocated for a large message.
#[derive(Debug)]
pub(super) enum AllocError {
    /// No memory for large messages is free now, so the sender may wait.
    Full,
    /// Records that announce or retire segments are pending. The caller must publish them before it
    /// tries again.
    Unannounced,
    /// The message is longer than any block of shared memory can be.
    TooLarge(TooLarge),
    Violation(Violation),
    /// A system call failed, for lack of memory or descriptors in this process.
    System(Fault),
}

impl From<Violation> for AllocError {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

impl BlobMemory {
    /// Most ring bytes that all pending SEGMENT and SEGMENT_RETIRE records and one FRAGMENT_ABORT
    /// record take.
    pub(super) const PENDING_BYTES_MAX: u64 =
        (PENDING_MAX as u64 + 1) * footprint(size_of::<SegmentBody>() as u64);

    pub(super) fn new(
        shm: &SharedMemory,
        first: OwnMem,
        release_ring: PeerMem,
        config: &Config,
    ) -> Self {
        let mut slab = Slab::new(shm.limits.peer_releases);
        let first_bytes = first.len() as u64;
        slab.add_segment(0, first);
        Self {
            slab,
            reclaimer: Reclaimer::new(release_ring, shm.peer_region.clone(), super::word(RELEASED)),
            limits: shm.limits,
            has_overflow: config.back_pressure == BackPressure::Overflow,
            first_bytes,
            next_number: 1,
            segments: Vec::new(),
            pending: VecDeque::new(),
            in_batch: 0,
            batch_blocks: Vec::new(),
            published_segments: VecDeque::new(),
            idle_timeout: config.idle_memory_timeout,
            idle_since: None,
            unchecked: 0,
            notified_at: None,
        }
    }

    /// Allocates a block for a message of `len` bytes, and adds a segment if necessary.
    /// `notified_at` is when the peer was last notified.
    pub(super) fn allocate(
        &mut self,
        len: usize,
        shm: &SharedMemory,
        notified_at: Option<Instant>,
    ) -> Result<Block, AllocError> {
        self.check_length(len as u64)?;
        if !self.slab.has_recent(len) {
            self.reclaim()?;
        }
        if let Some(block) = self.slab.allocate(len) {
            self.note_idle(notified_at);
            return Ok(block);
        }
        // Blocks that the receiver has released are taken back first. If the limit of blocks is
        // reached, one of the returned blocks may suffice.
        self.reclaim()?;
        self.take_back(shm);
        if let Some(block) = self.slab.allocate(len) {
            return Ok(block);
        }
        if self.slab.is_at_block_limit() {
            return Err(AllocError::Full);
        }
        self.grow(len as u64, shm)?;
        self.slab.allocate(len).ok_or(AllocError::Full)
    }

    /// Stores a recently freed block of exactly `len` bytes in `place`, if there is one and `place`
    /// is empty. Returns whether it has stored a block.
    #[inline]
    pub(super) fn allocate_recent_into(
        &mut self,
        place: &mut Option<Memory>,
        len: usize,
        notified_at: Option<Instant>,
    ) -> bool {
        if place.is_some() {
            return false;
        }
        let Some(block) = self.slab.allocate_recent(len) else { return false };
        *place = Some(Memory::Slab(block));
        self.note_idle(notified_at);
        true
    }

    /// Frees a block in which no message was sent.
    #[inline]
    pub(super) fn free(&mut self, block: Block) {
        self.slab.free(block);
    }

    /// Adds a reserved block to the open batch. Returns the body of the BLOB record that refers to
    /// the block.
    pub(super) fn commit(&mut self, block: Block) -> BlobBody {
        let place = self.slab.commit(block);
        self.batch_blocks.push(place.id);
        BlobBody {
            block: U64::new(place.id),
            segment: U32::new(place.segment),
            zero: U32::new(0),
            offset: U64::new(place.offset),
            length: U64::new(place.length),
        }
    }

    /// Returns the next pending SEGMENT or SEGMENT_RETIRE record that is not in the open batch yet.
    pub(super) fn next_announcement(&self) -> Option<(Kind, SegmentBody)> {
        self.pending.get(self.in_batch).copied()
    }

    /// Notes that the sender has appended the next pending SEGMENT or SEGMENT_RETIRE record to the
    /// open batch.
    pub(super) const fn announcement_appended(&mut self) {
        self.in_batch += 1;
    }

    /// Notes that the open batch was published up to `tail`. Returns the number of its BLOB
    /// records.
    pub(super) fn published(&mut self, tail: Position) -> u64 {
        let announced = self.pending.drain(..self.in_batch);
        let segments = announced.filter(|(kind, _)| *kind == Kind::Segment);
        self.published_segments.extend(segments.map(|_| tail));
        self.in_batch = 0;
        let blobs = self.batch_blocks.len() as u64;
        self.batch_blocks.clear();
        blobs
    }

    /// Notes that the open batch was discarded, and frees its blocks.
    pub(super) fn rolled_back(&mut self) {
        self.in_batch = 0;
        for id in std::mem::take(&mut self.batch_blocks) {
            // Reclaiming a block of the discarded batch cannot fail, because this side chose its
            // id, and the peer has never seen it.
            let _ = self.slab.reclaim(id);
        }
    }

    pub(super) fn reclaim(&mut self) -> Result<(), Violation> {
        // The peer cannot have released blocks of the open batch, because it has not seen these
        // blocks.
        loop {
            let out = self.slab.in_flight() - self.batch_blocks.len() as u64;
            match self.reclaimer.next(out)? {
                None => return Ok(()),
                Some(id) => self.slab.reclaim(id)?,
            }
        }
    }

    /// Makes the blocks free again whose owned reservations other code dropped without access to
    /// the sender. Returns whether there were any.
    pub(super) fn take_back(&mut self, shm: &SharedMemory) -> bool {
        let blocks = std::mem::take(&mut *super::lock(&shm.given_back));
        let has_taken = !blocks.is_empty();
        for block in blocks {
            #[cfg(shuttle)]
            shm.note_reserved(-1);
            self.slab.free(block);
        }
        has_taken
    }

    /// Retires segments that were idle for the configured time, or every idle segment if `all` is
    /// true. The number per call is limited by `PENDING_MAX`, the most SEGMENT and SEGMENT_RETIRE
    /// records that may be pending.
    pub(super) fn retire_idle(&mut self, all: bool) {
        if !all && self.idle_since.is_none_or(|since| since.elapsed() < self.idle_timeout) {
            return;
        }
        self.idle_since = None;
        while self.pending.len() < PENDING_MAX - 1 && self.retire_one() {}
    }

    pub(super) fn has_idle_segment(&self) -> bool {
        self.slab.has_idle_segment()
    }

    /// Whether all blocks in flight, at least one, belong to the open batch. Then no block can be
    /// released before the batch is published.
    pub(super) fn is_held_by_batch(&self) -> bool {
        !self.batch_blocks.is_empty() && self.slab.in_flight() == self.batch_blocks.len() as u64
    }

    /// Returns the size of all segments in bytes.
    pub(super) const fn bytes(&self) -> u64 {
        self.slab.bytes()
    }

    /// Returns the size of all allocated blocks in bytes.
    pub(super) fn used_bytes(&self) -> u64 {
        self.slab.used()
    }

    pub(super) fn blocks_in_flight(&self) -> u64 {
        self.slab.in_flight()
    }

    /// Returns the length in bytes of the longest message that a block can ever hold, and the limit
    /// that bounds it.
    pub(super) fn largest(&self) -> (u64, Limit) {
        let is_peers = self.limits.own_memory_is_peers;
        let limit = if is_peers { Limit::PeerMap } else { Limit::OwnMemory };
        (self.first_bytes.max(self.limits.own_memory), limit)
    }

    /// Checks that a message of `len` bytes may be sent in fragments: the peer must accept messages
    /// of this length.
    pub(super) fn check_overflow(&self, len: u64) -> Result<(), TooLarge> {
        let max = self.limits.peer_message;
        if len <= max { Ok(()) } else { Err(TooLarge { len, max, limit: Limit::PeerMessage }) }
    }

    /// Checks that a message of `len` bytes can be sent at all, in a block or in fragments. The
    /// error names the smallest limit that the length exceeds.
    #[inline]
    fn check_length(&self, len: u64) -> Result<(), AllocError> {
        let (largest, limit) = self.largest();
        if len <= largest && len <= self.limits.peer_message {
            return Ok(());
        }
        if let Err(error) = self.check_overflow(len) {
            let binds = !self.has_overflow && largest < error.max;
            let error = if binds { TooLarge { len, max: largest, limit } } else { error };
            return Err(AllocError::TooLarge(error));
        }
        if self.has_overflow {
            return Err(AllocError::Full);
        }
        Err(AllocError::TooLarge(TooLarge { len, max: largest, limit }))
    }

    fn segments_bytes(&self) -> u64 {
        self.segments.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Adds a segment that can hold `len` bytes. Retires idle segments first if a limit of memory
    /// or of segments is reached.
    fn grow(&mut self, len: u64, shm: &SharedMemory) -> Result<(), AllocError> {
        let needed = len.max(1).next_multiple_of(GRAIN_BYTES);
        let limits = self.limits;
        if needed > limits.own_memory {
            return Err(AllocError::Full);
        }
        while self.segments_bytes() + needed > limits.own_memory
            || self.segments.len() >= limits.own_segments as usize
        {
            self.check_pending()?;
            if !self.retire_one() {
                return Err(AllocError::Full);
            }
        }
        self.check_pending()?;
        let doubled = self.segments_bytes().max(SEGMENT_BYTES_MIN).next_multiple_of(GRAIN_BYTES);
        let bytes = needed.max(doubled.min(limits.own_memory - self.segments_bytes()));
        self.add_segment(bytes, needed, shm)
    }

    /// Fails if no more SEGMENT or SEGMENT_RETIRE records may become pending. The caller must then
    /// publish the pending records immediately. No other code would publish them before the next
    /// message, which may be the one that needs memory.
    fn check_pending(&self) -> Result<(), AllocError> {
        if self.pending.len() + 2 <= PENDING_MAX { Ok(()) } else { Err(AllocError::Unannounced) }
    }

    fn add_segment(
        &mut self,
        wanted: u64,
        needed: u64,
        shm: &SharedMemory,
    ) -> Result<(), AllocError> {
        let consumed = shm.snapshot().0[0];
        if self.descriptors_under_way(consumed) >= self.limits.own_segments as usize {
            // The peer cannot hold more descriptors until it has read further SEGMENT records. The
            // peer notifies the sender as it reads the ring, so the sender may wait.
            return Err(AllocError::Full);
        }
        let created = create_memory("partywall-segment", wanted)
            .map(|made| (wanted, made))
            .or_else(|_| create_memory("partywall-segment", needed).map(|made| (needed, made)));
        let (bytes, (memory, descriptor)) = match created {
            Ok(made) => made,
            // The memory of a further segment could not be made. While blocks are in flight, the
            // sender may wait for their release. Under `Overflow`, it sends the message in
            // fragments instead. In any other case the sender would wait for ever, so the error is
            // returned.
            Err(_) if self.has_foreign_blocks() || self.has_overflow => {
                return Err(AllocError::Full);
            }
            Err(error) => {
                let source = io::Error::other(error.to_string());
                return Err(AllocError::System(Fault::system(
                    "making memory for a message",
                    source,
                )));
            }
        };
        let number = self.next_number;
        let frame = ControlSegment::new(number);
        let sent =
            shm.socket.send(&[IoSlice::new(frame.as_bytes())], &[descriptor.as_fd()], false, true);
        match sent {
            Ok(count) if count == size_of::<ControlSegment>() => {}
            // The segment's descriptor could not be sent: either the peer is gone, which the caller
            // detects, or the peer does not read the control socket. The sender may wait only if
            // blocks are in flight, whose release wakes it.
            _ if shm.is_peer_gone() || self.has_foreign_blocks() => return Err(AllocError::Full),
            Ok(_) => return Err(AllocError::Full),
            Err(source) => {
                return Err(AllocError::System(Fault::system("passing memory", source)));
            }
        }
        self.next_number += 1;
        self.segments.push((number, bytes));
        self.announce(Kind::Segment, number, bytes);
        self.slab.add_segment(number, memory);
        Ok(())
    }

    /// Whether blocks are in flight that do not belong to the open batch.
    fn has_foreign_blocks(&self) -> bool {
        self.slab.in_flight() > self.batch_blocks.len() as u64
    }

    /// Returns the number of segment descriptors that the peer may still have to hold: those of
    /// pending SEGMENT records, and those of published SEGMENT records that the peer has not read.
    /// The peer has read the ring up to `consumed`.
    fn descriptors_under_way(&mut self, consumed: u64) -> usize {
        while self.published_segments.front().is_some_and(|end| end.0 <= consumed) {
            self.published_segments.pop_front();
        }
        let pending = self.pending.iter().filter(|(kind, _)| *kind == Kind::Segment).count();
        self.published_segments.len() + pending
    }

    /// Retires one idle segment: announces to the peer that it must unmap the segment, and frees
    /// the segment. Returns whether there was one.
    fn retire_one(&mut self) -> bool {
        let Some((number, memory)) = self.slab.take_idle_segment() else { return false };
        drop(memory);
        let known = self.segments.iter().position(|(known, _)| *known == number);
        let bytes = known.map_or(0, |index| self.segments.swap_remove(index).1);
        self.announce(Kind::SegmentRetire, number, bytes);
        true
    }

    fn announce(&mut self, kind: Kind, number: u32, bytes: u64) {
        let zero = U32::new(0);
        let body = SegmentBody { number: U32::new(number), zero, size: U64::new(bytes) };
        self.pending.push_back((kind, body));
    }

    /// Checks for idle segments: notes since when there is one, and retires it after the configured
    /// time.
    #[inline]
    fn note_idle(&mut self, notified_at: Option<Instant>) {
        if self.segments.is_empty() {
            return;
        }
        // If every message wakes the peer, few messages come in a second, and the clock can be read
        // for each. If many come, the clock is read for one message in `CLOCK_EVERY`.
        self.unchecked += 1;
        if self.unchecked < CLOCK_EVERY && self.notified_at == notified_at {
            return;
        }
        (self.unchecked, self.notified_at) = (0, notified_at);
        if !self.slab.has_idle_segment() {
            self.idle_since = None;
            return;
        }
        match self.idle_since {
            None => self.idle_since = Some(Instant::now()),
            Some(_) => self.retire_idle(false),
        }
    }
}

/// Least size of a further segment in bytes: for smaller segments, the system calls cost more than
/// the memory.
const SEGMENT_BYTES_MIN: u64 = 256 << 10;
/// Most SEGMENT and SEGMENT_RETIRE records that may be pending at a time. Every batch keeps ring
/// bytes free for these records (`PENDING_BYTES_MAX`), so the number is small.
const PENDING_MAX: usize = 4;
/// At a high rate of large messages, the check for idle segments reads the clock once per this
/// number of messages, because each reading takes time.
const CLOCK_EVERY: u32 = 64;
