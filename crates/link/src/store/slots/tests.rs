// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;
use proptest::prelude::*;

/// A control page where nothing is acknowledged, and the mapping of that page that a peer would
/// have.
fn new() -> (ConsumedSlots, PeerMem) {
    let (own, peer) = partywall_ring::mem::pair(4096);
    (ConsumedSlots::fresh(own), peer)
}

/// The stream, position and digest of the acked offset that was stored last, as a peer reads them.
fn in_force(control: &PeerMem) -> (u64, u64, u32) {
    let found = consumed_of(control).unwrap();
    (found.record.stream.get(), found.position, found.digest)
}

proptest! {
    /// Rule: whatever acked offsets were stored one after the other, a peer and the next owner read
    /// the offset that was stored last.
    #[test]
    fn the_last_commit_is_in_force(
        commits in prop::collection::vec((1..3_u64, 0..3000_u64, any::<u32>()), 1..40)
    ) {
        let (mut slots, peer) = new();
        for (stream, place, digest) in commits {
            slots.commit(stream, place * 64, digest);
            prop_assert_eq!(in_force(&peer), (stream, place * 64, digest));
            prop_assert_eq!(peer.load(index(CONSUMED)), place * 64);
            let found = consumed_of(&peer).unwrap();
            slots = ConsumedSlots::new(slots.line, found);
        }
    }
}

#[test]
fn near_position_is_stored_as_a_word() {
    let (mut slots, peer) = new();
    slots.commit(7, 64, 5);
    let sequence = |peer: &PeerMem| consumed_of(peer).unwrap().record.sequence.get();
    let first = sequence(&peer);
    for place in 2..=NEAR / 64 + 1 {
        slots.commit(7, place * 64, 5);
        assert_eq!(sequence(&peer), first, "place {place}");
    }
    slots.commit(7, NEAR + 128, 5);
    assert_eq!((sequence(&peer), in_force(&peer)), (first + 1, (7, NEAR + 128, 5)));
    slots.commit(7, NEAR + 192, 5);
    slots.commit(8, NEAR + 256, 5);
    assert_eq!((sequence(&peer), in_force(&peer)), (first + 2, (8, NEAR + 256, 5)));
}

/// Memory for the two slots of the acked offset; it keeps a copy of its contents after each store.
#[derive(Default)]
struct Traced {
    states: Vec<[u64; LINE / 8]>,
}

impl Traced {
    fn put(&mut self, offset: usize, value: u64) {
        let mut next = *self.states.last().unwrap();
        next[offset / 8] = value;
        self.states.push(next);
    }
}

impl Words for &mut Traced {
    fn load(&self, offset: usize) -> u64 {
        self.states.last().unwrap()[offset / 8]
    }

    fn store_all(&mut self, offset: usize, words: impl ExactSizeIterator<Item = u64>) {
        words.enumerate().for_each(|(count, word)| self.put(offset + 8 * count, word));
    }

    fn publish(&mut self, offset: usize, value: u64) {
        self.put(offset, value);
    }

    fn order_stores(&self) {}
}

/// Writes the given acked offsets (stream and position) into the slots, one after the other.
/// Returns the contents of the memory after each store, and for each offset the number of stores
/// before its update began.
fn traced(commits: &[(u64, u64)]) -> (Vec<[u64; LINE / 8]>, Vec<usize>) {
    let mut trace = Traced { states: vec![[0; LINE / 8]] };
    let nothing = ConsumedRecord::new(1, 0, 0, 0);
    let words = <[U64]>::ref_from_bytes(nothing.as_bytes()).unwrap();
    (&mut trace).store_all(index(slot_offset(0)), words.iter().map(|word| word.get()));
    trace.states.drain(..trace.states.len() - 1);
    let mut begun = Vec::new();
    let mut slots = ConsumedSlots::new(&mut trace, Consumed::of(nothing));
    for (stream, position) in commits {
        begun.push(slots.line.states.len());
        slots.commit(*stream, *position, digest(*stream, *position));
    }
    (trace.states, begun)
}

