// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with a hostile peer, which writes anything into its memory. This end then reads valid
//! messages, reads nothing, or ends the connection.

use std::fs::File;
use std::os::unix::fs::FileExt;

use partywall_layout::link::consumed::{SINCE, SINCE_MAX, since_word};
use partywall_layout::link::{
    CONSUMED_SLOT, CONSUMED_SLOT_STRIDE, ConsumedRecord, LINK_CONTROL_OFFSET,
};
use partywall_reconcile::{AckedOffset, Position, RecordDigest};
use zerocopy::IntoBytes;

use super::{CLIENT, Pair, SERVER, TestStore, below, message, outgoing};
use crate::link_state::{End, Event, Received};

const FILE_BYTES: usize = 65536;

#[test]
fn changed_bytes_are_never_a_message() {
    let (mut pair, kept) = Pair::of_files();
    let mut random = 0x2545_f491_4f6c_dd1d;
    let (mut expected, mut refused, mut unharmed, mut short) = (0, 0, 0, 0);
    pair.attach(true);
    for round in 0..4000 {
        if round % 8 == 0 {
            let len = [30, 180, 700, 5000][below(&mut random, 4)];
            let sent = pair.sides[CLIENT].core.send(&[&number(round), &message(round, len)]);
            expected += usize::from(sent.is_ok());
        }
        let file = kept[CLIENT].file();
        let (at, len) = target(&pair, &mut random);
        let mut before = vec![0; len];
        file.read_exact_at(&mut before, at as u64).unwrap();
        let change = |byte: &u8| byte ^ (1 + below(&mut random, 255)).to_le_bytes()[0];
        let changed: Vec<u8> = before.iter().map(change).collect();
        file.write_all_at(&changed, at as u64).unwrap();
        let server = &mut pair.sides[SERVER];
        let tail = server.core.tail();
        server.core.poll_acked();
        assert!(server.core.acked() <= tail);
        server.core.is_doorbell_due();
        // The library has two ways to take a record from shared memory: a short one for short
        // compact records, and one for all records. Every second pass of the loop tries the short
        // way first. The test checks the messages of both.
        let fast_path = if round % 2 == 0 { server.core.next_short() } else { None };
        short += usize::from(fast_path.is_some());
        let pulled = match fast_path {
            Some(_) => Ok(true),
            None => server.core.pull(server.conn.as_mut().unwrap()),
        };
        file.write_all_at(&before, at as u64).unwrap();
        match pulled {
            Ok(_) => unharmed += 1,
            Err(_) => {
                refused += 1;
                pair.attach(true);
            }
        }
        let server = &mut pair.sides[SERVER].core;
        if let Some(delivery) = fast_path.or_else(|| server.next()) {
            let round = u64::from_le_bytes(delivery.bytes[..8].try_into().unwrap());
            let sent = message(usize::try_from(round).unwrap(), delivery.bytes.len() - 8);
            assert_eq!(delivery.bytes[8..], sent, "round {round}");
            server.ack_to(&delivery.token).unwrap();
            expected -= 1;
        }
    }
    while pair.recv(SERVER).is_some() {
        expected -= 1;
    }
    assert_eq!(expected, 0, "each message came once");
    assert!(refused > 300 && unharmed > 300, "{refused} refused, {unharmed} not");
    assert!(short > 50, "{short} by the short way");
}

/// Chooses an offset in the client's file and a number of bytes, which the hostile client then
/// changes. Mostly they are bytes that the server reads next, or bytes of the control page, which
/// has the acknowledgements and the sleeper words.
fn target(pair: &Pair, random: &mut u64) -> (usize, usize) {
    let next = usize::try_from(pair.sides[SERVER].core.inbox.received().0).unwrap();
    let (start, room) = match below(random, 5) {
        0 | 1 => (16384 + next % 4096, 64),
        2 => (12288, 512),
        3 => (24576, 16384),
        _ => (0, FILE_BYTES),
    };
    let at = start + below(random, room);
    (at, (1 + below(random, 4) * below(random, 4)).min(FILE_BYTES - at))
}

fn number(round: usize) -> [u8; 8] {
    (round as u64).to_le_bytes()
}

#[test]
fn peer_that_claims_too_much_consumed_ends_the_connection() {
    let (mut pair, kept) = Pair::of_files();
    pair.attach(true);
    pair.sides[SERVER].core.send(&[b"one"]).unwrap();
    let stream = pair.sides[SERVER].core.retained.stream().0.get();
    claim(kept[CLIENT].file(), stream, 1 << 30);
    let server = &mut pair.sides[SERVER];
    assert!(!server.core.poll_acked());
    assert!(!server.core.prepare_sleep(true, true), "there is an end to return");
    let pulled = server.core.pull(server.conn.as_mut().unwrap());
    assert!(matches!(pulled, Err(End::Violation(_))), "{pulled:?}");
    assert_eq!(server.core.acked().0, 0);
}

