// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of channels in an event loop: every message arrives once and in order, whichever way the
//! loop waits, even if the application takes only one message after each event.

use partywall::event::{Event, Loop};
use partywall::{Config, Readiness, TryRecvError, TrySendError};
use partywall_sys::EpollSet;
use partywall_sys::epoll::EventFlags;
use partywall_testkit::echo_loop::{Drive, Driven, EchoLoop};
use partywall_testkit::{Kind, Random, is_pattern, pattern, soon};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const CHANNELS: u64 = 4;
const MESSAGES: u64 = 300;

fn small(config: Config) -> Config {
    config.ring_bytes(4096).peer_blocks_max(8).memory_max(256 << 10).inline_max(256)
}

/// A client of the echo server on a blocking channel. It sends in a second thread, so that several
/// messages are on their way at a time.
fn exchange(address: &str, config: &Config, seed: u64) {
    let (mut sender, mut receiver) = partywall::connect_with(address, config).unwrap().split();
    let length = |number| Random::new(seed << 32 | number).size(20_000);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..MESSAGES {
                sender.send_deadline(&pattern(length(number), number), soon()).unwrap();
            }
            sender.flush(Some(soon())).unwrap();
        });
        for number in 0..MESSAGES {
            let message = receiver.recv_deadline(soon()).unwrap().unwrap();
            assert!(message.len() == length(number) && is_pattern(&message, number));
        }
        assert!(receiver.recv_deadline(soon()).unwrap().is_none());
    });
}

#[test]
fn every_message_comes_back_once() {
    for kind in Kind::ALL {
        for drive in Drive::ALL {
            for taken_max in [1, usize::MAX] {
                let config = small(kind.config());
                let mut server = EchoLoop::new(drive, taken_max);
                let address = server.listen(&kind.address(), &config);
                std::thread::scope(|scope| {
                    for seed in 0..CHANNELS {
                        let (address, config) = (&address, &config);
                        scope.spawn(move || exchange(address, config, seed));
                    }
                    while server.ended < CHANNELS {
                        server.turn();
                    }
                    assert_eq!(server.echoed, CHANNELS * MESSAGES, "{} {drive:?}", kind.name());
                    assert_eq!(server.members(), 1, "only the listener is left");
                    // Clients wait for the record that ends the server's direction. If a socket has
                    // not accepted it yet, dropping the server's event loop writes it.
                    drop(server);
                });
            }
        }
    }
}

/// Calls `poll_awake` of the event loop until the server has received one message and finds no
/// other.
fn take_awake(events: &Loop, server: &mut partywall::event::Channel) {
    let (mut ready, mut taken) = (Vec::new(), 0);
    let deadline = soon();
    while taken == 0 {
        assert!(Instant::now() < deadline, "nothing comes");
        events.poll_awake(&mut ready, 1).unwrap();
        while server.try_recv().is_ok() {
            taken += 1;
        }
    }
    assert_eq!(taken, 1);
}

#[test]
fn descriptor_is_quiet_after_polls_that_were_awake() {
    for kind in Kind::ALL {
        let events = Loop::new().unwrap();
        let above = EpollSet::new().unwrap();
        above.add(&events, EventFlags::IN, 0).unwrap();
        let (mut client, server) = kind.pair(|config| config);
        let mut server = events.add_channel(server, 7).unwrap();
        let (mut ready, mut edges) = (Vec::new(), Vec::new());
        for seed in 0..100 {
            client.send(&pattern(100, seed)).unwrap();
            take_awake(&events, &mut server);
            assert_eq!(events.poll(&mut ready).unwrap(), 0, "{}", kind.name());
            let left = above.wait(&mut edges, Some(Instant::now())).unwrap();
            assert_eq!(left, 0, "{}: message {seed}", kind.name());
        }
    }
}

#[test]
fn message_that_is_not_taken_is_reported_by_every_turn() {
    for kind in Kind::ALL {
        for drive in Drive::ALL {
            let mut driven = Driven::new(drive);
            let (mut client, server) = kind.pair(|config| config);
            let mut server = driven.events.add_channel(server, 7).unwrap();
            (0..3).for_each(|seed| client.send(&pattern(100, seed)).unwrap());
            let mut ready = Vec::new();
            for seed in 0..3 {
                // The event loop may report the channel before a whole message has arrived.
                let message = loop {
                    until_tag(&mut driven, &mut ready, 7);
                    match server.try_recv() {
                        Ok(message) => break message.unwrap(),
                        Err(TryRecvError::Empty) => {}
                        Err(error) => panic!("{error}"),
                    }
                };
                assert!(is_pattern(&message, seed), "{} {drive:?}", kind.name());
            }
            assert!(matches!(server.try_recv(), Err(TryRecvError::Empty)));
            while driven.turn_until(&mut ready, Instant::now()) {}
            assert!(ready.is_empty(), "{} {drive:?}: {ready:?}", kind.name());
            client.send(b"next").unwrap();
            until_tag(&mut driven, &mut ready, 7);
            assert_eq!(server.receiver().try_recv_view().unwrap().unwrap(), b"next");
            assert_eq!(server.receiver().keep_view().unwrap(), b"next");
        }
    }
}

