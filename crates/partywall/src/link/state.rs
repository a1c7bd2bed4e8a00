// SPDX-License-Identifier: MIT OR Apache-2.0
//! Images in a file that replace each other whole (SPEC 13.2): the state, and how far was consumed.
//!
//! ```text
//!   commit(n + 1)     slot of n - 1   ◀─ body, word by word        killed here: n is in force
//!                     its seal        ◀─ one store, Release        from here on: n + 1
//! ```
//!
//! They know no meaning: what the images say is for whoever commits them. They are read once, when the file is
//! opened; from then on this process is the only one that changes them.
//!
//! # Invariants
//!
//! - The bodies of two commits never mix: each begins only when the seal before it is in memory.

use partywall_layout::link::slot::index_of;
use partywall_layout::link::{
    CONSUMED_SLOT, CONSUMED_SLOT_STRIDE, DELIVERED, DELIVERED_STREAM, PAGE_SLOT_STRIDE,
};
use partywall_layout::link::{ConsumedRecord, Slot, StateImage};
use partywall_layout::seeded_fault;
use partywall_layout::segment::CONSUMED;
use partywall_ring::OwnMem;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, IntoBytes};

/// The state page of our own file.
#[derive(Debug)]
pub struct StateSlots {
    page: OwnMem,
    in_force: Box<StateImage>,
}

impl StateSlots {
    pub(super) fn new(page: OwnMem, in_force: StateImage) -> Self {
        Self { page, in_force: Box::new(in_force) }
    }

    /// The state in force.
    pub fn state(&self) -> &StateImage {
        &self.in_force
    }

    /// Puts `state` in force, whole. Its sequence and seal are set here.
    ///
    /// # Panics
    ///
    /// If the state contradicts itself: no later owner would take it.
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
#[derive(Debug)]
pub struct ConsumedSlots {
    line: OwnMem,
    /// As it was when this owner came.
    found: ConsumedRecord,
    /// Of the record in force.
    sequence: u64,
}

impl ConsumedSlots {
    pub(super) fn new(line: OwnMem, in_force: ConsumedRecord) -> Self {
        Self { line, sequence: in_force.sequence.get(), found: in_force }
    }

    /// The record that was in force when this owner came.
    pub fn found(&self) -> &ConsumedRecord {
        &self.found
    }

    /// Puts in force that `stream` is consumed up to `position`, and only then tells the neighbour, which may
    /// forget what lies before.
    #[inline]
    pub fn commit(&mut self, stream: u64, position: u64, proof: u32) {
        self.sequence += 1;
        let words = ConsumedRecord::words(self.sequence, stream, position, proof);
        let offset = CONSUMED_SLOT + index_of(self.sequence) as u64 * CONSUMED_SLOT_STRIDE;
        write(&mut self.line, offset, &words);
        self.tell(position);
    }

    /// How far messages of `stream` were handed to the application, committed or not, as an earlier owner noted it.
    pub fn delivered(&self, stream: u64) -> Option<u64> {
        let of = self.line.load(index(DELIVERED_STREAM));
        (of == stream && of != 0).then(|| self.line.load(index(DELIVERED)))
    }

    /// Notes how far messages of `stream` are handed to the application; those that are handed out again were so already.
    /// Only counts of attempts depend on it.
    #[inline]
    pub fn note_delivered(&mut self, stream: u64, position: u64) {
        if self.line.load(index(DELIVERED_STREAM)) != stream {
            // Never an old position with the new stream.
            self.forget_delivered();
            self.line.publish(index(DELIVERED_STREAM), stream);
        }
        let is_again = position <= self.line.load(index(DELIVERED));
        if !is_again || seeded_fault("link_attempts_fall") {
            self.line.publish(index(DELIVERED), position);
        }
    }

    /// What the owner before handed out is counted: this one has handed out nothing yet.
    pub fn forget_delivered(&mut self) {
        self.line.publish(index(DELIVERED), 0);
    }

    /// Sets the word that the living neighbour reads, which nobody believes after a restart.
    #[inline]
    pub fn tell(&mut self, position: u64) {
        self.line.publish(index(CONSUMED), position);
    }
}

/// Stores a slot: the words of its body, then its seal.
#[inline]
fn write(memory: &mut OwnMem, offset: u64, slot: &[U64]) {
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

#[expect(clippy::cast_possible_truncation, reason = "within a page")]
const fn index(offset: u64) -> usize {
    offset as usize
}
