// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of views without a guard. Each view of a received message is valid until the next receive
//! call, which consumes the message.

use partywall::{Config, Readiness, TryRecvError};
use partywall_testkit::{Kind, is_pattern, pattern, soon, until};

fn small(config: Config) -> Config {
    config.ring_bytes(4096).inline_max(256).peer_blocks_max(8).memory_max(256 << 10)
}

/// Lengths of the messages: one is sent inline, one in a block, and one needs several reads of a
/// socket.
const LENS: [usize; 3] = [200, 3000, 100_000];

#[test]
fn every_receive_call_consumes_the_message_of_the_last_view() {
    for kind in Kind::ALL {
        for len in LENS {
            let (mut client, mut server) = kind.pair(|config| config);
            let client = std::thread::spawn(move || {
                (0..7).for_each(|seed| client.send(&pattern(len, seed)).unwrap());
                client.sender().flush(Some(soon())).unwrap();
                client
            });
            let receiver = server.receiver();
            let name = format!("{} {len}", kind.name());
            assert!(is_pattern(receiver.recv_view().unwrap().unwrap(), 0), "{name}");
            assert!(is_pattern(&receiver.recv().unwrap().unwrap(), 1), "{name}");
            assert!(is_pattern(receiver.recv_view().unwrap().unwrap(), 2), "{name}");
            assert!(is_pattern(&receiver.recv_ref().unwrap().unwrap(), 3), "{name}");
            assert!(is_pattern(receiver.recv_view_deadline(soon()).unwrap().unwrap(), 4), "{name}");
            let kept = receiver.keep_view().unwrap();
            assert!(is_pattern(receiver.recv_view().unwrap().unwrap(), 5), "{name}");
            assert!(is_pattern(&kept, 4), "{name}");
            assert!(is_pattern(receiver.recv_view().unwrap().unwrap(), 6), "{name}");
            drop(client.join().unwrap());
            assert!(receiver.recv_view().unwrap().is_none(), "{name}");
            assert!(receiver.keep_view().is_none(), "{name}: the end is no view");
        }
    }
}

#[test]
fn view_keeps_its_memory_until_the_next_receive_call() {
    for kind in [Kind::SharedMemory, Kind::Untrusted] {
        for len in [200, 3000] {
            let (mut client, mut server) = kind.pair(small);
            let name = format!("{} {len}", kind.name());
            let mut sent = 0;
            while client.try_send(&pattern(len, sent)).is_ok() {
                sent += 1;
            }
            let view = server.receiver().try_recv_view().unwrap().unwrap();
            // The sender may send only into memory that the receiver has freed.
            while client.try_send(&pattern(len, sent)).is_ok() {
                sent += 1;
            }
            assert!(is_pattern(view, 0), "{name}: the view changed");
            let mut received = 1;
            loop {
                match server.receiver().try_recv_view() {
                    Ok(Some(view)) => assert!(is_pattern(view, received), "{name}"),
                    Err(TryRecvError::Empty) => break,
                    other => panic!("{name}: {other:?}"),
                }
                received += 1;
            }
            assert_eq!(received, sent, "{name}");
            // All memory is free again, although no other view has replaced the last one.
            client.sender().trim().unwrap();
            assert_eq!(client.sender().stats().blocks_in_flight, 0, "{name}");
        }
    }
}

#[test]
fn arming_leaves_a_view_as_it_is() {
    for kind in Kind::ALL {
        for len in LENS {
            let (mut client, mut server) = kind.pair(|config| config);
            let client = std::thread::spawn(move || {
                client.send(&pattern(len, 1)).unwrap();
                client.sender().flush(Some(soon())).unwrap();
                client
            });
            let receiver = server.receiver();
            assert!(is_pattern(receiver.recv_view_deadline(soon()).unwrap().unwrap(), 1));
            let _ = receiver.arm().unwrap();
            assert!(is_pattern(&receiver.keep_view().unwrap(), 1), "{} {len}", kind.name());
            assert!(matches!(receiver.try_recv_view(), Err(TryRecvError::Empty)));
            let mut client = client.join().unwrap();
            until("the receiver is armed", || receiver.arm().unwrap() == Readiness::WillNotify);
            client.send(b"next").unwrap();
            assert_eq!(receiver.recv_view_deadline(soon()).unwrap(), Some(&b"next"[..]));
        }
    }
}

#[test]
fn receiver_dropped_with_a_view_frees_the_message() {
    for kind in Kind::ALL {
        for len in LENS {
            let (mut client, mut server) = kind.pair(|config| config);
            let client = std::thread::spawn(move || {
                client.send(&pattern(len, 1)).unwrap();
                client.sender().flush(Some(soon())).unwrap();
                client
            });
            assert!(server.receiver().recv_view_deadline(soon()).unwrap().is_some());
            drop(server);
            drop(client.join().unwrap());
        }
    }
}

#[test]
fn consumed_reference_is_neither_a_view_nor_received_again() {
    for kind in Kind::ALL {
        for len in LENS {
            let (mut client, mut server) = kind.pair(|config| config);
            let name = format!("{} {len}", kind.name());
            let client = std::thread::spawn(move || {
                (0..2).for_each(|seed| client.send(&pattern(len, seed)).unwrap());
                client.sender().flush(Some(soon())).unwrap();
                client
            });
            let receiver = server.receiver();
            for messages in 1..=2 {
                drop(receiver.recv_ref().unwrap().unwrap());
                assert!(receiver.keep_view().is_none(), "{name}: a consumed message was kept");
                let stats = receiver.stats();
                let counted = (stats.messages, stats.bytes);
                assert_eq!(counted, (messages, messages * len as u64), "{name}");
            }
            assert!(matches!(receiver.try_recv_ref(), Err(TryRecvError::Empty)), "{name}");
            let mut client = client.join().unwrap();
            client.send(&pattern(len, 2)).unwrap();
            client.sender().flush(Some(soon())).unwrap();
            drop(receiver.recv_ref().unwrap().unwrap());
            until("the receiver can be armed", || receiver.arm().unwrap() == Readiness::WillNotify);
            assert!(matches!(receiver.try_recv(), Err(TryRecvError::Empty)), "{name}");
        }
    }
}

#[test]
fn leaked_reference_leaves_its_message_unconsumed() {
    let (mut client, mut server) = Kind::SharedMemory.pair(|config| config);
    client.send(b"twice").unwrap();
    std::mem::forget(server.recv_ref().unwrap().unwrap());
    assert_eq!(server.receiver().stats().messages, 0);
    assert_eq!(&*server.recv_ref().unwrap().unwrap(), b"twice");
    client.send(b"once").unwrap();
    assert_eq!(server.recv().unwrap().unwrap(), *b"once");
    assert_eq!(server.receiver().stats().messages, 2);
}

#[test]
fn sender_gets_the_space_of_references_that_were_dropped() {
    let (mut client, mut server) = Kind::SharedMemory.pair(small);
    for round in 0..20 {
        let mut sent = 0;
        while client.try_send(&pattern(200, sent)).is_ok() {
            sent += 1;
        }
        for seed in 0..sent {
            assert!(is_pattern(&server.recv_ref().unwrap().unwrap(), seed), "round {round}");
        }
        // No receive call has followed the last reference, and the ring is empty.
        let messages = (0..).take_while(|&seed| client.try_send(&pattern(200, seed)).is_ok());
        let room = messages.count() as u64;
        assert!(room > sent / 2, "round {round}: {room} of {sent} messages");
        (0..room).for_each(|_| drop(server.recv().unwrap().unwrap()));
    }
}
