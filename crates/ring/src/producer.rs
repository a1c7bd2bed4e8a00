// SPDX-License-Identifier: MIT OR Apache-2.0
//! The writing end of a record ring (SPEC 4).
//!
//! ```text
//!            consumed                 published          tail
//!  ──────────┼────────────────────────┼──────────────────┼───────────▶ position
//!   free     │ the consumer may read  │ the open batch   │ 0 │ free
//!                                       first word0 is       └ the slot past the end is zeroed
//!                                       held back until        before the batch is published
//!                                       publish
//! ```
//!
//! Records are appended to an open batch. [`publish`](Producer::publish) makes the whole batch
//! visible with one store, [`abort`](Producer::abort) drops it. A single message is a batch of one.
//!
//! The consumer is usually the peer, and the producer loads the peer's word `consumed`. A ring that
//! outlives its process ([`resume`](Producer::resume)) has no such word; its user calls
//! [`set_consumed`](Producer::set_consumed) instead.
//!
//! The producer never waits, never notifies (see `park.rs`) and does not know the slab.
//!
//! Invariants:
//! 1. `published ≤ tail ≤ published + ring/2`, padding not counted, and everything before
//!    `tail - ring` is consumed;
//! 2. the slot at `tail` is 0 whenever the record before it is visible, so the consumer's next poll
//!    finds 0 or a whole record, never old payload or a word of an aborted batch;
//! 3. one slot beyond that zeroed slot stays free, so that a closing record always fits.

mod persistent;

use alloc::vec::Vec;

use crate::mem::{OwnMem, PeerMem};
use partywall_layout::record_ring::{
    self, HEADER_BYTES, Kind, Position, RingSize, SLOT_BYTES, footprint,
};
use partywall_layout::seeded_fault;
use partywall_layout::{Violation, segment};

/// Reason why a [`Producer`] did not append a record to its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendError {
    /// The ring has no room for the record now; nothing changed.
    Full,
    /// The peer's word `consumed` has an impossible value, so the connection has to end.
    Violation(Violation),
}

impl From<Violation> for AppendError {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

/// The only writer of a record ring, which lies in this process's own memory.
#[derive(Debug)]
pub struct Producer {
    ring: OwnMem,
    size: RingSize,
    /// The peer's control page, which holds the word `consumed`; `None` after
    /// [`resume`](Self::resume).
    peer: Option<PeerMem>,
    /// The consumer's position, as last loaded from the peer or set by `set_consumed`.
    consumed: Position,
    /// Position at which the open batch begins: every record before it is visible to the consumer.
    published: Position,
    tail: Position,
    /// The first word of the header of the open batch's first record. It is stored last, which
    /// publishes the batch; 0 if the batch is empty, or is a record of
    /// [`put_plainly`](Self::put_plainly), which only `publish_plainly` publishes.
    first_word: u64,
    /// In a ring that outlives its process: offset and first header word of the batch's further
    /// records, in their order. These words are stored only at the publication, so a batch that is
    /// dropped leaves no whole record behind.
    held_words: Vec<(usize, u64)>,
    /// Position up to which `prepare_ahead` has prefetched cache lines for writing.
    fetched: Position,
    /// Position up to which the slots from `tail` on begin with 0: they were zeroed ahead, or never
    /// written.
    clean: Position,
    /// Number of the last calls of [`prepare`](Self::prepare) that said that this side had waited,
    /// up to [`ANSWERS_MIN`].
    answers: u8,
}

/// Distance in bytes over which [`Producer::prepare_ahead`] prefetches: as many cache lines as a
/// processor fetches at the same time.
const AHEAD_BYTES: u64 = 16 * SLOT_BYTES;
/// Distance in bytes, from the tail, over which the producer zeroes the slots of the next records:
/// two small records.
const CLEAN_BYTES: u64 = 4 * SLOT_BYTES;
/// Number of calls of [`Producer::prepare`] in a row that say that this side has waited, from which
/// on the producer stops prefetching.
const ANSWERS_MIN: u8 = 4;

impl Producer {
    /// A producer for a ring of zeroed memory. `peer` is the peer's control page.
    ///
    /// # Panics
    /// If the length of `ring` is not `size`.
    #[must_use]
    pub fn new(ring: OwnMem, size: RingSize, peer: PeerMem) -> Self {
        assert!(ring.len() as u64 == size.bytes(), "the ring's memory has the ring's size");
        Self {
            ring,
            size,
            peer: Some(peer),
            consumed: Position(0),
            published: Position(0),
            tail: Position(0),
            first_word: 0,
            held_words: Vec::new(),
            fetched: Position(0),
            // The memory of a new ring is all zeros, so no slot of the first lap needs zeroing.
            clean: Position(size.bytes()),
            answers: 0,
        }
    }

