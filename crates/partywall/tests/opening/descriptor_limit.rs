// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests connections that are opened near the descriptor limit: with any number of free descriptors
//! both sides agree on a transport, or the connection fails. No descriptor stays open, and the
//! listener serves the next peer.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use partywall::event::Loop;
use partywall::{AcceptError, Begin, Channel, Config, FallbackReason, Listener};
use partywall::{RecvError, Transport};
use partywall_sys::poll::{self, PollFd, PollFlags};
use partywall_sys::process::{Process, open_descriptors};
use partywall_testkit::{
    Directory, Second, millis, number_of, pair, payload, role, second_process, soon, until, within,
};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

/// Numbers of free descriptors with which both sides of a connection, in one process, are opened.
/// With more, the connection uses shared memory.
const FREE: std::ops::Range<usize> = 0..40;

#[test]
fn openings_near_the_descriptor_limit_agree_or_fail() {
    let mut second =
        Second::spawn(&mut second_process("descriptor_limit::limited", "limited", &[]));
    assert!(second.wait().success());
}

#[test]
fn moves_near_the_descriptor_limit_lose_no_message() {
    let mut second = Second::spawn(&mut second_process("descriptor_limit::moving", "moving", &[]));
    assert!(second.wait().success());
}

/// Code of the second process, which opens both sides of each channel on the socket. It lowers its
/// own descriptor limit before the channel moves to shared memory.
#[test]
fn moving() {
    if role().is_none() {
        return;
    }
    let place = Directory::new();
    let config = Config::default().begin(Begin::Socket);
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let mut outcomes = BTreeSet::new();
    // The first channel, with enough free descriptors, makes the process open the descriptors that
    // it keeps.
    for free in [FREE.end].into_iter().chain(FREE) {
        let before = open_descriptors(Process::Own).unwrap().len();
        let (mut client, mut server) = pair(&place.address("moving"), &config, &config);
        let numbers = open_descriptors(Process::Own).unwrap();
        let numbers: BTreeSet<i32> = numbers.iter().map(|(number, _)| *number).collect();
        let first_denied = (0..).filter(|number| !numbers.contains(number)).nth(free).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, u64::try_from(first_denied).unwrap(), hard).unwrap();
        for number in 0..64_u64 {
            client.send(&payload(number, 30)).unwrap();
            assert_eq!(number_of(&server.recv_deadline(soon()).unwrap().unwrap()), number);
            server.send(&payload(number, 3000)).unwrap();
            assert_eq!(number_of(&client.recv_deadline(soon()).unwrap().unwrap()), number);
        }
        let both = [client.transport(), server.transport()];
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
        assert_eq!(both[0] == Transport::SharedMemory, both[1] == Transport::SharedMemory);
        drop((client, server));
        let after = open_descriptors(Process::Own).unwrap().len();
        assert!(free == FREE.end && outcomes.is_empty() || after == before, "{free}: {both:?}");
        outcomes.insert(both.map(|transport| transport.to_string()).join(", "));
    }
    let lack = Transport::Socket(FallbackReason::Descriptors).to_string();
    assert!(outcomes.iter().any(|both| both.contains(&lack)), "{outcomes:?}");
    assert!(outcomes.iter().any(|both| both.contains("shm")), "{outcomes:?}");
}

