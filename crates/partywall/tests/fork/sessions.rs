// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that a forked child can neither use nor harm the sessions that it inherited, and does not
//! hide the death of its parent from the peer. No call in the child waits, because the driver,
//! which would complete a wait, does not run there.
//!
//! A child inherits every lock in its state at the fork, even if another thread held the lock. So
//! the thread that forks also drives the inherited sessions, and it does not drive these sessions
//! while it forks.
#![cfg(feature = "tokio")]

use partywall::blocking;
use partywall::tokio::{RecvStream, SendStream, Session, Stream};
use partywall::{Closed, Fault, OpenError, SessionError, StreamRecvError, StreamSendError};
use partywall_testkit::fork::{_exit, fork, in_a_fork};
use partywall_testkit::{Kind, session_pair};
use partywall_testkit::{Second, TIMEOUT, pattern, soon, variable};
use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

struct Ends {
    runtime: Runtime,
    sessions: (Session, Session),
    streams: (Halves, Halves),
}

/// The sending and the receiving half of one end of a stream.
type Halves = (SendStream, RecvStream);

impl Ends {
    fn new(kind: Kind) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (sessions, streams) = runtime.block_on(async {
            let (client, server) = session_pair(kind, |config| config).await;
            let ours = client.open(b"").await.unwrap();
            let theirs = server.accept().await.unwrap().unwrap();
            ((client, server), (ours.into_split(), theirs.into_split()))
        });
        Self { runtime, sessions, streams }
    }

    /// Runs the drivers of both sessions until `future` is ready; fails after `TIMEOUT`.
    fn wait<T>(runtime: &Runtime, future: impl Future<Output = T>) -> T {
        runtime.block_on(async { tokio::time::timeout(TIMEOUT, future).await }).expect("hung")
    }

    fn go_on(&mut self) {
        let Self { runtime, sessions: (client, server), streams: (ours, theirs) } = self;
        Self::wait(runtime, async {
            assert_eq!(theirs.1.recv().await.unwrap().unwrap(), b"unread");
            for seed in 0..5 {
                ours.0.send(&pattern(70_000, seed)).await.unwrap();
                assert_eq!(theirs.1.recv().await.unwrap().unwrap(), pattern(70_000, seed));
                theirs.0.send(b"answer").await.unwrap();
                assert_eq!(ours.1.recv().await.unwrap().unwrap(), b"answer");
            }
            let mut more = server.open(b"more").await.unwrap();
            assert_eq!(client.accept().await.unwrap().unwrap().metadata(), b"more");
            assert!(matches!(more.recv().await, Ok(None)));
            client.ping().await.unwrap();
            server.ping().await.unwrap();
        });
    }

    /// Sends a message on the stream, which the peer receives but does not read.
    fn leave_unread(&mut self) {
        let Self { runtime, sessions: (client, _), streams: (ours, _) } = self;
        Self::wait(runtime, async {
            ours.0.send(b"unread").await.unwrap();
            client.ping().await.unwrap();
        });
    }
}

/// Polls a future once; `None` if it is not ready. In a forked child no driver runs that would wake
/// a waiting future.
fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// A function that makes one call of a session or stream, and returns the session's error that the
/// call reported.
type Use = fn(&Session, &mut Halves) -> Option<SessionError>;

/// All calls of a session and a stream that can fail in a forked child. Each runs in a child of its
/// own, because the first failure ends the session in the child.
const USES: &[(&str, Use)] = &[
    ("open", |session, _| now(session.open(b"")).and_then(opened)),
    ("accept", |session, _| now(session.accept())?.err()),
    ("ping", |session, _| now(session.ping())?.err()),
    ("drained", |session, _| now(session.drained())?.err()),
    ("going_away", |session, _| now(session.going_away())?.err()),
    ("closed", |session, _| now(session.closed())),
    ("close_reason", |session, _| session.close_reason()),
    ("send", |_, stream| now(stream.0.send(b"x")).and_then(sent)),
    ("send of a large one", |_, stream| now(stream.0.send(&[1; 70_000])).and_then(sent)),
    ("try_send", |_, stream| sent(stream.0.try_send(b"x"))),
    ("reserve", |_, stream| sent(now(stream.0.reserve(10))?.map(drop))),
    ("reserve of a large one", |_, stream| sent(now(stream.0.reserve(70_000))?.map(drop))),
    ("stopped", |_, stream| sent(Err(now(stream.0.stopped())?))),
    ("try_recv", |_, stream| received(stream.1.try_recv().map(drop))),
    ("recv", |_, stream| received(now(stream.1.recv())?.map(drop))),
];

