// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that a session still sends its pending records after its process has ended the session,
//! even if the process exits right after. If the peer never reads, the session waits for a bounded
//! time and then drops the remaining records.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use partywall::{Closed, Config, SessionError, StreamSendError, blocking};
use partywall_layout::record_ring::Kind as Record;
use partywall_sys::signal::stop;
use partywall_testkit::Directory;
use partywall_testkit::Kind;
use partywall_testkit::hostile::SessionFoe;
use partywall_testkit::{Second, TIMEOUT, is_pattern, pattern, soon, variable};
use std::process::exit;
use std::time::{Duration, Instant};

/// Transports whose buffers a test can fill quickly, as it cannot with TCP.
const SMALL: [Kind; 4] = [Kind::SharedMemory, Kind::Untrusted, Kind::Moving, Kind::Unix];

const KIND: &str = "PARTYWALL_LEAVING_KIND";
const ADDRESS: &str = "PARTYWALL_LEAVING_ADDRESS";

/// A configuration with a small ring and a large window: a sender runs out of room in the ring
/// before it runs out of credit.
fn config(kind: Kind) -> Config {
    kind.config().ring_bytes(4096).inline_max(512).stream_window(8 << 20)
}

/// The configuration of a second process that exits while records are pending. Its linger time, for
/// which a session waits to send them, is long, so that a slow peer makes it drop none.
fn long_idle(kind: Kind) -> Config {
    config(kind).linger(2 * TIMEOUT)
}

/// Connects a second process to the address in an environment variable. Returns `None` in the
/// process of the tests, where the variable is not set.
fn reach() -> Option<blocking::Session> {
    let kind = Kind::from_name(&variable(KIND)?);
    Some(blocking::connect_with(variable(ADDRESS)?, &long_idle(kind)).unwrap())
}

/// Starts a second process that runs the test `role` of this file. Returns the process, and this
/// side's end of its session.
fn meet(role: &str, kind: Kind, config: &Config) -> (Second, blocking::Session) {
    let mut listener = blocking::Listener::bind_with(kind.address(), config).unwrap();
    let address = listener.local_address().to_string();
    let second = Second::start(role, &[(KIND, kind.name()), (ADDRESS, &address)]);
    (second, listener.accept_deadline(soon()).unwrap())
}

/// Code of a second process: accepts streams and never reads them, until a test kills it.
#[test]
fn idler() {
    let Some(session) = reach() else { return };
    let mut kept = Vec::new();
    while let Ok(Some(stream)) = session.accept() {
        kept.push(stream);
    }
}

const MESSAGES: u64 = 50;

/// Returns the length of a message: mostly short, some longer than one record of a socket.
const fn len(number: u64) -> usize {
    if number % 10 == 0 { 60_000 } else { 300 }
}

/// Code of a second process: sends messages, drops session and stream, and exits immediately.
#[test]
fn blocking_and_gone() {
    let Some(session) = reach() else { return };
    let mut stream = session.open(b"").unwrap();
    for number in 0..MESSAGES {
        stream.send(&pattern(len(number), number)).unwrap();
    }
    drop(session);
    drop(stream);
    exit(0);
}

/// Code of a second process: sends messages on a tokio runtime, which shuts down before the process
/// exits.
#[test]
fn tokio_and_gone() {
    on_a_runtime(false);
}

/// Code of a second process: sends messages on a tokio runtime, closes the session, awaits
/// `finished`, and exits without shutting the runtime down.
#[test]
fn tokio_finished_and_gone() {
    on_a_runtime(true);
}

fn on_a_runtime(finishes: bool) {
    let Some(kind) = variable(KIND) else { return };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        // A tokio runtime that shuts down does not wait until the ring has room for pending
        // records. With a small ring, the records that end streams might be lost.
        let ring_bytes = if finishes { 4096 } else { 64 << 10 };
        let config = long_idle(Kind::from_name(&kind)).ring_bytes(ring_bytes);
        let address = variable(ADDRESS).unwrap();
        let session = partywall::tokio::connect_with(address, &config).await.unwrap();
        let mut stream = session.open(b"").await.unwrap();
        for number in 0..MESSAGES {
            stream.send(&pattern(len(number), number)).await.unwrap();
        }
        drop(stream);
        if finishes {
            session.close(0, "");
            session.finished().await;
            exit(0);
        }
    });
    drop(runtime);
    exit(0);
}