/// Rule: a valid record that acknowledges more than was sent ends the connection, but the message
/// in the record is kept, because it arrived before the acknowledgement was checked.
#[test]
fn message_whose_record_acknowledges_too_much_is_kept_whole() {
    let (mut pair, _kept) = Pair::of_files();
    pair.attach(true);
    let stream = pair.sides[SERVER].core.retained.stream();
    let client = &mut pair.sides[CLIENT].core;
    let (position, digest) = (Position(1 << 30), RecordDigest(7));
    client.store.durable.acked_offset = Some(AckedOffset { stream, position, digest });
    // The first record of a ring is not compact, and so carries the acknowledgement.
    client.send(&[b"kept whole"]).unwrap();
    let server = &mut pair.sides[SERVER];
    let pulled = server.core.pull(server.conn.as_mut().unwrap());
    assert!(matches!(pulled, Err(End::Violation(_))), "{pulled:?}");
    assert_eq!(server.core.next().unwrap().bytes, "kept whole");
}

/// Rule: if the peer breaks the protocol and then leaves, the connection ends with the violation,
/// and does not count as closed in good order.
#[test]
fn violation_before_leave_replaces_the_end() {
    for is_record in [true, false] {
        let (mut pair, kept) = with_sent(3);
        if is_record {
            let place = 16384 + pair.sides[SERVER].core.inbox.received().0 + 60;
            kept[CLIENT].file().write_all_at(b"other", place).unwrap();
        } else {
            // Input: the server reads a false acknowledgement of the client, and receives LEAVE
            // before any call has returned this violation. Expected: the call that receives LEAVE
            // returns the violation.
            pair.sides[SERVER].core.send(&[b"one"]).unwrap();
            let stream = pair.sides[SERVER].core.retained.stream().0.get();
            claim(kept[CLIENT].file(), stream, 1 << 30);
            pair.sides[SERVER].core.poll_acked();
            assert!(pair.sides[SERVER].core.has_fault());
        }
        let ended = leave(&mut pair);
        assert!(matches!(ended, Err(End::Violation(_))), "{ended:?}");
        let server = &mut pair.sides[SERVER].core;
        while server.next().is_some() {}
        assert!(!server.has_finished());
        assert!(!server.events.last().is_some_and(Event::is_farewell), "{:?}", server.events);
    }
}

/// Rule: the connection ends with a violation even if the server reads the client's false
/// acknowledgement only after it has received LEAVE.
#[test]
fn ack_beyond_the_tail_found_after_leave_replaces_the_end() {
    let (mut pair, kept) = with_sent(1);
    pair.sides[SERVER].core.send(&[b"one"]).unwrap();
    let stream = pair.sides[SERVER].core.retained.stream().0.get();
    claim(kept[CLIENT].file(), stream, 1 << 30);
    let ended = leave(&mut pair);
    assert!(matches!(ended, Err(End::Violation(_))), "{ended:?}");
    let server = &mut pair.sides[SERVER].core;
    assert_eq!(server.next().unwrap().bytes, message(0, 100));
    assert!(server.next().is_none() && !server.has_finished());
}

/// Makes the client close its end, and the server receive LEAVE. Returns what the server's
/// `receive` returns.
fn leave(pair: &mut Pair) -> Result<Received, End> {
    let [client, server] = &mut pair.sides;
    client.core.leave(client.conn.as_mut().unwrap());
    let bytes = outgoing(&client.core, client.conn.as_mut().unwrap());
    server.input.extend_from_slice(&bytes);
    server.core.receive(server.conn.as_mut().unwrap(), &mut server.input)
}

#[test]
fn consumed_offset_of_another_stream_acknowledges_nothing() {
    let (mut pair, kept) = Pair::of_files();
    pair.attach(true);
    pair.sides[SERVER].core.send(&[b"one"]).unwrap();
    let stream = pair.sides[SERVER].core.retained.stream().0.get();
    claim(kept[CLIENT].file(), stream ^ 1, 64);
    assert!(!pair.sides[SERVER].core.poll_acked());
    assert_eq!(pair.sides[SERVER].core.acked().0, 0);
    claim(kept[CLIENT].file(), stream, 64);
    assert!(!pair.sides[SERVER].core.poll_acked(), "the word says nothing new");
    kept[CLIENT].file().write_all_at(&[64], LINK_CONTROL_OFFSET).unwrap();
    assert!(pair.sides[SERVER].core.poll_acked());
}