fn opened(result: Result<Stream, OpenError>) -> Option<SessionError> {
    match result {
        Err(OpenError::Session(error)) => Some(error),
        _ => None,
    }
}

fn sent(result: Result<(), StreamSendError>) -> Option<SessionError> {
    match result {
        Err(StreamSendError::Session(error)) => Some(error),
        _ => None,
    }
}

fn received(result: Result<(), StreamRecvError>) -> Option<SessionError> {
    match result {
        Err(StreamRecvError::Session(error)) => Some(error),
        _ => None,
    }
}

fn is_forked(error: &SessionError) -> bool {
    matches!(error, SessionError::Fault(fault) if matches!(**fault, Fault::Forked))
}

#[test]
fn no_verb_of_a_session_works_in_a_child_and_none_waits() {
    for kind in Kind::ALL {
        let mut ends = Ends::new(kind);
        // From here on, one end of the stream has a message to receive, and the other has none.
        ends.leave_unread();
        for (name, act) in USES {
            let Ends { sessions: (client, server), streams: (ours, theirs), .. } = &mut ends;
            for (session, stream) in [(client, ours), (server, theirs)] {
                let is_refused = || act(session, stream).is_some_and(|error| is_forked(&error));
                assert!(in_a_fork(is_refused), "{name} over {}", kind.name());
            }
        }
        // In a forked child, `finished` returns at once and without an error, because no driver
        // runs there.
        let client = &ends.sessions.0;
        assert!(in_a_fork(|| now(client.finished()).is_some()), "finished over {}", kind.name());
        ends.go_on();
    }
}

#[test]
fn what_a_child_drops_closes_and_asks_harms_nobody() {
    for kind in Kind::ALL {
        let mut ends = Ends::new(kind);
        let Ends { runtime, streams: (ours, theirs), .. } = &mut ends;
        let held = Ends::wait(runtime, async {
            ours.0.send(&pattern(50_000, 1)).await.unwrap();
            theirs.1.recv().await.unwrap().unwrap()
        });
        ends.leave_unread();
        let Ends { runtime, sessions, streams } = ends;
        let mut all = Some((sessions, streams, held));
        assert!(
            in_a_fork(|| {
                let (sessions, mut streams, held) = all.take().unwrap();
                let (client, server) = &sessions;
                client.go_away(7);
                client.trim();
                server.close(0, "");
                let _counted = (client.stats(), server.stats(), client.streams());
                streams.0.0.reset(7);
                streams.1.0.finish();
                streams.1.1.stop(7);
                // In the child, a received message that lies in the peer's memory can still be
                // read, and every inherited value can be dropped.
                let is_readable = *held == pattern(50_000, 1)[..];
                drop((sessions, streams, held));
                is_readable
            }),
            "{}",
            kind.name()
        );
        let (sessions, streams, held) = all.take().unwrap();
        assert_eq!(held, pattern(50_000, 1));
        drop(held);
        Ends { runtime, sessions, streams }.go_on();
    }
}

