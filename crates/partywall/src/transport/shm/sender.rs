// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sending end of shared memory: decides how a message travels, and wakes the receiver.
//!
//! ```text
//!   length ≤ inline_max ───────────────▶ DATA      copied into the ring
//!   a block can be allocated ──────────▶ BLOB      the receiver sees the block (blob_memory.rs)
//!   none, and the policy is Overflow ──▶ FRAGMENT… copied through the ring (fragments.rs)
//!
//!   early check ── receiver asleep? notify ─▶ write, publish ─▶ fence ─▶ check ── asleep? notify
//!   no sign of life: 5 ms after a wake-up, or 256 commits without progress ─▶ ask the system
//! ```
//!
//! No method blocks. The early notification only saves time ([`EarlyNotify`]); the check after the
//! publication is what proves that no wake-up is lost (SPEC 6.3). Announcements of memory (a
//! segment was added, a segment is retired) precede every record that refers to it. In a session a
//! message may carry credit of the other direction: a BLOB contains it, any other message has it
//! written as a record before it.
//!
//! A batch takes at most half the ring. It may wait for space while it is open, because the records
//! before it are the receiver's to consume. It may not wait for memory that only it holds.

use super::blob_memory::{AllocError, BlobMemory};
use super::{SharedMemory, Sleeping, word};
use crate::config::{BackPressure, Config};
use crate::error::{Closed, Fault, Limit, SendError, TooLarge};
use crate::stats::SenderStats;
use crate::transport::{
    Memory, NotSent, Progress, STREAM_INLINE_MAX, SpaceWaiter, TransportSender, waiting_failed,
};
use partywall_layout::record_ring::{BlobBody, BlobCredit, Kind, footprint};
use partywall_layout::segment::{ASLEEP_RECORDS, sending};
use partywall_layout::{RingSize, Violation};
use partywall_ring::{AppendError, Block, OwnMem, PeerMem, Producer, Sleeper, Wake, Waker};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

/// The sending end of a connection.
#[derive(Debug)]
pub(crate) struct ShmSender {
    pub(super) shm: Arc<SharedMemory>,
    /// The word that the kernel clears in a forked child.
    fork_word: &'static AtomicU64,
    pub(super) producer: Producer,
    records_waker: Waker,
    early: EarlyNotify,
    /// Something must be appended before the next record: an announcement, or FRAGMENT_ABORT.
    has_pending: bool,
    /// The open batch refers to memory, or announces some.
    batch_has_memory: bool,
    /// The caller's code is writing a message in place.
    is_filling: bool,
    pub(super) inline_max: usize,
    /// The stream of the messages that are sent; 0 on a channel.
    stream: u32,
    /// Commits since the last sign of life from the peer.
    silent_commits: u32,
    /// Credit of the other direction that the next message carries.
    pub(super) credit: Option<u64>,
    pub(super) counters: OwnMem,
    messages: u64,
    bytes: u64,
    end: Option<Closed>,
    pub(super) policy: BackPressure,
    /// A message was given up after fragments of it went: the receiver must learn of it.
    abort_pending: bool,
    pub(super) memory: BlobMemory,
    /// The buffer of the last small reservation.
    spare: Vec<u8>,
    sleeper: Sleeper,
    /// The peer's `consumed` at the last sign of life.
    consumed_when_alive: u64,
    /// When the peer was last notified, or its process checked.
    notified_at: Option<Instant>,
}

/// The memory of a sending end.
pub(super) struct ShmSenderParts {
    pub ring: OwnMem,
    pub ring_size: RingSize,
    pub asleep: OwnMem,
    pub counters: OwnMem,
    pub slab: OwnMem,
    pub release_ring: PeerMem,
}

