// SPDX-License-Identifier: MIT OR Apache-2.0
//! The writing end of a record ring (SPEC 4).
//!
//! ```text
//!            consumed                 published          tail
//!  ──────────┼────────────────────────┼──────────────────┼───────────▶ position
//!   free     │ the consumer's to read │ the open batch   │ 0 │ free
//!                                       first word0 held     └ the slot past the end is zeroed
//!                                       back until publish     before the batch is published
//! ```
//!
//! Records are appended to an open batch; [`publish`](Producer::publish) makes the whole batch exist
//! with one store, [`abort`](Producer::abort) makes it never have been. A single message is a batch
//! of one.
//!
//! Who consumes is a neighbour, whose word we look at; or nobody that we can look at, and we are told
//! ([`resume`](Producer::resume): a ring that outlives its process).
//!
//! What this does *not* do: it never waits, wakes nobody (see `park.rs`) and knows no slab.
//!
//! Invariants:
//! 1. `published ≤ tail ≤ published + ring/2`, padding not counted, and everything before
//!    `tail - ring` is consumed;
//! 2. the slot at `tail` is 0 whenever the record before it is visible, so the consumer's next look
//!    finds 0 or a whole record: neither old payload nor a word of an aborted batch comes alive;
//! 3. one slot beyond that stays free, so that a closing record always fits.

use crate::mem::{OwnMem, PeerMem};
#[cfg(not(loom))]
use partywall_layout::RecordHeader;
use partywall_layout::record_ring::{
    self, HEADER_BYTES, Kind, Position, RingSize, SLOT_BYTES, footprint,
};
use partywall_layout::seeded_fault;
use partywall_layout::{Violation, segment};

/// Why nothing was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendError {
    /// The ring has no room for the record now; nothing changed.
    Full,
    /// The neighbour's `consumed` is impossible; the connection is over.
    Violation(Violation),
}