/// Code of the second process, which lowers its own descriptor limit and opens both sides of each
/// connection.
#[test]
fn limited() {
    if role().is_none() {
        return;
    }
    let place = Directory::new();
    let config = Config::default().begin(Begin::SharedMemory).handshake_timeout(millis(300));
    let mut listener = Listener::bind_with(place.address("limited"), &config).unwrap();
    // The first connection makes the process open the descriptors that it keeps. In `try_accept`, a
    // listener without work makes a region in advance, which the later count of descriptors
    // includes.
    assert!(matches!(open(&mut listener, &place, &config), Some(Transport::SharedMemory)));
    assert!(listener.try_accept().is_err());
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let before = open_descriptors(Process::Own).unwrap();
    let numbers: BTreeSet<i32> = before.iter().map(|(number, _)| *number).collect();
    let mut outcomes = BTreeSet::new();
    for free in FREE {
        // A new descriptor gets the lowest free number below the limit. So with this limit, exactly
        // `free` descriptors can be opened.
        let first_denied = (0..).filter(|number| !numbers.contains(number)).nth(free).unwrap();
        let limit = u64::try_from(first_denied).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, limit, hard).unwrap();
        let transport = open(&mut listener, &place, &config);
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
        // At the limit the listener may have left a connection in the socket's queue, which it
        // refuses now.
        let what = format!("{free} free, {transport:?}: all descriptors are closed");
        let mut count = || {
            while listener.try_accept().is_ok() {}
            open_descriptors(Process::Own).unwrap().len()
        };
        until(&what, || count() <= before.len());
        if count() < before.len() {
            // At the limit the listener freed the region that it had made in advance. It makes
            // another one once a handshake needs it.
            let again = open(&mut listener, &place, &config);
            assert!(matches!(again, Some(Transport::SharedMemory)), "{again:?}");
        }
        until(&what, || {
            while listener.try_accept().is_ok() {}
            open_descriptors(Process::Own).unwrap().len() == before.len()
        });
        outcomes.insert(transport.map(|transport| transport.to_string()));
    }
    assert!(outcomes.contains(&None), "{outcomes:?}");
    let lack = Transport::Socket(FallbackReason::Descriptors).to_string();
    assert!(outcomes.contains(&Some(lack)), "{outcomes:?}");
    assert!(outcomes.contains(&Some(Transport::SharedMemory.to_string())), "{outcomes:?}");
    assert!(matches!(open(&mut listener, &place, &config), Some(Transport::SharedMemory)));
}

#[test]
fn listener_without_descriptors_is_not_ready_again_at_once() {
    let mut second = Second::spawn(&mut second_process("descriptor_limit::short", "short", &[]));
    assert!(second.wait().success());
}

/// Code of the second process. Input: eight connections wait while no descriptor is free. Expected:
/// the listener reports the shortage, and its descriptor is not readable before it tries again.
#[test]
fn short() {
    if role().is_none() {
        return;
    }
    let place = Directory::new();
    let config = Config::default();
    let mut listener = Listener::bind_with(place.address("limited"), &config).unwrap();
    // This peer has sent nothing for 300 ms, so the listener may close its connection in favour of
    // another one.
    let silent = UnixStream::connect(place.path("limited")).unwrap();
    let accepted = listener.accept_deadline(Instant::now() + Duration::from_millis(300));
    assert!(matches!(accepted, Err(AcceptError::TimedOut)), "{accepted:?}");
    let waiting: Vec<_> =
        (0..8).map(|_| UnixStream::connect(place.path("limited")).unwrap()).collect();
    let exhausted = Exhausted::new();
    let error = (0..8).map(|_| listener.try_accept().unwrap_err());
    let short = error.into_iter().find(|error| !matches!(error, AcceptError::TimedOut));
    let mut polled = [PollFd::new(&listener, PollFlags::IN)];
    let ready = poll::wait(&mut polled, Some(Instant::now())).unwrap();
    drop(exhausted);
    assert!(short.unwrap().to_string().contains("RLIMIT_NOFILE"));
    assert_eq!(ready, 0, "the listening socket is polled, although nothing can be accepted");
    drop((silent, waiting));
    assert!(open(&mut listener, &place, &config).is_some());
}

#[test]
fn loop_that_reports_once_reports_a_listener_again_after_a_shortage() {
    let mut second = Second::spawn(&mut second_process("descriptor_limit::once", "once", &[]));
    assert!(second.wait().success());
}

/// Code of the second process. Input: a listener in an event loop that reports each event only once
/// finds no free descriptor for a waiting connection. Expected: once a descriptor is free, the loop
/// reports the listener again.
#[test]
fn once() {
    if role().is_none() {
        return;
    }
    let place = Directory::new();
    let events = Loop::reporting_once().unwrap();
    let listener = Listener::bind(place.address("limited")).unwrap();
    let mut listener = events.add_listener(listener, 3).unwrap();
    let waiting: Vec<_> =
        (0..8).map(|_| UnixStream::connect(place.path("limited")).unwrap()).collect();
    let exhausted = Exhausted::new();
    let mut ready = Vec::new();
    // As an application does, the test waits in the loop after every `TimedOut`, until `try_accept`
    // reports the shortage of descriptors.
    let error = loop {
        assert!(events.wait(&mut ready, Some(soon())).unwrap() > 0, "the listener is not reported");
        match listener.try_accept() {
            Err(AcceptError::TimedOut) => {}
            Err(error) => break error,
            Ok(_) => panic!("the peers have sent nothing"),
        }
    };
    assert!(error.to_string().contains("RLIMIT_NOFILE"), "{error}");
    drop((exhausted, waiting));
    let address = place.address("limited");
    let client = thread::spawn(move || partywall::connect(&address).unwrap());
    loop {
        assert!(events.wait(&mut ready, Some(soon())).unwrap() > 0, "the listener is not reported");
        match listener.try_accept() {
            Ok(_) => break,
            Err(AcceptError::TimedOut) => {}
            Err(error) => panic!("{error}"),
        }
    }
    drop(client.join().unwrap());
}

