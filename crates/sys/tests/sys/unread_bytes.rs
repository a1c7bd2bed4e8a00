// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the count of written bytes that the peer has not taken: unread bytes on a Unix socket,
//! undelivered bytes over TCP.

use std::io::{ErrorKind, IoSlice};
use std::time::{Duration, Instant};

use partywall_sys::{Listener, Socket, connect_tcp};

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = soon();
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: did not happen");
        std::thread::yield_now();
    }
}

/// Writes to the socket until the system accepts no more bytes; returns the number of accepted
/// bytes.
fn fill(socket: &Socket) -> usize {
    let piece = [7; 64 << 10];
    let mut taken = 0;
    loop {
        match socket.write(&[IoSlice::new(&piece)], true) {
            Ok(count) => taken += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return taken,
            Err(error) => panic!("{error}"),
        }
    }
}

fn read(socket: &Socket, mut count: usize) {
    let mut buffer = [0; 64 << 10];
    while count > 0 {
        let room = count.min(buffer.len());
        count -= socket.read(&mut buffer[..room], false).unwrap();
    }
}

#[test]
fn unix_socket_counts_unread_bytes() {
    let (here, there) = Socket::pair().unwrap();
    assert_eq!(here.untaken_bytes().unwrap(), 0);
    assert_eq!(here.write(&[IoSlice::new(b"two")], false).unwrap(), 3);
    assert!(here.untaken_bytes().unwrap() >= 3);
    read(&there, 2);
    assert!(here.untaken_bytes().unwrap() > 0);
    read(&there, 1);
    assert_eq!(here.untaken_bytes().unwrap(), 0);
    let taken = fill(&here);
    assert!(here.untaken_bytes().unwrap() >= taken);
    drop(there);
    assert_eq!(here.untaken_bytes().unwrap(), 0);
}

#[test]
fn tcp_socket_counts_undelivered_bytes() {
    let listener = Listener::listen_tcp("127.0.0.1:0".parse().unwrap(), 16).unwrap();
    let address = listener.local_addr().unwrap().unwrap();
    let here = connect_tcp(address, Some(soon())).unwrap();
    let mut there = None;
    until("it is accepted", || {
        there = listener.accept().unwrap();
        there.is_some()
    });
    let there = there.unwrap();
    assert_eq!(here.write(&[IoSlice::new(b"two")], false).unwrap(), 3);
    // Expected over TCP: the count of bytes that the peer has not taken becomes 0 although the peer
    // has not read the bytes, because the peer's kernel has received them.
    until("it arrives", || here.untaken_bytes().unwrap() == 0);
    let taken = fill(&here);
    assert!((1..=taken).contains(&here.untaken_bytes().unwrap()));
    std::thread::scope(|scope| {
        scope.spawn(|| read(&there, 3 + taken));
    });
    until("the rest arrives", || here.untaken_bytes().unwrap() == 0);
}
