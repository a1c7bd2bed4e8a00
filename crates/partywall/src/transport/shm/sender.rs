// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sending end of a wall: decides how a message travels, and wakes the receiver.
//!
//! ```text
//!   length ≤ inline_max ──────────────▶ DATA      copied into the ring
//!   memory to be had ─────────────────▶ BLOB      the receiver looks at the very bytes
//!   none, and the policy is Overflow ─▶ FRAGMENT… copied through the ring (fragments.rs)
//! ```
//!
//! It never waits; how it wakes the receiver, and learns of its end, is in waking.rs. What is told to the
//! receiver about memory (a segment came, a segment goes) is owed until it stands in the ring, before
//! anything that refers to it (growth.rs). In a session a message may bring credit of the other direction: a
//! BLOB carries it, before all others it is a record of its own.

use super::counters::Counters;
use super::early::EarlyNotify;
use super::growth::Growth;
use super::{SharedMemory, word};
use crate::config::{BackPressure, Config};
use crate::error::{Closed, SendError};
use crate::stats::SenderStats;
use crate::transport::{Memory, Progress, Unsent};
use partywall_layout::record_ring::{BlobBody, BlobCredit, Kind, footprint};
use partywall_layout::segment::{ASLEEP_RECORDS, RELEASED, sending};
use partywall_layout::{RingSize, Violation};
use partywall_ring::{
    AppendError, Block, OwnMem, PeerMem, Producer, Reclaimer, Slab, Sleeper, Waker,
};
use std::sync::Arc;
use std::time::Instant;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

/// The sending end.
#[derive(Debug)]
pub(crate) struct ShmSender {
    pub(super) shm: Arc<SharedMemory>,
    pub(super) producer: Producer,
    pub(super) slab: Slab,
    pub(super) growth: Growth,
    pub(super) policy: BackPressure,
    /// Fragments of a message went whose rest never will: the receiver must be told.
    pub(super) abort_pending: bool,
    pub(super) counters: Counters,
    pub(super) inline_max: usize,
    /// The stream of the messages that are sent; 0 on a channel.
    stream: u32,
    /// What the next message tells of what was taken of the other direction of its stream.
    pub(super) credit: Option<u64>,
    /// The caller's code is writing a message in place.
    is_filling: bool,
    /// The memory of the last small reservation.
    spare: Vec<u8>,
    reclaimer: Reclaimer,
    pub(super) sleeper: Sleeper,
    pub(super) records_waker: Waker,
    /// Ids of blocks that the open batch refers to.
    pub(super) batch_blocks: Vec<u64>,
    pub(super) end: Option<Closed>,
    /// Commits since the last sign of life of the neighbour.
    pub(super) unheard: u32,
    /// What it had consumed at the last sign of life.
    pub(super) heard_at: u64,
    /// When it was rung last.
    pub(super) notified_at: Option<Instant>,
    pub(super) early: EarlyNotify,
}

/// What a sending end is made of.
pub(super) struct Parts {
    pub ring: OwnMem,
    pub ring_size: RingSize,
    pub asleep: OwnMem,
    pub counters: OwnMem,
    pub slab: OwnMem,
    pub release_ring: PeerMem,
}

/// The longest body of a BLOB.
const BLOB_BYTES_MAX: usize = size_of::<BlobBody>() + size_of::<BlobCredit>();
/// Credit costs a BLOB no room.
const _: () = assert!(footprint(BLOB_BYTES_MAX as u64) == footprint(size_of::<BlobBody>() as u64));

impl ShmSender {
    pub(super) fn new(shm: Arc<SharedMemory>, parts: Parts, config: &Config) -> Self {
        let peer_region = shm.peer_region.clone();
        let mut slab = Slab::new(shm.limits.peer_releases);
        let first_bytes = parts.slab.len() as u64;
        slab.add_segment(0, parts.slab);
        let peer_message = usize::try_from(shm.limits.peer_message).unwrap_or(usize::MAX);
        let mut counters = Counters::new(parts.counters);
        counters.set(sending::MEMORY, slab.bytes());
        Self {
            producer: Producer::new(parts.ring, parts.ring_size, peer_region.clone()),
            slab,
            growth: Growth::new(first_bytes, config.idle_memory_timeout),
            policy: config.back_pressure,
            abort_pending: false,
            counters,
            // Longer ones go where lengths are checked.
            // At least one byte, because a message in fragments has at least two.
            inline_max: config.inline_max.min(peer_message).max(1),
            stream: 0,
            credit: None,
            is_filling: false,
            spare: Vec::new(),
            reclaimer: Reclaimer::new(parts.release_ring, peer_region.clone(), word(RELEASED)),
            sleeper: Sleeper::new(parts.asleep),
            records_waker: Waker::new(peer_region, word(ASLEEP_RECORDS)),
            batch_blocks: Vec::new(),
            end: None,
            unheard: 0,
            heard_at: 0,
            notified_at: None,
            early: EarlyNotify::default(),
            shm,
        }
    }