impl From<Violation> for AppendError {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

/// The one writer of a record ring.
#[derive(Debug)]
pub struct Producer {
    ring: OwnMem,
    size: RingSize,
    /// The neighbour's control page, for its `consumed`; none if we are told.
    peer: Option<PeerMem>,
    /// Up to where the neighbour had consumed when we last looked, or were told.
    consumed: Position,
    /// Where the open batch begins: everything before is visible to the consumer.
    published: Position,
    /// Where the next record goes.
    tail: Position,
    /// `word0` of the open batch's first record; stored last. 0 if there is none.
    first_word: u64,
    /// Up to here lines were fetched for writing.
    fetched: Position,
    /// The slots from `tail` to here begin with 0 already: zeroed ahead, or never written.
    clean: Position,
}

/// How far ahead [`Producer::prepare_ahead`] fetches: as many lines as a processor fetches at a time.
const AHEAD_BYTES: u64 = 16 * SLOT_BYTES;
/// How far ahead slots are zeroed: two small records. Their lines were fetched long before.
const CLEAN_BYTES: u64 = 4 * SLOT_BYTES;

impl Producer {
    /// Takes over a ring of zeroed memory; `peer` is the control page of the other half.
    ///
    /// # Panics
    /// If `ring` is not as long as `size` says.
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
            fetched: Position(0),
            // Fresh memory is zero for a whole lap.
            clean: Position(size.bytes()),
        }
    }

    /// Goes on in a ring that holds the records from `base` up to `tail`. What is before `base` may be overwritten; how
    /// far that is from now on, [`set_consumed`](Self::set_consumed) says.
    ///
    /// Nothing is assumed of the rest of the ring: the slot at `tail` is zeroed here.
    ///
    /// # Panics
    /// If `ring` is not as long as `size` says, or cannot hold these records and a slot behind them.
    #[must_use]
    pub fn resume(ring: OwnMem, size: RingSize, base: Position, tail: Position) -> Self {
        assert!(ring.len() as u64 == size.bytes(), "the ring's memory has the ring's size");
        assert!((base.0 | tail.0) % SLOT_BYTES == 0, "records begin with slots");
        assert!(base <= tail && tail.since(base) + SLOT_BYTES <= size.bytes(), "more than a ring");
        // What made `base` and `tail` true is in memory before anything is overwritten because of it.
        ring.order_stores();
        let mut producer = Self {
            ring,
            size,
            peer: None,
            consumed: base,
            published: tail,
            tail,
            first_word: 0,
            fetched: tail,
            clean: tail.plus(SLOT_BYTES),
        };
        producer.zero_slot(tail);
        producer
    }

    /// Begins at position 0 again, in memory that holds anything; the open batch is forgotten.
    pub fn restart(&mut self) {
        self.consumed = Position(0);
        self.published = Position(0);
        self.tail = Position(0);
        self.first_word = 0;
        self.fetched = Position(0);
        self.clean = Position(0);
        self.clear_first_slot();
    }

    /// Makes nothing lie where the stream begins.
    pub fn clear_first_slot(&mut self) {
        self.ring.store(0, 0);
    }

    /// The ring's size.
    #[must_use]
    pub const fn size(&self) -> RingSize {
        self.size
    }

    /// The position behind the last published record.
    #[must_use]
    pub const fn published(&self) -> Position {
        self.published
    }

    /// Before this position everything may be overwritten.
    #[must_use]
    pub const fn consumed(&self) -> Position {
        self.consumed
    }

    /// Everything before `position` may be overwritten from now on: for rings without a neighbour who says so.
    ///
    /// # Errors
    /// A [`Violation`], and nothing changed, if that goes back or beyond what is published.
    pub fn set_consumed(&mut self, position: Position) -> Result<(), Violation> {
        self.accept(position.0)?;
        // What made that true (a state that was committed) is in memory before anything is overwritten.
        self.ring.order_stores();
        Ok(())
    }

    /// How many bytes of ring the open batch takes so far.
    #[must_use]
    pub const fn open_bytes(&self) -> u64 {
        self.tail.since(self.published)
    }

    /// Appends a record with a copy of `payload` to the open batch.
    ///
    /// # Errors
    /// [`AppendError`]: no room now, or a neighbour that breaks the rules.
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

    /// The same at a position that [`place`](Self::place) gave for a payload of this length, with room, for a batch that is not too long, and
    /// when nothing else was done since: none of that is asked again. Otherwise records that nobody has read may be overwritten.
    ///
    /// # Panics
    /// With debug assertions, if it is another position, or there is no room.
    #[inline(always)]
    pub fn append_placed(&mut self, begin: Position, kind: Kind, stream: u32, payload: &[u8]) {
        let padding = begin.since(self.tail);
        debug_assert!(begin == self.next_position(payload.len()), "of another length, or time");
        debug_assert!(
            self.fits(self.needed(payload.len() as u64) + SLOT_BYTES),
            "there is no room"
        );
        let at = self.put_behind(padding, kind, stream, payload.len());
        self.ring.write(at, payload);
    }

    /// Appends a record whose payload is `parts` one after the other; otherwise as
    /// [`append`](Self::append).
    ///
    /// # Errors
    /// As [`append`](Self::append).
    ///
    /// # Panics
    /// As [`append`](Self::append).
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
    /// As [`append`](Self::append).
    ///
    /// # Panics
    /// As [`append`](Self::append).
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

    /// Where a record of `len` payload bytes would begin if it was appended now: its PAD may come before it.
    #[inline]
    #[must_use]
    pub const fn next_position(&self, len: usize) -> Position {
        let taken = footprint(len as u64);
        self.tail.plus(self.needed(len as u64) - taken - SLOT_BYTES)
    }

    /// Where a record of `len` payload bytes begins if it is appended now, and whether there is [room](Self::has_room) for it: the
    /// two at once.
    ///
    /// # Errors
    /// As [`has_room`](Self::has_room).
    #[inline]
    pub fn place(&mut self, len: usize) -> Result<(Position, bool), Violation> {
        let needed = self.needed(len as u64);
        let begin = self.tail.plus(needed - footprint(len as u64) - SLOT_BYTES);
        let room = needed + SLOT_BYTES;
        Ok((begin, self.fits(room) || self.read_consumed(room)?))
    }

    /// Where the payload of the next record will lie if it has `len` bytes, to be written before the record is appended
    /// by [`append_with`](Self::append_with), which finds there what was written. Nothing has to be undone if it is not.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    ///
    /// # Panics
    /// As [`append`](Self::append), but for the limit of the batch.
    #[cfg(not(loom))]
    #[inline]
    pub fn payload_ahead(&mut self, len: usize) -> Result<&mut [u8], AppendError> {
        assert!(footprint(len as u64) <= self.size.record_max(), "{len} bytes never fit this ring");
        if !self.has_room(len)? {
            return Err(AppendError::Full);
        }
        // The payload begins behind the first two words of its slot, and may go through all slots behind.
        self.clean = self.clean.min(self.tail.plus(SLOT_BYTES));
        #[expect(clippy::cast_possible_truncation, reason = "16")]
        let at = self.offset(self.next_position(len)) + HEADER_BYTES as usize;
        Ok(self.ring.slice_mut(at, len))
    }

    /// The published record that begins at `at`, which may still be read: its header, and all of its bytes, header
    /// and payload. `None` if there is none. Only links keep records.
    #[cfg(not(loom))]
    #[must_use]
    pub fn retained(&self, at: Position) -> Option<(RecordHeader, &[u8])> {
        if at < self.consumed || at >= self.published || at.0 % SLOT_BYTES != 0 {
            return None;
        }
        let offset = self.offset(at);
        let (first, second) = (self.ring.load(offset), self.ring.load(offset + 8));
        let header = RecordHeader::check_of_link(at, self.size, first, second).ok()??;
        #[expect(clippy::cast_possible_truncation, reason = "it lies within the ring")]
        let bytes = HEADER_BYTES as usize + header.len as usize;
        Some((header, self.ring.slice(offset, bytes)))
    }

    /// Whether a record of `len` payload bytes fits behind the open batch, and its PAD if it needs
    /// one.
    ///
    /// # Errors
    /// A [`Violation`] if the neighbour's `consumed` is impossible.
    #[inline]
    pub fn has_room(&mut self, len: usize) -> Result<bool, Violation> {
        let needed = self.needed(len as u64) + SLOT_BYTES;
        Ok(self.fits(needed) || self.read_consumed(needed)?)
    }

    /// Makes the open batch exist for the consumer, all at once. Without records, does nothing.
    ///
    /// The caller then asks its `Waker` whether to ring.
    #[inline]
    pub fn publish(&mut self) {
        if self.tail == self.published {
            return;
        }
        if self.tail >= self.clean {
            self.zero_slot(self.tail);
            self.clean = self.tail.plus(SLOT_BYTES);
        }
        // ORDER (in `OwnMem::publish`): Release, so a consumer that sees this word sees every
        // record of the batch and the zero behind it.
        let start = self.offset(self.published);
        self.ring.publish(start, self.first_word);
        self.published = self.tail;
        self.first_word = 0;
    }

    /// Prepares the slots that the next records will take: has the processor fetch their lines for
    /// writing, and zeroes the beginnings of the nearest.
    ///
    /// Purely to save time: the consumer's copies of these lines, from the last lap, would otherwise
    /// hold up each commit, and [`publish`](Self::publish) zeroes what was not zeroed here. To be called
    /// once the consumer was told.
    #[inline]
    pub fn prepare_ahead(&mut self) {
        if self.tail != self.published {
            return;
        }
        let end = self.consumed.plus(self.size.bytes());
        let mut slot = self.fetched.max(self.tail);
        let wanted = self.tail.plus(AHEAD_BYTES);
        while slot < wanted && slot < end {
            self.ring.prefetch_for_write(self.offset(slot));
            slot = slot.plus(SLOT_BYTES);
        }
        self.fetched = slot;
        let mut slot = self.clean.max(self.tail);
        let wanted = self.tail.plus(CLEAN_BYTES);
        while slot < wanted && slot < end {
            self.zero_slot(slot);
            slot = slot.plus(SLOT_BYTES);
        }
        self.clean = slot;
    }

    /// Forgets the open batch: the consumer never learns of it.
    #[inline]
    pub fn abort(&mut self) {
        if self.tail != self.published {
            // The batch's first slot still begins with 0: its word was held back. Its other records,
            // and payload, lie in the slots behind.
            self.clean = self.published.plus(SLOT_BYTES);
        }
        self.tail = self.published;
        self.first_word = 0;
    }

    /// Publishes a record without payload into the slot that is always kept free for it.
    ///
    /// After this the producer must not be used for further records.
    ///
    /// # Panics
    /// If a batch is open, or that slot was used: nothing may be overwritten that is not yet read.
    pub fn close(&mut self, kind: Kind, stream: u32) {
        assert!(self.tail == self.published, "a batch is open");
        assert!(self.fits(2 * SLOT_BYTES), "the ring was closed before");
        // Invariant 3: one slot for this record, one for the zero behind it. A single slot never
        // needs a PAD.
        let start = self.tail;
        self.put(start, kind, stream, 0);
        self.tail = start.plus(SLOT_BYTES);
        self.publish();
    }

    /// Makes room for a record at the tail and writes its header; returns where the payload goes.
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

    /// Writes the header of a record behind so much padding; where its payload lies.
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
        let payload = self.offset(at) + HEADER_BYTES as usize;
        payload
    }

    /// Bytes a record takes at the tail: PAD, record, and the zeroed slot behind it.
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

    /// Reads how far the neighbour has come; whether `room` bytes are free now.
    #[cold]
    fn read_consumed(&mut self, room: u64) -> Result<bool, Violation> {
        let Some(peer) = &self.peer else { return Ok(false) };
        #[expect(clippy::cast_possible_truncation, reason = "0")]
        let found = peer.load(segment::CONSUMED as usize);
        self.accept(found)?;
        Ok(self.fits(room))
    }

    /// Copy once (`found`), check, then use.
    fn accept(&mut self, found: u64) -> Result<(), Violation> {
        if found < self.consumed.0 || found > self.published.0 || found % SLOT_BYTES != 0 {
            return Err(Violation::Consumed { found, from: self.consumed.0, to: self.published.0 });
        }
        self.consumed = Position(found);
        Ok(())
    }

    /// Writes a header at `at`; the first `word0` of a batch is held back for `publish`.
    #[inline]
    fn put(&mut self, at: Position, kind: Kind, stream: u32, len: u32) {
        let offset = self.offset(at);
        let word = record_ring::word0(at, kind);
        let is_first = self.first_word == 0;
        if is_first {
            self.first_word = word;
        }
        if !is_first || seeded_fault("early_first_word") {
            self.ring.store(offset, word);
        }
        self.ring.store(offset + 8, record_ring::word1(len, stream));
    }

    /// The consumer will look at this slot before anything is published there; it must find nothing
    /// (SPEC 4.5).
    #[inline]
    fn zero_slot(&mut self, slot: Position) {
        if !seeded_fault("no_zero_next_slot") {
            let offset = self.offset(slot);
            self.ring.store(offset, 0);
        }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "an offset in mapped memory")]
    const fn offset(&self, position: Position) -> usize {
        self.size.offset(position) as usize
    }
}
