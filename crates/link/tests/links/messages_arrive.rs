// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that the messages of a link arrive: of any length, from any thread, in order, once, over
//! each transport and from each kind of storage.

use crate::support_ends;

use partywall::Wait;
use partywall_link::{AckError, Config, Group, SendError, TryRecvError, TrySendError};
use std::thread;
use support_ends::{Ground, Pair, Via, echo, message, number, soon, until};

const SLAB: u64 = 1 << 20;

fn config() -> Config {
    // Each end accepts a peer with a ring and a slab of at most the configured sizes. A link file
    // is slightly larger, because its size is rounded up to whole pages.
    Config::default().ring_bytes(64 << 10).slab_bytes(SLAB).peer_max(64 << 10, SLAB)
}

#[test]
fn messages_of_every_length_come_back() {
    let lens: Vec<usize> = vec![
        0,
        1,
        7,
        8,
        24,
        25,
        63,
        64,
        65,
        1000,
        4096,
        15_000,
        16_320,
        16_384,
        65_536,
        200_000,
        SLAB as usize,
    ];
    for ground in Ground::all() {
        let Pair { server: _server, served, link } = ground.pair(&config());
        let count = lens.len();
        thread::scope(|scope| {
            scope.spawn(|| echo(&served, count));
            for len in &lens {
                let sent = vec![*len as u8; *len];
                link.send_deadline(&sent, soon()).unwrap();
                let back = link.recv_deadline(soon()).unwrap().unwrap();
                assert!(back == sent, "{len} bytes, {} back", back.len());
                assert_eq!(back.attempt(), 1);
                back.ack().unwrap();
            }
            link.wait_acked(soon()).unwrap();
        });
        // A file is rounded up to whole pages, and its slab gets the additional bytes. So only a
        // message that exceeds the enlarged slab is too long.
        let too_long = vec![0; 2 * SLAB as usize];
        let error = link.send(&too_long).unwrap_err();
        assert!(matches!(error, SendError::TooLarge { max: SLAB.., .. }), "{error}");
        assert_eq!(link.stats().messages_sent, count as u64);
        assert_eq!(served.stats().messages_received, count as u64);
        link.close(soon()).unwrap();
    }
}

#[test]
fn stream_in_one_direction_is_acked_without_traffic_back() {
    for ground in Ground::all() {
        let Pair { server: _server, served, link } = ground.pair(&config());
        let count = 20_000;
        thread::scope(|scope| {
            scope.spawn(|| {
                for expected in 0..count {
                    let message = served.recv_deadline(soon()).unwrap().unwrap();
                    assert_eq!(number(&message), expected);
                    message.ack().unwrap();
                }
                // A receive call that waits for a message also sends the acknowledgements that the
                // receiver has not sent yet.
                assert!(served.recv_deadline(std::time::Instant::now()).is_err());
            });
            for n in 0..count {
                link.send_deadline(&message(n, 100), soon()).unwrap();
            }
            link.wait_acked(soon()).unwrap();
        });
        assert_eq!(link.unacked_bytes().unwrap(), 0);
        assert_eq!(served.stats().messages_sent, 0);
        let stats = served.stats();
        // The receiver sends an acknowledgement after each quarter of the sender's window (ring and
        // slab) and when idle, not after each message. Over shared memory it sends no
        // acknowledgement frame, because the sender reads the acked offset in the receiver's
        // memory.
        let least = if ground.via == Via::SharedMemory { 0 } else { 100 * count / (16 << 10) };
        assert!(stats.acknowledgements >= least, "{stats:?}");
        assert!(ground.via != Via::SharedMemory || stats.acknowledgements == 0, "{stats:?}");
    }
}

#[test]
fn a_spinning_pair_and_a_parking_pair_echo() {
    let waits = [Wait::Spin, Wait::Adaptive, Wait::Park];
    let vias = [Via::SharedMemory, Via::Tcp];
    for (wait, via) in waits.into_iter().flat_map(|wait| vias.map(|via| (wait, via))) {
        let ground = Ground::new(via, false);
        let Pair { server: _server, served, link } = ground.pair(&config().wait(wait));
        let count = 200;
        thread::scope(|scope| {
            scope.spawn(|| echo(&served, count));
            for n in 0..count as u64 {
                link.send_deadline(&message(n, 48), soon()).unwrap();
                let back = link.recv_deadline(soon()).unwrap().unwrap();
                assert_eq!(number(&back), n);
                back.ack().unwrap();
            }
            link.wait_acked(soon()).unwrap();
        });
    }
}

