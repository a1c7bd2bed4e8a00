// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests in which the peer's process is killed, or stopped for a while. After a kill, every waiting
//! call ends with an error that says so; a stopped process does not count as dead.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use partywall::tokio::{Listener, Session, Stream, connect_with};
use partywall::{Closed, Config, OpenError, SessionError, StreamRecvError, StreamSendError};
use partywall_sys::signal::{Signal, kill, stop};
use partywall_testkit::{Kind, run};
use partywall_testkit::{Second, TIMEOUT, is_pattern, pattern, variable};
use std::fmt::Debug;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

const KINDS: [Kind; 4] = [Kind::SharedMemory, Kind::Untrusted, Kind::Moving, Kind::Unix];
const WINDOW: u64 = 4000;
const STREAMS_MAX: u32 = 40;
/// Maximum time until this side learns of the peer's death, which it does immediately, except on a
/// busy machine.
const PROMPT: Duration = Duration::from_secs(10);
const MESSAGES: u64 = 6000;
const STOPPED: Duration = Duration::from_secs(5);

const KIND: &str = "PARTYWALL_HALF_DEAD_KIND";
const ADDRESS: &str = "PARTYWALL_HALF_DEAD_ADDRESS";

fn config(kind: Kind) -> Config {
    kind.config().ring_bytes(4096).inline_max(512).stream_window(WINDOW).streams_max(STREAMS_MAX)
}

/// Connects a second process to the address in an environment variable. Returns `None` in the
/// process of the tests, where the variable is not set.
async fn reach() -> Option<Session> {
    let kind = Kind::from_name(&variable(KIND)?);
    Some(connect_with(variable(ADDRESS)?, &config(kind)).await.unwrap())
}

async fn start(name: &str, kind: Kind) -> (Second, Session) {
    let listener = Listener::bind_with(kind.address(), &config(kind)).unwrap();
    let address = listener.local_address().to_string();
    let second = Second::start(name, &[(KIND, kind.name()), (ADDRESS, &address)]);
    (second, listener.accept().await.unwrap())
}

/// Code of a second process: accepts streams and never reads them, until a test kills it.
#[test]
fn idler() {
    if variable(KIND).is_none() {
        return;
    }
    run("idler", TIMEOUT, async {
        let session = reach().await.unwrap();
        let mut kept = Vec::new();
        while let Ok(Some(stream)) = session.accept().await {
            kept.push(stream);
        }
    });
}

/// Code of a second process: reads all streams as fast as possible, until a test kills it.
#[test]
fn reader() {
    if variable(KIND).is_none() {
        return;
    }
    run("reader", TIMEOUT, async {
        let session = reach().await.unwrap();
        while let Ok(Some(mut stream)) = session.accept().await {
            tokio::spawn(async move { while let Ok(Some(_)) = stream.recv().await {} });
        }
    });
}

/// Code of a second process: sends `MESSAGES` messages on one stream, and waits until the peer
/// closes the session.
#[test]
fn sender() {
    if variable(KIND).is_none() {
        return;
    }
    run("sender", 2 * TIMEOUT, async {
        let session = reach().await.unwrap();
        let mut stream = session.open(b"").await.unwrap();
        for number in 0..MESSAGES {
            let len = if number % 100 == 0 { 30_000 } else { 100 };
            stream.send(&pattern(len, number)).await.unwrap();
        }
        stream.finish();
        assert!(matches!(session.closed().await, SessionError::Closed(_)));
    });
}

async fn promptly<T: Debug>(what: &str, kind: Kind, task: JoinHandle<T>) -> T {
    let ended = tokio::time::timeout(PROMPT, task).await;
    ended.unwrap_or_else(|_| panic!("{what} over {kind:?} still waits")).unwrap()
}

const fn is_gone(error: &SessionError) -> bool {
    matches!(error, SessionError::Closed(Closed::Disconnected))
}

#[test]
fn senders_under_load_learn_promptly_that_the_receiver_was_killed() {
    if variable(KIND).is_some() {
        return;
    }
    run("load", TIMEOUT, async {
        for kind in KINDS {
            let (second, session) = start("half_dead::reader", kind).await;
            let (sends, mut sent) = tokio::sync::mpsc::unbounded_channel();
            let mut tasks = Vec::new();
            for id in 0..16 {
                let (session, sends) = (session.clone(), sends.clone());
                tasks.push(tokio::spawn(async move {
                    let mut stream = session.open(b"").await.unwrap();
                    for number in 0.. {
                        let len = if number % 8 == 0 { 20_000 } else { 600 };
                        if let Err(error) = stream.send(&pattern(len, id)).await {
                            return error;
                        }
                        let _ = sends.send(());
                    }
                    unreachable!("it sends for ever");
                }));
            }
            for _ in 0..2000 {
                sent.recv().await.unwrap();
            }
            kill(second.pid(), Signal::KILL).unwrap();
            for task in tasks {
                let error = promptly("send", kind, task).await;
                assert!(matches!(&error, StreamSendError::Session(e) if is_gone(e)), "{error}");
            }
        }
    });
}