    /// The size of the ring to which this producer writes.
    #[must_use]
    pub const fn size(&self) -> RingSize {
        self.size
    }

    /// The position in the ring after the last published record.
    #[must_use]
    pub const fn published(&self) -> Position {
        self.published
    }

    /// The consumer's position: slots before it may be overwritten.
    #[must_use]
    pub const fn consumed(&self) -> Position {
        self.consumed
    }

    /// Allows slots before `position` to be overwritten. It serves a ring without a peer's word
    /// `consumed`.
    ///
    /// # Errors
    /// A [`Violation`], without any change, if `position` is below the last such position or above
    /// [`published`](Self::published).
    pub fn set_consumed(&mut self, position: Position) -> Result<(), Violation> {
        self.accept(position.0)?;
        // Orders the caller's store that made `position` durable before every store to the slots
        // that `position` frees.
        self.ring.order_stores();
        Ok(())
    }

    /// Number of ring bytes that the records of the open batch take so far.
    #[must_use]
    pub const fn open_bytes(&self) -> u64 {
        self.tail.since(self.published)
    }

    /// Appends a record with a copy of `payload` to the open batch.
    ///
    /// # Errors
    /// An [`AppendError`]: the ring has no room now, or the peer broke a rule.
    ///
    /// # Panics
    /// If the payload exceeds a quarter of the ring, or the batch half of it: callers know both
    /// limits from [`size`](Self::size).
    #[inline]
    pub fn append(&mut self, kind: Kind, stream: u32, payload: &[u8]) -> Result<(), AppendError> {
        let at = self.begin(kind, stream, payload.len())?;
        self.ring.write(at, payload);
        Ok(())
    }

    /// Appends a record with a copy of `payload` at the position `begin`. The caller has just
    /// called [`place`](Self::place) for a payload of this length, which returned `begin` and that
    /// there is room. The batch must be within its limit, and no other call may come between
    /// `place` and `append_placed`. None of these conditions is checked again; if one does not
    /// hold, unread records may be overwritten.
    ///
    /// # Panics
    /// With debug assertions, if `begin` is not the next position, or there is no room.
    #[inline(always)]
    pub fn append_placed(&mut self, begin: Position, kind: Kind, stream: u32, payload: &[u8]) {
        let padding = begin.since(self.tail);
        debug_assert!(
            begin == self.next_position(payload.len()),
            "not the position for this length now"
        );
        debug_assert!(
            self.fits(self.needed(payload.len() as u64) + SLOT_BYTES),
            "there is no room"
        );
        let at = self.put_behind(padding, kind, stream, payload.len());
        self.ring.write(at, payload);
    }

    /// Appends a record to the open batch; its payload is a copy of the concatenated `parts`.
    ///
    /// # Errors
    /// [`AppendError`] lists the reasons.
    ///
    /// # Panics
    /// If the payload exceeds a quarter of the ring, or the batch half of it.
    #[inline]
    pub fn append_parts(
        &mut self,
        kind: Kind,
        stream: u32,
        parts: &[&[u8]],
    ) -> Result<(), AppendError> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let mut at = self.begin(kind, stream, len)?;
        for part in parts {
            self.ring.write(at, part);
            at += part.len();
        }
        Ok(())
    }

    /// Appends a record of `len` bytes and lets `fill` write its payload in place.
    ///
    /// # Errors
    /// [`AppendError`] lists the reasons.
    ///
    /// # Panics
    /// If the payload exceeds a quarter of the ring, or the batch half of it.
    #[cfg(not(loom))]
    #[inline]
    pub fn append_with(
        &mut self,
        kind: Kind,
        stream: u32,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), AppendError> {
        let at = self.begin(kind, stream, len)?;
        fill(self.ring.slice_mut(at, len));
        Ok(())
    }

