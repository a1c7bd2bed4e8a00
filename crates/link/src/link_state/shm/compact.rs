// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of compact records, which carry a message without acknowledgement. An end writes them
//! while its peer reads its memory, and accepts them on any transport (SPEC 14.2).

use std::io::IoSlice;

use partywall_reconcile::Position;

use super::{CLIENT, Pair, SERVER, message};
use crate::link_state::LinkState;

const DATA: u8 = 1;
const COMPACT: u8 = 16;

/// Returns the kind of the record that begins at `start`, which must not be a PAD.
fn kind_at(core: &LinkState, start: Position) -> u8 {
    let cursor = core.retained.cursor(start).unwrap();
    let mut slices = [IoSlice::new(&[])];
    assert_eq!(cursor.slices(&core.retained, 1, &mut slices), Ok(1));
    slices[0][0] >> 1 & 31
}

/// Makes the end `from` send a message that takes one slot of the ring. Returns the kind of the
/// message's record.
fn send(pair: &mut Pair, from: usize) -> u8 {
    let core = &mut pair.sides[from].core;
    let start = core.tail();
    core.send(&[b"message"]).unwrap();
    kind_at(core, start)
}

#[test]
fn records_are_compact_only_while_the_peer_reads_the_memory() {
    let (mut pair, _kept) = Pair::of_files();
    assert_eq!(send(&mut pair, CLIENT), DATA, "where the ring begins");
    assert_eq!(send(&mut pair, CLIENT), DATA, "without a connection");
    for is_shared in [false, true, false, true] {
        pair.attach(is_shared);
        let expected = if is_shared { COMPACT } else { DATA };
        if !is_shared {
            assert_eq!([send(&mut pair, CLIENT), send(&mut pair, CLIENT)], [DATA; 2]);
        }
        // The server's first record is at the beginning of its ring, where no record may be
        // compact, so the test ignores the kind of this record.
        send(&mut pair, SERVER);
        assert_eq!([send(&mut pair, SERVER), send(&mut pair, CLIENT)], [expected; 2]);
        while pair.recv(SERVER).is_some() {}
        while pair.recv(CLIENT).is_some() {}
    }
    let client = &mut pair.sides[CLIENT];
    client.core.ended(client.conn.as_mut().unwrap(), crate::link_state::End::Replaced);
    assert_eq!(send(&mut pair, CLIENT), DATA, "nobody reads it any more");
}

#[test]
fn records_of_a_batch_are_compact() {
    let (mut pair, _kept) = Pair::of_files();
    pair.attach(true);
    send(&mut pair, CLIENT);
    let core = &mut pair.sides[CLIENT].core;
    let mut start = core.tail();
    let ends = [20, 48, 150].map(|len| core.append_to_batch(&[&message(1, len)]).unwrap());
    core.publish();
    for end in ends {
        assert_eq!(kind_at(core, start), COMPACT);
        start = end;
    }
    for len in [7, 20, 48, 150] {
        assert_eq!(pair.recv(SERVER).unwrap().len(), len);
    }
}

#[test]
fn reply_acknowledges_by_its_own_record_on_each_transport() {
    let (mut pair, _kept) = Pair::of_files();
    for is_shared in [true, false, true] {
        pair.attach(is_shared);
        send(&mut pair, SERVER);
        send(&mut pair, CLIENT);
        assert!(pair.recv(CLIENT).is_some());
        if is_shared {
            let server = &mut pair.sides[SERVER];
            assert!(server.core.pull(server.conn.as_mut().unwrap()).unwrap());
        } else {
            pair.pump();
        }
        let core = &mut pair.sides[SERVER].core;
        let request = core.next().unwrap().token;
        let start = core.tail();
        core.reply(request, &[b"reply"]).unwrap();
        assert_eq!(kind_at(core, start), DATA);
        let prepared = core.retained.prepared(request.stream).unwrap();
        assert_eq!((prepared.acked_offset.position, prepared.reply_at), (request.end, start));
        assert_eq!(pair.recv(CLIENT).unwrap(), "reply");
    }
}

#[test]
fn compact_records_go_over_a_socket() {
    let (mut pair, _kept) = Pair::of_files();
    pair.attach(true);
    // Input: the client has acknowledged a message of the server, and none of the client's records
    // has carried that acknowledgement to the server. Expected: the client's next record has a
    // prefix, all records after it are compact, and the server receives all of them over a socket.
    send(&mut pair, SERVER);
    assert!(pair.recv(CLIENT).is_some());
    let sent: Vec<Vec<u8>> = (0..12).map(|number| message(number, number * 17)).collect();
    assert_eq!(send(&mut pair, CLIENT), DATA, "where the ring begins");
    for message in &sent {
        let core = &mut pair.sides[CLIENT].core;
        let start = core.tail();
        core.send(&[message]).unwrap();
        assert_eq!(kind_at(core, start), COMPACT);
    }
    pair.attach(false);
    assert_eq!(pair.recv(SERVER).unwrap(), "message");
    for message in &sent {
        assert_eq!(pair.recv(SERVER).unwrap(), *message);
    }
    let core = &pair.sides[SERVER].core;
    assert_eq!(core.acked(), core.tail(), "the client's view said so");
}

#[test]
fn acked_offset_of_compact_records_is_found_by_the_next_owner() {
    let (mut pair, mut kept) = Pair::of_files();
    pair.attach(true);
    for _ in 0..5 {
        send(&mut pair, SERVER);
        assert!(pair.recv(CLIENT).is_some());
        send(&mut pair, CLIENT);
        send(&mut pair, CLIENT);
    }
    let (acked_offset, tail) =
        (pair.sides[CLIENT].core.acked_offset(), pair.sides[CLIENT].core.tail());
    assert!(acked_offset.is_some_and(|acked_offset| acked_offset.position > Position::START));
    drop(pair);
    let next = LinkState::open(kept[CLIENT].open()).unwrap();
    assert_eq!((next.acked_offset(), next.tail()), (acked_offset, tail));
}

#[test]
fn past_of_an_epoch_includes_the_last_acknowledgement() {
    let (mut pair, _kept) = Pair::of_files();
    pair.attach(true);
    send(&mut pair, CLIENT);
    assert!(pair.recv(SERVER).is_some());
    let (stream, tail) = pair.sides[CLIENT].core.sent_to();
    pair.sides[CLIENT].core.begin_epoch(partywall_reconcile::Epoch(1)).unwrap();
    let left = pair.sides[CLIENT].core.store.durable.past.unwrap().sending.unwrap();
    assert_eq!((left.stream, left.acked, left.tail), (stream, tail, tail));
}
