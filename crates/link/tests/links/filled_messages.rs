// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of messages that a closure of the application (`fill`) writes directly into the link's
//! memory: they arrive like any other, and `fill` is not called for a message that cannot be sent.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use crate::support_ends;
use crate::support_link_async;

use partywall::Wait;
use partywall_link::{Group, SendError, TryRecvError, TrySendError};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};
use support_ends::every_length::{LENS, attach, config, message};
use support_ends::{Ground, Pair, soon};

#[test]
fn messages_of_every_length_arrive_in_order() {
    for ground in Ground::all() {
        let Pair { server: _server, served, link } = ground.pair(&config());
        let count = 40 * LENS.len();
        thread::scope(|scope| {
            // The thread returns its sender and receiver, and the test holds both until all
            // messages are received: dropping them would end the stream of the link.
            let _halves = scope.spawn(|| {
                let (sender, receiver) = link.split();
                for number in 0..count {
                    let len = LENS[number % LENS.len()];
                    let sent = message(number, len);
                    let mut fills = 0;
                    // The sender waits for room repeatedly, because the slab holds only a few of
                    // the long messages.
                    let fill = |room: &mut [u8]| {
                        fills += 1;
                        room.copy_from_slice(&sent);
                    };
                    if number % 2 == 0 {
                        sender.send_with(len, fill).unwrap();
                    } else {
                        sender.send_with_deadline(len, fill, soon()).unwrap();
                    }
                    assert_eq!(fills, 1, "message {number}");
                }
                sender.wait_acked(soon()).unwrap();
                (sender, receiver)
            });
            for number in 0..count {
                let received = served.recv_deadline(soon()).unwrap().unwrap();
                assert!(received == message(number, LENS[number % LENS.len()]), "{number}");
                received.ack().unwrap();
            }
            // The receiver asks for one more message, because that call reports its
            // acknowledgements to the sender.
            let polled = served.try_recv();
            assert!(matches!(polled, Err(TryRecvError::Empty)), "{polled:?}");
        });
    }
}

#[test]
fn fill_without_room_is_not_called() {
    for ground in Ground::all() {
        let Pair { server: _server, served, link } = ground.pair(&config());
        attach(&link, &served);
        let never = |_: &mut [u8]| panic!("there is no room");
        for len in [48, 1000, 100_000] {
            let mut sent = 0_u16;
            while link.try_send_with(len, |room| room.fill(sent as u8)).is_ok() {
                sent += 1;
            }
            assert!(sent > 0);
            let refused = link.try_send_with(len, never);
            assert!(matches!(refused, Err(TrySendError::Full)), "{refused:?}");
            let until = Instant::now() + Duration::from_millis(20);
            let sent_late = link.send_with_deadline(len, never, until);
            assert!(matches!(sent_late, Err(SendError::TimedOut)), "{sent_late:?}");
            // Expected result: exactly the sent messages arrive. Meanwhile another thread calls
            // `wait_acked` on the sender's link, which sends the messages and receives the
            // acknowledgements.
            thread::scope(|scope| {
                scope.spawn(|| link.wait_acked(soon()).unwrap());
                for number in 0..sent {
                    let received = served.recv_deadline(soon()).unwrap().unwrap();
                    assert_eq!(
                        received,
                        vec![number as u8; len],
                        "message {number} of {len} bytes"
                    );
                    received.ack().unwrap();
                }
                // Each end makes a receive call until its deadline, which reports the end's
                // acknowledgements to the peer.
                served.recv_deadline(Instant::now() + Duration::from_millis(20)).unwrap_err();
            });
        }
        let too_large = link.send_with(3 << 20, never);
        assert!(matches!(too_large, Err(SendError::TooLarge { .. })), "{too_large:?}");
    }
}