#[test]
fn paused_receiver_is_reported_again_after_an_attempt() {
    for kind in Kind::ALL {
        for drive in Drive::ALL {
            let mut driven = Driven::new(drive);
            let (mut client, server) = kind.pair(|config| config);
            let mut server = driven.events.add_channel(server, 7).unwrap();
            (0..2).for_each(|seed| client.send(&pattern(100, seed)).unwrap());
            let mut ready = Vec::new();
            until_tag(&mut driven, &mut ready, 7);
            server.receiver().pause();
            let is_quiet = (0..100).any(|_| !driven.turn_until(&mut ready, Instant::now()));
            assert!(is_quiet, "{} {drive:?}", kind.name());
            for seed in 0..2 {
                let message = loop {
                    match server.try_recv() {
                        Ok(message) => break message.unwrap(),
                        Err(TryRecvError::Empty) => until_tag(&mut driven, &mut ready, 7),
                        Err(error) => panic!("{error}"),
                    }
                };
                assert!(is_pattern(&message, seed));
                // After the application has tried to receive, the loop reports the channel again,
                // because one message is left.
                if seed == 0 {
                    until_tag(&mut driven, &mut ready, 7);
                }
            }
        }
    }
}

/// Calls `turn` of the event loop until it reports the source `tag` as readable.
fn until_tag(driven: &mut Driven, ready: &mut Vec<Event>, tag: u64) {
    let is_reported = |event: &Event| event.tag == tag && event.kinds.is_readable();
    loop {
        driven.turn(ready);
        if ready.iter().any(is_reported) {
            return;
        }
    }
}

#[test]
fn sender_without_room_is_reported_once_there_is_room() {
    for kind in Kind::ALL {
        for drive in Drive::ALL {
            let mut driven = Driven::new(drive);
            let (client, server) = kind.pair(small);
            let (client, _back) = client.split();
            let (_reply, mut server) = server.split();
            let mut client = driven.events.add_sender(client, 3);
            let mut ready = Vec::new();
            // The reader begins once the sender has found no room. Otherwise a fast reader could
            // keep up with the sender.
            let (full, is_full) = mpsc::channel::<()>();
            let mut full = Some(full);
            let reader = std::thread::spawn(move || {
                let _ = is_full.recv();
                for number in 0..2000 {
                    let message = server.recv_deadline(soon()).unwrap();
                    assert!(message.is_some(), "{} {drive:?}: {number} messages", kind.name());
                }
                server
            });
            let mut waits = 0;
            for _ in 0..2000 {
                while let Err(error) = client.try_send(&[7; 700]) {
                    assert!(matches!(error, TrySendError::Full), "{error}");
                    waits += 1;
                    drop(full.take());
                    driven.turn(&mut ready);
                }
            }
            drop(full);
            while client.try_flush().unwrap() {
                driven.turn(&mut ready);
            }
            let mut server = reader.join().unwrap();
            drop(client);
            // If the socket has no room, later turns of the loop write the end of the direction.
            let deadline = soon();
            loop {
                match server.try_recv() {
                    Ok(end) => break assert!(end.is_none(), "{} {drive:?}", kind.name()),
                    Err(TryRecvError::Empty) => assert!(Instant::now() < deadline, "no end"),
                    Err(error) => panic!("{} {drive:?}: {error}", kind.name()),
                }
                driven.turn_until(&mut ready, Instant::now());
            }
            assert!(waits > 0 || !kind.is_shared_memory(), "{} {drive:?}", kind.name());
        }
    }
}

#[test]
fn reservations_wait_for_memory_in_a_loop() {
    let mut driven = Driven::new(Drive::Wait);
    let (client, mut server) = Kind::SharedMemory.pair(small);
    let mut client = driven.events.add_channel(client, 1).unwrap();
    let mut ready = Vec::new();
    let mut reserved = Vec::new();
    while let Ok(reservation) = client.sender().try_reserve_owned(1000) {
        reserved.push(reservation);
    }
    // A reservation that another thread drops frees memory for the sender, so the loop reports the
    // sender.
    let last = reserved.pop();
    let dropping = std::thread::spawn(move || drop(last));
    let mut again = loop {
        match client.sender().try_reserve_owned(1000) {
            Ok(reservation) => break reservation,
            Err(TrySendError::Full) => driven.turn(&mut ready),
            Err(other) => panic!("{other}"),
        }
    };
    dropping.join().unwrap();
    again.fill(9);
    client.sender().try_commit_owned(again).unwrap();
    assert_eq!(server.recv_deadline(soon()).unwrap().unwrap(), [9; 1000]);
}