#[test]
fn messages_of_each_sending_thread_keep_their_order() {
    for ground in [Ground::new(Via::SharedMemory, true), Ground::new(Via::Tcp, false)] {
        let Pair { server: _server, served, link } = ground.pair(&config());
        let (sender, receiver) = link.split();
        let (threads, each) = (4_u64, 2_000_u64);
        thread::scope(|scope| {
            for thread in 0..threads {
                let sender = sender.clone();
                scope.spawn(move || {
                    for n in 0..each {
                        sender.send_deadline(&message(thread << 32 | n, 60), soon()).unwrap();
                    }
                    sender.wait_acked(soon()).unwrap();
                });
            }
            let mut next = vec![0; threads as usize];
            for _ in 0..threads * each {
                let message = served.recv_deadline(soon()).unwrap().unwrap();
                let (thread, n) = (number(&message) >> 32, number(&message) & 0xffff_ffff);
                assert_eq!(n, next[thread as usize], "thread {thread}");
                next[thread as usize] += 1;
                message.ack().unwrap();
            }
            assert!(served.recv_deadline(std::time::Instant::now()).is_err());
        });
        drop(receiver);
    }
}

#[test]
fn a_batch_appears_at_once_or_not_at_all() {
    let ground = Ground::new(Via::SharedMemory, false);
    let group = Group::new().unwrap();
    let Pair { server: _server, served, link } = ground.pair(&config().group(&group));
    let mut batch = link.batch();
    batch.send(b"never").send(b"sent");
    drop(batch);
    let mut batch = link.batch();
    batch.send(b"one").send(b"two").send(b"");
    assert_eq!(batch.len(), 3);
    batch.commit().unwrap();
    for expected in [&b"one"[..], b"two", b""] {
        let message = served.recv_deadline(soon()).unwrap().unwrap();
        assert_eq!(message, expected);
        message.ack().unwrap();
    }
    assert!(matches!(served.try_recv(), Err(TryRecvError::Empty)));
    let mut batch = link.batch();
    for _ in 0..1000 {
        batch.send(&[0; 100]);
    }
    let error = batch.commit().unwrap_err();
    assert!(matches!(error, SendError::BatchTooLarge { len: 100_000 }), "{error}");
}

#[test]
fn try_send_on_a_full_link_succeeds_after_acks() {
    let ground = Ground::new(Via::Tcp, true);
    let Pair { server: _server, served, link } = ground.pair(&config());
    let mut sent = 0_u64;
    loop {
        match link.try_send(&message(sent, 1000)) {
            Ok(()) => sent += 1,
            Err(TrySendError::Full) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(sent > 50, "only {sent}");
    let error = link.send_deadline(&[0; 1000], std::time::Instant::now()).unwrap_err();
    assert!(matches!(error, SendError::TimedOut), "{error}");
    thread::scope(|scope| {
        scope.spawn(|| link.send_deadline(&message(sent, 1000), soon()).unwrap());
        for expected in 0..=sent {
            let message = served.recv_deadline(soon()).unwrap().unwrap();
            assert_eq!(number(&message), expected);
            message.ack().unwrap();
        }
        served.try_recv().unwrap_err();
    });
}

#[test]
fn message_without_ack_is_received_again_after_rewind() {
    let ground = Ground::new(Via::SharedMemory, false);
    let group = Group::new().unwrap();
    let Pair { server: _server, served, link } = ground.pair(&config().group(&group));
    for n in 0..3 {
        link.send(&message(n, 8)).unwrap();
    }
    let first = served.recv_deadline(soon()).unwrap().unwrap();
    let second = served.recv_deadline(soon()).unwrap().unwrap();
    first.ack().unwrap();
    let token = second.token();
    served.rewind().unwrap();
    let again = served.recv_deadline(soon()).unwrap().unwrap();
    assert_eq!((number(&again), again.token()), (1, token));
    let third = served.recv_deadline(soon()).unwrap().unwrap();
    served.ack_to(third.token()).unwrap();
    assert!(third.token().covers(&token) && !token.covers(&third.token()));
    assert!(matches!(again.ack(), Err(AckError::Consumed)));
    until("all consumed", || {
        assert!(served.try_recv().is_err());
        let _ = link.try_recv();
        link.unacked_bytes().unwrap() == 0
    });
}
