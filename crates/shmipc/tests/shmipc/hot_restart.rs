// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of hot restart, in which an old server hands its clients over to a new server at the same
//! address: no call fails.

#![cfg(feature = "tokio")]

use crate::support_async;

use partywall::tokio::{Listener, Session, connect_with_protocol};
use partywall_shmipc::{Config, HandoverError, HandoverState, MemMapType, SessionManager, Shmipc};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support_async::{until, within};

/// A server of the hot restart tests: it answers each message with its own name, so that a test
/// sees which server was called.
struct Server {
    shmipc: Shmipc,
    sessions: Arc<Mutex<Vec<Session>>>,
    answers: Arc<AtomicUsize>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Server {
    fn start(address: &str, name: &'static str) -> Self {
        let (shmipc, listener) = Self::bind(address).unwrap();
        Self::serve(shmipc, listener, name)
    }

    fn bind(address: &str) -> Result<(Shmipc, Listener), partywall::BindError> {
        let config = Config::default().files_without_credentials(address.starts_with("tcp:"));
        let shmipc = Shmipc::new(config).unwrap();
        let listener = Listener::bind(address)?.with_protocol(Arc::new(shmipc.clone()));
        Ok((shmipc, listener))
    }

    fn serve(shmipc: Shmipc, listener: Listener, name: &'static str) -> Self {
        let sessions = Arc::new(Mutex::new(Vec::new()));
        let answers = Arc::new(AtomicUsize::new(0));
        let (all, count) = (Arc::clone(&sessions), Arc::clone(&answers));
        let accepting = tokio::spawn(async move {
            loop {
                let session = listener.accept().await.unwrap();
                all.lock().unwrap().push(session.clone());
                let count = Arc::clone(&count);
                tokio::spawn(async move {
                    while let Ok(Some(mut stream)) = session.accept().await {
                        let count = Arc::clone(&count);
                        tokio::spawn(async move {
                            while let Ok(Some(_)) = stream.recv().await {
                                count.fetch_add(1, Ordering::SeqCst);
                                if stream.send(name.as_bytes()).await.is_err() {
                                    break;
                                }
                            }
                        });
                    }
                });
            }
        });
        Self { shmipc, sessions, answers, accepting }
    }

    async fn stop_listening(&mut self) {
        self.accepting.abort();
        let _ = (&mut self.accepting).await;
    }

    fn sessions(&self) -> usize {
        self.sessions.lock().unwrap().len()
    }

    fn answers(&self) -> usize {
        self.answers.load(Ordering::SeqCst)
    }

    fn have_all_ended(&self) -> bool {
        self.sessions.lock().unwrap().iter().all(|session| session.close_reason().is_some())
    }

    fn open_sessions(&self) -> usize {
        let sessions = self.sessions.lock().unwrap();
        sessions.iter().filter(|session| session.close_reason().is_none()).count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

struct Place {
    address: String,
    path: std::path::PathBuf,
    _directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        Self { address: format!("unix:{}", path.display()), path, _directory: directory }
    }

    fn take_over(&self, name: &'static str) -> Server {
        std::fs::remove_file(&self.path).unwrap();
        Server::start(&self.address, name)
    }
}

async fn manager(place: &Place, sessions: usize) -> SessionManager {
    let config = Config::default().session_num(sessions);
    let made = SessionManager::new(&*place.address, config, partywall::Config::default());
    within("connecting", made).await.unwrap()
}

/// Starts tasks that make calls without pause until `stop` is set, each call on a stream of the
/// session manager. Each task returns its number of calls.
fn load(manager: &SessionManager, tasks: usize, stop: &Arc<AtomicBool>) -> Vec<Calling> {
    let calling = |_| {
        let (manager, stop) = (manager.clone(), Arc::clone(stop));
        tokio::spawn(async move {
            let mut calls = 0;
            while !stop.load(Ordering::SeqCst) {
                let mut stream = manager.get_stream().await.expect("a stream");
                stream.send(b"who?").await.expect("sent");
                stream.recv().await.expect("an answer").expect("an answer");
                stream.put_back();
                calls += 1;
            }
            calls
        })
    };
    (0..tasks).map(calling).collect()
}

type Calling = tokio::task::JoinHandle<usize>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_no_call_fails_restart_after_restart() {
    let place = Place::new();
    let server = Server::start(&place.address, "0");
    let manager = manager(&place, 4).await;
    let next = async |_: &mut Server| place.take_over("next");
    restart_under_load(server, &manager, next).await;
}

/// Input: a hot restart over TCP. A new server can listen on the port only after the old one has
/// stopped listening. Expected: the old server's sessions continue meanwhile, and no call fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_over_tcp_no_call_fails_restart_after_restart() {
    let (shmipc, listener) = Server::bind("tcp:127.0.0.1:0").unwrap();
    let address = listener.local_address().to_string();
    let server = Server::serve(shmipc, listener, "0");
    let config = Config::default().session_num(4).mem_map_type(MemMapType::DevShmFile);
    let made = SessionManager::new(&*address, config, partywall::Config::default());
    let manager = within("connecting", made).await.unwrap();
    let next = async |old: &mut Server| {
        old.stop_listening().await;
        let mut bound = None;
        until("the port", || {
            bound = Server::bind(&address).ok();
            bound.is_some()
        })
        .await;
        let (shmipc, listener) = bound.unwrap();
        Server::serve(shmipc, listener, "next")
    };
    restart_under_load(server, &manager, next).await;
}

/// Makes three hot restarts under load. Each time `successor` starts the server that takes over the
/// address.
async fn restart_under_load(
    mut server: Server,
    manager: &SessionManager,
    successor: impl AsyncFn(&mut Server) -> Server,
) {
    let stop = Arc::new(AtomicBool::new(false));
    let calling = load(manager, 8, &stop);
    let mut answers = 0;
    let mut old = Vec::new();
    for epoch in 1..=3 {
        until("answers of the old one", || server.answers() > 200).await;
        let next = successor(&mut server).await;
        server.shmipc.hot_restart(epoch).unwrap();
        let state = within("the handover", server.shmipc.hot_restarted(epoch)).await;
        assert_eq!(state, HandoverState::Done { epoch, moved: 4, left: 0 });
        assert!(server.shmipc.is_hot_restart_done());
        until("answers of the new one", || next.answers() > 200).await;
        until("all sessions", || next.sessions() == 4).await;
        old.push(std::mem::replace(&mut server, next));
    }
    stop.store(true, Ordering::SeqCst);
    let mut calls = 0;
    for task in calling {
        calls += within("calling", task).await.unwrap();
    }
    for server in &old {
        until("the old sessions end by themselves", || server.have_all_ended()).await;
        answers += server.answers();
    }
    assert_eq!(calls, answers + server.answers());
    assert_eq!(manager.stats().total.stability.hot_restart_success_count, 12);
    assert_eq!(manager.live(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_in_use_goes_on_over_the_old_session() {
    let place = Place::new();
    let old = Server::start(&place.address, "old");
    let manager = manager(&place, 1).await;
    let mut used = manager.get_stream().await.unwrap();
    used.send(b"who?").await.unwrap();
    assert_eq!(used.recv().await.unwrap().unwrap(), b"old");
    let kept = manager.get_stream().await.unwrap();
    assert!(kept.put_back());

    let new = place.take_over("new");
    old.shmipc.hot_restart(7).unwrap();
    let state = within("the handover", old.shmipc.hot_restarted(7)).await;
    assert_eq!(state, HandoverState::Done { epoch: 7, moved: 1, left: 0 });

    let mut fresh = manager.get_stream().await.unwrap();
    fresh.send(b"who?").await.unwrap();
    assert_eq!(fresh.recv().await.unwrap().unwrap(), b"new", "what was kept is of the old one");
    used.send(b"who?").await.unwrap();
    assert_eq!(used.recv().await.unwrap().unwrap(), b"old");
    let started = Instant::now();
    until("more than the old session is held for", || started.elapsed().as_millis() > 2200).await;
    used.send(b"who?").await.unwrap();
    assert_eq!(used.recv().await.unwrap().unwrap(), b"old");
    assert!(!used.put_back(), "its session was replaced");
    until("the old session ends", || old.have_all_ended()).await;
    until("one session", || new.open_sessions() == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_new_server_clients_stay_and_no_call_fails() {
    let place = Place::new();
    let old = Server::start(&place.address, "old");
    let manager = manager(&place, 2).await;
    std::fs::remove_file(&place.path).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let calling = load(&manager, 2, &stop);
    until("answers", || old.answers() > 100).await;
    old.shmipc.hot_restart(7).unwrap();
    assert_eq!(old.shmipc.hot_restart(8), Err(HandoverError::Pending { epoch: 7 }));
    assert!(!old.shmipc.is_hot_restart_done());
    let state = within("the handover", old.shmipc.hot_restarted(7)).await;
    assert_eq!(state, HandoverState::TimedOut { epoch: 7, moved: 0, left: 0, stayed: 2 });
    assert!(!old.shmipc.is_hot_restart_done());
    let failed = || manager.stats().total.stability.hot_restart_error_count == 2;
    until("the client gives up as well", failed).await;
    let answered = old.answers();
    until("answers", || old.answers() > answered + 100).await;
    let failures: u64 =
        old.shmipc.metrics().iter().map(|one| one.stability.hot_restart_error_count).sum();
    assert_eq!(failures, 2);

    // The first hot restart timed out, because no new server listened. The next one succeeds,
    // because a new server listens by then.
    let new = Server::start(&place.address, "new");
    old.shmipc.hot_restart(8).unwrap();
    let state = within("the handover", old.shmipc.hot_restarted(8)).await;
    assert_eq!(state, HandoverState::Done { epoch: 8, moved: 2, left: 0 });
    until("answers", || new.answers() > 100).await;
    stop.store(true, Ordering::SeqCst);
    for task in calling {
        within("calling", task).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_keeps_the_address_is_not_followed_for_ever() {
    let place = Place::new();
    let old = Server::start(&place.address, "old");
    let manager = manager(&place, 1).await;
    old.shmipc.hot_restart(7).unwrap();
    let _ = within("the handover", old.shmipc.hot_restarted(7)).await;
    let started = Instant::now();
    let mut calls = 0;
    while started.elapsed() < Duration::from_millis(2500) {
        let mut stream = within("a stream", manager.get_stream()).await.unwrap();
        stream.send(b"who?").await.unwrap();
        within("an answer", stream.recv()).await.unwrap().unwrap();
        stream.put_back();
        calls += 1;
    }
    assert!(calls > 0);
    // The hot restart is over by now, so the session manager opens no more sessions to the old
    // server.
    let sessions = old.sessions();
    assert!(sessions < 60, "{sessions} sessions");
    let started = Instant::now();
    until("a while", || started.elapsed().as_millis() > 500).await;
    assert_eq!(old.sessions(), sessions);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_restart_after_another_does_not_make_a_client_run() {
    let place = Place::new();
    let old = Server::start(&place.address, "old");
    let manager = manager(&place, 1).await;
    let started = Instant::now();
    let mut epoch = 0;
    while started.elapsed() < Duration::from_secs(1) {
        epoch += u64::from(old.shmipc.hot_restart(epoch + 1).is_ok());
        let mut stream = within("a stream", manager.get_stream()).await.unwrap();
        stream.send(b"who?").await.unwrap();
        within("an answer", stream.recv()).await.unwrap().unwrap();
        stream.put_back();
    }
    // The client connects at most once in 100 ms. On a busy machine the last iteration of the loop
    // may take long, so the test allows one session for each 100 ms that have passed.
    let sessions = old.sessions();
    let elapsed = started.elapsed();
    assert!(
        sessions as u128 <= 3 + elapsed.as_millis() / 100,
        "{sessions} sessions in {elapsed:?}"
    );
}

/// Connects a client without a session manager, and returns its session.
async fn connected(place: &Place) -> Session {
    let config = partywall::Config::default();
    let protocol = Arc::new(Shmipc::default());
    connect_with_protocol(&*place.address, &config, protocol).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_without_a_manager_stays() {
    let place = Place::new();
    let old = Server::start(&place.address, "old");
    let session = connected(&place).await;
    let mut stream = session.open(&[]).await.unwrap();
    stream.send(b"who?").await.unwrap();
    assert_eq!(within("an answer", stream.recv()).await.unwrap().unwrap(), b"old");
    old.shmipc.hot_restart(7).unwrap();
    let state = within("the handover", old.shmipc.hot_restarted(7)).await;
    assert_eq!(state, HandoverState::TimedOut { epoch: 7, moved: 0, left: 0, stayed: 1 });
    stream.send(b"who?").await.unwrap();
    assert_eq!(within("an answer", stream.recv()).await.unwrap().unwrap(), b"old");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_hangs_up_is_not_waited_for() {
    let place = Place::new();
    let old = Server::start(&place.address, "old");
    assert_eq!(old.shmipc.hot_restart_state(), HandoverState::Never);
    assert_eq!(old.shmipc.hot_restart(0), Err(HandoverError::Zero));
    let session = connected(&place).await;
    until("the session", || old.sessions() == 1).await;
    old.shmipc.hot_restart(7).unwrap();
    assert!(matches!(old.shmipc.hot_restart_state(), HandoverState::Pending { epoch: 7, .. }));
    session.close(0, "");
    let state = within("the handover", old.shmipc.hot_restarted(7)).await;
    assert_eq!(state, HandoverState::Done { epoch: 7, moved: 0, left: 1 });
}
