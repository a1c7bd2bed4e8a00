// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `Pool`, a pool of sessions with one server: it spreads streams over its sessions, and
//! replaces lost sessions. It opens no more streams on a session whose peer sent `go_away`. After
//! it is closed, none of its tasks and descriptors remain.
#![cfg(feature = "tokio")]

use crate::support_adapters;

use partywall::tokio::{Incoming, Listener, Pool, PoolConfig, PoolEvent, PoolOpenError, Session};
use partywall::{Config, OpenError, SessionError, StreamRecvError};
use partywall_testkit::{Directory, Second, argument, role, second_process};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support_adapters::{TIMEOUT, soon, until};

/// Collects the events that a pool reports, so that a test can count them.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<PoolEvent>>>);

impl Events {
    fn config(&self) -> PoolConfig {
        let events = self.clone();
        let listen = move |event: &PoolEvent| events.0.lock().unwrap().push(event.clone());
        PoolConfig::default()
            .backoff(Duration::from_millis(2), Duration::from_millis(20))
            .open_timeout(TIMEOUT)
            .on_event(listen)
    }

    fn count(&self, wanted: impl Fn(&PoolEvent) -> bool) -> usize {
        self.0.lock().unwrap().iter().filter(|event| wanted(event)).count()
    }

    async fn connected(&self, count: usize) {
        let is_connected = |event: &PoolEvent| matches!(event, PoolEvent::Connected { .. });
        until("connected", || self.count(is_connected) >= count).await;
    }
}

async fn accept(listener: &Listener, count: usize) -> Vec<Session> {
    let mut sessions = Vec::new();
    for _ in 0..count {
        sessions.push(soon("a session", listener.accept()).await.unwrap());
    }
    sessions
}

#[tokio::test]
async fn streams_go_where_the_fewest_are() {
    let place = Directory::new();
    let events = Events::default();
    let listener = Listener::bind(place.address("pool")).unwrap();
    let pool = Pool::new(place.address("pool"), events.config().sessions(3)).unwrap();
    let sessions = accept(&listener, 3).await;
    events.connected(3).await;
    assert_eq!(pool.live(), 3);
    let mut streams = Vec::new();
    for _ in 0..30 {
        streams.push(pool.open(b"").await.unwrap());
    }
    assert_eq!(pool.streams(), 30);
    for session in &sessions {
        until("ten streams each", || session.streams() == 10).await;
    }
    let metadata = [0; partywall::METADATA_BYTES_MAX + 1];
    let refused = pool.open(&metadata).await;
    assert!(matches!(refused, Err(PoolOpenError::Open(OpenError::MetadataTooLong { .. }))));
}

#[tokio::test]
async fn opening_waits_for_somebody_to_listen_but_not_for_ever() {
    let place = Directory::new();
    let events = Events::default();
    let config = events.config();
    let hasty = Pool::new(place.address("pool"), config.clone().open_timeout(Duration::ZERO));
    let hasty = hasty.unwrap();
    let is_failed = |event: &PoolEvent| matches!(event, PoolEvent::Failed { .. });
    until("three attempts", || events.count(is_failed) >= 3).await;
    match hasty.open(b"").await {
        Err(error @ PoolOpenError::TimedOut { failure: Some(_) }) => {
            assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::TimedOut);
        }
        other => panic!("{other:?}"),
    }
    for event in events.0.lock().unwrap().iter() {
        let PoolEvent::Failed { next_attempt, .. } = event else { panic!("{event}") };
        assert!(*next_attempt >= Duration::from_millis(1), "{event}");
        assert!(*next_attempt <= Duration::from_millis(20), "{event}");
    }
    let waiting = Pool::new(place.address("pool"), config).unwrap();
    let opening = tokio::spawn({
        let pool = waiting.clone();
        async move { pool.open(b"waited").await }
    });
    let mut incoming = Incoming::new(Listener::bind(place.address("pool")).unwrap());
    let (_stream, caller) = soon("the stream", incoming.accept()).await;
    assert_eq!(&caller.metadata[..], b"waited");
    soon("open", opening).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_killed_server_is_replaced_and_its_streams_end_with_an_error() {
    let place = Directory::new();
    let address = place.address("pool");
    let mut server =
        Second::spawn(&mut second_process("pool::child", "server", &[("ADDRESS", &address)]));
    let events = Events::default();
    let pool = Pool::new(&*address, events.config().sessions(2)).unwrap();
    events.connected(2).await;
    let mut stream = pool.open(b"").await.unwrap();
    assert_eq!(soon("a greeting", stream.recv()).await.unwrap().unwrap(), b"hello");
    server.kill();
    let end = soon("the end", stream.recv()).await;
    assert!(matches!(end, Err(StreamRecvError::Session(SessionError::Closed(_)))), "{end:?}");
    let is_lost = |event: &PoolEvent| matches!(event, PoolEvent::Lost { .. });
    until("both are lost", || events.count(is_lost) == 2).await;

    let _server =
        Second::spawn(&mut second_process("pool::child", "server", &[("ADDRESS", &address)]));
    let mut stream = pool.open(b"").await.unwrap();
    assert_eq!(soon("a greeting", stream.recv()).await.unwrap().unwrap(), b"hello");
    events.connected(4).await;
    pool.close().await;
}