    /// The position that a record of `len` payload bytes would have if it were appended now. A PAD
    /// may precede the record.
    #[inline]
    #[must_use]
    pub const fn next_position(&self, len: usize) -> Position {
        let taken = footprint(len as u64);
        self.tail.plus(self.needed(len as u64) - taken - SLOT_BYTES)
    }

    /// The position that a record of `len` payload bytes would have if it were appended now, and
    /// whether the ring has room for it.
    ///
    /// # Errors
    /// A [`Violation`] if the peer's word `consumed` has an impossible value.
    #[inline]
    pub fn place(&mut self, len: usize) -> Result<(Position, bool), Violation> {
        let needed = self.needed(len as u64);
        let begin = self.tail.plus(needed - footprint(len as u64) - SLOT_BYTES);
        let room = needed + SLOT_BYTES;
        Ok((begin, self.fits(room) || self.read_consumed(room)?))
    }

    /// Whether a record of `len` payload bytes can be a batch of its own at the tail: no batch is
    /// open, it needs no PAD, and the producer knows of room without a look at the peer's word
    /// `consumed`.
    #[inline(always)]
    #[must_use]
    pub const fn fits_plainly(&self, len: usize) -> bool {
        let taken = footprint(len as u64);
        self.tail.0 == self.published.0
            && taken <= self.size.until_end(self.tail)
            && self.fits(taken + 2 * SLOT_BYTES)
    }

    /// Appends a record of `len` bytes for which [`fits_plainly`](Self::fits_plainly) has just
    /// returned true, and lets `fill` write its payload in place. Only
    /// [`publish_plainly`](Self::publish_plainly) or [`abort`](Self::abort) may follow.
    ///
    /// # Panics
    /// With debug assertions, if the record does not fit.
    #[inline(always)]
    pub fn put_plainly(&mut self, stream: u32, len: usize, fill: impl FnOnce(&mut [u8])) {
        debug_assert!(self.fits_plainly(len), "there is no room");
        let offset = self.slot(self.tail);
        self.tail = self.tail.plus(footprint(len as u64));
        #[expect(clippy::cast_possible_truncation, reason = "less than a quarter of the ring")]
        self.ring.store(offset + 8, record_ring::word1(len as u32, stream));
        #[expect(clippy::cast_possible_truncation, reason = "16")]
        self.ring.fill(offset + HEADER_BYTES as usize, len, fill);
    }

    /// Makes the record of `kind` that [`put_plainly`](Self::put_plainly) has appended visible to
    /// the consumer.
    ///
    /// After this call, the caller asks its `Waker` whether to notify the consumer.
    #[inline(always)]
    pub fn publish_plainly(&mut self, kind: Kind) {
        self.zero_tail();
        // ORDER (in `OwnMem::publish`): Release, so a consumer that sees the first word of the
        // record sees the whole record and the zero after it.
        let begin = self.published;
        self.ring.publish(self.slot(begin), record_ring::word0(begin, kind));
        self.published = self.tail;
    }

    /// The memory of the next record's payload, if that payload has `len` bytes. The caller may
    /// write the bytes before [`append_with`](Self::append_with), which passes the same memory to
    /// `fill`. The caller may also append no record afterwards: the bytes then have no effect.
    ///
    /// # Errors
    /// [`AppendError`] lists the reasons.
    ///
    /// # Panics
    /// If the payload exceeds a quarter of the ring.
    #[cfg(not(loom))]
    #[inline]
    pub fn payload_ahead(&mut self, len: usize) -> Result<&mut [u8], AppendError> {
        assert!(footprint(len as u64) <= self.size.record_max(), "{len} bytes never fit this ring");
        if !self.has_room(len)? {
            return Err(AppendError::Full);
        }
        // The payload of the next record begins after the first two words of its slot, and may fill
        // later slots. So only the slot at the tail still counts as zeroed.
        self.clean = self.clean.min(self.tail.plus(SLOT_BYTES));
        #[expect(clippy::cast_possible_truncation, reason = "16")]
        let at = self.slot(self.next_position(len)) + HEADER_BYTES as usize;
        Ok(self.ring.slice_mut(at, len))
    }

