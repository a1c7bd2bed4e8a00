// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of compact records, the short form of a link record for shared memory, among records with
//! a prefix: where a compact record may begin, how many bytes it takes, and that it carries no
//! acknowledgement.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use crate::support_retained;

use partywall_reconcile::{AckedOffset, Position, RecordDigest, StreamId};
use support_retained::{all_messages, message, stream};

/// Rule: a compact record never begins at the start of the ring. The test appends messages of many
/// lengths over several laps of the ring, and checks where each record begins and whether it is
/// compact.
#[test]
fn a_compact_record_never_begins_with_the_ring() {
    let (mut retained, memory, mut state) = stream(1024, 1024);
    let (mut compact, mut prefixed, mut first) = (0, 0, 0);
    for number in 0..2000 {
        let len = number * 7 % 215;
        let begin = retained.tail();
        let bytes = message(number, len);
        let (left, right) = bytes.split_at(len / 2);
        while retained.append_compact(&[left, right], None).is_err() {
            retained.acknowledged(begin).unwrap();
            let base = retained.trim_to().unwrap();
            retained.trimmed(base);
            state.base = base;
        }
        retained.publish();
        // The position at which the append began may be that of a PAD. The appended record then
        // begins after the PAD, at the start of the ring.
        let begin = begin.0 % 1024;
        let image = memory.image();
        let kind = |at: u64| image.ring[at as usize] >> 1 & 31;
        let begin = if kind(begin) == 31 { 0 } else { begin };
        match (begin, kind(begin)) {
            (0, 1) => first += 1,
            (_, 16) if begin != 0 => compact += 1,
            (begin, kind) => panic!("kind {kind} at {begin}"),
        }
        prefixed += usize::from(kind(begin) == 1);
        let (found, _) = memory.image().found(state).unwrap();
        assert_eq!(found.tail(), retained.tail());
        assert_eq!(found.digest_at(found.tail()), retained.digest_at(retained.tail()));
        assert_eq!(all_messages(&found, found.base()).last(), Some(&bytes));
    }
    assert!(compact > 1500 && first > 100 && prefixed == first, "{compact} compact, {first} first");
}

#[test]
fn a_message_of_48_bytes_takes_a_slot() {
    let (mut retained, ..) = stream(4096, 64);
    let first = retained.append_compact(&[&[1; 48]], None).unwrap();
    assert_eq!(first, Position(128), "where the ring begins it has a prefix");
    for (len, footprint) in
        [(48, 64), (0, 64), (47, 64), (49, 128), (104, 128), (105, 128), (113, 192)]
    {
        let before = retained.append_compact(&[b""], None).unwrap();
        let end = retained.append_compact(&[&message(len, len)], None).unwrap();
        assert_eq!(end.since(before), footprint, "{len} bytes");
    }
    retained.publish();
    let lens: Vec<usize> = all_messages(&retained, Position::START).iter().map(Vec::len).collect();
    assert_eq!(lens, [48, 0, 48, 0, 0, 0, 47, 0, 49, 0, 104, 0, 105, 0, 113]);
}

#[test]
fn a_large_message_is_a_blob_all_the_same() {
    let (mut retained, memory, state) = stream(1024, 1024);
    let acked_offset = AckedOffset {
        stream: StreamId::new(8).unwrap(),
        position: Position(64),
        digest: RecordDigest(1),
    };
    retained.append_compact(&[b"first"], Some(acked_offset)).unwrap();
    retained.append_compact(&[&message(1, 500)], Some(acked_offset)).unwrap();
    retained.publish();
    let (found, _) = memory.image().found(state).unwrap();
    assert_eq!(all_messages(&found, Position::START)[1], message(1, 500));
    let prepared = found.prepared(acked_offset.stream).unwrap();
    assert_eq!(
        (prepared.acked_offset, prepared.reply_at),
        (acked_offset, Position(64)),
        "it says what it can"
    );
}

#[test]
fn compact_records_say_nothing_of_what_was_consumed() {
    let (mut retained, memory, state) = stream(1024, 64);
    let of = |position, digest| AckedOffset {
        stream: StreamId::new(8).unwrap(),
        position: Position(position),
        digest: RecordDigest(digest),
    };
    retained.append(&[b"first"], Some(of(64, 1))).unwrap();
    let reply_at = retained.append(&[b"a reply"], Some(of(128, 2))).unwrap();
    for number in 0..4 {
        retained.append_compact(&[b"none"], Some(of(192 + 64 * number, 3))).unwrap();
    }
    retained.publish();
    let (found, _) = memory.image().found(state).unwrap();
    let prepared = found.prepared(StreamId::new(8).unwrap()).unwrap();
    assert_eq!((prepared.acked_offset, prepared.reply_at), (of(128, 2), Position(64)));
    assert_eq!(reply_at, Position(128));
    assert_eq!(found.digest_at(Position(192)), retained.digest_at(Position(192)));
    assert!(found.digest_at(Position(192)).is_some(), "the end of a compact record");
}
