// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two records of a link file that are replaced while the link runs: the state image and the
//! acked offset (`consumed`). The file has two slots for each; an update writes one slot
//! completely, and the other slot stays valid meanwhile (SPEC 13.2).
//!
//! ```text
//!   update n + 1 writes    the body of slot n - 1, word by word      if killed: n is in force
//!                          the seal of that slot: one store, Release  after it: n + 1 is in force
//! ```
//!
//! Each slot of `consumed` has one further word: how many bytes were acknowledged since the slot's
//! record was written (SPEC 13.5).
//!
//! This module does not interpret the contents of the slots. The owner of the link file reads both
//! records once, when it opens the file; from then on only the owner changes them. A peer may read
//! `consumed` at any time.
//!
//! # Invariants
//!
//! - The bodies of two updates never mix: an update begins only after the previous seal is in
//!   memory.
//! - The word of a slot counts from the record in that slot only: the word is 0 when the record is
//!   put in force.

use partywall_layout::link::consumed::{self, SINCE, since_word, slot_offset};
use partywall_layout::link::slot::index_of;
use partywall_layout::link::{Consumed, ConsumedRecord, Slot, StateImage};
use partywall_layout::link::{DELIVERED, DELIVERED_STREAM, PAGE_SLOT_STRIDE};
use partywall_layout::seeded_fault;
use partywall_layout::segment::{CONSUMED, LINE_BYTES};
use partywall_ring::{OwnMem, PeerMem};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, IntoBytes};

/// The page of the link file that holds the two slots of the state image. Only the owner of the
/// file writes the page.
#[derive(Debug)]
pub struct StateSlots {
    page: OwnMem,
    in_force: Box<StateImage>,
}

impl StateSlots {
    pub(crate) fn new(page: OwnMem, in_force: StateImage) -> Self {
        Self { page, in_force: Box::new(in_force) }
    }

    /// The state image that was stored last, and that a later owner would find.
    pub fn state(&self) -> &StateImage {
        &self.in_force
    }

    /// Stores the whole `state`: writes it, with the next sequence number, into the slot with the
    /// older state, and then the slot's seal. From then on a later owner finds this state.
    ///
    /// # Panics
    ///
    /// If the fields of `state` contradict each other, because no later owner would accept them.
    #[inline]
    pub fn commit(&mut self, state: &StateImage) {
        let sequence = self.in_force.sequence.get() + 1;
        let state = StateImage { sequence: U64::new(sequence), ..*state }.sealed();
        let is_possible = state.check();
        assert!(is_possible.is_ok(), "{is_possible:?}");
        let offset = index_of(sequence) as u64 * PAGE_SLOT_STRIDE;
        let words = <[U64]>::ref_from_bytes(state.as_bytes());
        assert!(words.is_ok(), "a state is made of words");
        words.into_iter().for_each(|words| write(&mut self.page, offset, words));
        *self.in_force = state;
    }
}

/// The part of the control page in this process's file that holds the acked offset (`consumed`).
///
/// ```text
///   update to a position in the same stream, at most NEAR bytes after the record in force:
///            one store into the word of the slot in force
///   any other update, into the other slot: word := 0, then the slot's record, then its seal
/// ```
#[derive(Debug)]
pub struct ConsumedSlots<W = OwnMem> {
    line: W,
    /// The acked offset that the file held when this process became the owner.
    found: Consumed,
    /// The sequence number of the slot record that was written last; each new record adds 1. The
    /// fields `stream`, `start` and `since` of this struct describe the same slot record.
    sequence: u64,
    stream: u64,
    /// The acknowledged position in the slot record that was written last. A further word of that
    /// slot counts the bytes acknowledged since, from this position on.
    start: u64,
    /// The offset of the word that counts the bytes acknowledged since the last slot record was
    /// written.
    since: usize,
}

impl<W: Words> ConsumedSlots<W> {
    pub(crate) fn new(line: W, found: Consumed) -> Self {
        let record = &found.record;
        let (sequence, stream) = (record.sequence.get(), record.stream.get());
        let (start, since) = (record.consumed.get(), since_index(sequence));
        Self { line, found, sequence, stream, start, since }
    }