    /// Whether a record of `len` payload bytes fits after the open batch, with a PAD before it if
    /// it needs one.
    ///
    /// # Errors
    /// A [`Violation`] if the peer's word `consumed` has an impossible value.
    #[inline]
    pub fn has_room(&mut self, len: usize) -> Result<bool, Violation> {
        let needed = self.needed(len as u64) + SLOT_BYTES;
        Ok(self.fits(needed) || self.read_consumed(needed)?)
    }

    /// Makes all records of the open batch visible to the consumer, with one store. Does nothing if
    /// the batch is empty.
    ///
    /// After this call, the caller asks its `Waker` whether to notify the consumer.
    #[inline]
    pub fn publish(&mut self) {
        if self.tail == self.published {
            return;
        }
        debug_assert!(self.first_word != 0, "a plain record is published plainly");
        self.zero_tail();
        if !self.held_words.is_empty() {
            self.store_held_words();
        }
        // ORDER (in `OwnMem::publish`): Release, so a consumer that sees the first word of the
        // batch sees all its records and the zero after them.
        let start = self.slot(self.published);
        self.ring.publish(start, self.first_word);
        self.published = self.tail;
        self.first_word = 0;
    }

    /// Prepares the slots of the next records. The caller calls it after each publication;
    /// `has_waited` says whether this side has waited for a record of the peer since the last call.
    /// If that is so several times in a row, both sides probably wait for each message of the
    /// other. The producer then prefetches nothing, because the consumer already polls the next
    /// slot, and would take back its line.
    ///
    /// The call only saves time, as that of [`prepare_ahead`](Self::prepare_ahead) does. A batch
    /// may be open.
    #[inline]
    pub fn prepare(&mut self, has_waited: bool) {
        self.answers = if has_waited { ANSWERS_MIN.min(self.answers + 1) } else { 0 };
        if self.answers == ANSWERS_MIN {
            self.zero_ahead();
        } else {
            self.prepare_ahead();
        }
    }

    /// Prepares the slots of the next records: prefetches their cache lines for writing, and zeroes
    /// the first word of each of the nearest slots. In a ring with a peer, a processor that has the
    /// prefetch does not zero.
    ///
    /// The call only saves time. Without it, copies of these cache lines in the consumer's
    /// processor, from the last lap, delay each commit, and [`publish`](Self::publish) zeroes the
    /// slots. The caller calls it after it has notified the consumer.
    #[inline]
    pub fn prepare_ahead(&mut self) {
        if self.tail != self.published {
            return;
        }
        let end = self.consumed.plus(self.size.bytes());
        let mut slot = self.fetched.max(self.tail);
        let wanted = self.tail.plus(AHEAD_BYTES);
        while slot < wanted && slot < end {
            self.ring.prefetch_for_write(self.slot(slot));
            slot = slot.plus(SLOT_BYTES);
        }
        self.fetched = slot;
        if self.peer.is_some() && cfg!(all(target_arch = "x86_64", not(loom))) {
            // The prefetched lines suffice, and `publish` zeroes the one slot that has to be zero.
            return;
        }
        self.zero_ahead();
    }

    /// Zeroes the first word of each of the nearest slots, and prefetches nothing. So the lines of
    /// later slots are fetched by these stores, after a record is published and not before.
    #[inline]
    fn zero_ahead(&mut self) {
        let end = self.consumed.plus(self.size.bytes());
        let mut slot = self.clean.max(self.tail);
        let wanted = self.tail.plus(CLEAN_BYTES);
        while slot < wanted && slot < end {
            self.zero_slot(slot);
            slot = slot.plus(SLOT_BYTES);
        }
        self.clean = slot;
    }

    /// Drops the open batch, whose records the consumer then never sees.
    #[inline]
    pub fn abort(&mut self) {
        if self.tail != self.published {
            // The batch's first slot still begins with 0, because its first word was held back. The
            // slots after it hold payload and further records of the dropped batch.
            self.clean = self.published.plus(SLOT_BYTES);
        }
        self.tail = self.published;
        self.first_word = 0;
        self.held_words.clear();
    }

