// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests the back pressure of two proxies. If a program does not read from its connection, only the
//! writer at the other end of that connection blocks, and no other connection.

use crate::proxied;

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread;

use proxied::{Pair, pattern};

/// Two proxies between a client and a server with Unix sockets, whose kernel buffers are small, so
/// that writers block soon.
struct Fixture {
    _directory: tempfile::TempDir,
    _pair: Pair,
    front: PathBuf,
    server: UnixListener,
}

impl Fixture {
    fn new(options: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (front, back) = (directory.path().join("front"), directory.path().join("back"));
        let server = UnixListener::bind(&back).unwrap();
        let pair = Pair::unix(&front, &back, options);
        Self { _directory: directory, _pair: pair, front, server }
    }

    fn connect(&self) -> (UnixStream, UnixStream) {
        let client = UnixStream::connect(&self.front).unwrap();
        (client, self.server.accept().unwrap().0)
    }
}

/// Writes to the socket until it accepts no more bytes; returns how many it has accepted.
fn fill(socket: &mut UnixStream) -> usize {
    socket.set_nonblocking(true).unwrap();
    let (mut total, block) = (0, [7; 8192]);
    loop {
        match socket.write(&block) {
            Ok(count) => total += count,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                return total;
            }
        }
        assert!(total < TAKEN_MAX, "the writer is not stopped");
    }
}

/// Writes `bytes` to the socket `from`, reads as many bytes from `to`, and asserts that they are
/// equal.
fn pass(from: &mut UnixStream, to: &mut UnixStream, bytes: &[u8]) {
    let (mut from, copy) = (from.try_clone().unwrap(), bytes.to_vec());
    let sender = thread::spawn(move || from.write_all(&copy).unwrap());
    let mut got = vec![0; bytes.len()];
    to.read_exact(&mut got).unwrap();
    sender.join().unwrap();
    assert!(got == bytes);
}

#[test]
fn writer_to_a_stopped_reader_is_blocked_and_others_continue() {
    let fixture = Fixture::new(&[]);
    let (mut stuck, _unread) = fixture.connect();
    let (mut client, mut server_end) = fixture.connect();
    let mut taken = 0;
    // Number of successive rounds in which the blocked writer could write no byte, while bytes of
    // other connections were carried.
    let mut quiet_rounds = 0;
    while quiet_rounds < 20 {
        let count = fill(&mut stuck);
        taken += count;
        quiet_rounds = if count == 0 { quiet_rounds + 1 } else { 0 };
        assert!(taken < TAKEN_MAX, "the writer is not stopped");
        pass(&mut client, &mut server_end, &pattern(200_000, taken as u64));
        pass(&mut server_end, &mut client, &pattern(1000, taken as u64));
    }
    assert!(taken > 256 << 10, "a window at least: {taken}");
}

#[test]
fn blocked_bytes_arrive_after_they_are_read() {
    let fixture = Fixture::new(&["--window", "16k"]);
    let (mut client, mut server_end) = fixture.connect();
    let bytes = pattern(4 << 20, 3);
    let taken = {
        client.set_nonblocking(true).unwrap();
        let mut taken = 0;
        while let Ok(count) = client.write(&bytes[taken..]) {
            taken += count;
        }
        client.set_nonblocking(false).unwrap();
        taken
    };
    assert!(taken < bytes.len());
    let (rest, mut writing) = (bytes[taken..].to_vec(), client.try_clone().unwrap());
    let writer = thread::spawn(move || writing.write_all(&rest).unwrap());
    let mut got = vec![0; bytes.len()];
    server_end.read_exact(&mut got).unwrap();
    writer.join().unwrap();
    assert!(got == bytes);
}

#[test]
fn unread_connections_with_all_memory_block_no_other() {
    let fixture = Fixture::new(&["--memory", "1m"]);
    let mut stuck: Vec<_> = (0..12).map(|_| fixture.connect()).collect();
    let (mut client, mut server_end) = fixture.connect();
    for round in 0..10 {
        for (writer, _) in &mut stuck {
            fill(writer);
        }
        pass(&mut client, &mut server_end, &pattern(1 << 20, round));
        pass(&mut server_end, &mut client, &pattern(1 << 20, round + 100));
    }
}

/// Number of bytes that no connection can buffer: more than the credit of its stream, one read of a
/// proxy, and the buffers of two Unix sockets.
const TAKEN_MAX: usize = 4 << 20;
