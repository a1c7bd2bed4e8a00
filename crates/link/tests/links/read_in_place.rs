// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of messages that a closure (the reader) reads in the link's own memory. The reader sees
//! the bytes that were sent. The message is acknowledged when the reader returns, and not if the
//! reader panics.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use crate::support_ends;
use crate::support_link_async;

use partywall::Wait;
use partywall_link::{
    AckError, Delivery, Group, Link, MessageView, RecvError, ReplyError, TryRecvError,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};
use support_ends::every_length::{LENS, attach, config, message};
use support_ends::{Ground, Pair, Via, soon, until};

#[test]
fn messages_of_every_length_are_read_in_order() {
    for ground in Ground::all() {
        let Pair { server: _server, served, link } = ground.pair(&config());
        let count = 40 * LENS.len();
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..count {
                    let sent = message(number, LENS[number % LENS.len()]);
                    link.send_deadline(&sent, soon()).unwrap();
                }
                link.wait_acked(soon()).unwrap();
                assert_eq!(link.unacked_bytes().unwrap(), 0);
            });
            let (sender, mut receiver) = served.split();
            let mut last = None;
            for number in 0..count {
                let expected = message(number, LENS[number % LENS.len()]);
                let mut calls = 0;
                let mut read = |lies: MessageView<'_>| {
                    calls += 1;
                    assert!(lies == expected, "message {number}");
                    assert_eq!((lies.attempt(), lies.is_poison()), (1, false));
                    (lies.position(), lies.bytes().to_vec())
                };
                let (position, bytes) = match number % 3 {
                    0 => receiver.recv_with(read).unwrap().unwrap(),
                    1 => receiver.recv_with_deadline(read, soon()).unwrap().unwrap(),
                    _ => loop {
                        match receiver.try_recv_with(&mut read) {
                            Ok(read) => break read.unwrap(),
                            Err(error) => assert!(matches!(error, TryRecvError::Empty)),
                        }
                    },
                };
                assert_eq!(calls, 1);
                assert!(bytes == expected && last < Some(position));
                last = Some(position);
                // Rule: after `rewind`, which makes the link deliver its unacknowledged messages
                // again, no message is received twice. Each was acknowledged when the closure that
                // read it returned.
                if number % 7 == 0 {
                    receiver.rewind().unwrap();
                }
            }
            let empty = receiver.try_recv_with(|_| panic!("there is none"));
            assert!(matches!(empty, Err(TryRecvError::Empty)), "{empty:?}");
            assert_eq!(sender.link().stats().messages_received, count as u64);
        });
        link.close(soon()).unwrap();
    }
}

#[test]
fn spinning_ends_pass_messages_on() {
    for via in [Via::SharedMemory, Via::Unix] {
        let ground = Ground::new(via, true);
        let Pair { server: _server, served, link } = ground.pair(&config().wait(Wait::Spin));
        let count = if via == Via::SharedMemory { 20_000 } else { 2000 };
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..count {
                    let answer =
                        served.recv_with(|lies| message(number + 1, lies.len())).unwrap().unwrap();
                    served.send(&answer).unwrap();
                }
                served.wait_acked(soon()).unwrap();
            });
            for number in 0..count {
                let len = LENS[number % 9];
                link.send_with(len, |room| room.copy_from_slice(&message(number, len))).unwrap();
                let is_right =
                    link.recv_with(|lies| lies == message(number + 1, len)).unwrap().unwrap();
                assert!(is_right, "message {number}");
            }
            // The receiver asks for one more message, because that call reports its
            // acknowledgements to the sender.
            link.recv_deadline(Instant::now() + Duration::from_millis(20)).unwrap_err();
        });
    }
}

/// Whether `served` can receive a message without waiting. The closure that this check passes to
/// the receive call panics, so the message stays unacknowledged.
fn is_there(served: &Link) -> bool {
    let fails = AssertUnwindSafe(|| served.try_recv_with(panics));
    catch_unwind(fails).is_err()
}

/// A reader (the closure that gets a message in place) that always panics.
fn panics(_: MessageView<'_>) {
    panic!("while it reads")
}

