// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of waits that another thread can end: messages, wake-ups and ends of the peer arrive in a
//! thread that parks.

use partywall::{Channel, Readiness, Receiver, TryRecvError};
use partywall_testkit::{Kind, Watchdog};
use std::time::{Duration, Instant};

/// Parks until a message or the end of the direction arrives. Returns the message, and how often
/// the thread parked.
fn parked(receiver: &mut Receiver) -> (Option<Vec<u8>>, u32) {
    let parker = receiver.parker().unwrap();
    for parks in 0.. {
        match receiver.try_recv() {
            Ok(message) => return (message.map(|message| message.to_vec()), parks),
            Err(TryRecvError::Empty) => {}
            Err(error) => panic!("{error}"),
        }
        if receiver.arm_parker().unwrap() == Readiness::WillNotify {
            parker.park(None).unwrap();
        }
    }
    unreachable!("the loop has no end")
}

fn pairs() -> impl Iterator<Item = (Channel, Channel)> {
    [Kind::SharedMemory, Kind::Untrusted].into_iter().map(|kind| kind.pair(|config| config))
}

#[test]
fn each_message_and_the_end_reach_a_thread_that_parks() {
    let _watchdog = Watchdog::new("parking", Duration::from_secs(60));
    for (mut client, mut server) in pairs() {
        let echoing = std::thread::spawn(move || {
            let mut count = 0;
            while let (Some(message), _) = parked(server.receiver()) {
                server.send(&message).unwrap();
                count += 1;
            }
            count
        });
        for seed in 0..200_u8 {
            client.send(&[seed; 30]).unwrap();
            assert_eq!(parked(client.receiver()).0.unwrap(), [seed; 30]);
        }
        drop(client);
        assert_eq!(echoing.join().unwrap(), 200);
    }
}

#[test]
fn end_of_the_peer_is_found_after_few_wake_ups() {
    let _watchdog = Watchdog::new("the end", Duration::from_secs(60));
    for (client, mut server) in pairs() {
        drop(client);
        let (message, parks) = parked(server.receiver());
        assert!(message.is_none() && parks < 4, "{parks}");
    }
}

#[test]
fn wake_up_ends_a_wait_and_one_from_before_the_next_wait() {
    let _watchdog = Watchdog::new("wake-ups", Duration::from_secs(60));
    for (_client, mut server) in pairs() {
        let receiver = server.receiver();
        let parker = receiver.parker().unwrap();
        for is_before in [true, false].repeat(5) {
            assert_eq!(receiver.arm_parker().unwrap(), Readiness::WillNotify);
            if is_before {
                parker.wake();
                parker.park(None).unwrap();
            } else {
                let waker = parker.clone();
                let waking = std::thread::spawn(move || waker.wake());
                parker.park(None).unwrap();
                waking.join().unwrap();
            }
            // The first call of `park` has used up the wake-up, so the second call waits until its
            // deadline.
            let deadline = Instant::now() + Duration::from_millis(1);
            parker.park(Some(deadline)).unwrap();
            assert!(Instant::now() >= deadline);
        }
        drop(server);
        parker.wake();
        parker.park(None).unwrap();
    }
}

#[test]
fn receiver_over_a_socket_has_no_parker() {
    for kind in [Kind::Unix, Kind::Tcp] {
        let (_client, mut server) = kind.pair(|config| config);
        assert!(server.receiver().parker().is_none());
        assert_eq!(server.receiver().arm_parker().unwrap(), Readiness::Ready);
    }
}

#[test]
fn consumed_reference_is_no_record_for_which_a_parking_thread_stays_awake() {
    for (mut client, mut server) in pairs() {
        client.send(b"one").unwrap();
        drop(server.recv_ref().unwrap().unwrap());
        assert_eq!(server.receiver().arm_parker().unwrap(), Readiness::WillNotify);
    }
}
