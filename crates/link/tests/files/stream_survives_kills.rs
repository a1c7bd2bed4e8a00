// SPDX-License-Identifier: MIT OR Apache-2.0
//! An owner that is killed between any two stores leaves the stream as it was before or after the
//! publication of a batch, never anything else.
//!
//! ```text
//!  before ── stores of a step ──▶ after     in before, in after, and in any mixture of the words
//!             in any order                  that differ, each published message is found whole,
//!                                           and no other message
//!  publish   all other words, then the first word0: without it no message, with it all of them
//! ```
//!
//! The mixtures cover more than a kill after each store, because stores without a fence between
//! them are tried in both orders. `state_survives_kills.rs` kills real processes.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use crate::support_retained;

use partywall_link::retained::{Refused, Retained};
use partywall_reconcile::Position;
use std::collections::VecDeque;
use support_retained::{Image, Memory, State, all_bytes, all_messages, message};

/// A random number generator with a fixed seed, so each run repeats the same sequence.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// The words that differ between two images (copies of all bytes of ring and slab). The words of
/// the ring come first; words are in the order of their offsets.
fn differences(before: &Image, after: &Image) -> Vec<(bool, usize)> {
    let words = |before: &[u8], after: &[u8], in_ring: bool| {
        let starts = (0..before.len()).step_by(8);
        let differs = |start: &usize| before[*start..*start + 8] != after[*start..*start + 8];
        starts.filter(differs).map(|start| (in_ring, start)).collect::<Vec<_>>()
    };
    let mut found = words(&before.ring, &after.ring, true);
    found.extend(words(&before.slab, &after.slab, false));
    found
}

fn copy(from: &Image, to: &mut Image, (in_ring, start): (bool, usize)) {
    let (from, to) = if in_ring { (&from.ring, &mut to.ring) } else { (&from.slab, &mut to.slab) };
    to[start..start + 8].copy_from_slice(&from[start..start + 8]);
}

/// Calls `check` with images (contents of ring and slab) that are possible after a kill between
/// `before` and `after`. Each image contains only some of the words that differ in `after`: the
/// first n, the last n, exactly one, all but one, or a random selection.
fn mixtures(
    before: &Image,
    after: &Image,
    words: &[(bool, usize)],
    random: &mut Random,
    mut check: impl FnMut(&Image),
) {
    let mut try_some = |is_in: &mut dyn FnMut(usize) -> bool| {
        let mut image = before.clone();
        for (index, word) in words.iter().enumerate() {
            if is_in(index) {
                copy(after, &mut image, *word);
            }
        }
        check(&image);
    };
    for count in 0..=words.len() {
        try_some(&mut |index| index < count);
        try_some(&mut |index| index >= count);
        try_some(&mut |index| index == count);
        try_some(&mut |index| index != count);
        try_some(&mut |_| random.below(2) == 0);
    }
}

struct World {
    retained: Option<Retained>,
    memory: Memory,
    state: State,
    /// The messages that the sender has published and not yet freed, each with the position where
    /// its record ends.
    kept: VecDeque<(Position, Vec<u8>)>,
    batch: Vec<(Position, Vec<u8>)>,
    random: Random,
    image: Image,
    numbers: usize,
    has_seen: Seen,
}