fn digest(stream: u64, position: u64) -> u32 {
    u32::try_from((stream * 7919 + position) % 1_000_003).unwrap()
}

/// Input of the tests: successive acked offsets, in one stream and in others, at distances below
/// and above `NEAR`, the number of acknowledged bytes from which an update writes a new slot
/// record.
const COMMITS: [(u64, u64); 14] = {
    let far = 2 * NEAR;
    [
        (1, 64),
        (1, 128),
        (1, 192),
        (1, far),
        (1, far + 64),
        (1, 2 * far),
        (1, 3 * far),
        (1, 3 * far + 640),
        (2, 64),
        (2, 640),
        (3, 6400),
        (3, 6464),
        (1, 3 * far + 704),
        (1, 3 * far + 768),
    ]
};

/// Expected result: the acked offsets that a reader may find after store number `state` into the
/// slots. They are those of the last completed update and of the update in progress.
fn expected(begun: &[usize], state: usize) -> [(u64, u64); 2] {
    let count = begun.iter().filter(|first| **first <= state).count();
    let commit = |count: usize| count.checked_sub(1).map_or((0, 0), |last| COMMITS[last]);
    [commit(count.saturating_sub(1)), commit(count)]
}

fn is_one_of(found: &Consumed, may_be: &[(u64, u64)]) -> bool {
    let what = (found.record.stream.get(), found.position);
    let proven = if what.0 == 0 { 0 } else { digest(what.0, what.1) };
    may_be.contains(&what) && found.digest == proven
}

#[test]
fn kill_between_two_stores_leaves_the_last_commit() {
    let (states, begun) = traced(&COMMITS);
    for (number, state) in states.iter().enumerate() {
        let found = consumed::check(state.map(u64::to_le).as_bytes()).unwrap();
        let may_be = expected(&begun, number);
        assert!(is_one_of(&found, &may_be), "state {number}: {found:?}, not {may_be:?}");
    }
    assert!(states.len() > 60, "{} states", states.len());
}

/// Rule: a slow peer, which copies each word after a different store, finds the acked offset that
/// was stored last when the copy began, or a later one.
#[test]
fn slow_read_of_consumed_finds_a_commit() {
    let (states, begun) = traced(&COMMITS);
    let (mut found, mut refused) = (0, 0);
    for first in 0..states.len() {
        for middle in first..states.len() {
            for last in middle..states.len() {
                // The slow peer copies the consumed records of both slots as they are after store
                // `first`, and the `since` word of each slot as it was then or earlier. Then it
                // reads the `since` words again, as they are after store `middle`, and the seal of
                // the newest record, as it is after store `last`. A changed seal shows the peer
                // that the record was overwritten meanwhile.
                let mut mixed = states[first];
                for slot in [0, 1] {
                    let since = index(slot_offset(slot) + SINCE) / 8;
                    mixed[since] = states[first.saturating_sub(last - first)][since];
                }
                let records =
                    |line: &mut [u8]| line.copy_from_slice(mixed.map(u64::to_le).as_bytes());
                let again = |word: usize| {
                    let is_since = [0, 1].map(|slot| index(slot_offset(slot) + SINCE));
                    let state = if is_since.contains(&word) { middle } else { last };
                    states[state][word / 8]
                };
                let Some(seen) = consumed_by(records, again) else {
                    refused += 1;
                    continue;
                };
                let may_be: Vec<_> =
                    (first..=last).flat_map(|state| expected(&begun, state)).collect();
                // The peer may have missed the word that counts the bytes acknowledged since a slot
                // record. Then it finds an older position of the same stream, which is valid too.
                let compact = (seen.record.stream.get(), seen.record.consumed.get());
                let is_compact = compact.1 == seen.position && COMMITS.contains(&compact);
                assert!(
                    is_compact || is_one_of(&seen, &may_be),
                    "{first} {middle} {last}: {seen:?}"
                );
                found += 1;
            }
        }
    }
    assert!(found > 1000 && refused > 1000, "{found} found, {refused} refused");
}
