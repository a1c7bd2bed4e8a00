// SPDX-License-Identifier: MIT OR Apache-2.0
//! Model test of a link's outgoing stream: a published message is kept until it is acknowledged,
//! through any sequence of appends, batches, acknowledgements, cuts and restarts. The receiver gets
//! each message once.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use crate::support_retained;

use partywall_layout::RingSize;
use partywall_link::retained::{Boundary, Refused, Retained, SendCursor};
use partywall_reconcile::{AckUnfit, AckedOffset, Position, RecordDigest, StreamId, recover};
use proptest::prelude::*;
use std::collections::VecDeque;
use support_retained::{
    Image, Memory, RingReader, State, all_messages, message, next_bytes, stream,
};

/// An operation of the model test, which makes random sequences of operations on a sender and a
/// receiver. The flag of an append says whether the record may be compact.
#[derive(Clone, Debug)]
enum Step {
    Append(usize, bool),
    AppendAndPublish(usize, bool),
    ReserveAndDrop(usize),
    Publish,
    Abort,
    /// The sender sends at most this number of bytes over the socket.
    Send(usize),
    /// The receiver acknowledges a part of the bytes that it has received but not acknowledged. The
    /// part is this number, 1 to 256, divided by 256.
    Acknowledge(u64),
    Trim,
    /// The sender prefetches and zeroes ring memory behind its last record, for the next records.
    Prepare,
    /// The sender prepares that memory as one that has waited before each of several records, and
    /// so at last without prefetching.
    PrepareForAnswers,
    Cut,
    Restart,
    Epoch,
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![3 => 0_usize..250, 1 => 0_usize..1100];
    prop_oneof![
        6 => (len.clone(), any::<bool>()).prop_map(|(len, compact)| Step::Append(len, compact)),
        6 => (len.clone(), any::<bool>()).prop_map(|(len, compact)| Step::AppendAndPublish(len, compact)),
        1 => len.prop_map(Step::ReserveAndDrop),
        4 => Just(Step::Publish),
        1 => Just(Step::Abort),
        6 => (1_usize..900).prop_map(Step::Send),
        4 => (1_u64..=256).prop_map(Step::Acknowledge),
        4 => Just(Step::Trim),
        4 => Just(Step::Prepare),
        2 => Just(Step::PrepareForAnswers),
        1 => Just(Step::Cut),
        1 => Just(Step::Restart),
        1 => Just(Step::Epoch),
    ]
}

/// A message that the model test's sender has appended to its stream and may still keep.
#[derive(Clone, Debug)]
struct Sent {
    end: Position,
    bytes: Vec<u8>,
}

struct World {
    retained: Retained,
    memory: Memory,
    state: State,
    inline_max: usize,
    /// The messages that the sender has published and not yet freed.
    kept: VecDeque<Sent>,
    batch: Vec<Sent>,
    cursor: SendCursor,
    receiver: RingReader,
    expected: Vec<Vec<u8>>,
    numbers: usize,
    streams: u64,
}

