// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the ends of channels, streams, sessions and of the event loop itself. The loop reports
//! each end once, and then has no further event of the ended object.

use partywall::event::{Event, Kinds, Loop};
use partywall::{SessionError, StreamRecvError, TryRecvError, blocking};
use partywall_testkit::echo_loop::{Drive, Driven};
use partywall_testkit::fork::in_a_fork;
use partywall_testkit::{Kind, is_pattern, pattern, soon};
use std::time::Instant;

/// Calls `turn` of the event loop until it reports an event of the source `tag` with one of
/// `kinds`.
fn until_kinds(driven: &mut Driven, tag: u64, kinds: Kinds) {
    let mut ready = Vec::new();
    let is_it = |event: &Event| event.tag == tag && event.kinds.intersects(kinds);
    while !ready.iter().any(is_it) {
        driven.turn(&mut ready);
    }
}

/// Fails if the event loop still reports events after 100 calls of `turn`.
fn assert_silent(driven: &mut Driven, name: &str) {
    let mut ready = Vec::new();
    for _ in 0..100 {
        if !driven.turn_until(&mut ready, Instant::now()) {
            return;
        }
    }
    panic!("{name}: never silent, {ready:?}");
}

#[test]
fn end_of_a_channel_is_reported_once() {
    for kind in Kind::ALL {
        for drive in Drive::ALL {
            let name = format!("{} {drive:?}", kind.name());
            let mut driven = Driven::new(drive);
            let (client, server) = kind.pair(|config| config);
            let mut server = driven.events.add_channel(server, 5).unwrap();
            assert!(matches!(server.try_recv(), Err(TryRecvError::Empty)));
            assert_silent(&mut driven, &name);
            drop(client);
            loop {
                until_kinds(&mut driven, 5, Kinds::READABLE);
                match server.try_recv() {
                    Err(TryRecvError::Empty) => {}
                    Ok(None) | Err(TryRecvError::Disconnected) => break,
                    other => panic!("{name}: {other:?}"),
                }
            }
            assert_silent(&mut driven, &name);
            assert!(!matches!(server.try_recv(), Err(TryRecvError::Empty) | Ok(Some(_))));
        }
    }
}

#[test]
fn loop_sends_the_rest_of_a_dropped_channel() {
    for kind in Kind::ALL {
        for drive in Drive::ALL {
            let name = format!("{} {drive:?}", kind.name());
            let mut driven = Driven::new(drive);
            let (mut client, server) = kind.pair(|config| config);
            let mut server = driven.events.add_channel(server, 9).unwrap();
            // The kernel discards the bytes sent on a TCP socket if the socket is closed with
            // unread bytes.
            client.send(b"nobody reads this").unwrap();
            let mut sent = 0;
            while server.try_send(&pattern(10_000, sent)).is_ok() {
                sent += 1;
            }
            drop(server);
            let (mut ready, mut received) = (Vec::new(), 0);
            loop {
                driven.turn_until(&mut ready, Instant::now());
                assert!(ready.is_empty(), "{name}: {ready:?} of a channel that was dropped");
                match client.try_recv() {
                    Ok(Some(message)) => {
                        assert!(is_pattern(&message, received), "{name}: message {received}");
                        received += 1;
                    }
                    Ok(None) => break,
                    Err(TryRecvError::Empty) => {}
                    Err(error) => panic!("{name}: {error} after {received} of {sent} messages"),
                }
            }
            assert_eq!(received, sent, "{name}");
        }
    }
}