/// Counts of the cases that the random sequence of steps has reached, so that the test can demand
/// that each case occurs.
#[derive(Debug, Default)]
struct Seen {
    pads: usize,
    laps: usize,
    blobs: usize,
    /// The number of records that the sequence of steps asked to be compact (without a prefix).
    compact: usize,
    epochs: usize,
    epochs_over_a_record: usize,
    kills: usize,
    zeros_ahead: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let image = Image::zeroed(1024, 1024);
        let (ring, slab, memory) = image.memory();
        let state = State::new(1);
        let retained = Retained::empty(ring, image.size(), slab, state.stream).with_inline_max(150);
        Self {
            retained: Some(retained),
            memory,
            state,
            kept: VecDeque::new(),
            batch: Vec::new(),
            random: Random(seed),
            image,
            numbers: 0,
            has_seen: Seen::default(),
        }
    }

    fn retained(&mut self) -> &mut Retained {
        self.retained.as_mut().unwrap()
    }

    /// Checks that the next owner of a stream whose ring and slab have the bytes `image` finds
    /// exactly the messages `expected`.
    fn expect(image: &Image, state: State, expected: &[Vec<u8>]) {
        let (found, _) = image.found(state).unwrap();
        assert_eq!(all_messages(&found, state.base.position), expected);
    }

    fn published(&self) -> Vec<Vec<u8>> {
        self.kept.iter().map(|(_, bytes)| bytes.clone()).collect()
    }

    /// Checks a step of the sender that publishes nothing: wherever the sender is killed within the
    /// step, the next owner finds the stream unchanged.
    fn changed_nothing(&mut self) {
        let after = self.memory.image();
        let words = differences(&self.image, &after);
        let (expected, state) = (self.published(), self.state);
        let kills = &mut self.has_seen.kills;
        mixtures(&self.image, &after, &words, &mut self.random, |image| {
            Self::expect(image, state, &expected);
            *kills += 1;
        });
        self.image = after;
    }

    fn append(&mut self) {
        let lens = [0, 1, 24, 25, 100, 150, 151, 300, 500, 1024];
        let len = lens[self.random.below(lens.len())];
        self.numbers += 1;
        let bytes = message(self.numbers, len);
        let is_compact = self.random.below(2) == 0;
        let appended = match is_compact {
            true => self.retained().append_compact(&[&bytes], None),
            false => self.retained().append(&[&bytes], None),
        };
        if let Ok(end) = appended {
            self.has_seen.compact += usize::from(is_compact);
            self.has_seen.blobs += usize::from(len > 150);
            self.batch.push((end, bytes));
        }
        self.changed_nothing();
    }

    fn reserve_and_drop(&mut self) {
        let (len, filling) = (self.random.below(500), self.random.below(256) as u8);
        if let Ok(mut reservation) = self.retained().reserve(len) {
            reservation.bytes().fill(filling);
        }
        self.changed_nothing();
    }

    fn publish(&mut self) {
        let Some((first, _)) = self.batch.first().cloned() else { return };
        let begin = self.retained().tail();
        self.retained().publish();
        let after = self.memory.image();
        let (expected, state) = (self.published(), self.state);
        // A reader of the ring finds no record of the batch until the batch's first word is stored:
        // the word at `begin`, of the first record or of the PAD before that record. So the sender
        // stores this word last. Before that it stores the first words of the further records, and
        // a zero behind the last record.
        let (commit, tail) = ((true, (begin.0 % 1024) as usize), self.retained().tail());
        let mut words = differences(&self.image, &after);
        let word = |image: &Image, at: u64| {
            let start = (at % 1024) as usize;
            u64::from_le_bytes(image.ring[start..start + 8].try_into().unwrap())
        };
        let next = |slot: &u64| {
            let len = word(&after, slot + 8) & 0xffff_ffff;
            Some(slot + (16 + len).next_multiple_of(64)).filter(|next| *next < tail.0)
        };
        let first_words: Vec<_> = std::iter::successors(Some(begin.0), next).collect();
        assert!(
            first_words.iter().all(|slot| word(&self.image, *slot) != word(&after, *slot)),
            "a record of the batch was whole before"
        );
        assert!(words.contains(&commit), "{words:?}");
        assert!(
            words.iter().all(|(is_ring, offset)| {
                let is_of = |slot: &u64| slot % 1024 == *offset as u64;
                *is_ring && (first_words.iter().any(is_of) || is_of(&tail.0))
            }),
            "{words:?}: first words and a zero"
        );
        words.retain(|word| *word != commit);
        let kills = &mut self.has_seen.kills;
        mixtures(&self.image, &after, &words, &mut self.random, |image| {
            Self::expect(image, state, &expected);
            *kills += 1;
        });
        let slots = (begin.0..self.retained().tail().0).step_by(64);
        let is_pad = |slot: &u64| {
            let start = (slot % 1024) as usize;
            after.ring[start..start + 8] == (slot | 31 << 1 | 1).to_le_bytes()
        };
        self.has_seen.pads += slots.filter(is_pad).count();
        self.has_seen.laps = self.has_seen.laps.max((first.0 / 1024) as usize);
        self.kept.extend(self.batch.drain(..));
        Self::expect(&after, self.state, &self.published());
        self.image = after;
    }

    /// A step: the sender zeroes ring memory for its next records (`prepare`), as it does after it
    /// has notified the peer. By that time the peer may have acknowledged everything. The zeroing
    /// must not destroy a kept message.
    fn prepare(&mut self) {
        if self.random.below(2) == 0 {
            let tail = self.retained().tail();
            self.retained().acknowledged(tail).unwrap();
        }
        self.retained().prepare_ahead();
        let after = self.memory.image();
        let (expected, state) = (self.published(), self.state);
        let words = differences(&self.image, &after);
        assert!(words.iter().all(|(is_ring, offset)| *is_ring && offset % 64 == 0), "{words:?}");
        self.has_seen.zeros_ahead += words.len();
        mixtures(&self.image, &after, &words, &mut self.random, |image| {
            Self::expect(image, state, &expected);
        });
        Self::expect(&after, self.state, &self.published());
        self.image = after;
    }

    fn trim(&mut self) {
        let (acked, tail) = (self.retained().acked(), self.retained().tail());
        let more = tail.since(acked) * self.random.below(257) as u64 / 256;
        self.retained().acknowledged(Position((acked.0 + more) & !63)).unwrap();
        let Some(base) = self.retained().trim_to() else { return };
        // The sender stores the new base by one store, before it reuses the room below the new
        // base. So a kill leaves the old or the new base. The old one is checked here, the new one
        // after the store.
        Self::expect(&self.memory.image(), self.state, &self.published());
        self.state.base = base;
        let before = self.kept.len();
        self.kept.retain(|(end, _)| *end > base.position);
        assert!(self.kept.len() < before);
        Self::expect(&self.memory.image(), self.state, &self.published());
        self.retained().trimmed(base);
        self.changed_nothing();
    }

    /// A step: the sender is killed, and the next owner opens the stream.
    fn restart(&mut self) {
        let (found, memory) = self.image.found(self.state).unwrap();
        self.retained = Some(found.with_inline_max(150));
        self.memory = memory;
        self.batch.clear();
        self.changed_nothing();
    }

    fn epoch(&mut self) {
        let next = State::new(self.state.stream.0.get() + 1);
        self.retained().end(next.stream);
        self.changed_nothing();
        // The sender stores the state that names the next stream. From this store on the next owner
        // finds the next stream, which is empty.
        self.state = next;
        self.kept.clear();
        self.batch.clear();
        self.has_seen.epochs += 1;
        self.has_seen.epochs_over_a_record += usize::from(self.image.ring[..8] != [0; 8]);
        Self::expect(&self.image, next, &[]);
        if self.random.below(2) == 0 {
            return self.restart();
        }
        self.retained().begin(next.stream);
        self.changed_nothing();
    }

    fn step(&mut self) {
        match self.random.below(32) {
            0..10 => self.append(),
            10..12 => self.reserve_and_drop(),
            12..20 => self.publish(),
            20 => {
                self.retained().abort();
                self.batch.clear();
                self.changed_nothing();
            }
            21..26 => self.trim(),
            26..29 => self.prepare(),
            29..31 => self.restart(),
            _ if self.random.below(3) == 0 => self.epoch(),
            _ => {}
        }
    }
}

