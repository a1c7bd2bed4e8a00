// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of owned reservations: they outlive the borrow of their sender, and can only be committed
//! on the connection that made them. Dropping a reservation frees its memory, in any thread and at
//! any time.

use partywall::{BackPressure, Config, OwnedReservation, SendError, Sender, TrySendError};
use partywall::{Readiness, blocking};
use partywall_sys::poll::{self, PollFd, PollFlags};
use partywall_testkit::{Kind, fill, is_pattern, pattern, soon};
use std::time::Instant;

/// Lengths of the messages: two are stored in private memory, two in a block if memory is shared.
const LENS: [usize; 4] = [0, 40, 5000, 200_000];

/// Limits the shared memory of a sender to a few blocks of `BLOCK` bytes.
fn tight(config: Config) -> Config {
    config.ring_bytes(4096).peer_blocks_max(8).memory_max(256 << 10).inline_max(256)
}

const BLOCK: usize = 1000;

fn reserve_all(sender: &mut Sender) -> Vec<OwnedReservation> {
    let mut reserved = Vec::new();
    loop {
        match sender.try_reserve_owned(BLOCK) {
            Ok(reservation) => reserved.push(reservation),
            Err(TrySendError::Full) => return reserved,
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn reservations_filled_by_another_thread_are_committed_in_any_order() {
    for kind in Kind::ALL {
        let (mut client, mut server) = kind.pair(|config| config);
        let reserve = |len: &usize| client.sender().reserve_owned(*len, None).unwrap();
        let reserved: Vec<_> = LENS.iter().map(reserve).collect();
        client.send(b"between").unwrap();
        let filled = std::thread::spawn(move || {
            let fill = |(seed, mut reservation): (u64, OwnedReservation)| {
                fill(&mut reservation, seed);
                reservation
            };
            (0..).zip(reserved).map(fill).collect::<Vec<_>>()
        });
        let mut filled = filled.join().unwrap();
        // The messages exceed the buffer of a socket, so the receiver reads while the sender sends.
        let received = std::thread::spawn(move || {
            let mut receive = || server.recv_deadline(soon()).unwrap().unwrap();
            (0..=LENS.len()).map(|_| receive()).collect::<Vec<_>>()
        });
        while let Some(reservation) = filled.pop() {
            client.sender().commit_owned(reservation, None).unwrap();
        }
        client.sender().flush(Some(soon())).unwrap();
        let received = received.join().unwrap();
        assert_eq!(received[0], b"between", "{}", kind.name());
        for (seed, len) in LENS.iter().enumerate() {
            let message = &received[LENS.len() - seed];
            assert!(message.len() == *len && is_pattern(message, seed as u64), "{}", kind.name());
        }
    }
}

#[test]
fn dropped_reservation_is_free_for_the_next_message() {
    for kind in [Kind::SharedMemory, Kind::Untrusted] {
        let (mut client, _server) = kind.pair(tight);
        let sender = client.sender();
        let mut reserved = reserve_all(sender);
        let count = reserved.len();
        assert!((1..=8).contains(&count), "{count}");
        for _ in 0..1000 {
            drop(reserved.pop());
            reserved.push(sender.try_reserve_owned(BLOCK).unwrap());
        }
        drop(reserved);
        // `try_send`, which sends a copy, can use the memory of dropped reservations as well.
        sender.try_send(&[1; BLOCK]).unwrap();
        sender.trim().unwrap();
        assert!(sender.stats().memory_used_bytes < 2 * BLOCK as u64, "{}", kind.name());
    }
}

#[test]
fn dropped_reservation_wakes_a_sender_that_waits_for_memory() {
    for kind in [Kind::SharedMemory, Kind::Untrusted] {
        for shared in [false, true] {
            let (client, _server) = kind.pair(tight);
            let (mut sender, _back) = client.split();
            for _ in 0..20 {
                let mut reserved = reserve_all(&mut sender);
                let waiting = std::thread::spawn(move || {
                    let granted = sender.reserve_owned(BLOCK, Some(soon()));
                    (granted.unwrap().len(), sender)
                });
                drop(reserved.pop());
                let (len, back) = waiting.join().unwrap();
                assert_eq!(len, BLOCK, "{}", kind.name());
                sender = back;
            }
            if !shared {
                continue;
            }
            let mut reserved = reserve_all(&mut sender);
            let sender = sender.shared();
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| sender.reserve_owned(BLOCK, None).unwrap().len());
                drop(reserved.pop());
                assert_eq!(waiting.join().unwrap(), BLOCK, "{}", kind.name());
            });
        }
    }
}