#[test]
fn message_whose_reader_panics_is_received_next_again() {
    for ground in Ground::all() {
        let Pair { server: _server, served, link } = ground.pair(&config());
        attach(&link, &served);
        let expect = |number: usize, len: usize| {
            let bytes = served.recv_with_deadline(|lies| lies.to_vec(), soon()).unwrap().unwrap();
            assert!(bytes == message(number, len), "{len} bytes");
        };
        for (number, len) in LENS.iter().copied().cycle().take(4 * LENS.len()).enumerate() {
            link.send(&message(number, len)).unwrap();
            let before = served.stats().messages_received;
            for _ in 0..3 {
                let fails = AssertUnwindSafe(|| served.recv_with_deadline(panics, soon()));
                catch_unwind(fails).unwrap_err();
                assert!(is_there(&served), "{len} bytes");
            }
            assert_eq!(served.stats().messages_received, before + 6);
            // Rule: a message is received again if the closure that read it in place panicked: by
            // each kind of receive call, before the message that follows it.
            link.send(&message(number + 1000, 10)).unwrap();
            match number % 4 {
                0 => expect(number, len),
                1 => {
                    let owned = served.recv_deadline(soon()).unwrap().unwrap();
                    assert!(owned == message(number, len), "{len} bytes");
                    owned.ack().unwrap();
                }
                2 => {
                    served.rewind().unwrap();
                    expect(number, len);
                }
                _ => {
                    // The receiver takes the message again and holds it without acknowledging it.
                    // Later, reading the next message in place acknowledges the held message and
                    // the next one.
                    let held = served.recv_deadline(soon()).unwrap().unwrap();
                    assert!(held == message(number, len), "{len} bytes");
                    let fails = AssertUnwindSafe(|| served.recv_with_deadline(panics, soon()));
                    catch_unwind(fails).unwrap_err();
                }
            }
            expect(number + 1000, 10);
            served.rewind().unwrap();
            let none = served.try_recv_with(panics);
            assert!(matches!(none, Err(TryRecvError::Empty)), "{none:?}");
            thread::scope(|scope| {
                scope.spawn(|| link.wait_acked(soon()).unwrap());
                let until = Instant::now() + Duration::from_millis(2);
                served.recv_deadline(until).unwrap_err();
            });
        }
    }
}

/// Rule: if the closure with which one thread reads a message in place panics, the message goes to
/// another thread that waits for a message. The message had arrived before that thread blocked, so
/// no notification of its arrival wakes the thread.
#[test]
fn message_whose_reader_panics_goes_to_a_waiting_thread() {
    for ground in Ground::all() {
        let Pair { server: _server, served, link } = ground.pair(&config().wait(Wait::Park));
        attach(&link, &served);
        let served = &served;
        for round in 0..50 {
            thread::scope(|scope| {
                let timeout = Instant::now() + Duration::from_secs(20);
                let waits = move || {
                    served.recv_with_deadline(|lies| lies.to_vec(), timeout).unwrap().unwrap()
                };
                let other = scope.spawn(waits);
                link.send(&message(round, 48)).unwrap();
                link.wait_sent(soon()).unwrap();
                let mut has_panicked = false;
                while !other.is_finished() {
                    let fails = AssertUnwindSafe(|| served.try_recv_with(panics));
                    // The closure with which this thread reads the message panics once; the message
                    // then goes to the blocked thread.
                    has_panicked = has_panicked || catch_unwind(fails).is_err();
                    if has_panicked {
                        break;
                    }
                }
                assert!(other.join().unwrap() == message(round, 48), "round {round}");
            });
            assert!(matches!(served.try_recv(), Err(TryRecvError::Empty)));
        }
    }
}

#[test]
fn message_whose_readers_die_counts_its_attempts() {
    for via in [Via::SharedMemory, Via::Unix] {
        for len in [48, 3000, 100_000] {
            let ground = Ground::new(via, true);
            let group = Group::new().unwrap();
            let config = config().attempts_max(2).group(&group);
            let client = ground.client(config.clone());
            for attempt in 1..=4 {
                let server = ground.server(config.clone());
                let link = client.connect(server.local_address(), "bob", "orders").unwrap();
                let served = server.open("alice", "orders").unwrap();
                if attempt == 1 {
                    link.send(&message(0, len)).unwrap();
                }
                let mut said = None;
                let dies = |lies: MessageView<'_>| {
                    said = Some((lies.attempt(), lies.is_poison()));
                    panic!("of what it says")
                };
                let fails = AssertUnwindSafe(|| served.recv_with_deadline(dies, soon()));
                catch_unwind(fails).unwrap_err();
                assert_eq!(said, Some((attempt, attempt > 2)), "{via:?}, {len} bytes");
                assert!(is_there(&served));
                drop((served, link));
                drop(server);
            }
        }
    }
}

#[test]
fn message_at_most_once_is_acked_before_it_is_read() {
    for ground in Ground::all() {
        let config = config().delivery(Delivery::AtMostOnce);
        let Pair { server: _server, served, link } = ground.pair(&config);
        attach(&link, &served);
        for number in 0..40 {
            let len = LENS[number % 9];
            link.send_deadline(&message(number, len), soon()).unwrap();
            if number % 4 == 0 {
                let fails = AssertUnwindSafe(|| served.recv_with_deadline(panics, soon()));
                catch_unwind(fails).unwrap_err();
            } else {
                // With at-most-once delivery, the message is already acknowledged and copied when
                // the closure that reads it is called. So the link is not locked, and the closure
                // may use the link.
                let read = |lies: MessageView<'_>| (served.stats().connections, lies.to_vec());
                let (connections, bytes) =
                    served.recv_with_deadline(read, soon()).unwrap().unwrap();
                assert!(connections == 1 && bytes == message(number, len), "message {number}");
            }
            served.rewind().unwrap();
            let none = served.try_recv_with(|_| panic!("it is consumed"));
            assert!(matches!(none, Err(TryRecvError::Empty)), "{none:?}");
        }
        link.wait_acked(soon()).unwrap();
    }
}

