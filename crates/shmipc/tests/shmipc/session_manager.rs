// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the session manager, which keeps several sessions with one server. It takes streams of
//! the sessions in turn, reuses streams that were put back, and replaces broken sessions.

#![cfg(feature = "tokio")]

use crate::support_async;

use partywall::StreamRecvError;
use partywall::tokio::{Listener, Session};
use partywall_shmipc::{
    Config, GetStreamError, PooledStream, SessionManager, SessionManagerError, Shmipc,
    SizePercentPair,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support_async::{until, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A server that answers each message once. A message that begins with `!` gets no answer, one with
/// `2` two answers, and one with `x` a close of the stream.
struct Server {
    address: String,
    sessions: Arc<Mutex<Vec<Session>>>,
    streams: Arc<AtomicUsize>,
    accepting: tokio::task::JoinHandle<()>,
    _directory: tempfile::TempDir,
}

impl Server {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let address = format!("unix:{}/s.sock", directory.path().display());
        let sessions = Arc::new(Mutex::new(Vec::new()));
        let streams = Arc::new(AtomicUsize::new(0));
        let accepting = accept(&address, Arc::clone(&sessions), Arc::clone(&streams));
        Self { address, sessions, streams, accepting, _directory: directory }
    }

    async fn stop(&mut self) {
        self.accepting.abort();
        let _ = (&mut self.accepting).await;
        self.sessions.lock().unwrap().drain(..).for_each(|session| session.close(0, ""));
    }

    fn restart(&mut self) {
        self.accepting =
            accept(&self.address, Arc::clone(&self.sessions), Arc::clone(&self.streams));
    }

    fn sessions(&self) -> usize {
        self.sessions.lock().unwrap().len()
    }

    fn streams(&self) -> usize {
        self.streams.load(Ordering::SeqCst)
    }

    fn streams_of_sessions(&self) -> Vec<usize> {
        self.sessions.lock().unwrap().iter().map(Session::streams).collect()
    }
}

fn accept(
    address: &str,
    sessions: Arc<Mutex<Vec<Session>>>,
    streams: Arc<AtomicUsize>,
) -> tokio::task::JoinHandle<()> {
    let listener = Listener::bind(address).unwrap();
    let listener = listener.with_protocol(Arc::new(Shmipc::default()));
    tokio::spawn(async move {
        loop {
            let session = listener.accept().await.unwrap();
            sessions.lock().unwrap().push(session.clone());
            let streams = Arc::clone(&streams);
            tokio::spawn(async move {
                while let Ok(Some(mut stream)) = session.accept().await {
                    streams.fetch_add(1, Ordering::SeqCst);
                    tokio::spawn(async move {
                        while let Ok(Some(message)) = stream.recv().await {
                            let answers = match message[0] {
                                b'!' => 0,
                                b'2' => 2,
                                b'x' => break,
                                _ => 1,
                            };
                            for _ in 0..answers {
                                stream.send(&message).await.unwrap();
                            }
                        }
                    });
                }
            });
        }
    })
}

async fn manager(server: &Server, config: Config) -> SessionManager {
    let made = SessionManager::new(&*server.address, config, partywall::Config::default());
    within("connecting", made).await.unwrap()
}

async fn call(stream: &mut PooledStream, text: &[u8]) {
    stream.send(text).await.unwrap();
    assert_eq!(within("an answer", stream.recv()).await.unwrap().unwrap(), text);
}

async fn get(manager: &SessionManager) -> PooledStream {
    within("a stream", manager.get_stream()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_put_back_is_the_next_one_and_one_stream_to_the_server() {
    let server = Server::start();
    let manager = manager(&server, Config::default()).await;
    for _ in 0..200 {
        let mut stream = get(&manager).await;
        call(&mut stream, b"again").await;
        assert!(stream.put_back());
    }
    assert_eq!((server.sessions(), server.streams()), (1, 1));
    // Expected: two streams that are taken at the same time are different. Of the streams that were
    // put back, the first is reused first.
    let (mut first, mut second) = (get(&manager).await, get(&manager).await);
    call(&mut first, b"a").await;
    call(&mut second, b"b").await;
    let number = second.number();
    assert!(manager.put_back(second) && manager.put_back(first));
    assert_eq!(get(&manager).await.number(), number);
    assert_eq!(server.streams(), 2);
    within("closing", manager.close()).await;
    assert!(matches!(manager.get_stream().await, Err(GetStreamError::Closed)));
    assert_eq!(manager.live(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_take_turns_of_thirty_two() {
    let server = Server::start();
    let manager = manager(&server, Config::default().session_num(4)).await;
    until("four sessions", || server.sessions() == 4).await;
    let mut streams = Vec::new();
    for _ in 0..127 {
        let mut stream = get(&manager).await;
        call(&mut stream, b"here").await;
        streams.push(stream);
    }
    // As in shmipc-go, the manager counts requests for streams from 1, not 0, so the first session
    // in turn serves one stream less.
    let mut counts = server.streams_of_sessions();
    counts.sort_unstable();
    assert_eq!(counts, [31, 32, 32, 32]);
    let metrics = manager.stats();
    assert_eq!(metrics.sessions.len(), 4);
    assert_eq!(metrics.total.stability.active_stream_count, 127);
    // The four sessions share a region, so the total of the metrics counts the region once.
    assert_eq!(metrics.total.share_memory, metrics.sessions[0].share_memory);
    drop(streams);
    until("no stream", || server.streams_of_sessions().iter().all(|count| *count == 0)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_than_max_stream_num_are_kept() {
    let server = Server::start();
    let manager = manager(&server, Config::default().max_stream_num(1)).await;
    let (first, second) = (get(&manager).await, get(&manager).await);
    assert!(first.put_back());
    assert!(!second.put_back());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dirty_streams_are_closed_and_not_kept() {
    let server = Server::start();
    let manager = manager(&server, Config::default()).await;

    let mut unread = get(&manager).await;
    unread.send(b"2").await.unwrap();
    within("an answer", unread.recv()).await.unwrap().unwrap();
    // The server answers this call twice. Once the second answer has arrived at the client, the
    // stream has an unread message, so the manager must not keep the stream for reuse.
    until("the second answer", || manager.stats().total.performance.in_flow_bytes == 2).await;
    assert!(!unread.put_back());

    let mut cancelled = get(&manager).await;
    cancelled.send(b"!").await.unwrap();
    let waited = tokio::time::timeout(Duration::from_millis(5), cancelled.recv()).await;
    assert!(waited.is_err());
    assert!(!cancelled.put_back());

    let mut looked = get(&manager).await;
    looked.send(b"!").await.unwrap();
    assert!(matches!(looked.try_recv(), Err(StreamRecvError::Empty)));
    assert!(!looked.put_back());

    let mut closed = get(&manager).await;
    closed.send(b"x").await.unwrap();
    assert!(!matches!(within("the end", closed.recv()).await, Ok(Some(_))));
    assert!(!closed.put_back());

    let taken = get(&manager).await.into_inner();
    drop(taken);
    drop(get(&manager).await);
    until("no stream", || manager.stats().total.stability.active_stream_count == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peer_event_on_idle_stream_is_seen_before_reuse() {
    let server = Server::start();
    let manager = manager(&server, Config::default()).await;
    // Input: after the stream was put back, the server sends a late answer on it (request `late`)
    // or closes it (request `x`).
    for text in [&b"late"[..], b"x"] {
        let mut other = get(&manager).await;
        let mut stream = get(&manager).await;
        let before = manager.stats().total;
        stream.send(text).await.unwrap();
        stream.put_back();
        until("it comes", || {
            let now = manager.stats().total;
            now.performance.in_flow_bytes > before.performance.in_flow_bytes
                || now.stability.active_stream_count < before.stability.active_stream_count
        })
        .await;
        // When the answer to this call arrives, the client has processed everything that the server
        // sent before the answer.
        call(&mut other, b"settled").await;
        let mut next = get(&manager).await;
        call(&mut next, b"mine").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_of_bytes_are_put_back_once_they_are_read() {
    let server = Server::start();
    let manager = manager(&server, Config::default()).await;
    for _ in 0..3 {
        let mut io = get(&manager).await.into_io();
        io.write_all(b"bytes").await.unwrap();
        let mut answer = [0; 5];
        within("an answer", io.read_exact(&mut answer)).await.unwrap();
        assert_eq!(&answer, b"bytes");
        assert!(io.put_back());
    }
    assert_eq!(server.streams(), 1);

    let mut partly = get(&manager).await.into_io();
    partly.write_all(b"bytes").await.unwrap();
    within("an answer", partly.read_exact(&mut [0; 3])).await.unwrap();
    assert!(!partly.put_back());

    let mut cancelled = get(&manager).await.into_io();
    cancelled.write_all(b"!").await.unwrap();
    let read = tokio::time::timeout(Duration::from_millis(5), cancelled.read_u8()).await;
    assert!(read.is_err());
    assert!(!cancelled.put_back());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_fell_back_is_not_kept() {
    let server = Server::start();
    let classes = [SizePercentPair { size: 4096, percent: 100 }];
    let config = Config::default().share_memory_buffer_cap(1 << 20).buffer_slice_sizes(classes);
    let manager = manager(&server, config).await;
    let mut stream = get(&manager).await;
    let large = vec![b'l'; 2 << 20];
    call(&mut stream, &large).await;
    assert!(manager.stats().total.stability.fallback_write_count > 0);
    assert!(!stream.put_back());
    let mut stream = get(&manager).await;
    call(&mut stream, b"small").await;
    assert!(stream.put_back());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_without_a_server_is_none_and_leaves_none_behind() {
    let mut server = Server::start();
    server.stop().await;
    let made =
        SessionManager::new(&*server.address, Config::default(), partywall::Config::default());
    assert!(matches!(within("it", made).await, Err(SessionManagerError::Connect(_))));
    let bad = Config::default().session_num(0);
    let made = SessionManager::new(&*server.address, bad, partywall::Config::default());
    assert!(matches!(within("it", made).await, Err(SessionManagerError::Config(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_one_session_is_broken_another_serves_and_it_comes_back_after_the_interval() {
    let server = Server::start();
    let config = Config::default().session_num(2).rebuild_interval(Duration::from_millis(300));
    let manager = manager(&server, config).await;
    until("two sessions", || server.sessions() == 2).await;
    server.sessions.lock().unwrap().remove(0).close(0, "");
    // The manager has lost one of its two sessions. On a busy machine it may have replaced that
    // session before this check.
    until("one session", || manager.live() == 1 || server.sessions() == 2).await;
    for _ in 0..64 {
        let mut stream = get(&manager).await;
        call(&mut stream, b"here").await;
        stream.put_back();
    }
    until("two sessions again", || manager.live() == 2 && server.sessions() == 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_no_session_is_left_asking_for_a_stream_connects_at_once() {
    let mut server = Server::start();
    // The default rebuild interval is a minute, so only a request for a stream can make the manager
    // replace the broken session in time.
    let manager = manager(&server, Config::default().session_num(2)).await;
    let mut lost = get(&manager).await;
    call(&mut lost, b"here").await;
    server.stop().await;
    until("no session", || manager.live() == 0).await;
    assert!(lost.send(b"gone").await.is_err());
    let failed = within("the failure", manager.get_stream()).await;
    assert!(matches!(failed, Err(GetStreamError::Connect(_))), "{failed:?}");
    let before = manager.stats().total;
    assert_eq!(before.performance.out_flow_bytes, 4, "what ended is counted still");

    server.restart();
    let mut asking = Vec::new();
    for _ in 0..20 {
        let manager = manager.clone();
        asking.push(tokio::spawn(async move {
            let mut stream = get(&manager).await;
            call(&mut stream, b"back").await;
        }));
    }
    for task in asking {
        within("asking", task).await.unwrap();
    }
    until("both sessions", || manager.live() == 2 && server.sessions() >= 2).await;
    assert_eq!(server.sessions(), 2, "no more than there are places");
    assert_eq!(manager.stats().total.performance.out_flow_bytes, 84);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_in_use_outlives_its_manager() {
    let server = Server::start();
    let manager = manager(&server, Config::default()).await;
    let mut stream = get(&manager).await;
    let kept = get(&manager).await;
    assert!(kept.put_back());
    drop(manager);
    call(&mut stream, b"still").await;
    stream.put_back();
    until("no session", || {
        server.sessions.lock().unwrap().iter().all(|session| session.close_reason().is_some())
    })
    .await;
}