#[test]
fn memory_given_back_around_arming_is_not_missed() {
    for kind in [Kind::SharedMemory, Kind::Untrusted] {
        let (mut client, _server) = kind.pair(tight);
        let sender = client.sender();
        for before_arming in [true, false] {
            let mut reserved = reserve_all(sender);
            if before_arming {
                drop(reserved.pop());
                assert_eq!(sender.arm().unwrap(), Readiness::Ready, "{}", kind.name());
            } else {
                assert_eq!(sender.arm().unwrap(), Readiness::WillNotify, "{}", kind.name());
                drop(reserved.pop());
                let mut descriptors = [PollFd::new(sender, PollFlags::IN)];
                assert_eq!(poll::wait(&mut descriptors, Some(Instant::now())).unwrap(), 1);
            }
            drop(sender.try_reserve_owned(BLOCK).unwrap());
        }
    }
}

#[test]
fn reservation_of_another_channel_is_refused_and_freed_at_home() {
    for kind in Kind::ALL {
        let (mut client, mut server) = kind.pair(tight);
        let (mut other, _end) = kind.pair(tight);
        let foreign = client.sender().reserve_owned(BLOCK, None).unwrap();
        let (foreign, error) = other.sender().try_commit_owned(foreign).unwrap_err();
        assert!(matches!(error, TrySendError::ForeignReservation), "{error}");
        let error = other.sender().commit_owned(foreign, None).unwrap_err();
        assert!(matches!(error, SendError::ForeignReservation), "{error}");
        // The sender at the other end of the same channel refuses the reservation as well, because
        // another sender made it.
        let foreign = client.sender().reserve_owned(BLOCK, None).unwrap();
        let error = server.sender().commit_owned(foreign, None).unwrap_err();
        assert!(matches!(error, SendError::ForeignReservation), "{error}");
        assert_eq!(reserve_and_send(client.sender()), reserve_and_send(other.sender()));
        assert_eq!(server.recv_deadline(soon()).unwrap().unwrap(), pattern(BLOCK, 3));
    }
}

fn reserve_and_send(sender: &mut Sender) -> usize {
    let mut reservation = sender.reserve_owned(BLOCK, None).unwrap();
    fill(&mut reservation, 3);
    sender.commit_owned(reservation, None).unwrap();
    BLOCK
}

#[test]
fn reservation_outlives_its_sender_and_its_peer() {
    for kind in Kind::ALL {
        let (mut client, server) = kind.pair(|config| config);
        let mut reserved: Vec<_> =
            LENS.iter().map(|len| client.sender().reserve_owned(*len, None).unwrap()).collect();
        drop((client, server));
        for reservation in &mut reserved {
            fill(reservation, 9);
            assert!(is_pattern(reservation, 9), "{}", kind.name());
        }
        std::thread::spawn(move || drop(reserved)).join().unwrap();
    }
}

#[test]
fn sender_that_became_shared_commits_its_former_reservations() {
    for kind in Kind::ALL {
        let (client, mut server) = kind.pair(|config| config);
        let (mut sender, _back) = client.split();
        let reserved: Vec<_> = (0..4).map(|_| sender.reserve_owned(5000, None).unwrap()).collect();
        let sender = sender.shared();
        std::thread::scope(|scope| {
            for (seed, mut reservation) in (0_u64..).zip(reserved) {
                let sender = sender.clone();
                scope.spawn(move || {
                    fill(&mut reservation, seed);
                    match sender.try_commit_owned(reservation) {
                        Ok(()) => {}
                        Err((back, TrySendError::Busy | TrySendError::Full)) => {
                            sender.commit_owned(back, None).unwrap();
                        }
                        Err((_, other)) => panic!("{other}"),
                    }
                });
            }
            let mut seen = [false; 4];
            for _ in 0..4 {
                let message = server.recv_deadline(soon()).unwrap().unwrap();
                let seed = (0..4).find(|seed| is_pattern(&message, *seed)).unwrap();
                assert!(!std::mem::replace(&mut seen[seed as usize], true), "{}", kind.name());
            }
        });
    }
}

fn sessions(kind: Kind, config: &Config) -> (blocking::Session, blocking::Session) {
    let mut listener = blocking::Listener::bind_with(kind.address(), config).unwrap();
    let address = listener.local_address().to_string();
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| blocking::connect_with(&address, config).unwrap());
        let accepted = listener.accept_deadline(soon()).unwrap();
        (connecting.join().unwrap(), accepted)
    })
}