/// Starts tasks that send on streams until the ring is full, and then wait for room. Each task
/// returns the error that ends its wait.
async fn fill(session: &Session) -> Vec<JoinHandle<StreamSendError>> {
    // All streams are opened before a task sends, because a full ring would also delay OPEN.
    let mut streams = Vec::new();
    for _ in 0..8 {
        streams.push(session.open(b"").await.unwrap());
    }
    let mut tasks = Vec::new();
    for mut stream in streams {
        tasks.push(tokio::spawn(async move {
            loop {
                if let Err(error) = stream.send(&[1; 300]).await {
                    return error;
                }
            }
        }));
    }
    tasks
}

#[test]
fn every_call_that_waits_ends_when_the_other_process_is_killed() {
    if variable(KIND).is_some() {
        return;
    }
    run("waiting calls", 2 * TIMEOUT, async {
        for kind in KINDS {
            let (second, session) = start("half_dead::idler", kind).await;
            // A stopped process neither reads the ring, nor answers pings, nor gives credit.
            assert!(session.ping().await.is_ok());
            let mut receiving = session.open(b"").await.unwrap();
            let recv = tokio::spawn(async move { receiving.recv().await });
            let mut crediting = session.open(b"").await.unwrap();
            while crediting.try_send(&[0; 500]).is_ok() {}
            let credit = tokio::spawn(async move { crediting.send(&[0; 500]).await });
            let mut held: Vec<Stream> = Vec::new();
            while session.streams() < STREAMS_MAX as usize - 8 {
                held.push(session.open(b"").await.unwrap());
            }
            assert!(session.ping().await.is_ok());
            stop(second.pid(), Instant::now() + TIMEOUT).unwrap();
            let room = fill(&session).await;
            let waiting = session.clone();
            let open = tokio::spawn(async move { waiting.open(b"").await.map(drop) });
            let waiting = session.clone();
            let accept = tokio::spawn(async move { waiting.accept().await.map(drop) });
            let waiting = session.clone();
            let ping = tokio::spawn(async move { waiting.ping().await.map(drop) });
            let waiting = session.clone();
            let drained = tokio::spawn(async move { waiting.drained().await });
            kill(second.pid(), Signal::KILL).unwrap();
            let received = promptly("recv", kind, recv).await;
            assert!(matches!(received, Err(StreamRecvError::Session(e)) if is_gone(&e)));
            let sent = promptly("send for credit", kind, credit).await;
            assert!(matches!(sent, Err(StreamSendError::Session(e)) if is_gone(&e)));
            for task in room {
                let error = promptly("send for room", kind, task).await;
                assert!(matches!(&error, StreamSendError::Session(e) if is_gone(e)), "{error}");
            }
            let opened = promptly("open", kind, open).await;
            assert!(matches!(opened, Err(OpenError::Session(e)) if is_gone(&e)));
            assert!(promptly("accept", kind, accept).await.is_err_and(|e| is_gone(&e)));
            assert!(promptly("ping", kind, ping).await.is_err_and(|e| is_gone(&e)));
            assert!(promptly("drained", kind, drained).await.is_err_and(|e| is_gone(&e)));
        }
    });
}

#[test]
fn five_seconds_of_being_stopped_lose_nothing() {
    if variable(KIND).is_some() {
        return;
    }
    run("stopped", 2 * TIMEOUT, async {
        for kind in [Kind::SharedMemory, Kind::Unix] {
            let (mut second, session) = start("half_dead::sender", kind).await;
            let mut stream = session.accept().await.unwrap().unwrap();
            for number in 0..MESSAGES / 3 {
                assert!(
                    is_pattern(&stream.recv().await.unwrap().unwrap(), number),
                    "message {number}"
                );
            }
            stop(second.pid(), Instant::now() + TIMEOUT).unwrap();
            let until = tokio::time::Instant::from_std(Instant::now() + STOPPED);
            let mut number = MESSAGES / 3;
            // Messages that the stopped process had sent still arrive. Afterwards no message
            // arrives, and no death is reported.
            while let Ok(message) = tokio::time::timeout_at(until, stream.recv()).await {
                assert!(is_pattern(&message.unwrap().unwrap(), number), "message {number}");
                number += 1;
            }
            assert!(session.close_reason().is_none());
            kill(second.pid(), Signal::CONT).unwrap();
            for number in number..MESSAGES {
                assert!(
                    is_pattern(&stream.recv().await.unwrap().unwrap(), number),
                    "message {number}"
                );
            }
            assert!(matches!(stream.recv().await, Ok(None)));
            session.close(0, "");
            drop((stream, session));
            assert!(tokio::task::block_in_place(|| second.wait()).success());
        }
    });
}