/// Rule: if the client forges the word `since` in its memory, which counts the bytes that it
/// acknowledged after its last record of an acked offset, the server believes no such count. If the
/// count exceeds the bytes that the server sent, the connection ends (`is_left` in the table). A
/// word with an impossible value is ignored.
#[test]
fn false_word_ends_the_connection_or_is_ignored() {
    for (word, is_left) in [
        (since_word(64, 7).unwrap() ^ 1, false),
        (1 << 32, false),
        (u64::MAX, false),
        (since_word(SINCE_MAX, 7).unwrap(), true),
    ] {
        let (mut pair, kept) = Pair::of_files();
        pair.attach(true);
        pair.sides[SERVER].core.send(&[b"one"]).unwrap();
        let stream = pair.sides[SERVER].core.retained.stream().0.get();
        claim(kept[CLIENT].file(), stream, 0);
        let place = LINK_CONTROL_OFFSET + CONSUMED_SLOT + SINCE;
        kept[CLIENT].file().write_all_at(&word.to_le_bytes(), place).unwrap();
        let server = &mut pair.sides[SERVER];
        assert!(!server.core.poll_acked());
        let pulled = server.core.pull(server.conn.as_mut().unwrap());
        assert_eq!(matches!(pulled, Err(End::Violation(_))), is_left, "{word:#x}: {pulled:?}");
        assert_eq!(server.core.acked().0, 0);
    }
}

/// Forges the client's acked offset, which its `file` has in two slots: `stream` is then
/// acknowledged up to the position `consumed`. Also changes the word `consumed` in the file, so
/// that the server reads the slots.
fn claim(file: &File, stream: u64, consumed: u64) {
    let last = ConsumedRecord::new(1 << 40 | 1, stream, consumed, 7);
    let before = ConsumedRecord::new(1 << 40, stream, 0, 0);
    let first = LINK_CONTROL_OFFSET + CONSUMED_SLOT;
    file.write_all_at(last.as_bytes(), first).unwrap();
    file.write_all_at(before.as_bytes(), first + CONSUMED_SLOT_STRIDE).unwrap();
    file.write_all_at(&[1], LINK_CONTROL_OFFSET).unwrap();
}

#[test]
fn truncated_peer_file_ends_the_connection_only() {
    for left in [0, 4096, 16384, 32768] {
        let (mut pair, kept) = Pair::of_files();
        pair.attach(true);
        // Input: two long messages use the slab of the client up to its second half, so that every
        // tested truncation of the client's file removes bytes that the server would read.
        for number in 0..2 {
            pair.sides[CLIENT].core.send(&[&message(number, 8000)]).unwrap();
        }
        kept[CLIENT].file().set_len(left).unwrap();
        let server = &mut pair.sides[SERVER];
        let conn = server.conn.as_mut().unwrap();
        let pulled = [server.core.pull(conn), server.core.pull(conn)];
        assert!(server.core.next_short().is_none());
        let is_returned = pulled.iter().any(|pulled| matches!(pulled, Err(End::Broken(_))));
        assert!(is_returned, "{left} bytes left: {pulled:?}");
        assert!(!server.core.is_active());
        // The test restores the file's length. Otherwise the client's end, in the same process,
        // would die of SIGBUS when it touches the missing pages.
        kept[CLIENT].file().set_len(FILE_BYTES as u64).unwrap();
    }
}

/// Returns a pair of ends that share memory, and their stores. The client has sent `count`
/// messages, which the server has not received.
fn with_sent(count: usize) -> (Pair, [TestStore; 2]) {
    let (mut pair, kept) = Pair::of_files();
    pair.attach(true);
    for number in 0..count {
        pair.sides[CLIENT].core.send(&[&message(number, 100)]).unwrap();
    }
    (pair, kept)
}

#[test]
fn record_refused_repeatedly_takes_no_memory() {
    // Input: the first message stays unacknowledged, so the inbox is never empty. The second
    // message has a compact record, which the test damages. Expected: the server refuses the record
    // on each new connection, and keeps no bytes of it.
    let (mut pair, kept) = with_sent(3);
    let server = &mut pair.sides[SERVER];
    assert!(server.core.pull(server.conn.as_mut().unwrap()).unwrap());
    let kept_bytes = server.core.inbox.log().end();
    let next = server.core.inbox.received().0;
    kept[CLIENT].file().write_all_at(b"other", 16384 + next + 60).unwrap();
    for round in 0..50 {
        let server = &mut pair.sides[SERVER];
        let pulled = server.core.pull(server.conn.as_mut().unwrap());
        assert!(matches!(pulled, Err(End::Violation(_))), "round {round}: {pulled:?}");
        assert_eq!(server.core.inbox.log().end(), kept_bytes, "round {round}");
        pair.attach(true);
    }
    assert_eq!(pair.sides[SERVER].core.next().unwrap().bytes, message(0, 100));
}

#[test]
fn invalid_record_on_the_fast_path_takes_no_memory() {
    let (mut pair, kept) = with_sent(2);
    assert_eq!(pair.recv(SERVER).unwrap(), message(0, 100));
    let server = &mut pair.sides[SERVER].core;
    let next = server.inbox.received().0;
    kept[CLIENT].file().write_all_at(b"other", 16384 + next + 60).unwrap();
    for _ in 0..50 {
        assert!(server.next_short().is_none());
        assert!(server.inbox.log().room().is_empty());
    }
}
