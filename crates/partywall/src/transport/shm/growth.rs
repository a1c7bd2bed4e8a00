// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory for large messages: taken from the system as needed, given back when idle (SPEC 5.4).
//!
//! ```text
//!   segment 0: the slab of the half ─▶ 1 ─▶ 2 ─▶ …   each as large as all before, or as the message
//!   a new segment   descriptor beside the wall, then SEGMENT in the ring, then the first BLOB in it
//!   an idle one     taken out of the slab, SEGMENT_RETIRE in the ring, unmapped
//! ```
//!
//! What must be told is owed until it was published: a batch that is aborted does not lose it.

use super::control_socket::segment_frame;
use super::sender::ShmSender;
use crate::config::BackPressure;
use crate::error::{Fault, Limit, TooLarge};
use crate::transport::{Memory, Unsent};
use partywall_layout::record_ring::{Kind, Position, SegmentBody, footprint};
use partywall_layout::segment::{GRAIN_BYTES, sending};
use partywall_ring::Block;
use partywall_sys::memory::create_memory;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

/// The first segment is at least this large: below, system calls cost more than memory.
const SEGMENT_BYTES_MIN: u64 = 256 << 10;
/// What is owed at most at a time: beyond, nothing grows or shrinks until it was told.
const PENDING_MAX: usize = 4;

/// In a stream of large messages the clock is read for so many of them once.
const CLOCK_EVERY: u32 = 64;

/// The books over segments beyond the first.
#[derive(Debug)]
pub(super) struct Growth {
    first_bytes: u64,
    next_number: u32,
    /// Number and size of each segment.
    segments: Vec<(u32, u64)>,
    pending: VecDeque<(Kind, SegmentBody)>,
    /// Where the records of the last segments end.
    under_way: VecDeque<Position>,
    /// How many of those owed stand in the open batch.
    in_batch: usize,
    idle_after: Duration,
    /// When a segment was first seen idle.
    idle_since: Option<Instant>,
    /// Large messages since memory was looked at for idleness, and when the neighbour had been rung then:
    /// in a stream of messages each look would cost more than it tells.
    skipped: u32,
    notified_at: Option<Instant>,
}

impl Growth {
    pub(super) const fn new(first_bytes: u64, idle_after: Duration) -> Self {
        Self {
            first_bytes,
            next_number: 1,
            segments: Vec::new(),
            pending: VecDeque::new(),
            under_way: VecDeque::new(),
            in_batch: 0,
            idle_after,
            idle_since: None,
            skipped: 0,
            notified_at: None,
        }
    }

    /// The open batch was published.
    #[inline]
    pub(super) fn told(&mut self, published: Position) {
        if self.in_batch > 0 {
            let told = self.pending.drain(..self.in_batch);
            let segments = told.filter(|(kind, _)| *kind == Kind::Segment);
            self.under_way.extend(segments.map(|_| published));
            self.in_batch = 0;
        }
    }

    /// How many descriptors were sent whose record the neighbour, who has consumed up to here, may not
    /// have seen.
    fn descriptors_under_way(&mut self, consumed: u64) -> usize {
        while self.under_way.front().is_some_and(|told| told.0 <= consumed) {
            self.under_way.pop_front();
        }
        let pending = self.pending.iter().filter(|(kind, _)| *kind == Kind::Segment).count();
        self.under_way.len() + pending
    }

    /// The open batch was forgotten.
    pub(super) const fn unreported(&mut self) {
        self.in_batch = 0;
    }

    /// How much ring telling everything may take.
    pub(super) const fn pending_bytes_max(&self) -> u64 {
        // One more for an abort fragment.
        (PENDING_MAX as u64 + 1) * footprint(size_of::<SegmentBody>() as u64)
    }

    fn bytes(&self) -> u64 {
        self.segments.iter().map(|(_, bytes)| bytes).sum()
    }

    fn owe(&mut self, kind: Kind, number: u32, bytes: u64) {
        let zero = U32::new(0);
        let body = SegmentBody { number: U32::new(number), zero, size: U64::new(bytes) };
        self.pending.push_back((kind, body));
    }
}

impl ShmSender {
    /// Appends what is owed to the open batch: before anything else goes.
    #[inline]
    pub(super) fn append_pending(&mut self) -> Result<(), Unsent> {
        if self.abort_pending || self.growth.pending.len() > self.growth.in_batch {
            self.append_pending_now()?;
        }
        Ok(())
    }