/// Input: the kernel has not accepted all bytes of a long message from the parent's socket.
/// Expected: the parent writes the remaining bytes, and its forked child does not.
#[test]
fn a_child_writes_nothing_of_what_its_parent_has_left_to_write() {
    for kind in [Kind::Unix, Kind::Tcp] {
        let config = kind.config().stream_window(16 << 20);
        let mut listener = blocking::Listener::bind_with(kind.address(), &config).unwrap();
        let address = listener.local_address().to_string();
        // The peer reads without pause, so the kernel would accept bytes from the child.
        let other = std::thread::spawn(move || {
            let session = listener.accept_deadline(soon()).unwrap();
            let mut stream = session.accept_deadline(soon()).unwrap().unwrap();
            let long =
                stream.recv_deadline(soon()).map(|message| message.unwrap() == pattern(8 << 20, 3));
            let short = stream.recv_deadline(soon()).map(|message| message.unwrap() == *b"and on");
            (long, short)
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (session, mut stream) = runtime.block_on(async {
            let session = partywall::tokio::connect_with(&*address, &config).await.unwrap();
            let stream = session.open(b"").await.unwrap();
            (session, stream)
        });
        stream.try_send(&pattern(8 << 20, 3)).unwrap();
        // The peer needs time to read all bytes that the kernel has accepted so far.
        std::thread::sleep(Duration::from_millis(50));
        let mut all = Some((session, stream));
        assert!(in_a_fork(|| {
            let (session, mut stream) = all.take().unwrap();
            stream.finish();
            session.go_away(1);
            drop((stream, session));
            true
        }));
        let (session, mut stream) = all.take().unwrap();
        Ends::wait(&runtime, async {
            stream.send(b"and on").await.unwrap();
            stream.finish();
            session.drained().await.unwrap();
        });
        let (long, short) = other.join().unwrap();
        assert!(long.unwrap() && short.unwrap(), "{}", kind.name());
    }
}

const ADDRESS: &str = "PARTYWALL_SESSION_FORK_ADDRESS";
const KIND: &str = "PARTYWALL_SESSION_FORK_KIND";
const FILE: &str = "PARTYWALL_SESSION_FORK_FILE";

/// Code of a second process, which a test kills: connects and forks a child, which keeps every
/// descriptor open while `FILE` exists.
#[test]
fn parent_of_a_survivor() {
    let Some(address) = variable(ADDRESS) else { return };
    let config = Kind::from_name(&variable(KIND).unwrap()).config();
    let file = variable(FILE).unwrap();
    let session = blocking::connect_with(&*address, &config).unwrap();
    let mut stream = session.open(b"").unwrap();
    let child = fork();
    if child == 0 {
        let deadline = Instant::now() + 2 * TIMEOUT;
        while Path::new(&file).exists() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        _exit(0);
    }
    stream.send(&child.to_le_bytes()).unwrap();
    std::thread::sleep(TIMEOUT);
}

fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // In `/proc/PID/stat` the state of the process follows the program's name, which is in
    // brackets.
    stat.rsplit_once(')').is_some_and(|(_, state)| !state.trim_start().starts_with(['Z', 'X']))
}

#[test]
fn a_surviving_child_does_not_hide_the_death_of_its_parent_from_a_session() {
    if variable(ADDRESS).is_some() {
        return;
    }
    let kinds = [Kind::SharedMemory, Kind::Untrusted, Kind::Unix];
    for (kind, is_sending) in kinds.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut listener = blocking::Listener::bind_with(kind.address(), &kind.config()).unwrap();
        let address = listener.local_address().to_string();
        let path = file.path().to_str().unwrap();
        let variables = [(ADDRESS, &address[..]), (KIND, kind.name()), (FILE, path)];
        let second = Second::start("sessions::parent_of_a_survivor", &variables);
        let session = listener.accept_deadline(soon()).unwrap();
        let mut stream = session.accept_deadline(soon()).unwrap().unwrap();
        let child = stream.recv_deadline(soon()).unwrap().unwrap();
        let child = i32::from_le_bytes(child[..].try_into().unwrap());
        drop(second);
        let end = if is_sending {
            let deadline = soon();
            let send = || sent(stream.sender().send_deadline(&[7; 700], deadline));
            std::iter::repeat_with(send).flatten().next()
        } else {
            received(stream.recv_deadline(soon()).map(drop))
        };
        let is_end = matches!(end, Some(SessionError::Closed(Closed::Disconnected)));
        assert!(is_end, "{}: {end:?}", kind.name());
        assert!(is_alive(child), "{}: nothing was hidden", kind.name());
        let end = session.closed(Some(soon())).unwrap();
        assert!(matches!(end, SessionError::Closed(Closed::Disconnected)), "{end}");
    }
}