    /// Publishes a record without payload into the slot that is always free for it.
    ///
    /// After the call the caller must not append further records.
    ///
    /// # Panics
    /// If a batch is open, or that slot is used already: an unread record must not be overwritten.
    pub fn close(&mut self, kind: Kind, stream: u32) {
        assert!(self.tail == self.published, "a batch is open");
        assert!(self.fits(2 * SLOT_BYTES), "the ring was closed before");
        // Invariant 3 of this file keeps two slots of the ring free: one for the closing record,
        // one for the zero after it. A record of one slot never needs a PAD.
        let start = self.tail;
        self.put(start, kind, stream, 0);
        self.tail = start.plus(SLOT_BYTES);
        self.publish();
    }

    /// Writes the header of a record at the tail of the ring, if the record fits; returns the
    /// offset of its payload in the ring.
    #[inline]
    fn begin(&mut self, kind: Kind, stream: u32, len: usize) -> Result<usize, AppendError> {
        let taken = footprint(len as u64);
        assert!(taken <= self.size.record_max(), "a record of {len} bytes never fits this ring");
        assert!(self.open_bytes() + taken <= self.size.batch_max(), "a batch is half the ring");
        let needed = self.needed(len as u64);
        let room = needed + SLOT_BYTES;
        if !self.fits(room) && !self.read_consumed(room)? {
            return Err(AppendError::Full);
        }
        Ok(self.put_behind(needed - taken - SLOT_BYTES, kind, stream, len))
    }

    /// Writes a PAD of `padding` bytes and the header of a record; returns the offset of the
    /// record's payload in the ring.
    #[inline(always)]
    fn put_behind(&mut self, padding: u64, kind: Kind, stream: u32, len: usize) -> usize {
        if padding > 0 {
            let at = self.tail;
            #[expect(clippy::cast_possible_truncation, reason = "less than a quarter of the ring")]
            self.put(at, Kind::Pad, 0, (padding - HEADER_BYTES) as u32);
            self.tail = at.plus(padding);
        }
        let at = self.tail;
        #[expect(clippy::cast_possible_truncation, reason = "less than a quarter of the ring")]
        self.put(at, kind, stream, len as u32);
        self.tail = at.plus(footprint(len as u64));
        #[expect(clippy::cast_possible_truncation, reason = "an offset in mapped memory")]
        let payload = self.slot(at) + HEADER_BYTES as usize;
        payload
    }

    /// Ring bytes that a record of `len` payload bytes needs at the tail: PAD, record, and the
    /// zeroed slot after it.
    #[inline]
    const fn needed(&self, len: u64) -> u64 {
        let taken = footprint(len);
        let until_end = self.size.until_end(self.tail);
        let padding = if taken > until_end { until_end } else { 0 };
        padding + taken + SLOT_BYTES
    }

    #[inline]
    const fn fits(&self, room: u64) -> bool {
        self.tail.since(self.consumed) + room <= self.size.bytes()
    }

    /// Loads the peer's word `consumed`, up to which the peer has finished with the ring. Returns
    /// whether `room` bytes of the ring are free then.
    #[cold]
    fn read_consumed(&mut self, room: u64) -> Result<bool, Violation> {
        let Some(peer) = &self.peer else { return Ok(false) };
        #[expect(clippy::cast_possible_truncation, reason = "0")]
        let found = peer.load(segment::CONSUMED as usize);
        self.accept(found)?;
        Ok(self.fits(room))
    }

    /// Takes `found`, a value that was loaded once from the peer's word `consumed`, as the
    /// consumer's position, if it is possible: neither below the last one nor above what was
    /// published.
    fn accept(&mut self, found: u64) -> Result<(), Violation> {
        if found < self.consumed.0 || found > self.published.0 || found % SLOT_BYTES != 0 {
            return Err(Violation::Consumed { found, from: self.consumed.0, to: self.published.0 });
        }
        self.consumed = Position(found);
        Ok(())
    }

    /// Writes a record header at position `at`. The first word of the first header of a batch is
    /// held back until the batch is published.
    #[inline]
    fn put(&mut self, at: Position, kind: Kind, stream: u32, len: u32) {
        let offset = self.slot(at);
        let word = record_ring::word0(at, kind);
        if self.first_word == 0 {
            self.first_word = word;
            if seeded_fault("early_first_word") {
                self.ring.store(offset, word);
            }
        } else {
            self.put_further(offset, word);
        }
        self.ring.store(offset + 8, record_ring::word1(len, stream));
    }

