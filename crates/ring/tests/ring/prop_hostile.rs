// SPDX-License-Identifier: MIT OR Apache-2.0
//! Property tests: for any content of the peer's region, this side neither panics nor loops nor
//! reads beyond the ring. This side reads a valid record, reads nothing, or reports a violation.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use partywall_layout::record_ring::{Kind, Position, word0, word1};
use partywall_layout::{RecordHeader, RingSize, Violation};
use partywall_ring::{AppendError, Consumer, OwnMem, Producer, Reclaimer, Slab, mem};
use proptest::prelude::*;

const RING_BYTES: u64 = 1024;
const SLOTS: u64 = RING_BYTES / 64;

/// Input of a test: two words that the hostile peer stores at the begin of a slot, where a record
/// header would be.
#[derive(Clone, Debug)]
struct Forged {
    slot: u64,
    first: u64,
    second: u64,
}

/// Two forged words: mostly headers that are valid at their slot, with lengths around each limit.
fn forged() -> impl Strategy<Value = Forged> {
    let len = prop_oneof![
        0u32..300,
        prop::sample::select(vec![
            48,
            49,
            176,
            240,
            241,
            1008,
            1009,
            1 << 31,
            u32::MAX - 15,
            u32::MAX
        ]),
        // The length of a PAD that takes `slots` slots: the PAD reaches the end of the ring if it
        // begins that many slots before the end.
        (1..SLOTS as u32).prop_map(|slots| slots * 64 - 16),
    ];
    let kind = prop_oneof![Just(1u64), Just(31), 0u64..32];
    let plausible =
        (0..SLOTS, 0u64..4, kind, len, any::<u32>()).prop_map(|(slot, lap, kind, len, stream)| {
            let position = lap * RING_BYTES + slot * 64;
            Forged { slot, first: position | kind << 1 | 1, second: word1(len, stream) }
        });
    let random = (0..SLOTS, any::<u64>(), any::<u64>()).prop_map(|(slot, first, second)| Forged {
        slot,
        first,
        second,
    });
    let empty = (0..SLOTS).prop_map(|slot| Forged { slot, first: 0, second: 0 });
    prop_oneof![8 => plausible, 1 => random, 1 => empty]
}

/// Writes a valid ring of small records, from slot 0 to its end. The tests then overwrite some of
/// its words.
fn valid_image(ring: &mut OwnMem, lap: u64) {
    for slot in 0..SLOTS {
        let position = Position(lap * RING_BYTES + slot * 64);
        ring.store(slot as usize * 64, word0(position, Kind::Data));
        ring.store(slot as usize * 64 + 8, word1(48, 0));
    }
}

/// Reads until the ring has no record, or the consumer reports a violation. Without a forged word,
/// reading ends after at most one lap.
fn read_all(consumer: &mut Consumer) -> Result<(), Violation> {
    for _ in 0..=SLOTS {
        let before = consumer.position().0;
        let data = consumer.peek_data();
        let found = consumer.peek();
        assert!(data.is_none() || found == Ok(data), "{data:?} {found:?}");
        let Some(header) = found? else {
            assert_pad_only(before, consumer.position().0);
            return Ok(());
        };
        assert_pad_only(before, header.position.0);
        check_possible(consumer, &header);
        let data = (header.kind == Kind::Data).then_some(header);
        assert_eq!(consumer.peek_data(), data, "both ways of checking a header agree");
        consumer.advance(&header);
        if consumer.is_report_due() {
            consumer.report();
        }
    }
    panic!("a ring of {SLOTS} slots held more records")
}

/// Asserts that a poll that moved the consumer from `before` to `after` has skipped nothing, or a
/// single PAD.
fn assert_pad_only(before: u64, after: u64) {
    assert!(after == before || after % RING_BYTES == 0 && after - before < RING_BYTES);
}