#[test]
fn killed_between_any_two_stores() {
    let mut world = World::new(0x9e37_79b9);
    for _ in 0..6000 {
        world.step();
    }
    let seen = &world.has_seen;
    assert!(seen.pads > 5 && seen.laps > 3 && seen.blobs > 200 && seen.compact > 200, "{seen:?}");
    assert!(seen.epochs > 20 && seen.epochs_over_a_record > 5, "{seen:?}");
    assert!(seen.kills > 100_000 && seen.zeros_ahead > 100, "{seen:?}");
}

/// Input: complete records of the former stream lie at the positions of the new stream. Only the
/// tag in each record shows that the record is stale. Rule: stale records never count as messages.
#[test]
fn former_stream_never_comes_back() {
    let image = Image::zeroed(1024, 64);
    let (ring, slab, memory) = image.memory();
    let (first, next) = (State::new(1), State::new(2));
    let mut retained = Retained::empty(ring, image.size(), slab, first.stream);
    for number in 0..4 {
        // The first record has a prefix, and the tag in that prefix identifies the former stream.
        retained.append_compact(&[&message(number, 10)], None).unwrap();
        retained.publish();
    }
    let before = memory.image();
    retained.end(next.stream);
    World::expect(&memory.image(), first, &(0..4).map(|n| message(n, 10)).collect::<Vec<_>>());
    World::expect(&memory.image(), next, &[]);
    retained.begin(next.stream);
    World::expect(&memory.image(), next, &[]);
    retained.append(&[&message(9, 10)], None).unwrap();
    World::expect(&memory.image(), next, &[]);
    retained.publish();
    World::expect(&memory.image(), next, &[message(9, 10)]);
    // Input: a compact record of the former stream lies directly after the first record of the new
    // stream, as if the new stream's owner had zeroed nothing. Expected: the stale record counts as
    // damage, never as a message.
    let mut image = memory.image();
    image.ring[64..128].copy_from_slice(&before.ring[64..128]);
    assert!(image.found(next).is_err());
}