#[test]
fn a_process_that_exits_right_after_has_said_all() {
    if variable(KIND).is_some() {
        return;
    }
    for kind in Kind::ALL {
        for role in [
            "leaving::blocking_and_gone",
            "leaving::tokio_and_gone",
            "leaving::tokio_finished_and_gone",
        ] {
            let (mut second, session) = meet(role, kind, &config(kind));
            let mut stream = session.accept_deadline(soon()).unwrap().unwrap();
            for number in 0..MESSAGES {
                let message = stream.recv_deadline(soon());
                let message =
                    message.unwrap_or_else(|e| panic!("{role} {kind:?} {number}: {e}")).unwrap();
                assert!(is_pattern(&message, number), "{role} {kind:?}: message {number}");
            }
            let end = stream.recv_deadline(soon());
            assert!(matches!(end, Ok(None)), "{role} {kind:?}: {end:?}");
            let end = session.closed(Some(soon()));
            let is_in_order = matches!(end, Ok(SessionError::Closed(Closed::Finished)));
            assert!(is_in_order, "{role} {kind:?}: {end:?}");
            assert!(second.wait().success(), "{role} {kind:?}");
        }
    }
}

const LONG: usize = 2 << 20;

/// Code of a second process: sends one long message, drops session and stream, and exits
/// immediately.
#[test]
fn long_and_gone() {
    let Some(session) = reach() else { return };
    let mut stream = session.open(b"").unwrap();
    stream.send(&pattern(LONG, 2)).unwrap();
    drop((stream, session));
    exit(0);
}

/// Input: a process ends its session over TCP while its peer sends pings without pause. Expected:
/// it reads until the peer closes, so that all its messages arrive. Bytes that reach a closed TCP
/// socket make its kernel discard what it has not delivered.
#[test]
fn what_was_sent_arrives_although_its_receiver_talks_all_the_time() {
    if variable(KIND).is_some() {
        return;
    }
    let kind = Kind::Tcp;
    for round in 0..20 {
        let (_second, session) = meet("leaving::long_and_gone", kind, &config(kind));
        std::thread::scope(|scope| {
            scope.spawn(|| while session.ping(Some(soon())).is_ok() {});
            let mut stream = session.accept_deadline(soon()).unwrap().unwrap();
            let message = stream.recv_deadline(soon());
            let message = message.unwrap_or_else(|error| panic!("round {round}: {error}")).unwrap();
            assert!(is_pattern(&message, 2), "round {round}");
            let end = stream.recv_deadline(soon());
            assert!(matches!(end, Ok(None)), "round {round}: {end:?}");
        });
    }
}

/// Length in bytes of a message that a Unix socket does not accept with one write, and for which
/// the test's own peer gives enough credit.
const LAST_WORDS: usize = 900_000;
const PATH: &str = "PARTYWALL_LEAVING_PATH";

/// Code of a second process: sends more than the kernel accepts at once, drops session and stream,
/// and exits.
#[test]
fn last_words_and_gone() {
    let Some(path) = variable(PATH) else { return };
    let config = config(Kind::Unix).linger(2 * TIMEOUT);
    let mut listener = blocking::Listener::bind_with(format!("unix:{path}"), &config).unwrap();
    std::fs::write(format!("{path}.ready"), "").unwrap();
    let session = listener.accept_deadline(soon()).unwrap();
    let mut stream = session.open(b"").unwrap();
    stream.try_send(&pattern(LAST_WORDS, 1)).unwrap();
    drop((stream, session));
    exit(0);
}