#[test]
fn fill_that_panics_sends_nothing_and_keeps_the_link() {
    for ground in Ground::all() {
        let Pair { server: _server, served, link } = ground.pair(&config());
        attach(&link, &served);
        let mut expected = Vec::new();
        // The test alternates messages whose closure `fill` panics with messages that are sent. The
        // sent messages overwrite what the failed calls had begun to write.
        for (number, len) in LENS.iter().cycle().take(40 * LENS.len()).enumerate() {
            let fails = AssertUnwindSafe(|| {
                link.send_with(*len, |room| {
                    room.fill(0xee);
                    panic!("while it writes");
                })
            });
            catch_unwind(fails).unwrap_err();
            // The test sends enough messages to reach the end of the ring at many offsets.
            if number % 3 != 0 {
                link.send_with(*len, |room| room.copy_from_slice(&message(number, *len))).unwrap();
                expected.push(message(number, *len));
            }
            if number % 5 == 4 {
                thread::scope(|scope| {
                    // Meanwhile another thread calls `wait_acked` on the sender's link, which sends
                    // the messages and receives the acknowledgements.
                    scope.spawn(|| link.wait_acked(soon()).unwrap());
                    for message in expected.drain(..) {
                        let received = served.recv_deadline(soon()).unwrap().unwrap();
                        assert_eq!(received, message);
                        received.ack().unwrap();
                    }
                    // The receiver asks for one more message, because that call reports its
                    // acknowledgements to the sender.
                    assert!(matches!(served.try_recv(), Err(TryRecvError::Empty)));
                });
            }
        }
    }
}

/// Rule: a closure `fill`, which writes a message into the link's memory, panics if it uses a link.
/// Without the panic, its send call would deadlock with itself, or with another call that waits for
/// it.
#[test]
fn fill_that_uses_a_link_panics() {
    for wait in [Wait::Spin, Wait::Park] {
        for ground in Ground::all() {
            let group = Group::new().unwrap();
            let config = config().wait(wait).group(&group);
            let Pair { server, served, link } = ground.pair(&config);
            attach(&link, &served);
            // The test covers both states of the link's lock. After 1 message the lock is not
            // biased yet; after 100 messages it is biased towards this thread, which then locks it
            // without an atomic read-modify-write.
            for count in [1, 100] {
                for number in 0..count {
                    link.send(&message(number, 10)).unwrap();
                    served.recv_deadline(soon()).unwrap().unwrap().ack().unwrap();
                }
                let uses: [&dyn Fn(); 6] = [
                    &|| drop(link.try_send(b"to itself")),
                    &|| drop(link.try_recv()),
                    &|| drop(link.recv_deadline(Instant::now())),
                    &|| drop(served.try_send(b"to another")),
                    &|| drop(served.try_recv()),
                    &|| _ = link.stats(),
                ];
                for (number, uses) in uses.iter().enumerate() {
                    let sends = || link.send_with(1000, |_| uses());
                    let panicked = catch_unwind(AssertUnwindSafe(sends)).unwrap_err();
                    let words = panicked.downcast_ref::<&str>().unwrap();
                    assert!(words.contains("do that before or after"), "use {number}: {words}");
                }
                link.send(b"as before").unwrap();
                let received = served.recv_deadline(soon()).unwrap().unwrap();
                assert_eq!(received, "as before");
                received.ack().unwrap();
            }
            drop(server);
        }
    }
}

#[cfg(feature = "tokio")]
#[test]
fn send_with_future_calls_fill_once_there_is_room() {
    use support_ends::message;
    use support_link_async::{Ends, config, ends, for_turns, on_runtimes};

    on_runtimes(|| async {
        for ground in Ground::all() {
            let Ends { server, client, served, link } = ends(&ground, &config());
            link.wait_attached().await.unwrap();
            let fill = |n: u64| move |room: &mut [u8]| room.copy_from_slice(&message(n, 1000));
            let mut sent = 0;
            while link.try_send_with(1000, fill(sent)).is_ok() {
                sent += 1;
            }
            // A send future that is dropped while it waits for room has not called its closure
            // `fill`, and sends nothing.
            let never = |_: &mut [u8]| panic!("there is no room");
            assert!(matches!(link.try_send_with(1000, never), Err(TrySendError::Full)));
            assert!(for_turns(10, link.send_with(1000, never)).await.is_none());
            let task = tokio::spawn(async move {
                for n in 0..500 {
                    let received = served.recv().await.unwrap().unwrap();
                    assert_eq!(received, message(n, 1000));
                    received.ack().unwrap();
                }
                drop(server);
            });
            for n in sent..500 {
                link.send_with(1000, fill(n)).await.unwrap();
            }
            link.wait_acked().await.unwrap();
            task.await.unwrap();
            drop(client);
        }
    });
}
