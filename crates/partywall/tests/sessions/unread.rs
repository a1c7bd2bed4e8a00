// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests in which one stream is never read while its sender never stops. Other streams continue,
//! and the unread bytes stay within the stream's window.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use partywall::tokio::{Session, Stream};
use partywall::{Config, StreamSendError};
use partywall_layout::record_ring::footprint;
use partywall_testkit::pattern;
use partywall_testkit::{Kind, run, session_pair};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

const WINDOW: u64 = 64 << 10;
/// Cost in bytes of a message of 1 KiB, with its header and padding.
const MESSAGE_COST: u64 = 1024 + 64;
const LIMIT: Duration = Duration::from_secs(60);

/// Number of streams besides the unread one, each with `ROUNDS` requests.
const OTHERS: u64 = 198;
const ROUNDS: u64 = 50;
/// Length of a message in bytes: too long for the ring, so each message takes shared memory, which
/// all streams of the session have in common.
const LEN: usize = 4096;
/// Maximum shared memory of the sending session in bytes, of which all streams together need less
/// than half.
const MEMORY_MAX: u64 = 2 << 20;

/// The metadata of the stream that is never read.
const NOBODY: &[u8] = b"nobody reads";

/// Sends without pause on the stream that the peer never reads, with or without credit, until the
/// other streams are done. Checks the session's memory after each attempt. Returns the stream and
/// its number of sent messages.
async fn never_stop(
    session: Session,
    mut stream: Stream,
    is_over: Arc<AtomicBool>,
) -> (Stream, u64) {
    let (mut sent, mut refused) = (0, 0u64);
    while !is_over.load(Ordering::Relaxed) {
        match stream.try_send(&[1; LEN]) {
            Ok(()) => sent += 1,
            Err(StreamSendError::Full) => {
                refused += 1;
                tokio::task::yield_now().await;
            }
            Err(error) => panic!("{error}"),
        }
        let unread = sent * footprint(LEN as u64);
        assert!(unread <= WINDOW, "{sent} messages are unread");
        let stats = session.stats();
        assert!(stats.memory_bytes <= MEMORY_MAX, "{stats:?}");
        assert!(stats.memory_used_bytes <= stats.memory_bytes, "{stats:?}");
    }
    assert!(refused > 0, "it never was without credit");
    (stream, sent)
}