    pub(crate) const fn shm(&self) -> &Arc<SharedMemory> {
        &self.shm
    }

    /// Sends a whole message at once or not at all.
    #[inline]
    pub(crate) fn try_send(&mut self, payload: &[u8]) -> Result<(), Unsent> {
        self.check()?;
        if payload.len() <= self.inline_max {
            self.notify_early()?;
        }
        let sent = self.add(payload);
        self.finish(sent, payload.len())
    }

    /// Longer messages never go inline.
    pub(crate) fn limit_inline(&mut self, bytes: usize) {
        self.inline_max = self.inline_max.min(bytes);
    }

    #[inline]
    pub(crate) const fn set_stream(&mut self, stream: u32, credit: Option<u64>) {
        (self.stream, self.credit) = (stream, credit);
    }

    /// Appends a record that is not a message, to be published with others.
    pub(crate) fn control(&mut self, kind: Kind, stream: u32, body: &[u8]) -> Result<(), Unsent> {
        self.check()?;
        let needed = footprint(body.len() as u64) + self.growth.pending_bytes_max();
        if self.producer.open_bytes() + needed > self.producer.size().batch_max() {
            // Many of them are more than a batch.
            self.publish()?;
        }
        self.append_pending()?;
        self.stream = stream;
        self.append(kind, &[body])
    }

    /// Whether a message of `len` bytes goes inline, once there is room for it.
    #[inline]
    pub(crate) fn prepare_inline(&mut self, len: usize) -> Result<bool, Unsent> {
        self.check()?;
        if len > self.inline_max {
            return Ok(false);
        }
        self.append_pending()?;
        match self.producer.has_room(len) {
            Ok(true) => Ok(true),
            Ok(false) => Err(self.no_room()),
            Err(violation) => Err(self.violated(violation)),
        }
    }

    /// Sends an inline message that `fill` writes in place, after
    /// [`prepare_inline`](Self::prepare_inline).
    #[inline]
    pub(crate) fn send_inline(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), Unsent> {
        self.notify_early()?;
        self.is_filling = true;
        let added = self.producer.append_with(Kind::Data, self.stream, len, fill);
        self.is_filling = false;
        let added = added.map_err(|error| match error {
            AppendError::Full => self.no_room(),
            AppendError::Violation(violation) => self.violated(violation),
        });
        self.finish(added, len)
    }

    /// Sends a message; under `Overflow` in pieces if no memory is left.
    pub(crate) fn send_on(
        &mut self,
        payload: &[u8],
        progress: &mut Progress,
    ) -> Result<(), Unsent> {
        self.check()?;
        if progress.started {
            return self.send_fragments(payload, progress);
        }
        if self.policy != BackPressure::Overflow || payload.len() <= self.inline_max {
            return self.try_send(payload);
        }
        match self.allocate(payload.len()) {
            Ok(mut block) => {
                block.as_mut_slice().copy_from_slice(payload);
                let sent = self.add_block(block).map_err(|(unsent, block)| {
                    self.slab.free(block);
                    unsent
                });
                self.finish(sent, payload.len())
            }
            Err(Unsent::Full) => self.send_fragments(payload, progress),
            Err(unsent) => Err(unsent),
        }
    }

    /// Gives up on a message of which fragments went.
    pub(crate) fn give_up(
        &mut self,
        _payload: &[u8],
        progress: &Progress,
    ) -> Result<(), SendError> {
        self.abort_pending |= progress.started;
        Err(SendError::TimedOut)
    }

