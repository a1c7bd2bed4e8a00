// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of connections through two proxies. If a connection breaks at the client or the server, it
//! is reset at the opposite end, so a part of the data never looks like the whole.

use crate::proxied;

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};

use proxied::{Pair, Proxy, accept, assert_reset, echo_tcp, exchange, listen, reset, until};

#[test]
fn reset_of_the_client_reaches_the_server() {
    let server = listen();
    let pair = Pair::tcp(&server, &[]);
    let client = pair.connect();
    let mut server_end = accept(&server);
    server_end.write_all(b"x").unwrap();
    reset(client);
    assert_reset(&mut server_end);
}

#[test]
fn reset_of_the_server_reaches_the_client() {
    let server = listen();
    let pair = Pair::tcp(&server, &[]);
    let mut client = pair.connect();
    let server_end = accept(&server);
    client.write_all(b"x").unwrap();
    reset(server_end);
    assert_reset(&mut client);
}

#[test]
fn reset_of_the_client_after_its_end_reaches_the_server() {
    let server = listen();
    let pair = Pair::tcp(&server, &[]);
    let client = pair.connect();
    let mut server_end = accept(&server);
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(server_end.read(&mut [0]).unwrap(), 0);
    server_end.write_all(b"x").unwrap();
    reset(client);
    // The server must notice the client's reset although it only writes and never reads.
    until("the server fails to write", || server_end.write_all(b"y").is_err());
}

#[test]
fn reset_of_a_blocked_connection_passes_through() {
    let server = listen();
    let pair = Pair::tcp(&server, &[]);
    let mut client = pair.connect();
    let mut server_end = accept(&server);
    server_end.write_all(b"x").unwrap();
    // The server does not read, so the client writes until all buffers between them are full.
    client.set_nonblocking(true).unwrap();
    let stuck = loop {
        match client.write(&[7; 65_536]) {
            Ok(count) => assert!(count > 0),
            Err(error) => break error,
        }
    };
    assert_eq!(stuck.kind(), ErrorKind::WouldBlock);
    client.set_nonblocking(false).unwrap();
    reset(client);
    assert_reset(&mut server_end);
}

#[test]
fn bytes_before_a_reset_of_the_server_are_read() {
    let server = listen();
    let pair = Pair::tcp(&server, &[]);
    let mut client = pair.connect();
    let mut server_end = accept(&server);
    client.write_all(b"x").unwrap();
    server_end.write_all(b"go away").unwrap();
    let mut printed = [0; 7];
    client.read_exact(&mut printed).unwrap();
    reset(server_end);
    assert_eq!(&printed, b"go away");
    assert_reset(&mut client);
}

#[test]
fn missing_server_resets_the_client() {
    // The target must refuse connections, and port 1 does: no client can take it. Another process,
    // or the dialing client itself, could take a port that the test released.
    let to = "tcp:127.0.0.1:1";
    let directory = tempfile::tempdir().unwrap();
    let shm = format!("unix:{}/shm.sock", directory.path().display());
    let exit = Proxy::start(&shm, to, &["--stats"]);
    let entry = Proxy::start("tcp:127.0.0.1:0", &shm, &["--stats"]);
    let mut client = proxied::connect(&entry.address);
    assert_reset(&mut client);
    drop(client);
    for proxy in [entry, exit] {
        proxy.signal("TERM");
        let (code, printed) = proxy.finish();
        assert_eq!(code, 0);
        assert!(printed.contains("failures       1 "), "{printed}");
        assert!(printed.contains("--to") || printed.contains("refused"), "{printed}");
    }
}

#[test]
fn reader_that_leaves_a_unix_socket_ends_that_direction_only() {
    let directory = tempfile::tempdir().unwrap();
    let (front, back) = (directory.path().join("front"), directory.path().join("back"));
    let server = UnixListener::bind(&back).unwrap();
    let _pair = Pair::unix(&front, &back, &[]);
    let mut client = UnixStream::connect(&front).unwrap();
    let mut server_end = server.accept().unwrap().0;
    client.write_all(b"x").unwrap();
    server_end.read_exact(&mut [0]).unwrap();
    server_end.shutdown(Shutdown::Read).unwrap();
    until("the client fails to write", || {
        client.write_all(b"y").is_err_and(|error| error.kind() == ErrorKind::BrokenPipe)
    });
    server_end.write_all(b"still here").unwrap();
    drop(server_end);
    let mut printed = String::new();
    client.read_to_string(&mut printed).unwrap();
    assert_eq!(printed, "still here");
}

#[test]
fn reset_of_one_connection_does_not_affect_others() {
    let server = echo_tcp();
    let pair = Pair::tcp(&server, &[]);
    let mut other = pair.connect();
    for _ in 0..30 {
        let mut client = pair.connect();
        client.write_all(b"x").unwrap();
        reset(client);
        exchange(&mut other, b"as ever");
    }
}