impl World {
    fn new(ring: usize, slab: usize, inline_max: usize) -> Self {
        let image = Image::zeroed(ring, slab);
        let (ring, slab, memory) = image.memory();
        let state = State::new(77);
        let retained = Retained::empty(ring, image.size(), slab, state.stream);
        let retained = retained.with_inline_max(inline_max);
        let cursor = retained.cursor(Position::START).unwrap();
        let receiver = RingReader::new(state.stream, Position::START, image.size());
        let (kept, batch, expected) = Default::default();
        let (numbers, streams) = (0, 77);
        Self {
            retained,
            memory,
            state,
            inline_max,
            kept,
            batch,
            cursor,
            receiver,
            expected,
            numbers,
            streams,
        }
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Append(len, compact) => self.append(len, compact),
            Step::AppendAndPublish(len, compact) => {
                self.append(len, compact);
                self.publish();
            }
            Step::ReserveAndDrop(len) => {
                if let Ok(mut reservation) = self.retained.reserve(len) {
                    reservation.bytes().fill(0x43);
                }
            }
            Step::Publish => self.publish(),
            Step::Abort => {
                self.retained.abort();
                self.batch.clear();
            }
            Step::Send(bytes) => {
                let bytes = next_bytes(&self.retained, &self.cursor, bytes);
                self.cursor.advance(&self.retained, bytes.len()).unwrap();
                self.receiver.take(&bytes);
            }
            Step::Acknowledge(part) => {
                let (acked, received) = (self.retained.acked(), self.receiver.received.position);
                let more = received.since(acked) * part / 256;
                self.retained.acknowledged(Position((acked.0 + more) & !63)).unwrap();
            }
            Step::Trim => self.trim(),
            Step::Prepare => self.retained.prepare_ahead(),
            Step::PrepareForAnswers => (0..4).for_each(|_| self.retained.prepare(true)),
            Step::Cut => self.connect(),
            Step::Restart => self.restart(),
            Step::Epoch => self.epoch(),
        }
        self.check();
    }

    fn append(&mut self, len: usize, compact: bool) {
        self.numbers += 1;
        let bytes = message(self.numbers, len);
        let has_room = self.retained.has_room(len);
        let (left, right) = bytes.split_at(len / 3);
        let appended = match compact {
            true => self.retained.append_compact(&[left, right], None),
            false => self.retained.append(&[left, right], None),
        };
        match appended {
            Ok(end) => {
                assert!(has_room || compact, "a prefix takes room");
                self.batch.push(Sent { end, bytes });
            }
            Err(Refused::TooLarge { len, max }) => assert!(len > max && !has_room),
            Err(Refused::BatchFull) => assert!(!self.batch.is_empty()),
            Err(Refused::Full) => {
                let is_empty = self.kept.is_empty() && self.batch.is_empty();
                assert!(!is_empty && !has_room, "{len} bytes have room when nothing is kept");
            }
        }
    }

    fn publish(&mut self) {
        self.retained.publish();
        self.expected.extend(self.batch.iter().map(|sent| sent.bytes.clone()));
        self.kept.extend(self.batch.drain(..));
    }

    fn trim(&mut self) {
        let acked = self.retained.acked();
        let Some(base) = self.retained.trim_to() else {
            assert!(acked < self.retained.tail() || self.kept.is_empty());
            return;
        };
        assert!(base.position <= acked && base.position > self.retained.base());
        assert!(acked < self.retained.tail() || base.position == acked);
        assert_eq!(self.retained.trim_to(), Some(base));
        self.state.base = base;
        self.retained.trimmed(base);
        while self.kept.front().is_some_and(|sent| sent.end <= base.position) {
            self.kept.pop_front();
        }
    }

    fn connect(&mut self) {
        self.receiver.cut();
        self.cursor = self.retained.cursor(self.receiver.received.position).unwrap();
    }

    fn restart(&mut self) {
        let (found, memory) = self.memory.image().found(self.state).unwrap();
        assert_eq!(found.tail(), self.retained.tail());
        let acked = self.retained.acked();
        self.retained = found.with_inline_max(self.inline_max);
        self.retained.acknowledged(acked).unwrap();
        self.memory = memory;
        self.batch.clear();
        self.connect();
    }

    fn epoch(&mut self) {
        self.streams += 1;
        let size = self.retained.ring_size();
        let next = State::new(self.streams);
        self.retained.end(next.stream);
        self.retained.begin(next.stream);
        self.state = next;
        self.cursor = self.retained.cursor(Position::START).unwrap();
        self.receiver = RingReader::new(next.stream, Position::START, size);
        self.kept.clear();
        self.batch.clear();
        self.expected.clear();
    }

    fn check(&self) {
        let retained = &self.retained;
        assert_eq!(retained.base(), self.state.base.position);
        let tail = self.kept.back().map_or(retained.base(), |sent| sent.end);
        assert_eq!(retained.tail(), tail);
        assert_eq!(retained.live_bytes(), tail.since(retained.base()));
        assert!(retained.base() <= retained.acked() && retained.acked() <= tail);
        let got = &self.receiver.messages;
        assert_eq!(got[..], self.expected[..got.len()], "each once, in order");
        let kept: Vec<_> = self.kept.iter().map(|sent| sent.bytes.clone()).collect();
        assert_eq!(all_messages(retained, retained.base()), kept);
        let mut position = retained.base();
        while position <= Position(tail.0 + 64) {
            let is_end = self.kept.iter().any(|sent| sent.end == position);
            let is_boundary = is_end || position == retained.base();
            assert_eq!(retained.digest_at(position).is_some(), is_boundary, "{position:?}");
            position = Position(position.0 + 64);
        }
        assert_eq!(retained.digest_at(retained.base()), Some(self.state.base.digest));
        let received = self.receiver.received;
        if received.position > retained.base() {
            assert_eq!(retained.digest_at(received.position), Some(received.digest));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn each_message_is_kept_until_acknowledged_and_received_once(
        steps in proptest::collection::vec(step(), 1..120),
        ring in prop_oneof![Just(512_usize), Just(1024), Just(4096)],
        inline_max in prop_oneof![Just(0_usize), Just(60), Just(usize::MAX)],
    ) {
        let mut world = World::new(ring, 1024, inline_max);
        for step in &steps {
            world.take(step);
        }
        // At the end of any sequence, all remaining messages arrive and are acknowledged. Then the
        // sender has room for the longest messages again.
        world.take(&Step::Abort);
        while world.receiver.messages.len() < world.expected.len() {
            world.take(&Step::Send(usize::MAX));
        }
        world.take(&Step::Acknowledge(256));
        world.take(&Step::Trim);
        prop_assert_eq!(world.retained.live_bytes(), 0);
        world.take(&Step::AppendAndPublish(world.retained.message_max(), false));
        prop_assert_eq!(world.kept.len(), 1);
    }
}

#[test]
fn a_message_that_never_fits_names_the_limit() {
    let (mut retained, ..) = stream(1024, 1024);
    assert_eq!(retained.message_max(), 1024);
    let refused = Refused::TooLarge { len: 1025, max: 1024 };
    assert_eq!(retained.append(&[&[0; 1025]], None), Err(refused));
    assert!(refused.to_string().contains("1024"), "{refused}");
    let (ring, slab, _) = Image::zeroed(1024, 64).memory();
    let (_, none) = slab.split_at(64);
    let mut small =
        Retained::empty(ring, RingSize::new(1024).unwrap(), none, StreamId::new(1).unwrap());
    assert_eq!(small.message_max(), 256 - 16 - 24);
    assert!(small.append(&[&[7; 216]], None).is_ok());
    assert!(matches!(small.append(&[&[7; 217]], None), Err(Refused::TooLarge { max: 216, .. })));
}

#[test]
fn half_a_ring_is_a_batch() {
    let (mut retained, ..) = stream(1024, 64);
    for _ in 0..8 {
        retained.append(&[b"x"], None).unwrap();
    }
    assert_eq!(retained.append(&[b"x"], None), Err(Refused::BatchFull));
    retained.publish();
    assert!(retained.append(&[b"x"], None).is_ok());
}

#[test]
fn an_acknowledgement_beyond_the_tail_is_refused() {
    let (mut retained, ..) = stream(1024, 64);
    let end = retained.append(&[b"x"], None).unwrap();
    assert_eq!(retained.acknowledged(end), Err(AckUnfit::BeyondTail), "not published");
    retained.publish();
    assert_eq!(retained.acknowledged(Position(end.0 + 64)), Err(AckUnfit::BeyondTail));
    assert_eq!((retained.acknowledged(end), retained.acked()), (Ok(()), end));
    assert_eq!(retained.acknowledged(Position::START), Ok(()), "nothing new");
    assert_eq!(retained.acked(), end);
}

#[test]
fn a_cursor_whose_record_was_given_up_is_stuck() {
    let (mut retained, ..) = stream(1024, 64);
    let mut cursor = retained.cursor(Position::START).unwrap();
    let end = retained.append(&[b"x"], None).unwrap();
    retained.publish();
    let mut other = cursor;
    assert!(other.advance(&retained, 1000).is_err(), "more than there is");
    assert_eq!(other, cursor);
    retained.acknowledged(end).unwrap();
    let base = retained.trim_to().unwrap();
    retained.trimmed(base);
    assert!(cursor.slices(&retained, 1, &mut []).is_err());
    assert!(cursor.advance(&retained, 0).is_err());
    assert!(retained.cursor(Position::START).is_none() && retained.cursor(end).is_some());
}

#[test]
#[should_panic(expected = "only what was offered is trimmed")]
fn what_was_not_acknowledged_is_not_trimmed() {
    let (mut retained, ..) = stream(1024, 64);
    let position = retained.append(&[b"x"], None).unwrap();
    retained.publish();
    let digest = retained.digest_at(position).unwrap();
    retained.trimmed(Boundary { position, digest });
}

#[test]
fn the_last_reply_says_what_was_consumed() {
    let (mut retained, memory, state) = stream(1024, 64);
    let of = |stream: u64, position: u64, digest: u32| AckedOffset {
        stream: StreamId::new(stream).unwrap(),
        position: Position(position),
        digest: RecordDigest(digest),
    };
    retained.append(&[b"first"], Some(of(8, 64, 1))).unwrap();
    retained.publish();
    let reply_at = retained.append(&[b"second"], Some(of(8, 128, 2))).unwrap();
    retained.append(&[b"third"], Some(of(8, 192, 3))).unwrap();
    retained.append(&[b"of another"], Some(of(9, 640, 4))).unwrap();
    let (found, _) = memory.image().found(state).unwrap();
    let stored = Some(of(8, 0, 0));
    let recovered = |retained: &Retained| {
        let prepared = retained.prepared(StreamId::new(8).unwrap());
        recover(stored, prepared, |_| prepared.map(|prepared| prepared.acked_offset.position))
    };
    assert_eq!(recovered(&found), Some(of(8, 64, 1)), "the batch was not published");
    retained.publish();
    let (found, _) = memory.image().found(state).unwrap();
    assert_eq!(recovered(&found), Some(of(8, 192, 3)));
    let prepared = found.prepared(StreamId::new(8).unwrap()).unwrap();
    assert_eq!(prepared.reply_at, reply_at);
    assert_eq!(found.prepared(StreamId::new(10).unwrap()), None);
}