    /// Stores `word` at `offset`: the first word of the header of a record that follows another
    /// record in its batch. In a ring that outlives its process the word is held back until the
    /// batch is published, so that a dropped batch leaves no whole record. Most batches are one
    /// record, so this function is not inlined.
    #[inline(never)]
    fn put_further(&mut self, offset: usize, word: u64) {
        if self.peer.is_some() || seeded_fault("early_batch_words") {
            self.ring.store(offset, word);
            return;
        }
        // A former stream in the same memory may have left the same word at this place. The record
        // of a dropped batch would then be whole, so the word is zeroed.
        self.ring.store(offset, 0);
        self.held_words.push((offset, word));
    }

    /// Stores the first words of the batch's further records, which `put_further` has held back.
    #[cold]
    fn store_held_words(&mut self) {
        for (offset, word) in self.held_words.drain(..) {
            self.ring.store(offset, word);
        }
    }

    /// Zeroes the slot at the tail, if it is not zeroed yet.
    #[inline(always)]
    fn zero_tail(&mut self) {
        if self.tail >= self.clean {
            self.zero_slot(self.tail);
            self.clean = self.tail.plus(SLOT_BYTES);
        }
    }

    /// Zeroes the first word of the ring's slot at position `slot`: the consumer polls that word
    /// before a record is published there, and must find 0 (SPEC 4.5).
    #[inline]
    fn zero_slot(&mut self, slot: Position) {
        if !seeded_fault("no_zero_next_slot") {
            let offset = self.slot(slot);
            self.ring.store(offset, 0);
        }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "an offset in mapped memory")]
    const fn slot(&self, position: Position) -> usize {
        // Positions are multiples of a slot. The mask tells the compiler so.
        (self.size.offset(position) & !(SLOT_BYTES - 1)) as usize
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::mem;

    fn producer() -> Producer {
        let size = RingSize::new(8192).unwrap();
        let (ring, _) = mem::pair(8192);
        let (_, peer) = mem::pair(64);
        Producer::new(ring, size, peer)
    }

    /// Publishes a record without payload, and returns how far the producer has prefetched after
    /// it prepared the next ones.
    fn fetched_after(producer: &mut Producer, has_waited: bool) -> u64 {
        assert!(producer.fits_plainly(0));
        producer.put_plainly(0, 0, |_| ());
        producer.publish_plainly(Kind::Data);
        producer.prepare(has_waited);
        producer.fetched.0
    }

    #[test]
    fn answers_stop_the_prefetching_and_a_second_message_resumes_it() {
        let mut producer = producer();
        for number in 1..u64::from(ANSWERS_MIN) {
            let ahead = number * SLOT_BYTES + AHEAD_BYTES;
            assert_eq!(fetched_after(&mut producer, true), ahead, "record {number}");
        }
        let mut fetched = fetched_after(&mut producer, false);
        for _ in 1..ANSWERS_MIN {
            let before = fetched;
            fetched = fetched_after(&mut producer, true);
            assert!(fetched > before, "the answers are counted anew");
        }
        for _ in 0..3 {
            assert_eq!(fetched_after(&mut producer, true), fetched, "both sides wait");
        }
        let ahead = producer.tail.0 + SLOT_BYTES + AHEAD_BYTES;
        assert_eq!(fetched_after(&mut producer, false), ahead, "a stream has begun");
    }
    #[test]
    fn answers_zero_the_nearest_slots() {
        let mut producer = producer();
        // The slots of a former lap: each begins with a word.
        producer.clean = Position(0);
        (0..128).for_each(|slot| producer.ring.store(slot * 64, u64::MAX));
        for _ in 0..ANSWERS_MIN {
            fetched_after(&mut producer, true);
        }
        let tail = producer.tail.plus(CLEAN_BYTES);
        assert_eq!(producer.clean, tail);
        let word = |slot: u64| producer.ring.load(usize::try_from(slot).unwrap());
        for slot in (producer.tail.0..tail.0).step_by(64) {
            assert_eq!(word(slot), 0, "the slot at {slot}");
        }
        assert_eq!(word(tail.0), u64::MAX, "no slot beyond them");
    }
}