    /// The acked offset that the file held when this process became the owner.
    pub fn found(&self) -> &Consumed {
        &self.found
    }

    /// Stores for a later owner that `stream` is acknowledged up to `position`. Only then publishes
    /// the position to the peer, which may free all records before it.
    #[inline]
    pub fn commit(&mut self, stream: u64, position: u64, digest: u32) {
        // If `position` is below `start`, the position in the slot record that was written last,
        // the subtraction wraps to a value above `NEAR`. So a new slot record is written.
        let bytes = position.wrapping_sub(self.start);
        match since_word(bytes, digest) {
            Some(word) if bytes <= NEAR && stream == self.stream => {
                self.line.publish(self.since, word);
            }
            _ => self.begin(stream, position, digest),
        }
        self.publish(position);
    }

    /// Stores a new record of the acked offset: writes it into the slot with the older record, and
    /// then the slot's seal, from which on readers use it. The slot's word, which counts bytes
    /// acknowledged later, is 0.
    #[inline(never)]
    fn begin(&mut self, stream: u64, position: u64, digest: u32) {
        self.sequence += 1;
        (self.stream, self.start) = (stream, position);
        self.since = since_index(self.sequence);
        // The slot's word, which counts later acknowledged bytes, is zeroed before the seal, from
        // which on readers use the record: the word's old value counts from the slot's previous
        // record.
        let is_late = seeded_fault("link_since_later");
        if !is_late {
            self.line.publish(self.since, 0);
        }
        let record = ConsumedRecord::new(self.sequence, stream, position, digest);
        let words = <[U64]>::ref_from_bytes(record.as_bytes());
        assert!(words.is_ok(), "a record is made of words");
        let offset = slot_offset(index_of(self.sequence));
        words.into_iter().for_each(|words| write(&mut self.line, offset, words));
        if is_late {
            self.line.publish(self.since, 0);
        }
    }

    /// The position up to which an earlier owner delivered messages of `stream` to the application,
    /// acknowledged or not.
    pub fn delivered(&self, stream: u64) -> Option<u64> {
        let of = self.line.load(index(DELIVERED_STREAM));
        (of == stream && of != 0).then(|| self.line.load(index(DELIVERED)))
    }

    /// Records the position up to which messages of `stream` are delivered to the application.
    /// Redelivered messages do not lower the position. Only the count of delivery attempts depends
    /// on the position.
    #[inline(always)]
    pub fn note_delivered(&mut self, stream: u64, position: u64) {
        if self.line.load(index(DELIVERED_STREAM)) != stream {
            // The delivered position is zeroed first: if the process is killed between the stores,
            // the id of the new stream must not come with the position of the old stream.
            self.forget_delivered();
            self.line.publish(index(DELIVERED_STREAM), stream);
        }
        let is_again = position <= self.line.load(index(DELIVERED));
        if !is_again || seeded_fault("link_attempts_fall") {
            self.line.publish(index(DELIVERED), position);
        }
    }

    /// Records that this owner has delivered no message yet. The caller has already counted the
    /// deliveries up to the previous owner's position.
    pub fn forget_delivered(&mut self) {
        self.line.publish(index(DELIVERED), 0);
    }

    /// Publishes the acknowledged position in the word `consumed`, which the living peer reads. The
    /// next owner of the file does not read this word.
    #[inline]
    pub fn publish(&mut self, position: u64) {
        self.line.publish(index(CONSUMED), position);
    }
}

impl ConsumedSlots {
    /// The slots for the acked offset of a new store, which say that nothing is acknowledged.
    pub fn fresh(mut line: OwnMem) -> Self {
        let nothing = ConsumedRecord::new(1, 0, 0, 0);
        line.write(index(slot_offset(index_of(1))), nothing.as_bytes());
        Self::new(line, Consumed::of(nothing))
    }
}

