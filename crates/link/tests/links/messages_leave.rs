// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `wait_sent`: when it returns, all messages that the thread sent before have left the
//! process, even if no thread of the process uses the link again.

use crate::support_ends;

use partywall_link::{Config, Group, RecvError, ReplyError, Stopped, WaitError};
use std::thread;
use std::time::{Duration, Instant};
use support_ends::{Ground, Pair, Via, message, number, soon, until};

const LEN: usize = 1000;
/// The ring size: more bytes than the system buffers for a peer that does not read from its socket.
/// The system buffers a few hundred KiB for a Unix socket, and some MiB for TCP, unless its limits
/// were raised very far.
const RING: u64 = 64 << 20;

fn config() -> Config {
    Config::default().ring_bytes(RING).slab_bytes(0).peer_max(RING, 0)
}

#[test]
fn messages_after_wait_sent_need_no_thread() {
    for ground in Ground::all() {
        let name = format!("{:?}", ground.via);
        let Pair { server, served, link } = ground.pair(&config());
        let (link, _receiver) = link.split();
        link.wait_sent(Instant::now()).expect("there is nothing to wait for");
        thread::scope(|scope| {
            scope.spawn(|| link.link().wait_attached(soon()).unwrap());
            served.wait_attached(soon()).unwrap();
        });
        // The client sends until the connection is full: no thread receives for the server, so at
        // some point the system accepts no more bytes.
        let mut count = 0;
        let sent = loop {
            let is_full = (0..4000).any(|_| {
                let sent = link.try_send(&message(count, LEN));
                count += u64::from(sent.is_ok());
                sent.is_err()
            });
            let sent = link.wait_sent(Instant::now() + Duration::from_millis(50));
            if sent.is_err() || is_full {
                break sent;
            }
        };
        let is_as_expected = match &sent {
            Ok(()) => ground.via == Via::SharedMemory,
            Err(WaitError::TimedOut { .. }) => ground.via != Via::SharedMemory,
            Err(_) => false,
        };
        assert!(is_as_expected, "{name}: {sent:?} of {count}");
        thread::scope(|scope| {
            let receives = scope.spawn(|| {
                for expected in 0..count {
                    let message = served.recv_deadline(soon()).unwrap().unwrap();
                    assert_eq!((number(&message), message.len()), (expected, LEN), "{name}");
                    message.ack().unwrap();
                }
            });
            let waits = scope.spawn(|| link.wait_sent(soon()));
            link.wait_sent(soon()).unwrap();
            waits.join().unwrap().unwrap();
            // From this point on no thread of the client uses the client's link, so the server
            // receives only bytes that the system has already accepted.
            receives.join().unwrap();
        });
        drop(server);
    }
}

#[test]
fn wait_sent_on_a_closed_link_is_an_error() {
    let ground = Ground::new(Via::Tcp, false);
    let Pair { server, served: _served, link } = ground.pair(&config());
    let (sender, receiver) = link.split();
    sender.send(b"never").unwrap();
    let late = sender.wait_sent(Instant::now());
    assert!(matches!(late, Err(WaitError::TimedOut { .. })), "no connection yet: {late:?}");
    let text = late.unwrap_err().to_string();
    assert!(
        text.contains(&sender.link().key().to_string()) && text.contains("wait longer"),
        "{text}"
    );
    receiver.link().close(Instant::now()).unwrap_err();
    let closed = sender.wait_sent(soon());
    assert!(matches!(closed, Err(WaitError::Stopped(Stopped::Closed))), "{closed:?}");
    drop(server);
}

/// Rule: `wait_sent` does not wait for messages that other threads send after its call. One thread
/// calls `wait_sent` while the server does not receive; then another thread fills the ring.
#[test]
fn wait_sent_ignores_messages_sent_later() {
    let ground = Ground::new(Via::Unix, false);
    let group = Group::new().unwrap();
    let server = ground.server(config());
    let client = ground.client(config().group(&group));
    let link = client.connect(server.local_address(), "bob", "orders").unwrap();
    let served = server.open("alice", "orders").unwrap();
    let link = &link;
    thread::scope(|scope| {
        scope.spawn(|| link.wait_attached(soon()).unwrap());
        served.wait_attached(soon()).unwrap();
    });
    let awaited = RING / 2 / LEN as u64;
    (0..awaited).for_each(|n| link.send(&message(n, LEN)).unwrap());
    let turns = group.turns();
    thread::scope(|scope| {
        let waits = scope.spawn(|| link.wait_sent(soon()));
        until("it waits", || group.turns() > turns);
        let mut next = awaited;
        while link.try_send(&message(next, LEN)).is_ok() {
            next += 1;
        }
        assert!(next > awaited / 2 * 3, "there is no room for more than {next}");
        let mut received = 0;
        let mut receive = |deadline| match served.recv_deadline(deadline) {
            Ok(Some(message)) => {
                assert_eq!(number(&message), received);
                received += 1;
                true
            }
            Ok(None) => panic!("the sender is still there"),
            Err(RecvError::TimedOut) => false,
            Err(fault) => panic!("{fault}"),
        };
        while !waits.is_finished() {
            receive(Instant::now() + Duration::from_millis(100));
        }
        waits.join().unwrap().unwrap();
        while receive(Instant::now() + Duration::from_millis(100)) {}
        // `wait_sent` waited only for the messages below number `awaited`, which the client sent
        // before the call. The server received later messages only because the system had buffered
        // them.
        assert!((awaited..next).contains(&received), "{received} of {next}");
    });
}

/// Rule: a reply that waits for room in the ring fails when its request is acknowledged meanwhile.
/// One thread replies to the first request while the ring is full. Another thread acknowledges the
/// second request, and so the first one too.
#[test]
fn reply_that_waits_for_room_ends_when_its_message_is_acked() {
    let ground = Ground::new(Via::SharedMemory, false);
    let Pair { server: _server, served, link } = ground.pair(&config().ring_bytes(4096));
    thread::scope(|scope| {
        scope.spawn(|| link.wait_attached(soon()).unwrap());
        served.wait_attached(soon()).unwrap();
    });
    link.send(b"question").unwrap();
    link.send(b"another").unwrap();
    let (first, second) = (
        served.recv_deadline(soon()).unwrap().unwrap(),
        served.recv_deadline(soon()).unwrap().unwrap(),
    );
    while served.try_send(&[7; 500]).is_ok() {}
    thread::scope(|scope| {
        let late = soon() + Duration::from_secs(60);
        let replies = scope.spawn(move || first.reply_deadline(&[8; 500], late));
        // The pause is long enough for the replying thread to sleep, waiting for room, in most
        // runs. The expected result is the same if it does not sleep yet.
        thread::sleep(Duration::from_millis(50));
        second.ack().unwrap();
        until("the reply ends", || replies.is_finished());
        assert!(matches!(replies.join().unwrap(), Err(ReplyError::Ack(_))));
    });
}