/// Answers, at the receiving end, every message of a stream until it ends.
async fn answer(mut stream: Stream) {
    loop {
        match stream.recv().await {
            Ok(Some(question)) => {
                let copy = question.to_vec();
                drop(question);
                stream.send(&copy).await.unwrap();
            }
            Ok(None) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Answers all streams except the one that is never read. Returns that one, and the tasks that
/// answer the others.
async fn accept_all(session: Session) -> (Stream, Vec<JoinHandle<()>>) {
    let (mut unread, mut answering) = (None, Vec::new());
    for _ in 0..=OTHERS {
        let stream = session.accept().await.unwrap().unwrap();
        if stream.metadata() == NOBODY {
            unread = Some(stream);
        } else {
            answering.push(tokio::spawn(answer(stream)));
        }
    }
    (unread.expect("it was opened"), answering)
}

/// Opens a stream, sends `ROUNDS` requests on it, and checks that each answer equals its request.
async fn ask(session: Session, id: u64) {
    let mut stream = session.open(&id.to_le_bytes()).await.unwrap();
    for round in 0..ROUNDS {
        let question = pattern(LEN, id << 32 | round);
        stream.send(&question).await.unwrap();
        assert!(stream.recv().await.unwrap().unwrap() == question, "stream {id}, round {round}");
    }
    stream.finish();
    assert!(matches!(stream.recv().await, Ok(None)));
}

/// Rule: other streams continue although one is never read. `partywall bench parallel --unread 1`
/// measures how fast they are.
#[test]
fn other_streams_go_on_while_one_is_full_and_unread() {
    for kind in Kind::ALL {
        run(kind.name(), LIMIT, async move {
            let adapt = |config: Config| config.stream_window(WINDOW).memory_max(MEMORY_MAX);
            let (client, server) = session_pair(kind, adapt).await;
            let accepting = tokio::spawn(accept_all(server.clone()));
            let stuck = client.open(NOBODY).await.unwrap();
            let is_over = Arc::new(AtomicBool::new(false));
            let sending = tokio::spawn(never_stop(client.clone(), stuck, Arc::clone(&is_over)));
            let asking: Vec<_> =
                (0..OTHERS).map(|id| tokio::spawn(ask(client.clone(), id))).collect();
            for asked in asking {
                asked.await.unwrap();
            }
            let (mut unread, answering) = accepting.await.unwrap();
            for answered in answering {
                answered.await.unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
            let (mut stuck, sent) = sending.await.unwrap();
            assert_eq!(sent, WINDOW / footprint(LEN as u64), "its window is full");
            // The blocks of all other streams' messages are free again, so `trim` frees their
            // memory.
            client.trim();
            let stats = client.stats();
            assert!(
                stats.blocks_in_flight <= sent && stats.memory_used_bytes <= 2 * WINDOW,
                "{stats:?}"
            );
            // Once the unread stream is read, every message has arrived, and its sender can
            // continue.
            for _ in 0..sent {
                assert!(unread.recv().await.unwrap().unwrap() == [1; LEN]);
            }
            stuck.send(b"more").await.unwrap();
            assert_eq!(unread.recv().await.unwrap().unwrap(), b"more");
        });
    }
}

#[test]
fn a_stream_that_nobody_reads_holds_up_no_other() {
    for kind in Kind::ALL {
        run(kind.name(), LIMIT, async move {
            let (client, server) =
                session_pair(kind, |config| config.stream_window(WINDOW).ring_bytes(1 << 16)).await;
            let mut stuck = client.open(b"nobody reads").await.unwrap();
            let unread = server.accept().await.unwrap().unwrap();
            let mut sent = 0u64;
            let mut used = client.open(b"used").await.unwrap();
            let mut other = server.accept().await.unwrap().unwrap();
            for round in 0..500u32 {
                // Between two requests on the stream `used`, the sender of the unread stream sends
                // as much as its credit allows.
                while sent <= 10 * WINDOW / 1024 {
                    match stuck.try_send(&[1; 1024]) {
                        Ok(()) => sent += 1,
                        Err(StreamSendError::Full) => break,
                        Err(error) => panic!("{error}"),
                    }
                }
                let payload = vec![round as u8; 20_000];
                used.send(&payload).await.unwrap();
                assert!(other.recv().await.unwrap().unwrap() == payload);
                other.send(b"ok").await.unwrap();
                assert_eq!(used.recv().await.unwrap().unwrap(), b"ok");
            }
            assert!(sent * 1024 <= WINDOW, "{sent} messages are unread");
            assert!((sent + 2) * MESSAGE_COST >= WINDOW, "only {sent} messages of its window");
            // Every message of the unread stream has arrived once it is read.
            let (mut unread, mut read) = (unread, 0);
            while read < sent {
                assert!(unread.recv().await.unwrap().unwrap() == [1; 1024]);
                read += 1;
            }
            stuck.send(&[2; 1024]).await.unwrap();
            assert!(unread.recv().await.unwrap().unwrap() == [2; 1024]);
        });
    }
}

/// Rule: a stream counts against `streams_max` until the peer has accepted it, even after its
/// sender has ended it. Otherwise the unread bytes of such streams would have no bound.
#[test]
fn streams_ended_but_not_accepted_count_against_the_most_there_may_be() {
    run("not accepted", LIMIT, async {
        let (client, server) =
            session_pair(Kind::SharedMemory, |config| config.streams_max(3)).await;
        for _ in 0..3 {
            let mut stream = client.open(b"").await.unwrap();
            stream.send(b"left behind").await.unwrap();
        }
        assert!(partywall_testkit::give_up_after(100, client.open(b"")).await.is_none());
        // After the session's end, streams that the peer opened before can still be accepted and
        // read.
        client.close(0, "");
        drop(client);
        server.closed().await;
        for _ in 0..3 {
            let mut stream = server.accept().await.unwrap().unwrap();
            assert_eq!(stream.recv().await.unwrap().unwrap(), b"left behind");
        }
        assert!(matches!(server.accept().await, Ok(None)));
    });
}

/// Input: a message of which the kernel accepts only some bytes. Expected: the driver writes the
/// rest later, even if other messages are sent.
#[test]
fn the_tail_of_a_message_on_a_socket_is_not_forgotten() {
    for kind in [Kind::Unix, Kind::Tcp] {
        run(kind.name(), LIMIT, async move {
            let (client, server) =
                session_pair(kind, |config| config.stream_window(16 << 20)).await;
            let mut stream = client.open(b"").await.unwrap();
            let mut sent = Vec::new();
            for seed in 0..8 {
                match stream.try_send(&pattern(1 << 20, seed)) {
                    Ok(()) => sent.push(seed),
                    Err(StreamSendError::Full) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            assert!(!sent.is_empty());
            stream.finish();
            let mut received = server.accept().await.unwrap().unwrap();
            for seed in sent {
                assert!(
                    received.recv().await.unwrap().unwrap() == pattern(1 << 20, seed),
                    "message {seed}"
                );
            }
            assert!(matches!(received.recv().await, Ok(None)));
        });
    }
}