#[tokio::test]
async fn asked_to_go_away_it_drains_and_opens_elsewhere() {
    let place = Directory::new();
    let events = Events::default();
    let listener = Listener::bind(place.address("pool")).unwrap();
    let pool = Pool::new(place.address("pool"), events.config()).unwrap();
    let old = accept(&listener, 1).await.remove(0);
    let mut here = pool.open(b"old").await.unwrap();
    let mut there = soon("a stream", old.accept()).await.unwrap().unwrap();
    old.go_away(7);
    let new = accept(&listener, 1).await.remove(0);
    let is_gone = |event: &PoolEvent| matches!(event, PoolEvent::GoneAway { code: 7, .. });
    assert_eq!(events.count(is_gone), 1);

    // Expected after `go_away`: open streams of the old session continue, and new streams use
    // another session.
    pool.open(b"new").await.unwrap();
    assert_eq!(soon("a stream", new.accept()).await.unwrap().unwrap().metadata(), b"new");
    here.send(b"still here").await.unwrap();
    assert_eq!(soon("a message", there.recv()).await.unwrap().unwrap(), b"still here");
    assert!(old.close_reason().is_none());
    drop(here);
    drop(there);
    soon("the old session's end", old.closed()).await;
    assert!(new.close_reason().is_none());
}

#[tokio::test]
async fn draining_ends_in_time() {
    let place = Directory::new();
    let events = Events::default();
    let listener = Listener::bind(place.address("pool")).unwrap();
    let config = events.config().drain_timeout(Duration::from_millis(1));
    let pool = Pool::new(place.address("pool"), config).unwrap();
    let old = accept(&listener, 1).await.remove(0);
    let mut stream = pool.open(b"stays").await.unwrap();
    let _there = soon("a stream", old.accept()).await.unwrap().unwrap();
    old.go_away(0);
    let end = soon("the end", stream.recv()).await;
    assert!(
        matches!(end, Err(StreamRecvError::Session(SessionError::ClosedHere { .. }))),
        "{end:?}"
    );
}

#[tokio::test]
async fn a_server_that_always_sends_away_is_not_stormed() {
    let place = Directory::new();
    let events = Events::default();
    let listener = Listener::bind(place.address("pool")).unwrap();
    let longest = Duration::from_millis(20);
    let _pool = Pool::new(place.address("pool"), events.config()).unwrap();
    // The pool's waits between two attempts to connect grow up to `longest` as long as no session
    // lasts. On a busy machine a session may last long enough to set the wait back to its first
    // value. Then the test needs more than twelve sessions.
    let have_grown = || {
        let wait = |event: &PoolEvent| match event {
            PoolEvent::GoneAway { next_attempt, .. } => *next_attempt >= longest / 2,
            PoolEvent::Lost { next_attempt, .. } => *next_attempt >= longest / 2,
            _ => false,
        };
        events.count(wait) > 0
    };
    let deadline = Instant::now() + TIMEOUT;
    for count in 0.. {
        if count >= 12 && have_grown() {
            break;
        }
        assert!(Instant::now() < deadline, "{:?}", events.0.lock().unwrap());
        accept(&listener, 1).await[0].go_away(0);
    }
}