    #[cold]
    fn append_pending_now(&mut self) -> Result<(), Unsent> {
        if self.abort_pending {
            // A message can be given up only while no batch is open, so this is the first record of
            // one; published alone, nothing can roll it back.
            self.append(Kind::FragmentAbort, &[])?;
            self.producer.publish();
            self.abort_pending = false;
        }
        while let Some((kind, body)) = self.growth.pending.get(self.growth.in_batch).copied() {
            self.append(kind, &[body.as_bytes()])?;
            self.growth.in_batch += 1;
        }
        Ok(())
    }

    /// Reserves a block that was given back a moment ago; `false` if there is none of this very size.
    #[inline]
    pub(crate) fn reserve_recent(
        &mut self,
        place: &mut Option<Memory>,
        len: usize,
    ) -> Result<bool, Unsent> {
        self.check()?;
        if len <= self.inline_max || len as u64 > self.shm.limits.peer_message {
            return Ok(false);
        }
        let Some(block) = self.slab.allocate_recent(len) else { return Ok(false) };
        *place = Some(Memory::Slab(block));
        self.note_idle();
        Ok(true)
    }

    /// A block for a message of `len` bytes.
    pub(super) fn allocate(&mut self, len: usize) -> Result<Block, Unsent> {
        match self.try_allocate(len) {
            Err(Unsent::Full) => Err(self.no_room()),
            other => other,
        }
    }

    fn try_allocate(&mut self, len: usize) -> Result<Block, Unsent> {
        self.check_length(len as u64)?;
        if !self.slab.has_recent(len) {
            self.reclaim()?;
        }
        if let Some(block) = self.slab.allocate(len) {
            self.note_idle();
            return Ok(block);
        }
        // At the block limit what came home counts, too.
        self.reclaim()?;
        if let Some(block) = self.slab.allocate(len) {
            return Ok(block);
        }
        if self.slab.is_at_block_limit() {
            return Err(Unsent::Full);
        }
        self.grow(len as u64)?;
        self.slab.allocate(len).ok_or(Unsent::Full)
    }

    /// Whether a message of this length can go by memory at all.
    #[inline]
    fn check_length(&self, len: u64) -> Result<(), Unsent> {
        let limits = &self.shm.limits;
        let too_large = |max, limit| Err(Unsent::TooLarge(TooLarge { len, max, limit }));
        if len > limits.peer_message {
            return too_large(limits.peer_message, Limit::PeerMessage);
        }
        if len <= self.largest() {
            return Ok(());
        }
        if self.policy == BackPressure::Overflow {
            return Err(Unsent::Full);
        }
        let is_peers = limits.own_memory_is_peers;
        too_large(self.largest(), if is_peers { Limit::PeerMap } else { Limit::OwnMemory })
    }

    /// The longest message that can ever go by memory.
    #[inline]
    pub(super) fn largest(&self) -> u64 {
        self.growth.first_bytes.max(self.shm.limits.own_memory)
    }

    /// Whether a message of this length can go through the ring in fragments.
    pub(super) fn check_overflow(&self, len: usize) -> Result<(), Unsent> {
        let (len, max) = (len as u64, self.shm.limits.peer_message);
        if len <= max {
            return Ok(());
        }
        Err(Unsent::TooLarge(TooLarge { len, max, limit: Limit::PeerMessage }))
    }

    /// Adds a segment in which `len` bytes fit.
    fn grow(&mut self, len: u64) -> Result<(), Unsent> {
        let needed = len.max(1).next_multiple_of(GRAIN_BYTES);
        let limits = self.shm.limits;
        if needed > limits.own_memory {
            return Err(Unsent::Full);
        }
        while self.growth.bytes() + needed > limits.own_memory
            || self.growth.segments.len() >= limits.own_segments as usize
        {
            self.tell_if_crowded(len)?;
            if !self.retire_one() {
                return Err(Unsent::Full);
            }
        }
        self.tell_if_crowded(len)?;
        let doubled = self.growth.bytes().max(SEGMENT_BYTES_MIN).next_multiple_of(GRAIN_BYTES);
        let bytes = needed.max(doubled.min(limits.own_memory - self.growth.bytes()));
        self.add_segment(bytes, needed)
    }

