// SPDX-License-Identifier: MIT OR Apache-2.0
//! A session that has ended here says what it still has to say, as long as the other process reads; for one
//! that lives and never reads it waits a bounded time, and then nothing of it is left.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod support_session;

use partywall::{Config, StreamSendError, blocking};
use partywall_sys::signal::{Signal, kill};
use std::time::{Duration, Instant};
use support_session::two::{PATIENCE, Second, soon, variable};
use support_session::{Kind, run};

/// Transports whose buffers a test can fill in a moment.
const SMALL: [Kind; 3] = [Kind::Wall, Kind::Isolated, Kind::Unix];

const KIND: &str = "PARTYWALL_LEAVING_KIND";
const ADDRESS: &str = "PARTYWALL_LEAVING_ADDRESS";

/// Room ends before credit does.
fn config(kind: Kind) -> Config {
    kind.config().ring_bytes(4096).inline_max(512).stream_window(8 << 20)
}

/// Connects as a second process does.
fn reach() -> Option<blocking::Session> {
    let kind = Kind::from_name(&variable(KIND)?);
    Some(blocking::connect_with(variable(ADDRESS)?, &config(kind)).unwrap())
}

/// Keeps what it accepts and reads nothing of it, until it is killed.
#[test]
fn idler() {
    let Some(session) = reach() else { return };
    let mut kept = Vec::new();
    while let Ok(stream) = session.accept() {
        kept.push(stream);
    }
}

/// Stops a process, and returns once it has.
fn stop(pid: i32) {
    kill(pid, Signal::STOP).unwrap();
    let deadline = soon();
    while !std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") T ") {
        assert!(Instant::now() < deadline, "process {pid} does not stop");
        std::thread::yield_now();
    }
}

/// Our side lingers this long, so that a stopped process is given up soon.
const LINGER: Duration = Duration::from_millis(50);

#[test]
fn a_session_with_one_who_never_reads_ends_all_the_same() {
    if variable(KIND).is_some() {
        return;
    }
    for kind in SMALL {
        let config = config(kind).linger(LINGER);
        let mut listener = blocking::Listener::bind_with(kind.address(), &config).unwrap();
        let address = listener.local_address().to_string();
        let second = Second::start("idler", &[(KIND, kind.name()), (ADDRESS, &address)]);
        let session = listener.accept_deadline(soon()).unwrap();
        let mut streams: Vec<_> = (0..4).map(|_| session.open(b"").unwrap()).collect();
        session.ping(Some(soon())).unwrap();
        stop(second.pid());
        for stream in &mut streams {
            let unsent =
                std::iter::repeat_with(|| stream.try_send(&[1; 500])).find_map(Result::err);
            assert!(matches!(unsent, Some(StreamSendError::Full)), "{kind:?}: {unsent:?}");
        }
        // Each owes an end for which there is no room.
        drop(streams);
        session.close();
        let finished = session.finished(Some(soon()));
        assert!(finished.is_ok(), "{kind:?}: {finished:?}");
        // Nobody waits for what was given up.
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
        let (told, heard) = std::sync::mpsc::channel();
        let guard = runtime.enter();
        let mut listener = partywall::tokio::Listener::bind_with(kind.address(), &config).unwrap();
        drop(guard);
        let address = listener.local_address().to_string();
        let second = Second::start("idler", &[(KIND, kind.name()), (ADDRESS, &address)]);
        let pid = second.pid();
        // There is no timer to give up by: whoever waits for this does.
        let watch = std::thread::spawn(move || {
            let ended = heard.recv_timeout(2 * PATIENCE);
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
            stop(pid);
            for stream in &mut streams {
                let unsent =
                    std::iter::repeat_with(|| stream.try_send(&[1; 500])).find_map(Result::err);
                assert!(matches!(unsent, Some(StreamSendError::Full)), "{kind:?}: {unsent:?}");
            }
            drop(streams);
            session.close();
            session.finished().await;
        });
        told.send(()).unwrap();
        watch.join().unwrap();
    }
}
