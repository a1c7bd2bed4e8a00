// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests channels in an event loop of the application, which only polls descriptors and calls
//! `try_` methods: no notification is lost.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use partywall::{
    Channel, Config, Listener, Readiness, Receiver, Sender, TryRecvError, TrySendError,
};
use partywall_sys::poll::{self, PollFd, PollFlags};
use partywall_testkit::{Kind, Random, soon};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};

const MESSAGES: u64 = 10_000;

/// Polls a descriptor as an event loop does; panics if it does not become readable within 10 s.
fn until_readable(descriptor: &impl AsFd, what: &str) {
    let mut descriptors = [PollFd::new(descriptor, PollFlags::IN)];
    let ready = poll::wait(&mut descriptors, Some(Instant::now() + Duration::from_secs(10)));
    assert_ne!(ready.unwrap(), 0, "a lost wake-up: {what}");
}

/// Pauses for a random time, as a busy peer does: usually not at all, and sometimes so long that
/// the event loop at the other end blocks in its poll.
fn dawdle(chance: &mut Random) {
    let pause = match chance.below(64) {
        0 => Duration::from_micros(200),
        1..8 => Duration::from_micros(chance.below(20)),
        _ => return,
    };
    let until = Instant::now() + pause;
    while Instant::now() < until {
        std::thread::yield_now();
    }
}

/// How often a poll of an event loop has returned, and after how many of these polls no message
/// could be sent or received.
#[derive(Debug, Default)]
struct Polls {
    done: u64,
    in_vain: u64,
}

fn receive_by_polling(receiver: &mut Receiver, name: &str) -> Polls {
    let mut chance = Random::new(11);
    let mut polls = Polls::default();
    let mut expected = 0_u64;
    loop {
        let before = expected;
        loop {
            match receiver.try_recv() {
                Ok(Some(message)) => {
                    assert_eq!(message[..8], expected.to_le_bytes(), "{name}");
                    expected += 1;
                    dawdle(&mut chance);
                }
                Err(TryRecvError::Empty) => break,
                Ok(None) | Err(TryRecvError::Disconnected) => {
                    assert_eq!(expected, MESSAGES, "{name}");
                    return polls;
                }
                Err(fault) => panic!("{name}: {fault}"),
            }
        }
        polls.in_vain += u64::from(before == expected);
        if receiver.arm().unwrap() == Readiness::WillNotify {
            until_readable(receiver, &format!("{name}: message {expected} of {MESSAGES}"));
            polls.done += 1;
        }
    }
}

fn send_by_polling(sender: &mut Sender, len_max: u64, name: &str) -> Polls {
    let mut chance = Random::new(12);
    let mut polls = Polls::default();
    for number in 0..MESSAGES {
        let mut payload = vec![7; 8 + chance.size(len_max)];
        payload[..8].copy_from_slice(&number.to_le_bytes());
        let mut attempts = 0;
        loop {
            match sender.try_send(&payload) {
                Ok(()) => break,
                Err(TrySendError::Full) => attempts += 1,
                Err(other) => panic!("{name}: {other}"),
            }
            if sender.arm().unwrap() == Readiness::WillNotify {
                until_readable(sender, &format!("{name}: room for message {number}"));
                polls.done += 1;
            }
        }
        polls.in_vain += u64::from(attempts > 1);
        dawdle(&mut chance);
    }
    polls
}

fn small(config: Config) -> Config {
    config.ring_bytes(4096).peer_blocks_max(8).memory_max(256 << 10).inline_max(256)
}

#[test]
fn polling_on_both_sides_misses_nothing() {
    for kind in Kind::ALL {
        for len_max in [64, 30_000] {
            let (client, server) = kind.pair(small);
            let (mut sender, _back) = client.split();
            let (_reply, mut receiver) = server.split();
            let name = format!("{} up to {len_max}", kind.name());
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    // `send_by_polling` drops the sender even if sending fails, and the receiver
                    // then gets the end instead of waiting for more messages.
                    let polls = send_by_polling(&mut sender, len_max, &name);
                    println!("{name}: sender {polls:?}");
                    sender.flush(Some(soon())).unwrap();
                    drop(sender);
                });
                let polls = receive_by_polling(&mut receiver, &name);
                println!("{name}: receiver {polls:?}");
                drop(receiver);
            });
        }
    }
}