fn check_possible(consumer: &Consumer, header: &RecordHeader) {
    let offset = header.position.0 % RING_BYTES;
    assert!(offset + 16 + u64::from(header.len) <= RING_BYTES, "the record leaves the ring");
    assert!(header.footprint() <= RING_BYTES / 4 && header.kind != Kind::Pad);
    let mut payload = vec![0; header.len as usize];
    consumer.copy(header, 0, &mut payload);
    assert_eq!(consumer.payload(header), payload);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn consumer_survives_any_ring(
        starts_valid in any::<bool>(),
        rounds in prop::collection::vec(prop::collection::vec(forged(), 0..24), 1..20),
    ) {
        let (mut own, seen) = mem::pair(RING_BYTES as usize);
        if starts_valid {
            valid_image(&mut own, 0);
        }
        let (consumed, consumed_seen) = mem::pair(64);
        let mut consumer = Consumer::new(seen, RingSize::new(RING_BYTES).unwrap(), consumed);
        for round in &rounds {
            for forged in round {
                own.store(forged.slot as usize * 64, forged.first);
                own.store(forged.slot as usize * 64 + 8, forged.second);
            }
            // A correct caller stops reading after a violation. This test continues, because no
            // call may panic even then.
            let _ = read_all(&mut consumer);
            prop_assert!(consumed_seen.peek(0) <= consumer.position().0);
        }
    }

    #[test]
    fn producer_survives_any_consumed(
        steps in prop::collection::vec((0usize..240, any::<bool>(), progress()), 1..100),
    ) {
        let (own, _) = mem::pair(RING_BYTES as usize);
        let (mut control, control_seen) = mem::pair(64);
        let size = RingSize::new(RING_BYTES).unwrap();
        let mut producer = Producer::new(own, size, control_seen);
        // The highest valid value that the peer has stored in its word `consumed` so far; the
        // producer may have accepted it.
        let mut highest = 0;
        for (len, is_published, progress) in steps {
            // The producer publishes before the peer stores a value in its word `consumed`, because
            // the producer judges that value by the position published at that time.
            if producer.open_bytes() + 256 > size.batch_max() {
                producer.publish();
            }
            let published = producer.published().0;
            let claim = progress.of(highest, published);
            control.store(0, claim);
            let is_possible = claim <= published && claim % 64 == 0;
            match producer.append(Kind::Data, 0, &vec![1; len]) {
                Ok(()) => {}
                Err(AppendError::Full) => prop_assert!(is_possible),
                Err(AppendError::Violation(violation)) => {
                    prop_assert_eq!(violation.code(), 8);
                    prop_assert!(!is_possible || claim < highest);
                    return Ok(());
                }
            }
            if is_possible {
                highest = highest.max(claim);
            }
            if is_published {
                producer.publish();
            }
        }
        producer.abort();
        producer.close(Kind::CloseWrite, 0);
    }

    #[test]
    fn slab_survives_any_release_ring(
        steps in prop::collection::vec((0usize..600, release()), 1..100),
    ) {
        const BLOCKS: u32 = 8;
        let mut slab = Slab::new(BLOCKS);
        slab.add_segment(0, mem::pair(4096).0);
        let (mut ring, ring_seen) = mem::pair(8 * BLOCKS as usize);
        let (mut released, released_seen) = mem::pair(64);
        let mut reclaimer = Reclaimer::new(ring_seen, released_seen, 0);
        let mut out = Vec::new();
        let mut count = 0u64;
        for (len, release) in steps {
            if let Some(block) = slab.allocate(len) {
                out.push(slab.commit(block).id);
            }
            let id = release.id(&out);
            ring.store((count % u64::from(BLOCKS)) as usize * 8, id);
            let claim = count.wrapping_add(release.growth);
            released.publish(0, claim);
            // The reclaimer returns at most one id per block in flight, because it refuses a higher
            // count of entries. So `BLOCKS` iterations are enough.
            for _ in 0..=BLOCKS {
                match reclaimer.next(slab.in_flight()) {
                    Ok(None) => break,
                    Ok(Some(id)) => {
                        count += 1;
                        reclaim(&mut slab, &mut out, id);
                    }
                    Err(violation) => {
                        prop_assert_eq!(violation.code(), 9);
                        prop_assert!(claim < count || claim - count > slab.in_flight());
                        break;
                    }
                }
            }
            prop_assert_eq!(slab.in_flight(), out.len() as u64);
        }
    }
}

/// Returns `id` to the slab as the peer does. The slab must reclaim an id in flight, and refuse any
/// other id without effect.
fn reclaim(slab: &mut Slab, out: &mut Vec<u64>, id: u64) {
    let known = out.iter().position(|known| *known == id);
    match slab.reclaim(id) {
        Ok(()) => {
            out.swap_remove(known.expect("it was not out"));
        }
        Err(violation) => {
            assert_eq!(violation, Violation::Block { id });
            assert!(known.is_none());
        }
    }
}

/// Input of a test: a value that the peer stores in its word `consumed`.
#[derive(Clone, Debug)]
enum Progress {
    Honest,
    /// The peer stores in its word `consumed` the highest valid value that it has stored so far,
    /// plus this offset.
    Near(i64),
    /// The peer stores in its word `consumed` the position up to which the producer has published,
    /// plus this offset.
    Beyond(i64),
    Any(u64),
}

fn progress() -> impl Strategy<Value = Progress> {
    prop_oneof![
        20 => Just(Progress::Honest),
        1 => prop::sample::select(vec![-64, -1, 0, 1, 64]).prop_map(Progress::Near),
        1 => prop::sample::select(vec![-64, -1, 1, 63, 64, 1024]).prop_map(Progress::Beyond),
        1 => any::<u64>().prop_map(Progress::Any),
    ]
}

impl Progress {
    fn of(&self, highest: u64, published: u64) -> u64 {
        match *self {
            Self::Honest => published,
            Self::Near(more) => highest.wrapping_add_signed(more),
            Self::Beyond(more) => published.wrapping_add_signed(more),
            Self::Any(word) => word,
        }
    }
}

/// An entry that the peer writes to its release ring, and by how much the peer increases its count
/// of entries.
#[derive(Clone, Debug)]
struct Release {
    growth: u64,
    honest: Option<usize>,
    id: u64,
}

fn release() -> impl Strategy<Value = Release> {
    let growth = prop_oneof![
        10 => 0u64..2,
        2 => 2u64..12,
        1 => Just(u64::MAX),
        1 => any::<u64>(),
    ];
    let honest = prop::option::weighted(0.8, any::<usize>());
    let id = prop_oneof![0u64..10, (0u64..10).prop_map(|ticket| ticket | 1 << 32), any::<u64>()];
    (growth, honest, id).prop_map(|(growth, honest, id)| Release { growth, honest, id })
}

impl Release {
    fn id(&self, out: &[u64]) -> u64 {
        match self.honest {
            Some(which) if !out.is_empty() => out[which % out.len()],
            _ => self.id,
        }
    }
}