/// The memory of the slots for the acked offset. Tests implement this trait with a memory that
/// keeps a copy of its contents after each store.
pub trait Words {
    /// Loads the word at `offset` of the memory of the slots, as this process last stored it.
    fn load(&self, offset: usize) -> u64;
    /// Stores consecutive words in the memory of the slots for the acked offset, from `offset` on.
    fn store_all(&mut self, offset: usize, words: impl ExactSizeIterator<Item = u64>);
    /// Stores a word in the memory of the slots with Release: earlier stores become visible before
    /// this word.
    fn publish(&mut self, offset: usize, value: u64);
    /// Orders all later stores into the memory of the slots after all earlier ones.
    fn order_stores(&self);
}

impl Words for OwnMem {
    #[inline(always)]
    fn load(&self, offset: usize) -> u64 {
        Self::load(self, offset)
    }

    #[inline(always)]
    fn store_all(&mut self, offset: usize, words: impl ExactSizeIterator<Item = u64>) {
        Self::store_all(self, offset, words);
    }

    #[inline(always)]
    fn publish(&mut self, offset: usize, value: u64) {
        Self::publish(self, offset, value);
    }

    #[inline(always)]
    fn order_stores(&self) {
        Self::order_stores(self);
    }
}

/// Reads the acked offset from a peer's control page. `None` if the peer is writing the acked
/// offset at the moment, or if the acked offset is damaged.
pub fn consumed_of(control: &PeerMem) -> Option<Consumed> {
    let records = |line: &mut [u8]| control.copy(index(CONSUMED), line);
    consumed_by(records, |word| {
        // ORDER: the reader of a peer's acked offset copies the records, then loads the word of
        // each of the two slots, then one seal again. A fence before each of these three loads
        // keeps this order (SPEC 16.5). The words are loaded after the records: a record whose seal
        // was copied is followed by a word that is 0, or that counts from this record. The seal is
        // loaded once more after the words: if a word counts from the next record in this slot, the
        // second load sees that record's seal.
        control.order_loads();
        control.peek(word)
    })
}

/// Reads the acked offset from its two slots: `records` copies the 128 bytes of both slots once,
/// and `word` loads single words of these bytes afterwards.
fn consumed_by(
    records: impl FnOnce(&mut [u8]),
    mut word: impl FnMut(usize) -> u64,
) -> Option<Consumed> {
    let mut line = [0; LINE];
    records(&mut line);
    if !seeded_fault("link_since_early") {
        for slot in [0, 1] {
            let since = index(slot_offset(slot) + SINCE);
            line[since..since + 8].copy_from_slice(&word(since).to_le_bytes());
        }
    }
    let found = consumed::check(&line).ok()?;
    let seal = word(index(found.seal_offset()));
    (seal == found.record.seal.get() || seeded_fault("link_seal_once")).then_some(found)
}

/// Writes a slot of the link file, so that a kill leaves it invalid or complete: first the words of
/// the slot's body, then the seal.
#[inline]
fn write(memory: &mut impl Words, offset: u64, slot: &[U64]) {
    let Some((seal, body)) = slot.split_last() else { return };
    let start = index(offset);
    let end = start + size_of_val(body);
    memory.order_stores();
    if seeded_fault("link_seal_first") {
        memory.publish(end, seal.get());
    }
    memory.store_all(start, body.iter().map(|word| word.get()));
    memory.publish(end, seal.get());
}

const fn since_index(sequence: u64) -> usize {
    index(slot_offset(index_of(sequence)) + SINCE)
}

#[expect(clippy::cast_possible_truncation, reason = "within a page")]
const fn index(offset: u64) -> usize {
    offset as usize
}

const LINE: usize = index(LINE_BYTES);
/// The maximum number of acknowledged bytes that the word of a slot counts; beyond it a new slot
/// record is written. The word could count further, but then slot records would be replaced so
/// rarely that tests seldom cover a replacement.
const NEAR: u64 = 64 << 10;

const _: () = assert!(NEAR <= consumed::SINCE_MAX);

#[cfg(test)]
mod tests;