/// Sends until the sender gets `Closed`, and polls its descriptor when there is no room. Returns
/// the number of calls of `try_send`.
fn polls_until_closed(channel: &mut Channel, name: &str) -> u64 {
    for polls in 0..1000 {
        match channel.try_send(&[1; 200]) {
            Ok(()) => continue,
            Err(TrySendError::Closed(_)) => return polls,
            Err(TrySendError::Full) => {}
            Err(other) => panic!("{name}: {other}"),
        }
        if channel.sender().arm().unwrap() == Readiness::WillNotify {
            until_readable(channel.sender(), &format!("{name}: hang-up"));
        }
    }
    panic!("{name}: readable for ever, but the sender is told nothing");
}

#[test]
fn room_that_came_before_arming_is_not_missed() {
    for kind in [Kind::SharedMemory, Kind::Untrusted] {
        for len in [200, 20_000] {
            let (mut client, mut server) = kind.pair(small);
            while client.try_send(&vec![1; len]).is_ok() {}
            while server.try_recv().is_ok_and(|message| message.is_some()) {}
            // The receiver now waits for messages and frees no more room, so no notification of
            // room follows. Arming must therefore find the room that is free already.
            assert!(matches!(server.receiver().arm(), Ok(Readiness::WillNotify)));
            let armed = client.sender().arm().unwrap();
            assert_eq!(armed, Readiness::Ready, "{}: {len} bytes", kind.name());
        }
    }
}

#[test]
fn a_hang_up_reaches_an_armed_receiver() {
    for kind in Kind::ALL {
        let (mut client, server) = kind.pair(small);
        assert!(matches!(client.try_recv(), Err(TryRecvError::Empty)));
        assert_eq!(client.receiver().arm().unwrap(), Readiness::WillNotify, "{}", kind.name());
        std::thread::scope(|scope| {
            scope.spawn(|| drop(server));
            until_readable(client.receiver(), "hang-up");
        });
        let end = (0..1000).find_map(|_| match client.try_recv() {
            Err(TryRecvError::Empty) => None,
            other => Some(other),
        });
        let is_end = matches!(end, Some(Ok(None) | Err(TryRecvError::Disconnected)));
        assert!(is_end, "{}: {end:?}", kind.name());
    }
}

#[test]
fn a_hang_up_reaches_a_sender_without_room() {
    for kind in Kind::ALL {
        let (mut client, server) = kind.pair(small);
        while client.try_send(&[1; 200]).is_ok() {}
        drop(server);
        assert!(polls_until_closed(&mut client, kind.name()) < 100, "{}", kind.name());
    }
}

#[test]
fn a_receiver_that_left_reaches_a_sender_without_room() {
    for kind in Kind::ALL {
        // Over a socket this side cannot see that the peer dropped its receiver, because the peer
        // keeps its sender open.
        if !kind.is_shared_memory() {
            continue;
        }
        let (mut client, server) = kind.pair(small);
        while client.try_send(&[1; 200]).is_ok() {}
        let (_sender, receiver) = server.split();
        drop(receiver);
        let sent = client.send_deadline(&[1; 200], Instant::now() + Duration::from_secs(2));
        assert!(matches!(sent, Err(partywall::SendError::Closed(_))), "{}: {sent:?}", kind.name());
        polls_until_closed(&mut client, kind.name());
    }
}