#[tokio::test]
async fn closed_it_ends_all_and_leaves_nothing() {
    let place = Directory::new();
    let events = Events::default();
    let listener = Listener::bind(place.address("pool")).unwrap();
    let pool = Pool::new(place.address("pool"), events.config().sessions(2)).unwrap();
    let sessions = accept(&listener, 2).await;
    let mut stream = pool.open(b"").await.unwrap();
    events.connected(2).await;
    let same = pool.clone();
    tokio::join!(soon("close", pool.close()), soon("close again", same.close()));
    for session in sessions {
        soon("the session's end", session.closed()).await;
    }
    let end = stream.recv().await;
    assert!(
        matches!(end, Err(StreamRecvError::Session(SessionError::ClosedHere { .. }))),
        "{end:?}"
    );
    assert!(matches!(pool.open(b"").await, Err(PoolOpenError::Closed)));
    assert_eq!((pool.live(), pool.streams()), (0, 0));
    // No task of the pool is left; the runtime does not count the task of this test.
    let tasks = tokio::runtime::Handle::current().metrics();
    until("no task", || tasks.num_alive_tasks() == 0).await;
}

#[tokio::test]
async fn dropped_it_connects_no_more_but_streams_go_on() {
    let place = Directory::new();
    let events = Events::default();
    let listener = Listener::bind(place.address("pool")).unwrap();
    let pool = Pool::new(place.address("pool"), events.config()).unwrap();
    let session = accept(&listener, 1).await.remove(0);
    let mut here = pool.open(b"").await.unwrap();
    let mut there = soon("a stream", session.accept()).await.unwrap().unwrap();
    drop(pool);
    tokio::task::yield_now().await;
    here.send(b"on").await.unwrap();
    assert_eq!(soon("a message", there.recv()).await.unwrap().unwrap(), b"on");
    drop(here);
    drop(there);
    soon("the session's end", session.closed()).await;
    let tasks = tokio::runtime::Handle::current().metrics();
    drop(session);
    until("no task", || tasks.num_alive_tasks() == 0).await;
}

#[tokio::test]
async fn full_sessions_make_opening_wait() {
    let place = Directory::new();
    let events = Events::default();
    let config = Config::default().streams_max(2);
    let listener = Listener::bind_with(place.address("pool"), &config).unwrap();
    let pool = Pool::new(place.address("pool"), events.config()).unwrap();
    let session = accept(&listener, 1).await.remove(0);
    let first = pool.open(b"").await.unwrap();
    let _second = pool.open(b"").await.unwrap();
    let third = tokio::spawn({
        let pool = pool.clone();
        async move { pool.open(b"third").await }
    });
    until("two streams", || session.streams() == 2).await;
    assert!(!third.is_finished());
    drop(first);
    drop(soon("the first", session.accept()).await.unwrap().unwrap());
    soon("the third", third).await.unwrap().unwrap();
}

/// Code of the server process, which tests start and kill: sends a greeting on every stream. In the
/// process of the tests the function returns at once.
#[test]
fn child() {
    if role().as_deref() != Some("server") {
        return;
    }
    let _watchdog =
        partywall_testkit::Watchdog::new("the second process", Duration::from_secs(120));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = Listener::bind(&*argument("ADDRESS")).unwrap();
        let mut sessions = Vec::new();
        while let Ok(session) = listener.accept().await {
            sessions.push(session.clone());
            tokio::spawn(async move {
                let mut streams = Vec::new();
                while let Ok(Some(mut stream)) = session.accept().await {
                    stream.send(b"hello").await.unwrap();
                    streams.push(stream);
                }
            });
        }
    });
}