#[test]
fn ends_of_streams_and_sessions_are_reported() {
    for kind in Kind::ALL {
        for drive in Drive::ALL {
            let name = format!("{} {drive:?}", kind.name());
            let mut listener =
                blocking::Listener::bind_with(kind.address(), &kind.config()).unwrap();
            let address = listener.local_address().to_string();
            let accepting = std::thread::spawn(move || listener.accept_deadline(soon()).unwrap());
            let mut driven = Driven::new(drive);
            let session = driven.events.connect(&address[..], &kind.config(), 1).unwrap();
            let there = accepting.join().unwrap();
            let mut streams: Vec<_> =
                (2..5).map(|tag| session.try_open(b"", tag).unwrap()).collect();
            let accept = |_| there.accept_deadline(soon());
            // `try_open` sends OPEN at once, so the peer accepts the streams although the loop does
            // not run.
            let mut theirs: Vec<_> = (0..3).map(|at| accept(at).unwrap().unwrap()).collect();
            theirs[0].finish();
            until_kinds(&mut driven, 2, Kinds::ENDED);
            assert!(matches!(streams[0].try_recv(), Ok(None)), "{name}");
            theirs[1].reset(9);
            until_kinds(&mut driven, 3, Kinds::ENDED);
            let reset = streams[1].try_recv();
            assert!(matches!(reset, Err(StreamRecvError::Reset { code: 9 })), "{name}: {reset:?}");
            assert!(streams[1].try_send(b"x").is_err(), "{name}");
            assert!(matches!(streams[2].try_recv(), Err(StreamRecvError::Empty)), "{name}");
            there.close(3, "over");
            until_kinds(&mut driven, 4, Kinds::ENDED);
            assert!(matches!(streams[2].try_recv(), Err(StreamRecvError::Session(_))), "{name}");
            drop((theirs, there));
            while !session.is_finished() {
                driven.turn(&mut Vec::new());
            }
            let reason = session.close_reason();
            assert!(matches!(reason, Some(SessionError::ClosedByPeer { code: 3, .. })), "{name}");
            drop((streams, session));
            assert_silent(&mut driven, &name);
        }
    }
}

#[test]
fn session_closed_here_ends_without_blocking_the_loop() {
    for kind in Kind::ALL {
        let mut listener = blocking::Listener::bind_with(kind.address(), &kind.config()).unwrap();
        let address = listener.local_address().to_string();
        let accepting = std::thread::spawn(move || listener.accept_deadline(soon()).unwrap());
        let mut driven = Driven::new(Drive::Wait);
        let session = driven.events.connect(&address[..], &kind.config(), 1).unwrap();
        let there = accepting.join().unwrap();
        let mut stream = session.try_open(b"", 2).unwrap();
        stream.try_send(b"last words").unwrap();
        session.close(5, "here");
        while !session.is_finished() {
            driven.turn(&mut Vec::new());
        }
        let mut theirs = there.accept_deadline(soon()).unwrap().unwrap();
        assert_eq!(theirs.recv_deadline(soon()).unwrap().unwrap(), b"last words");
        let reason = there.closed(Some(soon())).unwrap();
        assert!(matches!(reason, SessionError::ClosedByPeer { code: 5, .. }), "{reason:?}");
    }
}

#[test]
fn loop_that_is_dropped_ends_its_sessions_and_no_channel() {
    for kind in Kind::ALL {
        let mut listener = blocking::Listener::bind_with(kind.address(), &kind.config()).unwrap();
        let address = listener.local_address().to_string();
        let accepting = std::thread::spawn(move || listener.accept_deadline(soon()).unwrap());
        let events = Loop::new().unwrap();
        let session = events.connect(&address[..], &kind.config(), 1).unwrap();
        let there = accepting.join().unwrap();
        let (mut client, server) = kind.pair(|config| config);
        let mut server = events.add_channel(server, 2).unwrap();
        drop(events);
        assert!(session.is_finished() && session.close_reason().is_some(), "{}", kind.name());
        assert!(session.try_open(b"", 3).is_err(), "{}", kind.name());
        assert!(there.closed(Some(soon())).is_ok(), "{}", kind.name());
        client.send(b"still").unwrap();
        partywall_testkit::until("the message arrives", || {
            server.try_recv().is_ok_and(|message| message.is_some_and(|it| *it == b"still"[..]))
        });
    }
}

#[test]
fn loop_of_the_parent_is_refused_in_a_forked_child_and_stays_whole() {
    let mut driven = Driven::new(Drive::Level);
    let (mut client, server) = Kind::SharedMemory.pair(|config| config);
    let mut server = Some(driven.events.add_channel(server, 2).unwrap());
    let mut kept = Some(driven);
    assert!(in_a_fork(|| {
        let mut ready = Vec::new();
        let driven = kept.take().unwrap();
        let is_refused = driven.events.poll(&mut ready).is_err()
            && driven.events.wait(&mut ready, None).is_err();
        drop(server.take());
        drop(driven);
        is_refused
    }));
    driven = kept.take().unwrap();
    client.send(b"parent").unwrap();
    loop {
        until_kinds(&mut driven, 2, Kinds::READABLE);
        if let Ok(message) = server.as_mut().unwrap().try_recv() {
            assert_eq!(message.unwrap(), b"parent");
            break;
        }
    }
}
