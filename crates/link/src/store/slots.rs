// SPDX-License-Identifier: MIT OR Apache-2.0
//! Images in a file that replace each other whole (SPEC 13.2): the state, and how far was consumed.
//!
//! ```text
//!   commit(n + 1)     slot of n - 1   ◀─ body, word by word        killed here: n is in force
//!                     its seal        ◀─ one store, Release        from here on: n + 1
//! ```
//!
//! A slot of `consumed` has one word more, for what was consumed since its record (SPEC 13.5).
//!
//! The slots know no meaning of the images. They are read once, when the file is opened; from then
//! on only this process changes them. A peer may read how far was consumed at any time.
//!
//! # Invariants
//!
//! - The bodies of two commits never mix: each begins only when the seal before it is in memory.
//! - A word counts from the record of its slot only: it is 0 when that record is put in force.

use partywall_layout::link::consumed::{self, SINCE, since_word, slot_offset};
use partywall_layout::link::slot::index_of;
use partywall_layout::link::{Consumed, ConsumedRecord, Slot, StateImage};
use partywall_layout::link::{DELIVERED, DELIVERED_STREAM, PAGE_SLOT_STRIDE};
use partywall_layout::seeded_fault;
use partywall_layout::segment::{CONSUMED, LINE_BYTES};
use partywall_ring::{OwnMem, PeerMem};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, IntoBytes};

/// The state page of our own file.
#[derive(Debug)]
pub struct StateSlots {
    page: OwnMem,
    in_force: Box<StateImage>,
}

impl StateSlots {
    pub(crate) fn new(page: OwnMem, in_force: StateImage) -> Self {
        Self { page, in_force: Box::new(in_force) }
    }

    /// The state in force.
    pub fn state(&self) -> &StateImage {
        &self.in_force
    }

    /// Puts `state` in force, whole, with the next sequence and its seal.
    ///
    /// # Panics
    ///
    /// If the state contradicts itself: no later owner would accept it.
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

/// The line of `consumed` on the control page of our own file.
///
/// ```text
///   commit     same stream, and near     the word of the slot in force     one store
///              else                      the other slot: its word 0, its record, its seal
/// ```
#[derive(Debug)]
pub struct ConsumedSlots<W = OwnMem> {
    line: W,
    /// The contents when this owner took over.
    found: Consumed,
    /// The sequence of the record in force. The next three fields belong to that record, too.
    sequence: u64,
    stream: u64,
    /// The position up to which the record says that was consumed.
    start: u64,
    /// The offset of the word in its slot.
    since: usize,
}

impl<W: Words> ConsumedSlots<W> {
    pub(crate) fn new(line: W, found: Consumed) -> Self {
        let record = &found.record;
        let (sequence, stream) = (record.sequence.get(), record.stream.get());
        let (start, since) = (record.consumed.get(), since_index(sequence));
        Self { line, found, sequence, stream, start, since }
    }

    /// The contents when this owner took over.
    pub fn found(&self) -> &Consumed {
        &self.found
    }

    /// Puts in force that `stream` is consumed up to `position`, and only then publishes it to the
    /// peer, which may free everything before.
    #[inline]
    pub fn commit(&mut self, stream: u64, position: u64, digest: u32) {
        // A position before the start wraps, and so is far from it.
        let bytes = position.wrapping_sub(self.start);
        match since_word(bytes, digest) {
            Some(word) if bytes <= NEAR && stream == self.stream => {
                self.line.publish(self.since, word);
            }
            _ => self.begin(stream, position, digest),
        }
        self.publish(position);
    }

    /// Puts a new record in force, with nothing consumed since.
    #[inline(never)]
    fn begin(&mut self, stream: u64, position: u64, digest: u32) {
        self.sequence += 1;
        (self.stream, self.start) = (stream, position);
        self.since = since_index(self.sequence);
        // Before the seal, which puts the record in force: the word that is there counts from
        // another record.
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

    /// How far messages of `stream` were delivered to the application, acknowledged or not, as an
    /// earlier owner noted it.
    pub fn delivered(&self, stream: u64) -> Option<u64> {
        let of = self.line.load(index(DELIVERED_STREAM));
        (of == stream && of != 0).then(|| self.line.load(index(DELIVERED)))
    }

    /// Notes how far messages of `stream` are delivered to the application. Messages that are
    /// delivered again do not count. Only the delivery attempts depend on it.
    #[inline(always)]
    pub fn note_delivered(&mut self, stream: u64, position: u64) {
        if self.line.load(index(DELIVERED_STREAM)) != stream {
            // A position of the old stream is never there together with the new stream.
            self.forget_delivered();
            self.line.publish(index(DELIVERED_STREAM), stream);
        }
        let is_again = position <= self.line.load(index(DELIVERED));
        if !is_again || seeded_fault("link_attempts_fall") {
            self.line.publish(index(DELIVERED), position);
        }
    }

    /// Notes that this owner has delivered nothing yet; the note of the owner before is counted.
    pub fn forget_delivered(&mut self) {
        self.line.publish(index(DELIVERED), 0);
    }

    /// Publishes the word that the living peer reads. No owner believes it after a restart.
    #[inline]
    pub fn publish(&mut self, position: u64) {
        self.line.publish(index(CONSUMED), position);
    }
}

impl ConsumedSlots {
    /// The slots of a new memory: nothing is consumed, and the memory says so.
    pub fn fresh(mut line: OwnMem) -> Self {
        let nothing = ConsumedRecord::new(1, 0, 0, 0);
        line.write(index(slot_offset(index_of(1))), nothing.as_bytes());
        Self::new(line, Consumed::of(nothing))
    }
}

/// The memory of the slots. Tests implement it with a memory that is inspected after each store.
pub trait Words {
    /// As the method of [`OwnMem`], like the others.
    fn load(&self, offset: usize) -> u64;
    /// Stores words one behind the other.
    fn store_all(&mut self, offset: usize, words: impl ExactSizeIterator<Item = u64>);
    /// Stores a word after all words that were stored before.
    fn publish(&mut self, offset: usize, value: u64);
    /// Orders later stores behind the earlier ones.
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

/// How far a peer has consumed, as its control page says; `None` if that is just being written, or
/// damaged.
pub fn consumed_of(control: &PeerMem) -> Option<Consumed> {
    let records = |line: &mut [u8]| control.copy(index(CONSUMED), line);
    consumed_by(records, |word| {
        // ORDER: a fence before each of the three keeps the loads in this order (SPEC 16.5). The
        // words are loaded after the records: a record whose seal was copied is followed by a word
        // that is 0, or of it. The seal is loaded once more after the words: a word of the record
        // that followed in this slot is followed by the seal of that record.
        control.order_loads();
        control.peek(word)
    })
}

/// As [`consumed_of`]: `records` copies the line once, and `word` loads single words of it later.
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

/// Stores a slot: the words of its body, then its seal.
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
/// How far from the position of a record, in bytes, its word counts. It could count further, but a
/// rarely replaced record would be a rarely tested one.
const NEAR: u64 = 64 << 10;

const _: () = assert!(NEAR <= consumed::SINCE_MAX);

#[cfg(test)]
mod tests;
