// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sender's code beyond the path of a short message to a receiver that is awake: blocks,
//! fragments, batches, wake-ups, and the interface of the transport.
//!
//! ```text
//!   BLOB      a block is allocated, written and published; announcements of memory go first
//!   FRAGMENT_FIRST  total length, bytes ─▶ FRAGMENT_MID bytes … ─▶ FRAGMENT_LAST bytes
//!   message given up before its FRAGMENT_LAST ─▶ FRAGMENT_ABORT, before the next record
//! ```
//!
//! Under `BackPressure::Overflow`, a message for which there is no memory is sent through the ring
//! in fragments (SPEC 5.5). Order is kept, because fragments are records like any others. The next
//! message for which memory is free is zero-copy again.

use super::super::blob_memory::{AllocError, BlobMemory};
use super::super::{SharedMemory, Sleeping, word};
use super::{SILENT_COMMITS_MAX, SILENT_TIME_MAX, ShmSender};
use crate::config::BackPressure;
use crate::error::{Closed, Fault, Limit, SendError, TooLarge};
use crate::stats::SenderStats;
use crate::transport::{
    Memory, NotSent, Progress, STREAM_INLINE_MAX, SpaceWaiter, TransportSender, waiting_failed,
};
use partywall_layout::Violation;
use partywall_layout::record_ring::{
    BlobBody, BlobCredit, FRAGMENT_PREFIX_BYTES, HEADER_BYTES, Kind, footprint,
};
use partywall_layout::segment::sending;
use partywall_layout::stream::CreditBody;
use partywall_ring::{AppendError, Block, Wake};
use std::sync::Arc;
use std::time::Instant;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

impl ShmSender {
    #[cold]
    pub(super) fn check_slowly(&mut self) -> Result<(), NotSent> {
        self.shm.check()?;
        if self.is_filling {
            // The caller's code panicked while it wrote a message in place, so this sender discards
            // that message.
            self.is_filling = false;
            self.roll_back();
        }
        self.end.map_or(Ok(()), |closed| Err(closed.into()))
    }

    #[inline]
    pub(crate) fn try_send(&mut self, payload: &[u8]) -> Result<(), NotSent> {
        self.check()?;
        if payload.len() <= self.inline_max {
            self.notify_early()?;
        }
        let sent = self.add(payload);
        self.finish(sent, payload.len())
    }

    /// Sends a message: inline, in a block, or in pieces of which a call sends as many as fit.
    /// `progress` counts the sent bytes.
    #[inline]
    pub(crate) fn send_on(
        &mut self,
        payload: &[u8],
        progress: &mut Progress,
    ) -> Result<(), NotSent> {
        if payload.len() <= self.inline_max {
            return self.try_send(payload);
        }
        self.send_long(payload, progress)
    }

    /// Publishes the open batch, and notifies the receiver if it sleeps.
    #[inline]
    pub(crate) fn publish(&mut self) -> Result<(), NotSent> {
        if self.records_waker.is_gone() {
            self.roll_back();
            return Err(self.left());
        }
        let was_notified = self.early.take();
        #[cfg(shuttle)]
        super::super::switch_point();
        self.producer.publish();
        if self.batch_has_memory {
            self.batch_has_memory = false;
            let blobs = self.memory.published(self.producer.published());
            self.add_to_counter(sending::BLOBS, blobs);
            self.note_memory();
        }
        self.finish_publishing(was_notified);
        Ok(())
    }

    /// Whether a message of `len` bytes is short enough to be inline. Fails if the ring has no
    /// room for it.
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

    /// Sends an inline message that `fill` writes in the ring. The caller must have called
    /// [`prepare_inline`](Self::prepare_inline) before.
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