/// Input: the test, as the peer of the second process, reads nothing until that process could have
/// exited. Expected: its last message still arrives whole.
#[test]
fn what_the_kernel_did_not_take_is_written_before_the_process_exits() {
    if variable(PATH).is_some() {
        return;
    }
    let place = Directory::new();
    let path = place.path("slow");
    let mut second =
        Second::start("leaving::last_words_and_gone", &[(PATH, path.to_str().unwrap())]);
    let deadline = soon();
    while !path.with_extension("ready").exists() {
        assert!(Instant::now() < deadline, "nobody listens");
        std::thread::yield_now();
    }
    let mut foe = SessionFoe::connect(&path, false);
    second.ends_within(Duration::from_millis(200));
    let mut words = Vec::new();
    let end = loop {
        let received = foe.receive().expect("broken off");
        match Record::from_number(received.kind as u8).unwrap() {
            Record::FragmentFirst => words.extend_from_slice(&received.body[8..]),
            Record::FragmentMid | Record::FragmentLast => words.extend_from_slice(&received.body),
            Record::CloseWrite if received.stream == 0 => break words.len(),
            _ => {}
        }
    };
    assert_eq!(end, LAST_WORDS);
    assert!(is_pattern(&words, 1));
    assert!(second.wait().success());
}

/// The linger time of this side: how long an ended session waits to send its pending records. It is
/// short, so that this side soon gives up a stopped process.
const LINGER: Duration = Duration::from_millis(50);

#[test]
fn a_session_with_one_who_never_reads_ends_all_the_same() {
    if variable(KIND).is_some() {
        return;
    }
    for kind in SMALL {
        let (second, session) = meet("leaving::idler", kind, &config(kind).linger(LINGER));
        let mut streams: Vec<_> = (0..4).map(|_| session.open(b"").unwrap()).collect();
        session.ping(Some(soon())).unwrap();
        stop(second.pid(), soon()).unwrap();
        for stream in &mut streams {
            let unsent =
                std::iter::repeat_with(|| stream.try_send(&[1; 500])).find_map(Result::err);
            assert!(matches!(unsent, Some(StreamSendError::Full)), "{kind:?}: {unsent:?}");
        }
        // Each dropped stream leaves its last record pending, because the ring or the socket has no
        // room for it.
        drop(streams);
        session.close(0, "");
        let finished = session.finished(Some(soon()));
        assert!(finished.is_ok(), "{kind:?}: {finished:?}");
        // Dropping the session must not wait until the pending records of the dropped streams are
        // sent.
        drop(session);
        drop(second);
    }
}

#[test]
fn the_same_on_a_runtime_that_has_no_timers() {
    if variable(KIND).is_some() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    for kind in SMALL {
        let config = config(kind).linger(LINGER);
        let (ended, received) = std::sync::mpsc::channel();
        let guard = runtime.enter();
        let listener = partywall::tokio::Listener::bind_with(kind.address(), &config).unwrap();
        drop(guard);
        let address = listener.local_address().to_string();
        let second = Second::start("leaving::idler", &[(KIND, kind.name()), (ADDRESS, &address)]);
        let pid = second.pid();
        // The runtime has no timers, so another thread ends the process if the test takes too long.
        let watch = std::thread::spawn(move || {
            let ended = received.recv_timeout(2 * TIMEOUT);
            drop(second);
            assert!(ended.is_ok(), "{kind:?}: the session is still there");
        });
        runtime.block_on(async {
            let session = listener.accept().await.unwrap();
            let mut streams = Vec::new();
            for _ in 0..4 {
                streams.push(session.open(b"").await.unwrap());
            }
            session.ping().await.unwrap();
            stop(pid, soon()).unwrap();
            for stream in &mut streams {
                let unsent =
                    std::iter::repeat_with(|| stream.try_send(&[1; 500])).find_map(Result::err);
                assert!(matches!(unsent, Some(StreamSendError::Full)), "{kind:?}: {unsent:?}");
            }
            drop(streams);
            session.close(0, "");
            session.finished().await;
        });
        ended.send(()).unwrap();
        watch.join().unwrap();
    }
}