#[test]
fn sources_come_and_go_in_the_middle_of_events() {
    for drive in Drive::ALL {
        let mut driven = Driven::new(drive);
        let mut pairs: Vec<_> = (0..50)
            .map(|tag| {
                let (client, server) = Kind::SharedMemory.pair(|config| config);
                (client, Some(driven.events.add_channel(server, tag).unwrap()))
            })
            .collect();
        let mut ready = Vec::new();
        let mut received = [0_u32; 50];
        for round in 0_u32..20 {
            for (client, server) in &mut pairs {
                if server.is_some() {
                    client.send(&round.to_le_bytes()).unwrap();
                }
            }
            // In each round, the first event makes the test drop the channel `victim`, which may
            // have an event in the same turn. After the round, a new channel gets the tag of the
            // dropped one.
            let victim = (round * 7 % 50) as usize;
            let mut has_removed = false;
            while pairs.iter().enumerate().any(|(tag, (_, server))| {
                server.is_some() && received[tag] <= round && tag != victim
            }) {
                driven.turn(&mut ready);
                for event in &ready {
                    if !std::mem::replace(&mut has_removed, true) {
                        pairs[victim].1 = None;
                    }
                    let Some(Some(server)) = pairs.get_mut(event.tag as usize).map(|it| &mut it.1)
                    else {
                        continue;
                    };
                    while let Ok(Some(message)) = server.try_recv() {
                        assert_eq!(*message, received[event.tag as usize].to_le_bytes());
                        received[event.tag as usize] += 1;
                    }
                }
            }
            let (client, server) = Kind::SharedMemory.pair(|config| config);
            let server = driven.events.add_channel(server, victim as u64).unwrap();
            pairs[victim] = (client, Some(server));
            received[victim] = round + 1;
        }
    }
}

#[test]
fn receiver_taken_out_of_the_loop_receives_the_rest() {
    for kind in Kind::ALL {
        let mut driven = Driven::new(Drive::Wait);
        let (mut client, server) = kind.pair(|config| config);
        let (sender, receiver) = driven.events.add_channel(server, 1).unwrap().split();
        client.send(b"one").unwrap();
        let mut ready = Vec::new();
        until_tag(&mut driven, &mut ready, 1);
        let (mut sender, mut receiver) = (sender.into_inner(), receiver.into_inner());
        assert_eq!(receiver.recv_deadline(soon()).unwrap().unwrap(), b"one");
        sender.send(b"two").unwrap();
        assert_eq!(client.recv_deadline(soon()).unwrap().unwrap(), b"two");
        assert!(!driven.turn_until(&mut ready, Instant::now()), "{}: {ready:?}", kind.name());
        // The receiver, which was taken out of the loop, can be added to it again.
        assert!(matches!(receiver.try_recv(), Err(TryRecvError::Empty)));
        let _ = receiver.arm().map(|readiness| readiness == Readiness::Ready).unwrap();
        let mut receiver = driven.events.add_receiver(receiver, 2).unwrap();
        client.send(b"three").unwrap();
        loop {
            until_tag(&mut driven, &mut ready, 2);
            if let Ok(message) = receiver.try_recv() {
                assert_eq!(message.unwrap(), b"three");
                break;
            }
        }
    }
}

#[test]
fn threads_use_channels_while_another_runs_the_loop() {
    let events = Loop::new().unwrap();
    let (mut client, server) = Kind::SharedMemory.pair(small);
    let (_reply, receiver) = server.split();
    let mut receiver = events.add_receiver(receiver, 1).unwrap();
    let (wake, woken) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0_u32..20_000 {
                client.send(&number.to_le_bytes()).unwrap();
            }
            drop(client);
        });
        // This thread receives. The thread that runs the loop wakes it after each event.
        scope.spawn(move || {
            let mut expected = 0_u32;
            loop {
                match receiver.try_recv() {
                    Ok(Some(message)) => {
                        assert_eq!(*message, expected.to_le_bytes());
                        expected += 1;
                    }
                    Ok(None) => break,
                    Err(TryRecvError::Empty) => {
                        woken.recv_timeout(partywall_testkit::TIMEOUT).unwrap();
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            assert_eq!(expected, 20_000);
        });
        let mut ready = Vec::new();
        while wake.send(()).is_ok() {
            // The end of the receiving thread is no event of the loop, so each turn lasts at most
            // 20 ms.
            let until = Instant::now() + Duration::from_millis(20);
            events.wait(&mut ready, Some(until)).unwrap();
        }
    });
}
