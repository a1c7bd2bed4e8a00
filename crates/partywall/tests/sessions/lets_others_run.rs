// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of a task whose stream operations never have to wait. The task still yields its thread at
//! times, so that other tasks of the runtime run.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use partywall::tokio::{Session, Stream};
use partywall_testkit::TIMEOUT;
use partywall_testkit::{Kind, run_alone, session_pair};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Number of operations of the tested task: more than tokio's task budget allows without a pause,
/// and fewer than the ring and the stream's window hold.
const OPERATIONS: usize = 400;

/// Whether a second task has run, which is spawned on the thread of the tested task.
struct Others(Arc<AtomicBool>);

impl Others {
    fn start() -> Self {
        let ran = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&ran);
        tokio::spawn(async move {
            tokio::task::yield_now().await;
            flag.store(true, Ordering::Relaxed);
        });
        Self(ran)
    }

    fn ran(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Makes both ends of a stream, with their sessions, which must stay alive.
async fn streams(kind: Kind) -> ((Session, Session), (Stream, Stream)) {
    let (client, server) =
        session_pair(kind, |config| config.stream_window(4 << 20).ring_bytes(1 << 20)).await;
    let ours = client.open(b"").await.unwrap();
    let theirs = server.accept().await.unwrap().unwrap();
    ((client, server), (ours, theirs))
}

/// Waits until the peer has received every message sent before: it answers the ping only after it
/// has handled them.
async fn arrived(session: &Session) {
    session.ping().await.unwrap();
}

#[test]
fn one_who_receives_what_is_there() {
    for kind in [Kind::SharedMemory, Kind::Unix] {
        run_alone("receiving", TIMEOUT, async {
            let ((client, _server), (mut ours, mut theirs)) = streams(kind).await;
            for _ in 0..OPERATIONS {
                ours.send(b"there").await.unwrap();
            }
            arrived(&client).await;
            let others = Others::start();
            for _ in 0..OPERATIONS {
                theirs.recv().await.unwrap().unwrap();
            }
            assert!(others.ran(), "{kind:?}: nobody else ran");
        });
    }
}

#[test]
fn one_who_sends_while_there_is_room() {
    run_alone("sending", TIMEOUT, async {
        let (_sessions, (mut ours, _theirs)) = streams(Kind::SharedMemory).await;
        let others = Others::start();
        for _ in 0..OPERATIONS {
            ours.send(b"room").await.unwrap();
        }
        assert!(others.ran(), "nobody else ran");
        let others = Others::start();
        for _ in 0..OPERATIONS {
            ours.reserve(4).await.unwrap().commit().await.unwrap();
        }
        assert!(others.ran(), "nobody else ran");
        let others = Others::start();
        let mut ours = ours.into_io();
        for _ in 0..OPERATIONS {
            ours.write_all(b"room").await.unwrap();
        }
        assert!(others.ran(), "nobody else ran");
    });
}

#[test]
fn one_who_reads_bytes_one_by_one() {
    run_alone("reading", TIMEOUT, async {
        let ((client, _server), (mut ours, theirs)) = streams(Kind::SharedMemory).await;
        ours.send(&[7; OPERATIONS]).await.unwrap();
        arrived(&client).await;
        let others = Others::start();
        let mut theirs = theirs.into_io();
        for _ in 0..OPERATIONS {
            assert_eq!(theirs.read_u8().await.unwrap(), 7);
        }
        assert!(others.ran(), "nobody else ran");
    });
}

/// Input: empty messages on a stream that is read as bytes. They fill no buffer, so a single read
/// may take many of them without waiting. Expected: other tasks still run.
#[test]
fn one_who_reads_bytes_of_messages_that_are_empty() {
    run_alone("empty", TIMEOUT, async {
        let ((client, _server), (mut ours, theirs)) = streams(Kind::SharedMemory).await;
        for _ in 0..OPERATIONS {
            ours.send(b"").await.unwrap();
        }
        ours.send(b"!").await.unwrap();
        arrived(&client).await;
        let others = Others::start();
        let mut theirs = theirs.into_io();
        assert_eq!(theirs.read_u8().await.unwrap(), b'!');
        assert!(others.ran(), "nobody else ran");
    });
}

#[test]
fn one_who_accepts_streams_that_were_opened() {
    run_alone("accepting", TIMEOUT, async {
        let ((client, server), _first) = streams(Kind::SharedMemory).await;
        let mut opened = Vec::new();
        let others = Others::start();
        for _ in 0..OPERATIONS {
            opened.push(client.open(b"").await.unwrap());
        }
        assert!(others.ran(), "nobody else ran");
        arrived(&client).await;
        let others = Others::start();
        for _ in 0..OPERATIONS {
            server.accept().await.unwrap().unwrap();
        }
        assert!(others.ran(), "nobody else ran");
    });
}

/// Input: a peer on another runtime that sends without end. Expected: a timer of the receiving
/// runtime still fires.
#[test]
fn a_timer_fires_amid_a_flood() {
    let flooding =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (_sessions, (mut ours, mut theirs)) = flooding.block_on(streams(Kind::SharedMemory));
    flooding.spawn(async move { while ours.send(b"more").await.is_ok() {} });
    run_alone("flood", TIMEOUT, async move {
        let timer = tokio::spawn(tokio::time::sleep(Duration::from_millis(20)));
        let deadline = partywall_testkit::soon();
        while !timer.is_finished() {
            assert!(Instant::now() < deadline, "the timer does not fire");
            theirs.recv().await.unwrap().unwrap();
        }
    });
}
