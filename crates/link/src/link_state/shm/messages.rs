// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that messages arrive through shared memory, and that no byte of them goes over the socket.

use super::{CLIENT, INLINE_MAX, Pair, SERVER, SLAB, message};
use crate::link_state::Event;
use crate::link_state::{End, SendFault};

#[test]
fn messages_of_every_size_are_echoed_through_files() {
    let directory = tempfile::tempdir().unwrap();
    let mut pair = Pair::of_link(directory.path());
    pair.attach(true);
    echo_all_sizes(&mut pair);
    drop(pair);
    let mut pair = Pair::of_link(directory.path());
    pair.attach(true);
    echo_all_sizes(&mut pair);
}

#[test]
fn messages_of_every_size_are_echoed_through_memfds() {
    let mut pair = Pair::of_memfds();
    pair.attach(true);
    echo_all_sizes(&mut pair);
}

fn echo_all_sizes(pair: &mut Pair) {
    let largest = usize::try_from(pair.sides[CLIENT].core.retained.slab_bytes()).unwrap();
    assert!(largest as u64 >= SLAB);
    let sizes = (0..=INLINE_MAX + 100).chain((INLINE_MAX + 100..largest).step_by(499));
    for (number, len) in sizes.chain([largest - 1, largest]).enumerate() {
        let sent = message(number, len);
        let [client, server] = &mut pair.sides;
        client.core.send(&[&sent[..len / 2], &sent[len / 2..]]).unwrap();
        assert!(server.core.pull(server.conn.as_mut().unwrap()).unwrap(), "{len} bytes");
        let delivery = server.core.next().unwrap();
        server.core.reply(delivery.token, &[&delivery.bytes]).unwrap();
        assert!(client.core.poll_acked(), "a reply tells so before it is read");
        assert_eq!(client.core.acked(), client.core.tail());
        assert_eq!(pair.recv(CLIENT).unwrap(), sent);
        assert!(pair.sides[SERVER].core.poll_acked());
    }
    pair.pump();
    assert_eq!(pair.socket_bytes, 0);
}

/// Rule: the sender knows a receiver's last acknowledgement even if the receiver leaves at once.
/// The receiver stores the acknowledgement only in its own memory, where the sender reads it when
/// the connection ends.
#[test]
fn acknowledgement_before_the_end_is_known_after_it() {
    for end in [End::Left, End::Broken("a test".to_owned())] {
        let (mut pair, _kept) = Pair::of_files();
        pair.attach(true);
        pair.sides[CLIENT].core.send(&[b"the last"]).unwrap();
        assert!(pair.recv(SERVER).is_some());
        let client = &mut pair.sides[CLIENT];
        assert!(client.core.acked() < client.core.tail());
        client.core.ended(client.conn.as_mut().unwrap(), end);
        assert_eq!(client.core.acked(), client.core.tail());
    }
}

#[test]
fn full_ring_finds_room_without_a_frame() {
    let (mut pair, _kept) = Pair::of_files();
    pair.attach(true);
    let (mut sent, mut received, mut was_full) = (0, 0, 0);
    while received < 10_000 {
        let len = if sent % 50 == 0 { 9000 } else { sent % INLINE_MAX };
        match pair.sides[CLIENT].core.send(&[&message(sent, len)]) {
            Ok(_) => sent += 1,
            Err(SendFault::Full) => {
                was_full += 1;
                let len = if received % 50 == 0 { 9000 } else { received % INLINE_MAX };
                assert_eq!(pair.recv(SERVER).unwrap(), message(received, len));
                received += 1;
            }
            Err(fault) => panic!("{fault:?}"),
        }
    }
    pair.pump();
    assert!(was_full > 1000 && pair.socket_bytes == 0);
    assert!(pair.sides[SERVER].core.inbox.is_drained(), "only what was asked for was read");
}

#[test]
fn records_of_a_killed_peer_arrive_before_the_end() {
    let mut pair = Pair::of_memfds();
    pair.attach(true);
    let sent: Vec<Vec<u8>> = (0..5).map(|number| message(number, number * 600)).collect();
    for message in &sent {
        pair.sides[CLIENT].core.send(&[message]).unwrap();
    }
    // Input: a batch that the client never publishes. Expected: the server does not receive its
    // message.
    pair.sides[CLIENT].core.append_to_batch(&[b"never"]).unwrap();
    let [client, mut server] = pair.sides;
    drop(client);
    server.core.ended(&mut server.conn.unwrap(), End::Broken("the peer hung up".into()));
    assert!(!server.core.is_active() && server.core.peer_memory.is_none());
    for message in &sent {
        let delivery = server.core.next().unwrap();
        assert_eq!(delivery.bytes, *message);
        server.core.ack_to(&delivery.token).unwrap();
    }
    assert!(server.core.next().is_none());
    let last = server.core.events.last();
    assert!(matches!(last, Some(Event::Detached { .. })), "{last:?}");
}

#[test]
fn messages_sent_before_leave_arrive() {
    let (mut pair, _kept) = Pair::of_files();
    pair.attach(true);
    let [client, server] = &mut pair.sides;
    client.core.send(&[b"last words"]).unwrap();
    client.core.leave(client.conn.as_mut().unwrap());
    let bytes = super::outgoing(&client.core, client.conn.as_mut().unwrap());
    server.input.extend_from_slice(&bytes);
    let received = server.core.receive(server.conn.as_mut().unwrap(), &mut server.input);
    assert_eq!(received, Err(End::Left));
    assert_eq!(server.core.next().unwrap().bytes, "last words");
}