#[test]
fn reservation_of_a_session_is_committed_on_any_of_its_streams() {
    use partywall::StreamSendError;
    for kind in Kind::ALL {
        let (client, server) = sessions(kind, &kind.config());
        let (other, _other_server) = sessions(kind, &kind.config());
        let (mut one, mut two) = (client.open(b"").unwrap(), client.open(b"").unwrap());
        let (mut one_there, mut two_there) =
            (server.accept().unwrap().unwrap(), server.accept().unwrap().unwrap());
        for (seed, len) in (0_u64..).zip(LENS) {
            let mut reservation = one.sender().reserve_owned(len, None).unwrap();
            let mut second = one.sender().reserve_owned(len, None).unwrap();
            fill(&mut reservation, seed);
            fill(&mut second, seed + 1);
            let foreign = other.open(b"").unwrap().sender().try_commit_owned(reservation);
            let (reservation, error) = foreign.unwrap_err();
            assert!(matches!(error, StreamSendError::ForeignReservation), "{error}");
            two.sender().commit_owned(reservation, None).unwrap();
            one.sender().try_commit_owned(second).unwrap();
            let received = two_there.recv_deadline(soon()).unwrap().unwrap();
            assert!(received.len() == len && is_pattern(&received, seed), "{}", kind.name());
            let received = one_there.recv_deadline(soon()).unwrap().unwrap();
            assert!(received.len() == len && is_pattern(&received, seed + 1), "{}", kind.name());
        }
        let mut left = one.sender().reserve_owned(200_000, None).unwrap();
        drop((one, two, client, server));
        fill(&mut left, 1);
        assert!(is_pattern(&left, 1));
    }
}

#[test]
fn reservation_without_credit_comes_back_and_holds_none() {
    use partywall::StreamSendError;
    for kind in Kind::ALL {
        let config = kind.config().stream_window(4096).back_pressure(BackPressure::Block);
        let (client, server) = sessions(kind, &config);
        let mut stream = client.open(b"").unwrap();
        let mut there = server.accept().unwrap().unwrap();
        let (mut sent, mut received, mut refused) = (0, 0, 0);
        let mut reservation = stream.sender().reserve_owned(BLOCK, None).unwrap();
        fill(&mut reservation, 5);
        let until = soon();
        while sent < 50 {
            assert!(Instant::now() < until, "{}: credit is lost", kind.name());
            match stream.sender().try_commit_owned(reservation) {
                Ok(()) => {
                    sent += 1;
                    reservation = stream.sender().reserve_owned(BLOCK, None).unwrap();
                    fill(&mut reservation, 5);
                }
                Err((back, StreamSendError::Full)) => {
                    assert!(is_pattern(&back, 5), "it comes back changed");
                    refused += 1;
                    if let Ok(Some(message)) = there.try_recv() {
                        assert!(is_pattern(&message, 5), "{}", kind.name());
                        received += 1;
                    }
                    reservation = back;
                }
                Err((_, other)) => panic!("{other}"),
            }
        }
        assert!(refused > 0, "{}: the window never ended", kind.name());
        drop(reservation);
        stream.finish();
        for _ in received..sent {
            assert!(there.recv_deadline(soon()).unwrap().is_some(), "{}", kind.name());
        }
        assert!(there.recv_deadline(soon()).unwrap().is_none(), "{}", kind.name());
    }
}

#[test]
fn dropped_reservation_of_a_session_wakes_a_stream_that_waits_for_memory() {
    let config = tight(Kind::SharedMemory.config());
    let (client, _server) = sessions(Kind::SharedMemory, &config);
    let mut streams: Vec<_> = (0..2).map(|_| client.open(b"").unwrap()).collect();
    let mut waiting = streams.pop().unwrap();
    for _ in 0..20 {
        // All 8 blocks that `peer_blocks_max` allows are reserved, so the next reservation has to
        // wait.
        let mut reserved: Vec<_> =
            (0..8).map(|_| streams[0].sender().reserve_owned(BLOCK, None).unwrap()).collect();
        let thread = std::thread::spawn(move || {
            let len = waiting.sender().reserve_deadline(BLOCK, soon()).unwrap().len();
            (len, waiting)
        });
        drop(reserved.pop());
        let (len, back) = thread.join().unwrap();
        assert_eq!(len, BLOCK);
        waiting = back;
    }
    assert!(Instant::now() < soon());
}