#[test]
fn wait_for_room_sleeps_although_notifications_lie_in_the_control_socket() {
    for kind in Kind::ALL {
        let (mut client, mut server) = kind.pair(small);
        while client.try_send(&[1; 200]).is_ok() {}
        // The peer notifies the receiver of this side. If it does so by a doorbell byte on the
        // control socket, that byte also wakes the sender of this side.
        assert!(matches!(client.try_recv(), Err(TryRecvError::Empty)));
        assert_eq!(client.receiver().arm().unwrap(), Readiness::WillNotify);
        server.send(b"notified").unwrap();
        let mut polls = 0;
        while client.sender().arm().unwrap() == Readiness::Ready {
            assert!(matches!(client.try_send(&[1; 200]), Err(TrySendError::Full)));
            polls += 1;
            assert!(polls < 10, "{}: never armed", kind.name());
        }
        for _ in 0..10 {
            let mut descriptors = [PollFd::new(client.sender(), PollFlags::IN)];
            if poll::wait(&mut descriptors, Some(Instant::now())).unwrap() == 0 {
                break;
            }
            polls += 1;
            assert!(polls < 10, "{}: readable for ever", kind.name());
            assert_eq!(client.sender().arm().unwrap(), Readiness::WillNotify);
        }
        assert_eq!(client.recv_deadline(soon()).unwrap().unwrap(), b"notified", "{}", kind.name());
    }
}

#[test]
fn stalled_handshakes_hold_up_no_loop() {
    let address = Kind::SharedMemory.address();
    let config = Config::default().handshake_timeout(Duration::from_secs(2));
    let mut listener = Listener::bind_with(&address, &config).unwrap();
    let name = SocketAddr::from_abstract_name(address.strip_prefix("unix:@").unwrap()).unwrap();
    let mut stalled = Vec::new();
    for count in 0..8 {
        let mut socket = UnixStream::connect_addr(&name).unwrap();
        std::io::Write::write_all(&mut socket, &b"PARTYWAL"[..count]).unwrap();
        stalled.push(socket);
    }
    let mut accepted = Vec::new();
    std::thread::scope(|scope| {
        let clients = scope.spawn(|| {
            let connect = |_| partywall::connect(&address).unwrap();
            (0..3).map(connect).collect::<Vec<_>>()
        });
        while accepted.len() < 3 || listener.refused() < 8 {
            until_readable(&listener, "a connection, or the end of a stalled one");
            let start = Instant::now();
            accepted.extend(listener.try_accept().ok());
            assert!(start.elapsed() < Duration::from_secs(1), "try_accept waits");
        }
        assert_eq!(clients.join().unwrap().len(), 3);
    });
    assert_eq!(listener.refused(), 8, "those that stalled, and nobody else");
}

/// Rule: on a single processor, an early notification lets the receiver run before the publication,
/// so the receiver finds no record and must be notified again. For the next 16 messages the sender
/// then notifies only after the publication.
#[test]
fn an_early_notification_in_vain_is_not_repeated_at_once() {
    let (client, server) = Kind::SharedMemory.pair(|config| config);
    let (mut sender, _back) = client.split();
    let (_reply, mut receiver) = server.split();
    let mut notified_early = Vec::new();
    for number in 0..20_u64 {
        assert_eq!(receiver.arm().unwrap(), Readiness::WillNotify);
        let before = sender.stats().wakeups_sent;
        let mut is_early = false;
        let filled = sender.send_with(8, |message| {
            message.copy_from_slice(&number.to_le_bytes());
            is_early = is_readable(&receiver);
            // While the sender writes the message, the receiver polls as after an early
            // notification. It finds no record, and sleeps again.
            assert!(matches!(receiver.try_recv(), Err(TryRecvError::Empty)));
            assert_eq!(receiver.arm().unwrap(), Readiness::WillNotify);
        });
        filled.unwrap();
        assert_eq!(
            sender.stats().wakeups_sent - before,
            1 + u64::from(is_early),
            "message {number}"
        );
        assert!(is_readable(&receiver), "message {number} is notified when it is there");
        assert_eq!(receiver.try_recv().unwrap().unwrap()[..], number.to_le_bytes());
        notified_early.extend(is_early.then_some(number));
    }
    assert_eq!(notified_early, [0, 17], "a trial, sixteen without, and a trial");
}

fn is_readable(descriptor: &impl AsFd) -> bool {
    let mut descriptors = [PollFd::new(descriptor, PollFlags::IN)];
    poll::wait(&mut descriptors, Some(Instant::now())).unwrap() > 0
}
