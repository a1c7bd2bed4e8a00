// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of switches between shared memory and socket in the middle of traffic, and of mapped
//! memory that an end must not read.

use super::{CLIENT, Pair, SERVER, TestStore, below, message};
use crate::link_state::{End, SendFault};

#[test]
fn two_hundred_switches_lose_and_repeat_nothing() {
    let (mut pair, _kept) = Pair::of_files();
    let mut random = 0x9e37_79b9_7f4a_7c15;
    let (mut sent, mut received) = ([0; 2], [0; 2]);
    let mut switches = [0; 2];
    for _ in 0..200 {
        let is_shared = below(&mut random, 2) == 0;
        pair.attach(is_shared);
        switches[usize::from(is_shared)] += 1;
        for _ in 0..below(&mut random, 60) {
            let side = below(&mut random, 2);
            if below(&mut random, 2) == 0 {
                let len = below(&mut random, 400);
                match pair.sides[side].core.send(&[&message(sent[side], len)]) {
                    Ok(_) => sent[side] += 1,
                    Err(SendFault::Full) => {}
                    Err(fault) => panic!("{fault:?}"),
                }
            } else if let Some(bytes) = pair.recv(1 - side) {
                assert_eq!(bytes, message(received[side], bytes.len()));
                received[side] += 1;
            }
            if !is_shared && below(&mut random, 4) == 0 {
                let Pair { sides, .. } = &mut pair;
                sides.iter_mut().for_each(|s| s.core.acknowledge(s.conn.as_mut().unwrap(), true));
                pair.pump();
            }
        }
    }
    for side in [CLIENT, SERVER] {
        while let Some(bytes) = pair.recv(1 - side) {
            assert_eq!(bytes, message(received[side], bytes.len()));
            received[side] += 1;
        }
    }
    assert_eq!(received, sent);
    assert!(sent[CLIENT] > 500 && sent[SERVER] > 500 && switches[0] > 50 && switches[1] > 50);
}

#[test]
fn memory_of_another_store_is_not_used() {
    let (mut pair, kept) = Pair::of_files();
    let other = TestStore::new(3);
    let mapping = [
        [Some(other.mapping()), Some(kept[SERVER].mapping())],
        [Some(kept[CLIENT].mapping()), Some(other.mapping())],
        [Some(kept[CLIENT].mapping()), None],
        [None, Some(kept[SERVER].mapping())],
    ];
    for (number, mapping) in mapping.into_iter().enumerate() {
        pair.connect(mapping);
        assert!(!pair.is_shared());
        pair.sides[CLIENT].core.send(&[&message(number, 40)]).unwrap();
        assert_eq!(pair.recv(SERVER).unwrap(), message(number, 40));
    }
}

/// Returns a pair of ends that share memory. The client has sent thirty messages, of which the
/// server has acknowledged the first `consumed`.
fn thirty_sent(consumed: usize) -> (Pair, [TestStore; 2]) {
    let (mut pair, kept) = Pair::of_files();
    pair.attach(true);
    for number in 0..30 {
        pair.sides[CLIENT].core.send(&[&message(number, 20)]).unwrap();
    }
    for _ in 0..consumed {
        assert!(pair.recv(SERVER).is_some());
    }
    (pair, kept)
}

#[test]
fn stream_that_ends_under_its_reader_is_no_violation() {
    for sent_since in 0..120 {
        let (mut pair, _kept) = thirty_sent(sent_since % 30);
        let [client, server] = &mut pair.sides;
        client.core.begin_epoch(partywall_reconcile::Epoch(1)).unwrap();
        for number in 0..sent_since {
            // Once the client's ring is full, sending fails, because no message is acknowledged.
            // The test expects this error, and ignores it.
            let _ = client.core.send(&[&message(number, 20)]);
        }
        assert!(server.core.next_short().is_none());
        let pulled = server.core.pull(server.conn.as_mut().unwrap());
        // Rule: the server never takes a record of the client's new stream for one of the former
        // stream. If the slot that the server reads is still empty, the server finds nothing.
        assert!(matches!(pulled, Ok(false) | Err(End::Moved)), "{pulled:?}");
    }
}

#[test]
fn complete_record_of_a_former_stream_is_not_delivered() {
    for consumed in 1..20 {
        let (mut pair, _kept) = thirty_sent(consumed);
        let [client, server] = &mut pair.sides;
        client.core.begin_epoch(partywall_reconcile::Epoch(1)).unwrap();
        assert!(server.core.is_pull_ready(), "nothing was written over it");
        assert!(server.core.next_short().is_none());
        let pulled = server.core.pull(server.conn.as_mut().unwrap());
        assert_eq!(pulled, Err(End::Moved));
    }
}

#[test]
fn replaced_connection_has_nothing_to_send() {
    let (mut pair, _kept) = Pair::of_files();
    pair.attach(false);
    let old = pair.sides[SERVER].conn.take().unwrap();
    assert!(!pair.sides[SERVER].core.is_replaced(&old));
    // Input: the server keeps the old connection open during the handshake of the new connection,
    // and after that handshake. Expected: the old connection counts as replaced once the handshake
    // is complete, so that nothing more is sent on it.
    pair.begin([None, None]);
    pair.carry(SERVER);
    assert!(!pair.sides[SERVER].core.is_replaced(&old), "the client may not come back");
    pair.carry(CLIENT);
    let server = &mut pair.sides[SERVER];
    server.core.send(&[b"late"]).unwrap();
    assert!(server.core.is_replaced(&old));
    assert!(!server.core.is_replaced(server.conn.as_ref().unwrap()));
}

#[test]
fn records_are_not_read_before_begin() {
    let (mut pair, _kept) = Pair::of_files();
    pair.attach(true);
    for side in [CLIENT, SERVER] {
        pair.sides[side].core.send(&[b"first"]).unwrap();
        assert_eq!(pair.recv(1 - side).unwrap(), "first");
    }
    // Input: before the next connection begins, each end publishes two records. Rule: no end may
    // read them before BEGIN, the last frame of the handshake.
    for side in [CLIENT, SERVER] {
        pair.sides[side].core.send(&[b"one"]).unwrap();
        pair.sides[side].core.send(&[b"two"]).unwrap();
    }
    let mapping = pair.mapping();
    pair.begin(mapping);
    pair.carry(SERVER);
    let client = &mut pair.sides[CLIENT];
    assert!(client.conn.as_ref().unwrap().is_active());
    assert!(!client.core.is_pull_ready() && client.core.next_short().is_none());
    assert_eq!(client.core.pull(client.conn.as_mut().unwrap()), Ok(false));
    assert!(!client.core.poll_acked());
    pair.carry(CLIENT);
    assert_eq!(pair.recv(SERVER).unwrap(), "one");
    assert!(!pair.sides[CLIENT].core.poll_acked(), "BEGIN was not read");
    pair.carry(SERVER);
    assert!(pair.sides[CLIENT].core.poll_acked());
    assert_eq!(pair.recv(CLIENT).unwrap(), "one");
}