#[test]
fn reply_to_a_message_that_was_acked_meanwhile_is_an_error() {
    for ground in Ground::all() {
        let Pair { server: _server, served, link } = ground.pair(&config().wait(Wait::Park));
        attach(&link, &served);
        // The server's end fills its ring, so that a reply finds no room and has to wait.
        while served.try_send(&[7; 1000]).is_ok() {}
        for round in 0..10_u32 {
            link.send(b"one").unwrap();
            link.send(b"two").unwrap();
            let one = served.recv_deadline(soon()).unwrap().unwrap();
            let token = one.token();
            // The reply has no deadline, so the replying thread ends only if the acknowledgement of
            // its request wakes it.
            let replies = thread::spawn(move || one.reply(&[8; 1000]));
            // In some passes of this loop the replying thread already waits for room when this
            // thread receives the next message, which acknowledges the request.
            (0..round * round * 100).for_each(|_| thread::yield_now());
            let two = served.recv_with_deadline(|lies| lies.to_vec(), soon()).unwrap().unwrap();
            assert_eq!(two, b"two");
            until("the reply ends", || replies.is_finished());
            let replied = replies.join().unwrap();
            let is_notified = matches!(replied, Err(ReplyError::Ack(AckError::Consumed)));
            assert!(is_notified, "{replied:?}");
            let again = served.ack_to(token);
            assert!(matches!(again, Err(AckError::Consumed)), "{again:?}");
        }
    }
}

#[test]
fn recv_without_a_message_ends_at_the_deadline() {
    for ground in Ground::all() {
        let Pair { server: _server, served, link: _link } = ground.pair(&config());
        let until = Instant::now() + Duration::from_millis(20);
        let waited = served.recv_with_deadline(|_| panic!("there is none"), until);
        assert!(matches!(waited, Err(RecvError::TimedOut)), "{waited:?}");
        assert!(Instant::now() >= until);
    }
}

#[test]
fn batches_are_read_message_by_message() {
    let ground = Ground::new(Via::SharedMemory, true);
    let Pair { server: _server, served, link } = ground.pair(&config());
    attach(&link, &served);
    for round in 0..200 {
        let mut batch = link.batch();
        for number in 0..5 {
            batch.send(&message(round + number, LENS[(round + number) % 9]));
        }
        batch.commit().unwrap();
        for number in 0..5 {
            let is_right =
                |lies: MessageView<'_>| lies == message(round + number, LENS[(round + number) % 9]);
            assert!(
                served.recv_with_deadline(is_right, soon()).unwrap().unwrap(),
                "{round}, {number}"
            );
        }
    }
    until("all consumed", || {
        let _ = served.try_recv();
        link.unacked_bytes().unwrap() == 0
    });
}

#[cfg(feature = "tokio")]
#[test]
fn recv_with_future_reads_once_a_message_is_there() {
    use support_ends::message;
    use support_link_async::{Ends, config, ends, for_turns, on_runtimes};

    on_runtimes(|| async {
        for ground in Ground::all() {
            let Ends { server, client, served, link } = ends(&ground, &config());
            link.wait_attached().await.unwrap();
            // A receive future that is dropped while it waits has received no message, and never
            // called the closure that would read the message.
            let never = |_: MessageView<'_>| panic!("there is none");
            assert!(matches!(served.try_recv_with(never), Err(TryRecvError::Empty)));
            assert!(for_turns(10, served.recv_with(never)).await.is_none());
            let task = tokio::spawn(async move {
                let (_sender, mut receiver) = served.split();
                for n in 0..500 {
                    let expected = message(n, 1000);
                    let is_right =
                        receiver.recv_with(|lies| lies == expected).await.unwrap().unwrap();
                    assert!(is_right, "message {n}");
                }
                let none = receiver.try_recv_with(|_| panic!("there is none"));
                assert!(matches!(none, Err(TryRecvError::Empty)), "{none:?}");
                (server, receiver)
            });
            for n in 0..500 {
                link.send(&message(n, 1000)).await.unwrap();
            }
            link.wait_acked().await.unwrap();
            let (server, receiver) = task.await.unwrap();
            link.send(b"once more").await.unwrap();
            let link_of = receiver.link();
            let fails = tokio::spawn(async move {
                let link_of = receiver.link();
                link_of.recv_with(|_| panic!("while it reads")).await.unwrap().unwrap();
            });
            assert!(fails.await.unwrap_err().is_panic());
            assert_eq!(link_of.try_recv_with(|lies| lies.to_vec()).unwrap().unwrap(), b"once more");
            link.send(b"and once").await.unwrap();
            assert_eq!(
                link_of.recv_with(|lies| lies.to_vec()).await.unwrap().unwrap(),
                b"and once"
            );
            drop((client, server));
        }
    });
}