    /// Tells at once what is owed if no more may be: nobody else would before the next message goes,
    /// and that may be the one that asks.
    fn tell_if_crowded(&mut self, len: u64) -> Result<(), Unsent> {
        if self.growth.pending.len() + 2 <= PENDING_MAX {
            return Ok(());
        }
        if self.producer.open_bytes() > 0 {
            // What is owed stands in the batch, or behind it: the batch has to go first.
            return Err(Unsent::TooLarge(TooLarge { len, max: 0, limit: Limit::Batch }));
        }
        let told = self.append_pending();
        if told.is_err() {
            self.roll_back();
            return told;
        }
        self.publish()
    }

    fn add_segment(&mut self, wanted: u64, needed: u64) -> Result<(), Unsent> {
        let consumed = self.shm.snapshot().0[0];
        let under_way = self.growth.descriptors_under_way(consumed);
        if under_way >= self.shm.limits.own_segments as usize {
            // The neighbour keeps no more of them; it wakes us as it reads.
            return Err(Unsent::Full);
        }
        let created = create_memory("partywall-segment", wanted)
            .map(|made| (wanted, made))
            .or_else(|_| create_memory("partywall-segment", needed).map(|made| (needed, made)));
        let (bytes, (memory, descriptor)) = match created {
            Ok(made) => made,
            // If blocks are out, their coming home helps; if not, waiting would be for ever.
            Err(_)
                if self.slab.in_flight() > self.batch_blocks.len() as u64
                    || self.policy == BackPressure::Overflow =>
            {
                return Err(Unsent::Full);
            }
            Err(error) => {
                let source = io::Error::other(error.to_string());
                return Err(Unsent::Fault(Fault::system("making memory for a message", source)));
            }
        };
        let number = self.growth.next_number;
        let frame = segment_frame(number);
        let sent =
            self.shm.socket.send(&[IoSlice::new(&frame)], &[descriptor.as_fd()], false, true);
        match sent {
            Ok(count) if count == frame.len() => {}
            // The neighbour is gone, which the caller finds out; or it reads nothing of the socket. Only
            // if blocks are out will anything wake us.
            _ if self.shm.is_peer_gone()
                || self.slab.in_flight() > self.batch_blocks.len() as u64 =>
            {
                return Err(Unsent::Full);
            }
            Ok(_) => return Err(Unsent::Full),
            Err(source) => return Err(Unsent::Fault(Fault::system("passing memory", source))),
        }
        self.growth.next_number += 1;
        self.growth.segments.push((number, bytes));
        self.growth.owe(Kind::Segment, number, bytes);
        self.slab.add_segment(number, memory);
        self.counters.set(sending::MEMORY, self.slab.bytes());
        Ok(())
    }

    /// Takes one idle segment out of use; whether there was one.
    fn retire_one(&mut self) -> bool {
        let Some((number, memory)) = self.slab.take_idle_segment() else { return false };
        drop(memory);
        let known = self.growth.segments.iter().position(|(known, _)| *known == number);
        let bytes = known.map_or(0, |index| self.growth.segments.swap_remove(index).1);
        self.growth.owe(Kind::SegmentRetire, number, bytes);
        self.counters.set(sending::MEMORY, self.slab.bytes());
        true
    }

    /// Takes segments out of use that were idle long enough, or all idle ones.
    pub(super) fn retire_idle(&mut self, all: bool) {
        if !all
            && self.growth.idle_since.is_none_or(|since| since.elapsed() < self.growth.idle_after)
        {
            return;
        }
        self.growth.idle_since = None;
        while self.growth.pending.len() < PENDING_MAX - 1 && self.retire_one() {}
    }

    /// Remembers since when memory lies idle, and gives it back in time.
    #[inline]
    fn note_idle(&mut self) {
        if self.growth.segments.is_empty() {
            return;
        }
        // Who rings for each message sends few: then each of them asks for the time.
        self.growth.skipped += 1;
        if self.growth.skipped < CLOCK_EVERY && self.growth.notified_at == self.notified_at {
            return;
        }
        (self.growth.skipped, self.growth.notified_at) = (0, self.notified_at);
        if !self.slab.has_idle_segment() {
            self.growth.idle_since = None;
            return;
        }
        match self.growth.idle_since {
            None => self.growth.idle_since = Some(Instant::now()),
            Some(_) => self.retire_idle(false),
        }
    }
}
