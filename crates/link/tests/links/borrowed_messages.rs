// SPDX-License-Identifier: MIT OR Apache-2.0
//! A borrowed message (`recv_ref`) behaves like an owned one over each transport: the test reads,
//! acknowledges, answers and receives it again, and checks `is_poison`.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use crate::support_ends;

use partywall_link::{AckError, Delivery, Receiver, RecvError, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};
use support_ends::every_length::{LENS, attach, config, message};
use support_ends::{Ground, Pair, soon};

#[test]
fn messages_of_every_length_are_borrowed_in_order() {
    for ground in Ground::all() {
        let Pair { server: _server, served, link } = ground.pair(&config());
        let rounds = 40;
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..rounds * LENS.len() {
                    link.send_deadline(&message(number, LENS[number % LENS.len()]), soon())
                        .unwrap();
                }
                link.wait_acked(soon()).unwrap();
            });
            let (_sender, mut receiver) = served.split();
            let mut last = None;
            for number in 0..rounds * LENS.len() {
                let message_ref = receiver.recv_ref_deadline(soon()).unwrap().unwrap();
                assert!(
                    message_ref == message(number, LENS[number % LENS.len()]),
                    "message {number}"
                );
                assert_eq!((message_ref.attempt(), message_ref.is_poison()), (1, false));
                assert!(last < Some(message_ref.position()));
                last = Some(message_ref.position());
                let kept = message_ref.to_bytes();
                assert_eq!(kept, &message_ref[..]);
                if number % 3 != 1 {
                    message_ref.ack().unwrap();
                }
            }
            assert!(matches!(receiver.try_recv_ref(), Err(TryRecvError::Empty)));
        });
        link.close(soon()).unwrap();
    }
}

#[test]
fn borrowed_message_without_ack_is_received_again() {
    for ground in Ground::all() {
        let Pair { server: _server, served, link } = ground.pair(&config());
        let (_sender, mut receiver) = served.split();
        for (number, len) in LENS.iter().enumerate() {
            link.send(&message(number, *len)).unwrap();
        }
        // The sender's bytes reach the socket only while a thread uses the sender's link. This
        // thread uses the receiver's link, so another thread waits on the sender's link.
        let sends = thread::spawn(move || link.wait_acked(soon()));
        // Each pass of this loop receives all unacknowledged messages, and acknowledges only a part
        // of them. `from` is the index up to which earlier passes acknowledged, and `to` the index
        // up to which this pass does.
        for (from, to) in [(0, 3), (3, 9), (9, LENS.len())] {
            let mut tokens = Vec::new();
            for (number, len) in LENS.iter().enumerate().skip(from) {
                let message_ref = receiver.recv_ref_deadline(soon()).unwrap().unwrap();
                assert!(message_ref == message(number, *len), "message {number}");
                tokens.push(message_ref.token());
            }
            receiver.ack_to(tokens[to - from - 1]).unwrap();
            let again = receiver.ack_to(tokens[to - from - 1]);
            assert!(matches!(again, Err(AckError::Consumed)), "{again:?}");
            receiver.rewind().unwrap();
        }
        // The receiver sends its last acknowledgement when it makes a receive call. That lets
        // `wait_acked` in the sender's thread return, and the thread drops the sender's end.
        let none = receiver.try_recv_ref();
        assert!(matches!(none, Err(TryRecvError::Empty) | Ok(None)), "{none:?}");
        let waited = receiver.recv_ref_deadline(Instant::now() + Duration::from_millis(1));
        // If the sender has closed its end before the deadline, the receiver gets `None` instead of
        // the timeout.
        assert!(matches!(waited, Err(RecvError::TimedOut) | Ok(None)), "{waited:?}");
        sends.join().unwrap().unwrap();
    }
}

#[test]
fn borrowed_and_owned_messages_take_turns() {
    for ground in Ground::all() {
        let Pair { server: _server, served, link } = ground.pair(&config());
        attach(&link, &served);
        let (_sender, mut receiver) = served.split();
        let mut kept = Vec::new();
        for number in 0..600 {
            let len = LENS[number % 9];
            link.send_deadline(&message(number, len), soon()).unwrap();
            if number % 2 == 0 {
                let owned = receiver.recv_deadline(soon()).unwrap().unwrap();
                kept.push((number, len, owned.bytes()));
                owned.ack().unwrap();
            } else {
                let message_ref = receiver.recv_ref_deadline(soon()).unwrap().unwrap();
                assert!(message_ref == message(number, len), "message {number}");
                message_ref.ack().unwrap();
            }
        }
        // Rule: copies of received messages (`to_bytes`) keep their contents when later messages
        // overwrite the link's memory.
        assert!(kept.iter().all(|(number, len, bytes)| *bytes == message(*number, *len)));
    }
}

#[test]
fn borrowed_message_is_replied_to() {
    for ground in Ground::all() {
        let Pair { server: _server, served, link } = ground.pair(&config());
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut receiver: Receiver = served.split().1;
                for number in 0..400 {
                    let message_ref = receiver.recv_ref_deadline(soon()).unwrap().unwrap();
                    let answer = message(number + 1, message_ref.len());
                    if number % 2 == 0 {
                        message_ref.reply(&answer)
                    } else {
                        message_ref.reply_deadline(&answer, soon())
                    }
                    .unwrap();
                }
            });
            for number in 0..400 {
                let len = LENS[number % 9];
                link.send_deadline(&message(number, len), soon()).unwrap();
                let back = link.recv_deadline(soon()).unwrap().unwrap();
                assert!(back == message(number + 1, len), "message {number}");
                back.ack().unwrap();
            }
            assert_eq!(link.unacked_bytes().unwrap(), 0);
        });
    }
}

#[test]
fn borrowed_message_at_most_once_is_acked_before_it_is_read() {
    for ground in Ground::all() {
        let config = config().delivery(Delivery::AtMostOnce);
        let Pair { server: _server, served, link } = ground.pair(&config);
        attach(&link, &served);
        let (_sender, mut receiver) = served.split();
        for number in 0..100 {
            link.send_deadline(&message(number, LENS[number % 9]), soon()).unwrap();
            let message_ref = receiver.recv_ref_deadline(soon()).unwrap().unwrap();
            assert!(message_ref == message(number, LENS[number % 9]), "message {number}");
            if number % 2 == 0 {
                message_ref.ack().unwrap();
            }
        }
        receiver.rewind().unwrap();
        assert!(matches!(receiver.try_recv_ref(), Err(TryRecvError::Empty)));
        link.wait_acked(soon()).unwrap();
    }
}

#[test]
fn recv_without_a_message_ends_at_the_deadline() {
    for ground in Ground::all() {
        let Pair { server: _server, served, link: _link } = ground.pair(&config());
        let (_sender, mut receiver) = served.split();
        let until = Instant::now() + Duration::from_millis(20);
        let waited = receiver.recv_ref_deadline(until).map(drop);
        assert!(matches!(waited, Err(RecvError::TimedOut)), "{waited:?}");
        assert!(Instant::now() >= until);
    }
}