/// Input: a reservation (room for a message) was filled and dropped without being published. So it
/// has overwritten part of a freed record, at the offset where the next stream begins. Rule: the
/// next owner finds the old or the new stream undamaged, whichever one the link file's state names.
#[test]
fn half_a_record_is_not_left_where_the_next_stream_begins() {
    let image = Image::zeroed(1024, 64);
    let (ring, slab, memory) = image.memory();
    let (mut first, next) = (State::new(1), State::new(2));
    let mut retained = Retained::empty(ring, image.size(), slab, first.stream);
    for number in 0..5 {
        retained.append(&[&message(number, 150)], None).unwrap();
        retained.publish();
        retained.acknowledged(retained.tail()).unwrap();
        first.base = retained.trim_to().unwrap();
        retained.trimmed(first.base);
    }
    retained.reserve(150).unwrap().bytes().fill(7);
    assert_eq!(memory.image().ring[100], 7, "behind a PAD, at the beginning of the ring");
    retained.end(next.stream);
    World::expect(&memory.image(), first, &[]);
    World::expect(&memory.image(), next, &[]);
}

#[test]
#[should_panic(expected = "another tag")]
fn streams_with_equal_bytes_do_not_follow_each_other() {
    let image = Image::zeroed(1024, 64);
    let (ring, slab, _) = image.memory();
    let mut retained = Retained::empty(ring, image.size(), slab, State::new(7).stream);
    retained.end(State::new(7 ^ 0xffff_0000_ffff).stream);
    let (ring, slab, _) = image.memory();
    let mut retained = Retained::empty(ring, image.size(), slab, State::new(7).stream);
    retained.end(State::new(7 << 32).stream);
}

/// Appends a message; every other record is compact where the format permits.
fn appended(retained: &mut Retained, number: usize, len: usize) -> Result<Position, Refused> {
    let message = message(number, len);
    match number % 2 {
        0 => retained.append(&[&message], None),
        _ => retained.append_compact(&[&message], None),
    }
}