    /// Notifies a sleeping receiver before the record is written, so that the receiver wakes up
    /// while the sender writes. Fails if the receiver has left.
    #[inline]
    pub(super) fn notify_early(&mut self) -> Result<(), NotSent> {
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

    /// Appends a message to the open batch: inline if it is short, otherwise in a block or in
    /// fragments.
    #[inline]
    fn add(&mut self, payload: &[u8]) -> Result<(), NotSent> {
        if payload.len() > self.inline_max {
            return self.add_long(payload);
        }
        self.append_pending()?;
        self.append_credit()?;
        self.append(Kind::Data, &[payload])
    }

    /// Appends a CREDIT record, for a message that cannot carry the credit itself.
    #[inline]
    pub(super) fn append_credit(&mut self) -> Result<(), NotSent> {
        match self.credit.take() {
            None => Ok(()),
            Some(credited) => self.append(Kind::Credit, &[U64::new(credited).as_bytes()]),
        }
    }

    #[inline]
    pub(super) fn append(&mut self, kind: Kind, parts: &[&[u8]]) -> Result<(), NotSent> {
        let appended = self.producer.append_parts(kind, self.stream, parts);
        appended.map_err(|error| self.not_appended(error))
    }

    /// Appends the pending records about segments and about an aborted message to the open batch,
    /// before any other record.
    #[inline]
    pub(super) fn append_pending(&mut self) -> Result<(), NotSent> {
        if self.has_pending { self.append_pending_now() } else { Ok(()) }
    }

    /// Publishes the appended records if `sent` is a success, and discards these records otherwise.
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

    pub(crate) const fn shared(&self) -> &Arc<SharedMemory> {
        &self.shm
    }

    /// Makes this sender continue a direction that moved from a socket to shared memory. `stats`
    /// are the counters of the socket's sender, and `stream` is the stream of the next message.
    pub(crate) fn continue_from(&mut self, stats: &SenderStats, stream: u32, has_streams: bool) {
        (self.messages, self.bytes, self.stream) = (stats.messages, stats.bytes, stream);
        self.store_totals();
        self.add_to_counter(sending::SLEEPS, stats.sleeps);
        if has_streams {
            self.enable_streams();
        }
    }

    pub(super) fn add_long(&mut self, payload: &[u8]) -> Result<(), NotSent> {
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

    /// Appends a BLOB for the message in `block` to the open batch. Returns the block on failure.
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
        // The append cannot fail, because room for the BLOB record was checked before.
        let _ = match self.credit.take() {
            None => self.append(Kind::Blob, &[body.as_bytes()]),
            Some(credited) => {
                let credited: BlobCredit = U64::new(credited);
                self.append(Kind::Blob, &[body.as_bytes(), credited.as_bytes()])
            }
        };
        Ok(())
    }

    #[cold]
    pub(super) fn not_appended(&mut self, error: AppendError) -> NotSent {
        match error {
            AppendError::Full => self.no_space(),
            AppendError::Violation(violation) => self.violated(violation),
        }
    }

    #[cold]
    pub(super) fn append_pending_now(&mut self) -> Result<(), NotSent> {
        if self.abort_pending {
            // A message can be given up only while no batch is open, so the record FRAGMENT_ABORT
            // is the first record of a batch. Published in a batch of its own, it cannot be
            // discarded together with a message.
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

    pub(super) fn count_overflow(&mut self) {
        self.add_to_counter(sending::OVERFLOWS, 1);
    }

    pub(super) fn add_to_counter(&mut self, counter: u64, amount: u64) {
        let value = self.counter(counter).wrapping_add(amount);
        self.counters.store(word(counter * 8), value);
    }

    pub(super) fn counter(&self, counter: u64) -> u64 {
        self.counters.load(word(counter * 8))
    }

    /// Writes the amount of memory for large messages to the counters of the region. Notes whether
    /// changes of that memory are pending, which [`append_pending`](Self::append_pending) then
    /// announces.
    pub(super) fn note_memory(&mut self) {
        self.counters.store(word(sending::MEMORY * 8), self.memory.bytes());
        self.counters.store(word(sending::BLOCKS_OUT * 8), self.memory.blocks_in_flight());
        self.has_pending = self.abort_pending || self.memory.next_announcement().is_some();
    }

    /// Discards the open batch: the records that were appended and not published.
    pub(super) fn roll_back(&mut self) {
        // The receiver was notified early for a record that is now discarded. The next record needs
        // its own notification.
        let _ = self.early.take();
        self.producer.abort();
        self.memory.rolled_back();
        self.batch_has_memory = false;
        self.note_memory();
    }

    /// Notes that the peer's receiver has left, so that later calls fail. Returns the error for the
    /// caller.
    #[cold]
    pub(super) fn left(&mut self) -> NotSent {
        self.end = Some(Closed::Finished);
        NotSent::Finished
    }

    #[cold]
    pub(super) fn notify(&mut self) {
        self.shm.notify(Sleeping::ForRecords);
        self.silent_commits = 0;
        self.add_to_counter(sending::DOORBELLS, 1);
        self.notified_at = Some(Instant::now());
    }

    /// Handles a publication at which the receiver was not awake. `was_notified` is whether the
    /// receiver was notified early for the published record.
    #[cold]
    pub(super) fn wake(&mut self, wake: Wake, was_notified: bool) {
        match wake {
            Wake::Notify => {
                self.early.was_needed(was_notified);
                self.notify();
            }
            Wake::Notified if was_notified => self.early.was_enough(),
            // The receiver was notified and has not polled since, or it polls at intervals: the
            // receiver may be busy, stopped or dead.
            Wake::Notified | Wake::Quiet => {
                let _ = self.check_peer_in_time();
            }
            Wake::Gone => self.end = Some(Closed::Finished),
            Wake::No => {}
        }
    }

    /// Checks whether the peer lives, unless the peer was notified or checked less than
    /// [`SILENT_TIME_MAX`] ago.
    pub(super) fn check_peer_in_time(&mut self) -> Result<(), NotSent> {
        if self.notified_at.is_some_and(|then| then.elapsed() < SILENT_TIME_MAX) {
            return Ok(());
        }
        self.notified_at = Some(Instant::now());
        self.check_peer()
    }

    /// Checks whether the peer has consumed a record since the last check. If it has consumed none,
    /// checks whether the peer's process lives.
    #[cold]
    pub(super) fn check_peer(&mut self) -> Result<(), NotSent> {
        let consumed = self.shm.snapshot().0[0];
        if consumed != self.consumed_when_alive {
            (self.consumed_when_alive, self.silent_commits) = (consumed, 0);
            return Ok(());
        }
        self.silent_commits %= SILENT_COMMITS_MAX;
        if self.shm.is_peer_gone() {
            self.note_hang_up();
            return self.end.map_or(Ok(()), |closed| Err(closed.into()));
        }
        Ok(())
    }

    /// Handles a lack of room in the ring. Returns `Full`, or `Closed` if the peer has left or
    /// died.
    #[cold]
    pub(super) fn no_space(&mut self) -> NotSent {
        if self.records_waker.is_gone() {
            return self.left();
        }
        // When the ring is full, the sender also checks whether the peer lives. A caller that never
        // blocks would otherwise not learn of the peer's death.
        match self.check_peer_in_time() {
            Ok(()) => NotSent::Full,
            Err(unsent) => unsent,
        }
    }

    pub(super) fn violated(&self, violation: Violation) -> NotSent {
        NotSent::from(self.shm.violated(violation))
    }

    /// Allocates a block for a message of `len` bytes. If too many SEGMENT and SEGMENT_RETIRE
    /// records are pending, publishes them and tries again.
    pub(super) fn allocate(&mut self, len: usize) -> Result<Block, NotSent> {
        loop {
            let allocated = self.memory.allocate(len, &self.shm, self.notified_at);
            self.note_memory();
            match allocated {
                Ok(block) => return Ok(block),
                Err(AllocError::Full) => return Err(self.no_space()),
                Err(AllocError::TooLarge(error)) => return Err(NotSent::from(error)),
                Err(AllocError::Violation(violation)) => return Err(self.violated(violation)),
                Err(AllocError::System(fault)) => return Err(NotSent::from(fault)),
                Err(AllocError::Unannounced) => self.publish_pending(len)?,
            }
        }
    }

    /// Publishes the pending SEGMENT and SEGMENT_RETIRE records in a batch of their own, so that
    /// further such records can become pending.
    pub(super) fn publish_pending(&mut self, len: usize) -> Result<(), NotSent> {
        if self.producer.open_bytes() > 0 {
            // The open batch contains pending SEGMENT or SEGMENT_RETIRE records, or must come
            // before them. So the caller has to commit that batch first.
            let len = len as u64;
            return Err(NotSent::from(TooLarge { len, max: 0, limit: Limit::Batch }));
        }
        let appended = self.append_pending();
        if appended.is_err() {
            self.roll_back();
            return appended;
        }
        self.publish()
    }

    /// Keeps the private buffer of a small reservation for the next small reservation, to save an
    /// allocation.
    #[inline]
    pub(super) fn keep_spare(&mut self, bytes: Vec<u8>) {
        if bytes.capacity() <= self.inline_max.max(64) * 2 {
            self.spare = bytes;
        }
    }

    /// Sends a message that is not inline: in a block, or in as many pieces as the ring has room
    /// for.
    pub(super) fn send_long(
        &mut self,
        payload: &[u8],
        progress: &mut Progress,
    ) -> Result<(), NotSent> {
        self.check()?;
        if progress.started {
            return self.send_fragments(payload, progress);
        }
        if self.policy != BackPressure::Overflow {
            return self.try_send(payload);
        }
        match self.allocate(payload.len()) {
            Ok(mut block) => {
                block.as_mut_slice().copy_from_slice(payload);
                let sent = self.add_block(block).map_err(|(unsent, block)| {
                    self.memory.free(block);
                    unsent
                });
                self.finish(sent, payload.len())
            }
            Err(NotSent::Full) => self.send_fragments(payload, progress),
            Err(unsent) => Err(unsent),
        }
    }

    /// Sends as many pieces of a message as the ring has room for.
    fn send_fragments(&mut self, payload: &[u8], progress: &mut Progress) -> Result<(), NotSent> {
        if !progress.started {
            self.memory.check_overflow(payload.len() as u64)?;
        }
        while progress.sent < payload.len() {
            let pending = self.append_pending().and_then(|()| self.append_credit());
            let pieces = pending.and_then(|()| {
                let piece = self.piece(payload, progress.sent);
                self.append_piece(payload, progress.sent, piece).map(|()| piece)
            });
            let piece = match pieces {
                Ok(piece) => piece,
                Err(unsent) => return self.finish(Err(unsent), 0),
            };
            progress.started = true;
            progress.sent += piece;
            self.publish()?;
        }
        self.count_overflow();
        self.count(payload.len());
        self.store_totals();
        Ok(())
    }

    pub(super) fn add_fragments(&mut self, payload: &[u8]) -> Result<(), NotSent> {
        self.memory.check_overflow(payload.len() as u64)?;
        let credit = if self.credit.is_some() { footprint(CREDIT_BYTES) } else { 0 };
        let pending = BlobMemory::PENDING_BYTES_MAX + credit;
        let per_piece = footprint(self.piece_max() as u64);
        let needed = self.fragments_footprint(payload.len()) + pending;
        // A PAD record at the end of the ring may be needed between the pieces, and is shorter than
        // one piece. All pieces and the PAD take less than half the ring, so they fit an empty
        // ring. In a model test under shuttle, the ring may be too small for any message in pieces.
        let room = self.producer.size().batch_max().saturating_sub(pending + per_piece);
        if self.producer.open_bytes() + needed > room {
            return Err(self.too_long_for_a_batch(payload.len() as u64, needed <= room));
        }
        // The batch gets all pieces of a message or none, because a batch must not end with an
        // unfinished message.
        #[expect(clippy::cast_possible_truncation, reason = "less than the ring")]
        let needed = needed as usize;
        match self.producer.has_room(needed) {
            Ok(true) => {}
            Ok(false) => return Err(self.no_space()),
            Err(violation) => return Err(self.violated(violation)),
        }
        self.append_pending()?;
        self.append_credit()?;
        let mut sent = 0;
        while sent < payload.len() {
            let piece = self.piece(payload, sent);
            self.append_piece(payload, sent, piece)?;
            sent += piece;
        }
        self.count_overflow();
        Ok(())
    }

    /// Returns the error for a message in fragments that does not fit the batch. If a block could
    /// hold the message, the error is `Full`, and the sender may wait for memory. Otherwise waiting
    /// would never end, so the error is `TooLarge`.
    fn too_long_for_a_batch(&self, len: u64, fits_another: bool) -> NotSent {
        let (max, memory) = self.memory.largest();
        if len <= max {
            return NotSent::Full;
        }
        let limit = if fits_another { Limit::Batch } else { memory };
        NotSent::from(TooLarge { len, max, limit })
    }

    fn fragments_footprint(&self, len: usize) -> u64 {
        let max = self.piece_max();
        let first = max.min(len - 1);
        let rest = len - first;
        let whole = (rest / max) as u64 * footprint(max as u64);
        let last = if rest % max == 0 { 0 } else { footprint((rest % max) as u64) };
        footprint(first as u64 + FRAGMENT_PREFIX_BYTES) + whole + last
    }

    /// Returns the length of the longest piece in bytes: an eighth of the ring, so that sender and
    /// receiver work at the same time.
    #[expect(clippy::cast_possible_truncation, reason = "less than the ring")]
    const fn piece_max(&self) -> usize {
        (self.producer.size().bytes() / 8 - HEADER_BYTES - FRAGMENT_PREFIX_BYTES) as usize
    }

    /// Returns the length of the next piece in bytes. The first piece is never also the last one.
    fn piece(&self, payload: &[u8], sent: usize) -> usize {
        let left = payload.len() - sent;
        if sent == 0 { self.piece_max().min(left - 1) } else { self.piece_max().min(left) }
    }

    fn append_piece(&mut self, payload: &[u8], sent: usize, piece: usize) -> Result<(), NotSent> {
        let bytes = &payload[sent..sent + piece];
        if sent == 0 {
            let total = (payload.len() as u64).to_le_bytes();
            return self.append(Kind::FragmentFirst, &[&total, bytes]);
        }
        let is_last = sent + piece == payload.len();
        self.append(if is_last { Kind::FragmentLast } else { Kind::FragmentMid }, &[bytes])
    }
}

impl TransportSender for ShmSender {
    fn try_send(&mut self, payload: &[u8]) -> Result<(), NotSent> {
        Self::try_send(self, payload)
    }

    fn send_on(&mut self, payload: &[u8], progress: &mut Progress) -> Result<(), NotSent> {
        Self::send_on(self, payload, progress)
    }

    fn give_up(&mut self, _payload: &[u8], progress: &Progress) -> Result<(), SendError> {
        self.abort_pending |= progress.started;
        self.has_pending |= progress.started;
        Err(SendError::TimedOut)
    }

    /// Lowers the length of the longest inline message. A session queues received messages, for
    /// which an inline message must be copied, so only short messages are inline.
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
            // The open batch is published first: together with the record of this call and the
            // pending SEGMENT and SEGMENT_RETIRE records, it would exceed the longest batch.
            self.publish()?;
        }
        self.append_pending()?;
        self.stream = stream;
        self.append(kind, &[body])
    }

    fn publish(&mut self) -> Result<(), NotSent> {
        Self::publish(self)
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

    /// Takes a recently freed block of exactly `len` bytes, if there is one. This is faster than
    /// the general allocation of `reserve`, which serves all other cases.
    #[inline]
    fn reserve_into(&mut self, place: &mut Option<Memory>, len: usize) -> Result<(), NotSent> {
        self.check()?;
        debug_assert!(place.is_none(), "memory that was reserved before is sent or released first");
        let may_be_block = len > self.inline_max && len as u64 <= self.shm.limits.peer_message;
        if may_be_block && self.memory.allocate_recent_into(place, len, self.notified_at) {
            self.note_memory();
            #[cfg(shuttle)]
            self.shm.note_reserved(1);
            return Ok(());
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

    fn take_back(&mut self) -> bool {
        self.memory.take_back(&self.shm)
    }

    fn add_to_batch(&mut self, payload: &[u8]) -> Result<(), NotSent> {
        self.check()?;
        let is_long = payload.len() > self.inline_max;
        let len = payload.len() as u64;
        let body = if is_long { size_of::<BlobBody>() as u64 } else { len };
        // The batch may have to contain the pending SEGMENT and SEGMENT_RETIRE records in addition
        // to the message.
        let batch_max = self.producer.size().batch_max();
        let max = batch_max.saturating_sub(BlobMemory::PENDING_BYTES_MAX);
        let open = self.producer.open_bytes();
        if open + footprint(body) > max {
            let max = max.saturating_sub(open);
            return Err(NotSent::from(TooLarge { len, max, limit: Limit::Batch }));
        }
        match self.add(payload) {
            // The open batch holds all blocks, so waiting would never end: no block is released
            // while that batch is open.
            Err(NotSent::Full)
                if is_long
                    && self.producer.has_room(size_of::<BlobBody>()) == Ok(true)
                    && self.memory.is_held_by_batch() =>
            {
                Err(NotSent::from(TooLarge { len, max: 0, limit: Limit::Batch }))
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
        self.memory.take_back(&self.shm);
        // Each pass of the loop retires some idle segments and publishes their SEGMENT_RETIRE
        // records, because only a limited number of these records may be pending.
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
        self.shm.space.check_descriptor().map_err(waiting_failed)?;
        // The sender is about to wait for the peer, so it also notifies a peer that polls at
        // intervals.
        if self.records_waker.check_before_wait() == Wake::Notify {
            self.shm.notify(Sleeping::ForRecords);
        }
        self.add_to_counter(sending::SLEEPS, 1);
        self.sleeper.arm(quiet);
        #[cfg(shuttle)]
        super::super::switch_point();
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
        if !has_left {
            self.shm.disconnected();
        }
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

const CREDIT_BYTES: u64 = size_of::<CreditBody>() as u64;
/// Length in bytes of the longest body of a BLOB record, which carries credit.
const BLOB_BYTES_MAX: usize = size_of::<BlobBody>() + size_of::<BlobCredit>();
/// Checks at compile time that a BLOB with the field for credit takes as many ring bytes as a BLOB
/// without it.
const _: () = assert!(footprint(BLOB_BYTES_MAX as u64) == footprint(size_of::<BlobBody>() as u64));
