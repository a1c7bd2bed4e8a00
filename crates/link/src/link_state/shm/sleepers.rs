// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of notifications over shared memory: an end that sleeps is notified once, and an end that
//! is awake is not notified.

use super::{CLIENT, Pair, SERVER, message};
use crate::link_state::SendFault;

#[test]
fn sleeper_is_notified_once_for_each_sleep() {
    let (mut pair, _kept) = Pair::of_files();
    pair.attach(true);
    for number in 0..3 {
        let [client, server] = &mut pair.sides;
        client.core.send(&[b"nobody sleeps"]).unwrap();
        assert!(!client.core.is_doorbell_due());
        assert!(!server.core.prepare_sleep(true, false), "there is something");
        assert!(pair.recv(SERVER).is_some());
        let [client, server] = &mut pair.sides;
        assert!(!server.core.is_doorbell_due(), "the client does not wait for room");
        assert!(server.core.prepare_sleep(true, false));
        client.core.append_to_batch(&[b"not yet"]).unwrap();
        assert!(!client.core.is_doorbell_due(), "nothing was published");
        client.core.publish();
        client.core.send(&[b"more"]).unwrap();
        assert!(client.core.is_doorbell_due(), "sleep {number}");
        client.core.send(&[b"it was notified"]).unwrap();
        assert!(!client.core.is_doorbell_due());
        assert!(server.core.is_pull_ready());
        server.core.cancel_sleep();
        while pair.recv(SERVER).is_some() {}
    }
}

#[test]
fn sleeper_for_room_is_notified_by_an_ack() {
    let (mut pair, _kept) = Pair::of_files();
    pair.attach(true);
    let fill = |pair: &mut Pair| {
        let client = &mut pair.sides[CLIENT].core;
        while client.send(&[&message(1, 20)]) != Err(SendFault::Full) {}
    };
    fill(&mut pair);
    assert!(pair.sides[CLIENT].core.prepare_sleep(true, true));
    assert!(!pair.sides[CLIENT].core.poll_acked());
    assert!(pair.recv(SERVER).is_some());
    assert!(pair.sides[SERVER].core.is_doorbell_due());
    assert!(pair.sides[CLIENT].core.poll_acked());
    pair.sides[CLIENT].core.cancel_sleep();
    // The sender frees room in steps of a sixteenth of its ring. So the server has to acknowledge
    // several messages before the client can send again.
    while pair.sides[CLIENT].core.send(&[&message(1, 20)]) == Err(SendFault::Full) {
        assert!(pair.recv(SERVER).is_some());
    }
    fill(&mut pair);
    assert!(pair.recv(SERVER).is_some());
    assert!(!pair.sides[SERVER].core.is_doorbell_due(), "it is awake");
    assert!(!pair.sides[CLIENT].core.prepare_sleep(true, true), "there is room already");
}

#[test]
fn sleeper_for_records_is_not_notified_of_room() {
    let (mut pair, _kept) = Pair::of_files();
    pair.attach(true);
    pair.sides[CLIENT].core.send(&[b"one"]).unwrap();
    assert!(pair.sides[CLIENT].core.prepare_sleep(true, false));
    assert!(pair.recv(SERVER).is_some());
    assert!(!pair.sides[SERVER].core.is_doorbell_due());
}

/// Rule: no end ever reads a record that is only partly written. Two threads exchange messages,
/// each through one of the two ends.
#[test]
fn two_threads_pass_messages_at_full_speed() {
    const COUNT: usize = 30_000;
    let (mut pair, _kept) = Pair::of_files();
    pair.attach(true);
    let [mut client, mut server] = pair.sides;
    let len = |number: usize| if number % 97 == 0 { 3000 } else { number % 190 };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..COUNT {
                let sent = message(number, len(number));
                while client.core.send(&[&sent]) == Err(SendFault::Full) {
                    std::thread::yield_now();
                }
            }
            while client.core.acked() < client.core.tail() {
                client.core.poll_acked();
                std::thread::yield_now();
            }
        });
        scope.spawn(move || {
            let mut conn = server.conn.take().unwrap();
            for number in 0..COUNT {
                while !server.core.pull(&mut conn).unwrap() {
                    std::thread::yield_now();
                }
                let delivery = server.core.next().unwrap();
                assert_eq!(delivery.bytes, message(number, len(number)), "message {number}");
                server.core.ack_to(&delivery.token).unwrap();
            }
        });
    });
}
