// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that no attempt to connect outlasts its deadline, even if the listener's backlog is full.
//! When the backlog gets room, the attempt succeeds.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use crate::support;

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use partywall_sys::poll::{PollFd, PollFlags, wait};
use partywall_sys::{Begun, ConnectError, Listener, Socket, begin_tcp, begin_unix_path};
use partywall_sys::{connect_tcp, connect_unix_path};
use support::{Directory, deadline};

/// Connects until the listener's backlog is full, and returns the connections.
fn fill(connect: impl Fn() -> Result<Socket, ConnectError>) -> Vec<Socket> {
    let mut waiting = Vec::new();
    while waiting.len() < 16 {
        match connect() {
            Ok(socket) => waiting.push(socket),
            Err(ConnectError::TimedOut { .. }) => return waiting,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the backlog never fills");
}

#[test]
fn connect_to_full_unix_backlog_times_out_until_room() {
    let directory = Directory::new();
    let path = directory.join("socket");
    let listener = Listener::listen_unix_path(&path, 0o600, 0).unwrap();
    let waiting = fill(|| connect_unix_path(&path, Some(Instant::now())));
    assert!(!waiting.is_empty());

    let started = Instant::now();
    let pause = Duration::from_millis(50);
    let error = connect_unix_path(&path, Some(started + pause)).unwrap_err();
    assert!(matches!(error, ConnectError::TimedOut { .. }), "{error}");
    assert!(started.elapsed() >= pause);

    thread::scope(|scope| {
        let late = scope.spawn(|| connect_unix_path(&path, deadline()));
        let mut accepted = 0;
        while accepted < waiting.len() + 1 {
            let mut fds = [PollFd::new(&listener, PollFlags::IN)];
            assert_eq!(wait(&mut fds, deadline()).unwrap(), 1, "nobody came");
            accepted += usize::from(listener.accept().unwrap().is_some());
        }
        late.join().unwrap().unwrap();
    });
}

#[test]
fn connect_to_full_tcp_backlog_times_out() {
    let listener = Listener::listen_tcp("127.0.0.1:0".parse().unwrap(), 0).unwrap();
    let address = listener.local_addr().unwrap().unwrap();
    fill(|| connect_tcp(address, Some(Instant::now() + Duration::from_millis(100))));
}

#[test]
fn refused_and_missing_addresses_fail_at_once_with_own_errors() {
    let directory = Directory::new();
    let path = directory.join("socket");
    let error = connect_unix_path(&path, None).unwrap_err();
    assert!(matches!(error, ConnectError::NotFound { .. }), "{error}");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let error = connect_unix_path(&path, None).unwrap_err();
    assert!(matches!(error, ConnectError::Refused { .. }), "{error}");

    let error = connect_unix_path(directory.join("."), None).unwrap_err();
    assert!(matches!(error, ConnectError::NotASocket { kind: "a directory", .. }), "{error}");
    let file = directory.join("file");
    std::fs::write(&file, "").unwrap();
    let error = connect_unix_path(&file, None).unwrap_err();
    assert!(matches!(error, ConnectError::NotASocket { kind: "a regular file", .. }), "{error}");

    let listener = Listener::listen_tcp("[::1]:0".parse().unwrap(), 4);
    let address: SocketAddr = match &listener {
        Ok(listener) => listener.local_addr().unwrap().unwrap(),
        Err(error) => return println!("skipped the rest: no IPv6 here ({error})"),
    };
    connect_tcp(address, deadline()).unwrap();
    drop(listener);
    let error = connect_tcp(address, deadline()).unwrap_err();
    assert!(matches!(error, ConnectError::Refused { .. }), "{error}");
}

#[test]
fn begun_connect_never_blocks() {
    let directory = Directory::new();
    let path = directory.join("socket");
    assert!(matches!(begin_unix_path(&path), Err(ConnectError::NotFound { .. })));
    let listener = Listener::listen_unix_path(&path, 0o600, 0).unwrap();
    let waiting = fill(|| begin_unix_path(&path).and_then(Begun::finish));
    assert!(!waiting.is_empty());

    let listener_tcp = Listener::listen_tcp("127.0.0.1:0".parse().unwrap(), 16).unwrap();
    let address = listener_tcp.local_addr().unwrap().unwrap();
    let begun = begin_tcp(address).unwrap();
    let mut fds = [PollFd::new(&begun, PollFlags::OUT)];
    assert_eq!(wait(&mut fds, deadline()).unwrap(), 1);
    let socket = begun.finish().unwrap();
    socket.set_dead_after(Duration::from_secs(2)).unwrap();
    // The connecting side may have its connection (from `finish`) before the listener can accept
    // it, so the test waits for the listener. The socket that `finish` returned must be in blocking
    // mode, like every other socket.
    let mut fds = [PollFd::new(&listener_tcp, PollFlags::IN)];
    assert_eq!(wait(&mut fds, deadline()).unwrap(), 1);
    let accepted = listener_tcp.accept().unwrap().unwrap();
    accepted.write(&[std::io::IoSlice::new(b"x")], false).unwrap();
    assert_eq!(socket.read(&mut [0; 8], false).unwrap(), 1);

    drop((listener, listener_tcp));
    let refused = begin_tcp(address).and_then(|begun| {
        let mut fds = [PollFd::new(&begun, PollFlags::OUT)];
        assert_eq!(wait(&mut fds, deadline()).unwrap(), 1);
        begun.finish()
    });
    assert!(matches!(refused, Err(ConnectError::Refused { .. })), "{refused:?}");
}