#[test]
fn listener_gives_the_region_made_in_advance_up_for_a_connection() {
    let mut second = Second::spawn(&mut second_process("descriptor_limit::full", "full", &[]));
    assert!(second.wait().success());
}

/// Code of the second process. Input: a connection waits while no descriptor is free, and the
/// listener has made a region in advance.
#[test]
fn full() {
    if role().is_none() {
        return;
    }
    let place = Directory::new();
    let config = Config::default().begin(Begin::SharedMemory);
    let mut listener = Listener::bind_with(place.address("limited"), &config).unwrap();
    assert!(matches!(open(&mut listener, &place, &config), Some(Transport::SharedMemory)));
    assert!(matches!(listener.try_accept(), Err(AcceptError::TimedOut)));
    let waiting = UnixStream::connect(place.path("limited")).unwrap();
    let exhausted = Exhausted::new();
    let accepted = listener.try_accept();
    let at_limit = exhausted.limit;
    exhausted.restore_limit();
    let numbers = open_descriptors(Process::Own).unwrap();
    drop(exhausted);
    // The peer has sent nothing yet, so `try_accept` returns no channel, and no error either.
    assert!(matches!(accepted, Err(AcceptError::TimedOut)), "{accepted:?}");
    // To accept the connection, the listener has closed the region that it had made in advance, and
    // its two doorbells. One descriptor, the connection's, is open in their place.
    assert_eq!(numbers.len(), at_limit - 3 + 1);
    drop(waiting);
    assert!(matches!(open(&mut listener, &place, &config), Some(Transport::SharedMemory)));
}

/// Keeps this process without a free descriptor until the value is dropped.
struct Exhausted {
    /// The lowered descriptor limit of the process: as many descriptors are open as it allows.
    limit: usize,
    limits_before: (u64, u64),
    /// Files that the test keeps open so that no descriptor below the limit is free.
    files: Vec<File>,
}

impl Exhausted {
    fn new() -> Self {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let limit =
            u64::try_from(open_descriptors(Process::Own).unwrap().last().unwrap().0).unwrap() + 1;
        setrlimit(Resource::RLIMIT_NOFILE, limit, hard).unwrap();
        let files = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        let limit = usize::try_from(limit).unwrap();
        Self { limit, limits_before: (soft, hard), files }
    }

    /// Raises the descriptor limit again, because listing the open descriptors takes a descriptor.
    fn restore_limit(&self) {
        let (soft, hard) = self.limits_before;
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
    }
}

impl Drop for Exhausted {
    fn drop(&mut self) {
        self.restore_limit();
        self.files.clear();
    }
}

/// Opens a connection and sends a message over it. Returns `None` if one of the sides fails.
fn open(listener: &mut Listener, place: &Directory, config: &Config) -> Option<Transport> {
    let (mut connected, mut accepted) = thread::scope(|scope| {
        let connecting =
            scope.spawn(|| partywall::connect_with(place.address("limited"), config).ok());
        while !connecting.is_finished() {
            if let Some(accepted) = accept(listener) {
                return connecting.join().unwrap().zip(Some(accepted));
            }
        }
        // The connector's handshake ends first. A side that lacks a descriptor after READY closes
        // the connection, although its peer has completed the handshake.
        let mut connected = connecting.join().unwrap()?;
        loop {
            if let Some(accepted) = accept(listener) {
                return Some((connected, accepted));
            }
            let received = connected.recv_deadline(within(millis(20)));
            if !matches!(received, Err(RecvError::TimedOut)) {
                return None;
            }
        }
    })?;
    assert_eq!(connected.transport(), accepted.transport());
    connected.send(b"through").unwrap();
    assert_eq!(accepted.recv().unwrap().unwrap(), b"through");
    Some(connected.transport())
}

/// Accepts a connection; `None` if none arrives within 20 ms, or if no descriptor is free.
fn accept(listener: &mut Listener) -> Option<Channel> {
    match listener.accept_deadline(within(millis(20))) {
        Ok(channel) => Some(channel),
        Err(AcceptError::TimedOut | AcceptError::System(_)) => None,
        Err(error) => panic!("{error}"),
    }
}