impl ShmSender {
    pub(super) fn new(shm: Arc<SharedMemory>, parts: ShmSenderParts, config: &Config) -> Self {
        let peer_region = shm.peer_region.clone();
        let peer_message = usize::try_from(shm.limits.peer_message).unwrap_or(usize::MAX);
        let memory = BlobMemory::new(&shm, parts.slab, parts.release_ring, config);
        let mut sender = Self {
            fork_word: shm.connection_state.guard.word(),
            producer: Producer::new(parts.ring, parts.ring_size, peer_region.clone()),
            records_waker: Waker::new(peer_region, word(ASLEEP_RECORDS)),
            early: EarlyNotify::default(),
            has_pending: false,
            batch_has_memory: false,
            is_filling: false,
            // Longer messages go where lengths are checked. At least one byte goes inline, because
            // a message in fragments has at least two.
            inline_max: config.inline_max.min(peer_message).max(1),
            stream: 0,
            silent_commits: 0,
            credit: None,
            counters: parts.counters,
            messages: 0,
            bytes: 0,
            end: None,
            policy: config.back_pressure,
            abort_pending: false,
            memory,
            spare: Vec::new(),
            sleeper: Sleeper::new(parts.asleep),
            consumed_when_alive: 0,
            notified_at: None,
            shm,
        };
        sender.note_memory();
        sender
    }