    /// Memory for a message of `len` bytes.
    #[inline]
    pub(crate) fn reserve(&mut self, len: usize) -> Result<Memory, Unsent> {
        self.check()?;
        if len <= self.inline_max {
            let mut bytes = std::mem::take(&mut self.spare);
            bytes.resize(len, 0);
            return Ok(Memory::Private(bytes));
        }
        match self.allocate(len) {
            Ok(block) => Ok(Memory::Slab(block)),
            Err(Unsent::Full) if self.policy == BackPressure::Overflow => {
                Ok(Memory::Private(vec![0; len]))
            }
            Err(unsent) => Err(unsent),
        }
    }

    /// Sends what was written to reserved memory.
    #[inline]
    pub(crate) fn commit(
        &mut self,
        memory: &mut Option<Memory>,
        progress: &mut Progress,
    ) -> Result<(), Unsent> {
        self.check()?;
        match memory.take() {
            None => Ok(()),
            Some(Memory::Slab(block)) => {
                let len = block.len();
                let sent = self.add_block(block).map_err(|(unsent, block)| {
                    *memory = Some(Memory::Slab(block));
                    unsent
                });
                self.finish(sent, len)
            }
            Some(Memory::Private(bytes)) => {
                let sent = self.send_on(&bytes, progress);
                if sent.is_err() {
                    *memory = Some(Memory::Private(bytes));
                } else {
                    self.keep_spare(bytes);
                }
                sent
            }
            Some(Memory::SendBuffer(_)) => unreachable!("a wall lends blocks"),
            #[cfg(shuttle)]
            Some(Memory::Twin(_)) => unreachable!("a wall lends blocks"),
        }
    }

    /// Takes reserved memory back.
    #[inline]
    pub(crate) fn release(&mut self, memory: Memory) {
        match memory {
            Memory::Slab(block) => self.slab.free(block),
            Memory::Private(bytes) => self.keep_spare(bytes),
            Memory::SendBuffer(_) => unreachable!("a wall lends blocks"),
            #[cfg(shuttle)]
            Memory::Twin(_) => unreachable!("a wall lends blocks"),
        }
    }

    /// The next small reservation need not ask the heap.
    #[inline]
    fn keep_spare(&mut self, bytes: Vec<u8>) {
        if bytes.capacity() <= self.inline_max.max(64) * 2 {
            self.spare = bytes;
        }
    }

    /// Gives idle memory back.
    pub(crate) fn trim(&mut self, all: bool) -> Result<(), Unsent> {
        self.check()?;
        self.reclaim()?;
        // Only so many retirements can be owed at a time.
        loop {
            self.retire_idle(all);
            let pending = self.append_pending();
            self.publish()?;
            pending?;
            if !all || !self.slab.has_idle_segment() {
                return Ok(());
            }
        }
    }

    pub(crate) fn stats(&self) -> SenderStats {
        if self.shm.is_inherited() {
            return SenderStats::default();
        }
        SenderStats {
            messages: self.counters.get(sending::MESSAGES),
            bytes: self.counters.get(sending::BYTES),
            zero_copy: self.counters.get(sending::BLOBS),
            overflows: self.counters.get(sending::OVERFLOWS),
            wakeups_sent: self.counters.get(sending::DOORBELLS),
            sleeps: self.counters.get(sending::SLEEPS),
            memory_bytes: self.slab.bytes(),
            memory_used_bytes: self.slab.used(),
            blocks_in_flight: self.slab.in_flight(),
        }
    }

    /// Whether sending makes sense at all.
    #[inline]
    pub(super) fn check(&mut self) -> Result<(), Unsent> {
        self.shm.check().map_err(Unsent::Fault)?;
        if self.is_filling {
            // The caller's code panicked half-way through a message: it never was.
            self.is_filling = false;
            self.roll_back();
        }
        self.end.map_or(Ok(()), |closed| Err(Unsent::Closed(closed)))
    }

    /// Appends a message to the open batch, in the way its length asks for.
    #[inline]
    pub(super) fn add(&mut self, payload: &[u8]) -> Result<(), Unsent> {
        if payload.len() <= self.inline_max {
            self.append_pending()?;
            self.append_credit()?;
            return self.append(Kind::Data, &[payload]);
        }
        let mut block = match self.allocate(payload.len()) {
            Err(Unsent::Full) if self.policy == BackPressure::Overflow => {
                return self.add_fragments(payload);
            }
            other => other?,
        };
        block.as_mut_slice().copy_from_slice(payload);
        self.add_block(block).map_err(|(unsent, block)| {
            self.slab.free(block);
            unsent
        })
    }

