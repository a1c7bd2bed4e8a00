// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests in which a sender waits for room while the receiver is dropped and the other direction
//! stays open. The wait ends with `Closed`, for a blocked thread and for an event loop.

use partywall::{
    Begin, Channel, Closed, Config, Listener, Readiness, SendError, TransportPolicy, TryRecvError,
    TrySendError,
};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

fn pair(policy: TransportPolicy) -> (Channel, Channel) {
    pair_of(&Config::default().transport(policy))
}

fn pair_of(config: &Config) -> (Channel, Channel) {
    let directory = tempfile::tempdir().unwrap();
    let address = format!("unix:{}/gone.sock", directory.path().display());
    let mut listener = Listener::bind_with(&address, config).unwrap();
    thread::scope(|scope| {
        let client = scope.spawn(|| partywall::connect_with(&address, config).unwrap());
        let server = listener.accept().unwrap();
        (client.join().unwrap(), server)
    })
}

/// The receiver takes one segment of memory at a time. A receiver that only tries reports that it
/// has read a segment's record as soon as the ring is empty, so the next segment can follow.
#[test]
fn a_receiver_that_only_tries_makes_room_for_the_next_segment() {
    let config = Config::default().segments_max(1);
    let (mut client, mut server) = pair_of(&config);
    for size in [2 << 20, 8 << 20] {
        client.try_send(&vec![7; size]).unwrap();
        let message = server.try_recv().unwrap().unwrap();
        assert_eq!(message.len(), size);
        drop(message);
        assert!(matches!(server.try_recv(), Err(TryRecvError::Empty)));
    }
}

const POLICIES: [TransportPolicy; 2] = [TransportPolicy::SharedMemory, TransportPolicy::Socket];

#[test]
fn a_thread_in_send_does_not_wait_for_ever() {
    for policy in POLICIES {
        let (client, server) = pair(policy);
        let (mut sender, _keep) = client.split();
        let (_keep_sending, receiver) = server.split();
        let (outcomes, outcome) = mpsc::channel();
        thread::spawn(move || {
            let ended = loop {
                if let Err(error) = sender.send(&[7; 1000]) {
                    break error;
                }
                let _ = outcomes.send(None);
            };
            let _ = outcomes.send(Some(ended));
        });
        // A pause of 200 ms without a sent message shows that the ring or the socket is full.
        while outcome.recv_timeout(Duration::from_millis(200)).is_ok() {}
        drop(receiver);
        let ended = outcome.recv_timeout(Duration::from_secs(5)).expect("the wait has ended");
        assert!(matches!(ended, Some(SendError::Closed(_))), "{policy:?}: {ended:?}");
        if policy == TransportPolicy::SharedMemory {
            assert!(matches!(ended, Some(SendError::Closed(Closed::Finished))));
        }
    }
}

#[test]
fn an_event_loop_that_only_tries_learns_of_it() {
    for is_whole in [false, true] {
        for policy in POLICIES {
            let (client, server) = pair(policy);
            let (mut sender, _keep) = client.split();
            while sender.try_send(&[7; 1000]).is_ok() {}
            let (keep_sending, receiver) = server.split();
            drop(receiver);
            let _kept = (!is_whole).then_some(keep_sending);
            let deadline = Instant::now() + Duration::from_secs(2);
            loop {
                let _ = sender.arm().unwrap();
                match sender.try_send(&[7; 1000]) {
                    Err(TrySendError::Closed(_)) => break,
                    other => assert!(other.is_ok() || matches!(other, Err(TrySendError::Full))),
                }
                assert!(
                    Instant::now() < deadline,
                    "{policy:?}: the message is never whole: {is_whole}"
                );
            }
        }
    }
}

#[test]
fn room_that_came_before_it_was_asked_for_is_seen() {
    let (client, server) = pair(TransportPolicy::SharedMemory);
    let (mut sender, _keep) = client.split();
    let (_keep_sending, mut receiver) = server.split();
    while sender.try_send(&[7; 1000]).is_ok() {}
    // The sender has not armed its descriptor, so the receiver does not notify it when it takes
    // messages and so frees room.
    while receiver.try_recv().is_ok_and(|message| message.is_some()) {}
    let soon = Instant::now() + Duration::from_millis(1);
    assert!(matches!(receiver.recv_deadline(soon), Err(partywall::RecvError::TimedOut)));
    assert_eq!(sender.arm().unwrap(), Readiness::Ready);
    sender.try_send(&[7; 1000]).unwrap();
}

/// Rule: a message that was received counts as sent, even if the receiver is dropped right after.
/// Only the next send fails.
#[test]
fn a_message_that_was_received_was_sent() {
    let directory = tempfile::tempdir().unwrap();
    let address = format!("unix:{}/brief.sock", directory.path().display());
    let mut listener = partywall::Listener::bind(&address).unwrap();
    for round in 0..500 {
        let begin = if round % 2 == 0 { Begin::SharedMemory } else { Begin::Socket };
        let config = Config::default().begin(begin);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut channel = partywall::connect_with(&address, &config).unwrap();
                channel.recv().unwrap().unwrap()
            });
            let mut channel = listener.accept().unwrap();
            channel.send(b"brief").unwrap();
            assert_eq!(reader.join().unwrap(), b"brief");
            assert!(matches!(channel.send(b"late"), Err(partywall::SendError::Closed(_))));
        });
    }
}