/// An input: a stream with every kind of record, such as a PAD, and BLOBs (long messages) around
/// the end of the slab. `base_at_start` says whether the first kept record is still the first of
/// the stream.
fn full(base_at_start: bool) -> (Image, State, usize) {
    let image = Image::zeroed(1024, 1024);
    let (ring, slab, memory) = image.memory();
    let mut state = State::new(0x1122_3344_5566_7788);
    let retained = Retained::empty(ring, image.size(), slab, state.stream);
    let mut retained = retained.with_inline_max(150);
    let mut lens = vec![150, 300, 64, 400];
    let mut count = lens.len();
    if !base_at_start {
        lens = vec![150, 20, 300, 150, 100, 500, 300, 150, 150, 60, 180];
        count = 0;
    }
    for (number, len) in lens.into_iter().enumerate() {
        while appended(&mut retained, number, len).is_err() {
            retained.acknowledged(Position(retained.acked().0 + 64)).unwrap();
            if let Some(base) = retained.trim_to() {
                retained.trimmed(base);
                state.base = base;
            }
        }
        retained.publish();
    }
    if count == 0 {
        count = all_messages(&retained, retained.base()).len();
    }
    (memory.image(), state, count)
}

#[test]
fn no_single_byte_is_damaged_unnoticed() {
    for base_at_start in [true, false] {
        let (image, state, count) = full(base_at_start);
        assert!(count > 2 && (state.base.position > Position(0)) != base_at_start);
        let (good, _) = image.found(state).unwrap();
        let (tail, bytes) = (good.tail(), all_bytes(&good, state.base.position));
        let (mut noticed, mut taken_for_the_end) = (0, Vec::new());
        for index in 0..image.ring.len() + image.slab.len() {
            let mut damaged = image.clone();
            let (ring, slab) = (&mut damaged.ring, &mut damaged.slab);
            let byte = ring.get(index).copied().unwrap_or_else(|| slab[index - 1024]);
            let bits = (0..8).map(|bit| byte ^ 1 << bit);
            for other in bits.chain([0, 0xff, byte ^ 0xff]).filter(|other| *other != byte) {
                if index < 1024 {
                    damaged.ring[index] = other;
                } else {
                    damaged.slab[index - 1024] = other;
                }
                match damaged.found(state) {
                    Err(damage) => {
                        assert!(damage.position >= state.base.position, "{damage}");
                        assert!(damage.to_string().contains("SPEC 14"), "{damage}");
                        noticed += 1;
                    }
                    Ok((found, _)) if found.tail() < tail => taken_for_the_end.push((index, other)),
                    Ok((found, _)) => {
                        assert_eq!(found.tail(), tail);
                        assert_eq!(all_bytes(&found, state.base.position), bytes, "byte {index}");
                    }
                }
            }
        }
        assert!(noticed > 8000, "{noticed}");
        // Each damaged byte is noticed, with the one exception that `found.rs` names. At the
        // positions 0, 64, 128 and 192, the first word of a record has only one byte that is not 0.
        // If that byte becomes 0, the record counts as the end of the stream.
        assert!(
            taken_for_the_end
                .iter()
                .all(|(index, other)| [0, 64, 128, 192].contains(index) && *other == 0)
        );
        assert_eq!(taken_for_the_end.is_empty(), !base_at_start);
    }
}

#[test]
fn a_state_that_does_not_fit_its_records_is_damage() {
    let (image, state, _) = full(false);
    let base = state.base.position;
    for position in [Position(base.0 + 1), Position(!63), Position(64)] {
        let mut other = state;
        other.base.position = position;
        let damage = image.found(other).unwrap_err();
        assert_eq!(damage.position, position, "{damage}");
    }
    let mut other = State::new(1);
    other.base.digest.0 = 1;
    assert!(image.found(other).is_err(), "a proof where none can be");
    let (mut found, _) = image.found(state).unwrap();
    assert!(found.acknowledged(Position(found.tail().0 + 64)).is_err(), "an acked beyond the tail");
}