    /// Appends a message that lies in `block` to the open batch; gives the block back if it fails.
    #[inline]
    fn add_block(&mut self, block: Block) -> Result<(), (Unsent, Block)> {
        if let Err(unsent) = self.append_pending() {
            return Err((unsent, block));
        }
        match self.producer.has_room(BLOB_BYTES_MAX) {
            Ok(true) => {}
            Ok(false) => return Err((self.no_room(), block)),
            Err(violation) => return Err((self.violated(violation), block)),
        }
        let place = self.slab.commit(block);
        let body = BlobBody {
            block: U64::new(place.id),
            segment: U32::new(place.segment),
            zero: U32::new(0),
            offset: U64::new(place.offset),
            length: U64::new(place.length),
        };
        self.batch_blocks.push(place.id);
        // There is room: asked above.
        let _ = match self.credit.take() {
            None => self.append(Kind::Blob, &[body.as_bytes()]),
            Some(credited) => {
                let credited: BlobCredit = U64::new(credited);
                self.append(Kind::Blob, &[body.as_bytes(), credited.as_bytes()])
            }
        };
        Ok(())
    }

    /// Appends the credit that a message cannot carry itself.
    #[inline]
    pub(super) fn append_credit(&mut self) -> Result<(), Unsent> {
        match self.credit.take() {
            None => Ok(()),
            Some(credited) => self.append(Kind::Credit, &[U64::new(credited).as_bytes()]),
        }
    }

    /// Appends one record to the open batch.
    #[inline]
    pub(super) fn append(&mut self, kind: Kind, parts: &[&[u8]]) -> Result<(), Unsent> {
        match self.producer.append_parts(kind, self.stream, parts) {
            Ok(()) => Ok(()),
            Err(AppendError::Full) => Err(self.no_room()),
            Err(AppendError::Violation(violation)) => Err(self.violated(violation)),
        }
    }

    /// Publishes what was appended if that went well, forgets it otherwise.
    #[inline]
    pub(super) fn finish(&mut self, sent: Result<(), Unsent>, len: usize) -> Result<(), Unsent> {
        match sent {
            Ok(()) => {
                debug_assert!(self.credit.is_none(), "credit that was taken as told goes somehow");
                self.count(len);
                self.publish()
            }
            Err(unsent) => {
                self.roll_back();
                Err(unsent)
            }
        }
    }

    #[inline]
    pub(super) fn count(&mut self, len: usize) {
        self.counters.add(sending::MESSAGES, 1);
        self.counters.add(sending::BYTES, len as u64);
    }

    /// Forgets what was appended but not published.
    pub(super) fn roll_back(&mut self) {
        // A ring for what never was says nothing of the next.
        let _ = self.early.take();
        self.producer.abort();
        self.growth.unreported();
        for id in std::mem::take(&mut self.batch_blocks) {
            // We gave these ids out ourselves a moment ago, and nobody has seen them.
            let _ = self.slab.reclaim(id);
        }
    }

    /// Takes home what the neighbour has released.
    #[inline]
    pub(super) fn reclaim(&mut self) -> Result<(), Unsent> {
        loop {
            // Blocks of the open batch cannot come home: the neighbour has not seen them.
            let out = self.slab.in_flight() - self.batch_blocks.len() as u64;
            match self.reclaimer.next(out) {
                Ok(None) => {
                    self.counters.set(sending::BLOCKS_OUT, self.slab.in_flight());
                    return Ok(());
                }
                Ok(Some(id)) => {
                    if let Err(violation) = self.slab.reclaim(id) {
                        return Err(self.violated(violation));
                    }
                }
                Err(violation) => return Err(self.violated(violation)),
            }
        }
    }

    /// No room; from a neighbour that has left, none will come.
    #[cold]
    pub(super) fn no_room(&mut self) -> Unsent {
        if self.records_waker.is_gone() {
            self.end = Some(Closed::Finished);
            return Unsent::Closed(Closed::Finished);
        }
        // One who only tries never waits, and would never learn of a death.
        match self.ask_in_time() {
            Ok(()) => Unsent::Full,
            Err(unsent) => unsent,
        }
    }

    pub(super) fn violated(&self, violation: Violation) -> Unsent {
        Unsent::Fault(self.shm.violated(violation))
    }
}