    /// Whether a message of `len` bytes goes inline, once there is space for it.
    #[inline]
    pub(crate) fn prepare_inline(&mut self, len: usize) -> Result<bool, NotSent> {
        self.check()?;
        if len > self.inline_max {
            return Ok(false);
        }
        self.append_pending()?;
        match self.producer.has_room(len) {
            Ok(true) => Ok(true),
            Ok(false) => Err(self.no_space()),
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
    ) -> Result<(), NotSent> {
        self.notify_early()?;
        self.is_filling = true;
        let added = self.producer.append_with(Kind::Data, self.stream, len, fill);
        self.is_filling = false;
        let added = added.map_err(|error| self.not_appended(error));
        self.finish(added, len)
    }

    /// Checks that this process may send, and that the receiver has not left.
    #[inline]
    pub(super) fn check(&mut self) -> Result<(), NotSent> {
        #[cfg(shuttle)]
        super::switch_point();
        // ORDER: Relaxed, both: the words guard no other memory (see `SharedMemory::owner`).
        let is_owner =
            self.fork_word.load(Ordering::Relaxed) == self.shm.owner.load(Ordering::Relaxed);
        if is_owner && !self.is_filling && self.end.is_none() {
            return Ok(());
        }
        self.check_slowly()
    }

    #[cold]
    fn check_slowly(&mut self) -> Result<(), NotSent> {
        self.shm.check().map_err(NotSent::Fault)?;
        if self.is_filling {
            // The caller's code panicked while writing a message, which is not sent.
            self.is_filling = false;
            self.roll_back();
        }
        self.end.map_or(Ok(()), |closed| Err(NotSent::Closed(closed)))
    }

    /// Appends a message to the open batch, in the way that its length requires.
    #[inline]
    fn add(&mut self, payload: &[u8]) -> Result<(), NotSent> {
        if payload.len() > self.inline_max {
            return self.add_long(payload);
        }
        self.append_pending()?;
        self.append_credit()?;
        self.append(Kind::Data, &[payload])
    }

    fn add_long(&mut self, payload: &[u8]) -> Result<(), NotSent> {
        let mut block = match self.allocate(payload.len()) {
            Err(NotSent::Full) if self.policy == BackPressure::Overflow => {
                return self.add_fragments(payload);
            }
            other => other?,
        };
        block.as_mut_slice().copy_from_slice(payload);
        self.add_block(block).map_err(|(unsent, block)| {
            self.memory.free(block);
            unsent
        })
    }

    /// Appends a message that lies in `block` to the open batch; gives the block back on failure.
    #[inline]
    pub(super) fn add_block(&mut self, block: Block) -> Result<(), (NotSent, Block)> {
        if let Err(unsent) = self.append_pending() {
            return Err((unsent, block));
        }
        match self.producer.has_room(BLOB_BYTES_MAX) {
            Ok(true) => {}
            Ok(false) => return Err((self.no_space(), block)),
            Err(violation) => return Err((self.violated(violation), block)),
        }
        let body = self.memory.commit(block);
        self.batch_has_memory = true;
        // There is space: checked above.
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
    pub(super) fn append_credit(&mut self) -> Result<(), NotSent> {
        match self.credit.take() {
            None => Ok(()),
            Some(credited) => self.append(Kind::Credit, &[U64::new(credited).as_bytes()]),
        }
    }

    /// Appends one record to the open batch.
    #[inline]
    pub(super) fn append(&mut self, kind: Kind, parts: &[&[u8]]) -> Result<(), NotSent> {
        let appended = self.producer.append_parts(kind, self.stream, parts);
        appended.map_err(|error| self.not_appended(error))
    }

    #[cold]
    fn not_appended(&mut self, error: AppendError) -> NotSent {
        match error {
            AppendError::Full => self.no_space(),
            AppendError::Violation(violation) => self.violated(violation),
        }
    }

    /// Appends pending announcements to the open batch, before any other record.
    #[inline]
    pub(super) fn append_pending(&mut self) -> Result<(), NotSent> {
        if self.has_pending { self.append_pending_now() } else { Ok(()) }
    }

    #[cold]
    fn append_pending_now(&mut self) -> Result<(), NotSent> {
        if self.abort_pending {
            // A message can be given up only while no batch is open, so this is the first record of
            // one. Published alone, it cannot be rolled back.
            self.append(Kind::FragmentAbort, &[])?;
            self.producer.publish();
            self.abort_pending = false;
        }
        while let Some((kind, body)) = self.memory.next_announcement() {
            self.append(kind, &[body.as_bytes()])?;
            self.memory.announcement_appended();
            self.batch_has_memory = true;
        }
        self.has_pending = false;
        Ok(())
    }

    /// Publishes the appended records if `sent` is a success, discards them otherwise.
    #[inline]
    pub(super) fn finish(&mut self, sent: Result<(), NotSent>, len: usize) -> Result<(), NotSent> {
        match sent {
            Ok(()) => {
                debug_assert!(self.credit.is_none(), "credit that was taken is always sent");
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
    pub(super) const fn count(&mut self, len: usize) {
        self.messages += 1;
        self.bytes += len as u64;
    }

    pub(super) fn count_overflow(&mut self) {
        self.add_to_counter(sending::OVERFLOWS, 1);
    }

    /// Writes the totals to the counters that others may read.
    #[inline]
    pub(super) fn store_totals(&mut self) {
        self.counters.store(MESSAGES, self.messages);
        self.counters.store(BYTES, self.bytes);
    }

    fn add_to_counter(&mut self, counter: u64, amount: u64) {
        let value = self.counter(counter).wrapping_add(amount);
        self.counters.store(word(counter * 8), value);
    }

    fn counter(&self, counter: u64) -> u64 {
        self.counters.load(word(counter * 8))
    }

    /// Records what changed in the memory of large messages: in the counters, and for
    /// [`append_pending`](Self::append_pending).
    fn note_memory(&mut self) {
        self.counters.store(word(sending::MEMORY * 8), self.memory.bytes());
        self.counters.store(word(sending::BLOCKS_OUT * 8), self.memory.blocks_in_flight());
        self.has_pending = self.abort_pending || self.memory.next_announcement().is_some();
    }

    /// Discards what was appended but not published.
    fn roll_back(&mut self) {
        // A notification for a record that is not sent does not count for the next one.
        let _ = self.early.take();
        self.producer.abort();
        self.memory.rolled_back();
        self.batch_has_memory = false;
        self.note_memory();
    }

    /// Notifies a sleeping receiver before the record is written, so that it wakes up meanwhile.
    /// Fails if the receiver has left.
    #[inline]
    fn notify_early(&mut self) -> Result<(), NotSent> {
        if !self.early.is_worth_it() {
            return if self.records_waker.is_gone() { Err(self.left()) } else { Ok(()) };
        }
        match self.records_waker.check_early() {
            Wake::Notify => {
                self.notify();
                self.early.notified();
                Ok(())
            }
            Wake::Gone => Err(self.left()),
            Wake::No | Wake::Notified | Wake::Quiet => Ok(()),
        }
    }

    /// The receiver has left.
    #[cold]
    fn left(&mut self) -> NotSent {
        self.end = Some(Closed::Finished);
        NotSent::Closed(Closed::Finished)
    }

    #[cold]
    fn notify(&mut self) {
        self.shm.notify(Sleeping::ForRecords);
        self.silent_commits = 0;
        self.add_to_counter(sending::DOORBELLS, 1);
        self.notified_at = Some(Instant::now());
    }

    /// The receiver was not awake at a publication, for which it may have been notified early.
    #[cold]
    fn wake(&mut self, wake: Wake, was_notified: bool) {
        match wake {
            Wake::Notify => {
                self.early.was_needed(was_notified);
                self.notify();
            }
            Wake::Notified if was_notified => self.early.was_enough(),
            // It was notified and has not polled since, or asked not to be notified: it may be
            // busy, stopped or dead.
            Wake::Notified | Wake::Quiet => {
                let _ = self.check_peer_in_time();
            }
            Wake::Gone => self.end = Some(Closed::Finished),
            Wake::No => {}
        }
    }

    /// Checks whether the peer lives, unless it was checked or notified less than
    /// [`SILENT_TIME_MAX`] ago.
    fn check_peer_in_time(&mut self) -> Result<(), NotSent> {
        if self.notified_at.is_some_and(|then| then.elapsed() < SILENT_TIME_MAX) {
            return Ok(());
        }
        self.notified_at = Some(Instant::now());
        self.check_peer()
    }

    /// Checks whether the peer has consumed anything lately, or else whether its process lives.
    #[cold]
    fn check_peer(&mut self) -> Result<(), NotSent> {
        let consumed = self.shm.snapshot().0[0];
        if consumed != self.consumed_when_alive {
            (self.consumed_when_alive, self.silent_commits) = (consumed, 0);
            return Ok(());
        }
        self.silent_commits %= SILENT_COMMITS_MAX;
        if self.shm.is_peer_gone() {
            self.note_hang_up();
            return self.end.map_or(Ok(()), |closed| Err(NotSent::Closed(closed)));
        }
        Ok(())
    }

    /// There is no space; if the receiver has left, there never will be any.
    #[cold]
    pub(super) fn no_space(&mut self) -> NotSent {
        if self.records_waker.is_gone() {
            return self.left();
        }
        // A caller that only tries never blocks, and must still learn of a death.
        match self.check_peer_in_time() {
            Ok(()) => NotSent::Full,
            Err(unsent) => unsent,
        }
    }

    pub(super) fn violated(&self, violation: Violation) -> NotSent {
        NotSent::Fault(self.shm.violated(violation))
    }

    /// Allocates a block for a message of `len` bytes.
    pub(super) fn allocate(&mut self, len: usize) -> Result<Block, NotSent> {
        loop {
            let allocated = self.memory.allocate(len, &self.shm, self.notified_at);
            self.note_memory();
            match allocated {
                Ok(block) => return Ok(block),
                Err(AllocError::Full) => return Err(self.no_space()),
                Err(AllocError::TooLarge(error)) => return Err(NotSent::TooLarge(error)),
                Err(AllocError::Violation(violation)) => return Err(self.violated(violation)),
                Err(AllocError::System(fault)) => return Err(NotSent::Fault(fault)),
                Err(AllocError::Unannounced) => self.publish_pending(len)?,
            }
        }
    }

    /// Publishes announcements alone, before more of them become pending.
    fn publish_pending(&mut self, len: usize) -> Result<(), NotSent> {
        if self.producer.open_bytes() > 0 {
            // The announcements are in the open batch, or behind it: the batch has to go first.
            let len = len as u64;
            return Err(NotSent::TooLarge(TooLarge { len, max: 0, limit: Limit::Batch }));
        }
        let appended = self.append_pending();
        if appended.is_err() {
            self.roll_back();
            return appended;
        }
        self.publish()
    }

    /// Keeps a buffer for the next small reservation, which then needs no allocation.
    #[inline]
    fn keep_spare(&mut self, bytes: Vec<u8>) {
        if bytes.capacity() <= self.inline_max.max(64) * 2 {
            self.spare = bytes;
        }
    }
}

impl TransportSender for ShmSender {
    #[inline]
    fn try_send(&mut self, payload: &[u8]) -> Result<(), NotSent> {
        self.check()?;
        if payload.len() <= self.inline_max {
            self.notify_early()?;
        }
        let sent = self.add(payload);
        self.finish(sent, payload.len())
    }

    #[inline]
    fn send_on(&mut self, payload: &[u8], progress: &mut Progress) -> Result<(), NotSent> {
        if payload.len() <= self.inline_max {
            return self.try_send(payload);
        }
        self.send_long(payload, progress)
    }

    fn give_up(&mut self, _payload: &[u8], progress: &Progress) -> Result<(), SendError> {
        self.abort_pending |= progress.started;
        self.has_pending |= progress.started;
        Err(SendError::TimedOut)
    }

    /// Messages of a session lie in queues until they are read. An inline one must be copied for
    /// that, so only short ones go inline.
    fn enable_streams(&mut self) {
        self.inline_max = self.inline_max.min(STREAM_INLINE_MAX);
    }

    #[inline]
    fn set_stream(&mut self, stream: u32, credit: Option<u64>) -> Result<(), NotSent> {
        (self.stream, self.credit) = (stream, credit);
        Ok(())
    }

    fn control(&mut self, kind: Kind, stream: u32, body: &[u8]) -> Result<(), NotSent> {
        self.check()?;
        let needed = footprint(body.len() as u64) + BlobMemory::PENDING_BYTES_MAX;
        if self.producer.open_bytes() + needed > self.producer.size().batch_max() {
            // Many such records are more than one batch.
            self.publish()?;
        }
        self.append_pending()?;
        self.stream = stream;
        self.append(kind, &[body])
    }

    /// Makes the open batch visible, and wakes the receiver if it sleeps.
    #[inline]
    fn publish(&mut self) -> Result<(), NotSent> {
        if self.records_waker.is_gone() {
            self.roll_back();
            return Err(self.left());
        }
        let was_notified = self.early.take();
        #[cfg(shuttle)]
        super::switch_point();
        self.producer.publish();
        let tail = self.producer.published();
        self.store_totals();
        self.counters.store(TAIL, tail.0);
        if self.batch_has_memory {
            self.batch_has_memory = false;
            let blobs = self.memory.published(tail);
            self.add_to_counter(sending::BLOBS, blobs);
            self.note_memory();
        }
        // If the receiver turns out to be gone from here on, the next call reports it: this message
        // may have been received before.
        #[cfg(shuttle)]
        super::switch_point();
        match self.records_waker.check() {
            Wake::No => {
                if was_notified {
                    self.early.was_enough();
                }
                self.silent_commits += 1;
                if self.silent_commits >= SILENT_COMMITS_MAX {
                    let _ = self.check_peer();
                }
            }
            asleep => self.wake(asleep, was_notified),
        }
        self.producer.prepare_ahead();
        Ok(())
    }

    #[inline]
    fn reserve(&mut self, len: usize) -> Result<Memory, NotSent> {
        self.check()?;
        if len <= self.inline_max {
            let mut bytes = std::mem::take(&mut self.spare);
            bytes.resize(len, 0);
            return Ok(Memory::Private(bytes));
        }
        match self.allocate(len) {
            Ok(block) => {
                #[cfg(shuttle)]
                self.shm.note_reserved(1);
                Ok(Memory::Slab(block))
            }
            Err(NotSent::Full) if self.policy == BackPressure::Overflow => {
                Ok(Memory::Private(vec![0; len]))
            }
            Err(unsent) => Err(unsent),
        }
    }

    /// Takes a block of exactly this size that was freed a moment ago, if there is one.
    #[inline]
    fn reserve_into(&mut self, place: &mut Option<Memory>, len: usize) -> Result<(), NotSent> {
        self.check()?;
        if len > self.inline_max && len as u64 <= self.shm.limits.peer_message {
            if let Some(block) = self.memory.allocate_recent(len, self.notified_at) {
                *place = Some(Memory::Slab(block));
                self.note_memory();
                #[cfg(shuttle)]
                self.shm.note_reserved(1);
                return Ok(());
            }
        }
        *place = Some(self.reserve(len)?);
        Ok(())
    }

    #[inline]
    fn commit(
        &mut self,
        memory: &mut Option<Memory>,
        progress: &mut Progress,
    ) -> Result<(), NotSent> {
        self.check()?;
        match memory.take() {
            None => Ok(()),
            Some(Memory::Slab(block)) => {
                let len = block.len();
                let sent = self.add_block(block).map_err(|(unsent, block)| {
                    *memory = Some(Memory::Slab(block));
                    unsent
                });
                #[cfg(shuttle)]
                self.shm.note_reserved(-i64::from(sent.is_ok()));
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
            Some(Memory::SendBuffer(_)) => unreachable!("shared memory allocates blocks"),
        }
    }

    #[inline]
    fn release(&mut self, memory: Memory) {
        match memory {
            Memory::Slab(block) => {
                #[cfg(shuttle)]
                self.shm.note_reserved(-1);
                self.memory.free(block);
            }
            Memory::Private(bytes) => self.keep_spare(bytes),
            Memory::SendBuffer(_) => unreachable!("shared memory allocates blocks"),
        }
    }

    fn add_to_batch(&mut self, payload: &[u8]) -> Result<(), NotSent> {
        self.check()?;
        let is_long = payload.len() > self.inline_max;
        let len = payload.len() as u64;
        let body = if is_long { size_of::<BlobBody>() as u64 } else { len };
        // The batch may have to carry pending announcements as well.
        let batch_max = self.producer.size().batch_max();
        let max = batch_max.saturating_sub(BlobMemory::PENDING_BYTES_MAX);
        let open = self.producer.open_bytes();
        if open + footprint(body) > max {
            let max = max.saturating_sub(open);
            return Err(NotSent::TooLarge(TooLarge { len, max, limit: Limit::Batch }));
        }
        match self.add(payload) {
            // This very batch holds all memory: none is returned while it is open.
            Err(NotSent::Full)
                if is_long
                    && self.producer.has_room(size_of::<BlobBody>()) == Ok(true)
                    && self.memory.is_held_by_batch() =>
            {
                Err(NotSent::TooLarge(TooLarge { len, max: 0, limit: Limit::Batch }))
            }
            Err(unsent) => Err(unsent),
            Ok(()) => {
                self.count(payload.len());
                Ok(())
            }
        }
    }

    fn commit_batch(&mut self) -> Result<(), NotSent> {
        self.check()?;
        self.publish()
    }

    fn abort_batch(&mut self) {
        if self.shm.connection_state.guard.is_owner() {
            self.roll_back();
        }
    }

    fn trim(&mut self, all: bool) -> Result<(), NotSent> {
        self.check()?;
        self.memory.reclaim().map_err(|violation| self.violated(violation))?;
        // Only so many announcements can be pending at a time.
        loop {
            self.memory.retire_idle(all);
            self.note_memory();
            let pending = self.append_pending();
            self.publish()?;
            pending?;
            if !all || !self.memory.has_idle_segment() {
                return Ok(());
            }
        }
    }

    fn arm(&mut self, quiet: bool) -> Result<(), Fault> {
        self.shm.check()?;
        // A sender that is about to wait for the peer notifies it even if it asked not to be.
        if self.records_waker.check_before_wait() == Wake::Notify {
            self.shm.notify(Sleeping::ForRecords);
        }
        self.add_to_counter(sending::SLEEPS, 1);
        self.sleeper.arm(quiet);
        #[cfg(shuttle)]
        super::switch_point();
        Ok(())
    }

    fn drain(&mut self) -> Result<(), Fault> {
        self.shm.check()?;
        let is_gone = self.shm.sleep(Some(Instant::now()));
        if is_gone.map_err(waiting_failed)? {
            self.note_hang_up();
        }
        Ok(())
    }

    fn disarm(&mut self) {
        if self.shm.connection_state.guard.is_owner() {
            self.sleeper.disarm();
        }
    }

    fn note_hang_up(&mut self) {
        let has_left = self.records_waker.is_gone();
        self.end = Some(if has_left { Closed::Finished } else { Closed::Disconnected });
    }

    fn close(&mut self) {
        if self.shm.connection_state.guard.is_child() {
            return;
        }
        if !self.shm.connection_state.is_violated() {
            self.roll_back();
            if self.abort_pending && self.append(Kind::FragmentAbort, &[]).is_ok() {
                self.producer.publish();
            }
            self.producer.close(Kind::CloseWrite, 0);
            if self.records_waker.check_before_wait() == Wake::Notify {
                self.shm.notify(Sleeping::ForRecords);
            }
        }
        self.shm.depart();
    }

    fn stats(&self) -> SenderStats {
        if self.shm.is_inherited() {
            return SenderStats::default();
        }
        SenderStats {
            messages: self.messages,
            bytes: self.bytes,
            zero_copy: self.counter(sending::BLOBS),
            overflows: self.counter(sending::OVERFLOWS),
            wakeups_sent: self.counter(sending::DOORBELLS),
            sleeps: self.counter(sending::SLEEPS),
            memory_bytes: self.memory.bytes(),
            memory_used_bytes: self.memory.used_bytes(),
            blocks_in_flight: self.memory.blocks_in_flight(),
        }
    }

    fn space(&self) -> Arc<dyn SpaceWaiter> {
        Arc::clone(&self.shm) as _
    }
}

/// Whether a notification before the record is published saves time or costs it.
///
/// ```text
///   two CPUs   notify ─▶ (it wakes up) ─▶ polls: the record is there   write, publish meanwhile
///   one CPU    notify ─▶ it runs at once ─▶ polls in vain, sleeps ─▶ write, publish, notify again
/// ```
///
/// The sender cannot know on which CPU the sleeper will run. An early notification that has to be
/// repeated shows it. The next notifications then come after the record, and twice as many after
/// each further trial that fails.
#[derive(Debug, Default)]
struct EarlyNotify {
    /// The receiver was notified for a record that is not published yet.
    has_notified: bool,
    /// Notifications left that come after the record.
    held_off: u32,
    /// Value that `held_off` started from the last time.
    hold_off: u32,
}

impl EarlyNotify {
    /// Whether a sleeper is to be notified before the record: once for each publication.
    #[inline]
    const fn is_worth_it(&self) -> bool {
        self.held_off == 0 && !self.has_notified
    }

    /// The receiver was notified early.
    const fn notified(&mut self) {
        self.has_notified = true;
    }

    /// A record is published; whether the receiver was notified for it before.
    #[inline]
    const fn take(&mut self) -> bool {
        core::mem::replace(&mut self.has_notified, false)
    }

    /// The early notification was enough.
    const fn was_enough(&mut self) {
        self.hold_off = 0;
    }

    /// A notification was needed after the record; `again`: in spite of an early one.
    fn was_needed(&mut self, again: bool) {
        if again {
            self.hold_off = (self.hold_off * 2).clamp(HOLD_OFF_FIRST, HOLD_OFF_MAX);
            self.held_off = self.hold_off;
        } else {
            self.held_off = self.held_off.saturating_sub(1);
        }
    }
}

/// After this many commits without a sign of life from an awake peer, the sender asks the system.
const SILENT_COMMITS_MAX: u32 = 256;
/// After this time without an answer to a notification, the sender asks the system.
const SILENT_TIME_MAX: Duration = Duration::from_millis(5);
/// Notifications held off after the first useless early one; twice as many after each further one.
const HOLD_OFF_FIRST: u32 = 16;
const HOLD_OFF_MAX: u32 = 4096;
const MESSAGES: usize = word(sending::MESSAGES * 8);
const BYTES: usize = word(sending::BYTES * 8);
const TAIL: usize = word(sending::TAIL * 8);
/// Length in bytes of the longest body of a BLOB.
const BLOB_BYTES_MAX: usize = size_of::<BlobBody>() + size_of::<BlobCredit>();
/// Credit takes no further slot of a BLOB.
const _: () = assert!(footprint(BLOB_BYTES_MAX as u64) == footprint(size_of::<BlobBody>() as u64));

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts notifications until the next that would be early.
    fn notifies_until_early(early: &mut EarlyNotify) -> u32 {
        let mut count = 0;
        while !early.is_worth_it() {
            early.was_needed(false);
            count += 1;
        }
        count
    }

    #[test]
    fn early_notify_in_vain_again_is_held_off_twice_as_long() {
        let mut early = EarlyNotify::default();
        assert!(early.is_worth_it());
        let held_off: Vec<_> = (0..10)
            .map(|_| {
                early.was_needed(true);
                notifies_until_early(&mut early)
            })
            .collect();
        assert_eq!(held_off, [16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 4096]);
    }

    #[test]
    fn early_notify_that_was_enough_is_tried_again() {
        let mut early = EarlyNotify::default();
        for _ in 0..5 {
            early.was_needed(true);
            notifies_until_early(&mut early);
        }
        early.was_enough();
        assert!(early.is_worth_it());
        early.was_needed(true);
        assert_eq!(notifies_until_early(&mut early), HOLD_OFF_FIRST);
    }

    #[test]
    fn early_notify_counts_for_one_record() {
        let mut early = EarlyNotify::default();
        assert!(!early.take());
        early.notified();
        assert!(!early.is_worth_it(), "again before anything was published");
        assert!(early.take() && !early.take());
        assert!(early.is_worth_it());
    }
}
