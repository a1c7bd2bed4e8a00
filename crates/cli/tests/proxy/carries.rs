// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that two proxies carry all bytes of many connections at once, in both directions.

use crate::proxied;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;

use proxied::{
    Pair, Proxy, accept, connect, echo_tcp, echo_unix, exchange, listen, pattern, round_trip,
};

#[test]
fn streams_of_any_length_come_back_the_same() {
    let server = echo_tcp();
    let pair = Pair::tcp(&server, &[]);
    for (seed, len) in
        [1, 2, 1023, 1024, 1025, 4097, 65_536, 65_537, 1 << 20, 8 << 20].into_iter().enumerate()
    {
        round_trip(pair.connect(), &pattern(len, seed as u64));
    }
}

#[test]
fn many_connections_at_once_do_not_mix() {
    let server = echo_tcp();
    let pair = Pair::tcp(&server, &["--threads", "2"]);
    let clients: Vec<_> = (0..100)
        .map(|seed: u64| {
            let socket = pair.connect();
            thread::spawn(move || {
                round_trip(socket, &pattern(1 << (seed % 20), seed));
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
}

#[test]
fn requests_and_replies_of_changing_lengths_are_carried() {
    let server = echo_tcp();
    let pair = Pair::tcp(&server, &[]);
    let mut socket = pair.connect();
    for round in 0..300_u64 {
        let len = 1 + (round * round * 7919) as usize % if round % 9 == 0 { 300_000 } else { 900 };
        exchange_at_once(&mut socket, &pattern(len, round));
    }
}

/// Writes the bytes and asserts that the server echoes them. Unlike `exchange`, it reads the echo
/// while it writes, because the bytes may exceed all buffers of the connection.
fn exchange_at_once(socket: &mut std::net::TcpStream, bytes: &[u8]) {
    let mut writing = socket.try_clone().unwrap();
    let copy = bytes.to_vec();
    let writer = thread::spawn(move || writing.write_all(&copy).unwrap());
    let mut back = vec![0; bytes.len()];
    socket.read_exact(&mut back).unwrap();
    writer.join().unwrap();
    assert!(back == bytes);
}

#[test]
fn end_of_one_direction_leaves_the_other_open() {
    let server = listen();
    let pair = Pair::tcp(&server, &[]);
    let mut client = pair.connect();
    client.write_all(b"all there is").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut server_end = accept(&server);
    let mut question = String::new();
    server_end.read_to_string(&mut question).unwrap();
    assert_eq!(question, "all there is");
    let answer = pattern(3 << 20, 1);
    let copy = answer.clone();
    let answering = thread::spawn(move || server_end.write_all(&copy).unwrap());
    let mut got = Vec::new();
    client.read_to_end(&mut got).unwrap();
    answering.join().unwrap();
    assert!(got == answer);

    // Input: a connection in which the server closes its writing direction before the client closes
    // its own.
    let mut client = pair.connect();
    let mut server_end = accept(&server);
    server_end.write_all(b"welcome").unwrap();
    server_end.shutdown(Shutdown::Write).unwrap();
    let mut greeting = String::new();
    client.read_to_string(&mut greeting).unwrap();
    assert_eq!(greeting, "welcome");
    client.write_all(b"thanks").unwrap();
    drop(client);
    let mut thanks = String::new();
    server_end.read_to_string(&mut thanks).unwrap();
    assert_eq!(thanks, "thanks");
}

#[test]
fn plain_unix_sockets_at_both_ends_are_carried() {
    let directory = tempfile::tempdir().unwrap();
    let (front, back) = (directory.path().join("front"), directory.path().join("back"));
    echo_unix(&back);
    let pair = Pair::unix(&front, &back, &[]);
    assert_eq!(pair.entry.address, format!("plain:unix:{}", front.display()));
    for (seed, len) in [1, 1500, 5 << 20].into_iter().enumerate() {
        round_trip(UnixStream::connect(&front).unwrap(), &pattern(len, seed as u64));
    }
}

#[test]
fn abstract_names_and_a_session_over_a_socket_are_carried() {
    let name = format!("partywall-proxy-{}", std::process::id());
    let server = echo_tcp();
    let to = proxied::address_of(&server);
    let shm = format!("unix:@{name}");
    let options = ["--transport", "socket", "--stats"];
    let _exit = Proxy::start(&shm, &to, &options);
    let entry = Proxy::start("tcp:127.0.0.1:0", &shm, &options);
    round_trip(connect(&entry.address), &pattern(2 << 20, 5));
}

#[test]
fn connections_beyond_the_limit_wait() {
    let server = echo_tcp();
    let pair = Pair::tcp(&server, &["--connections", "2", "--stats"]);
    let clients: Vec<_> = (0..20)
        .map(|seed| {
            let socket = pair.connect();
            thread::spawn(move || round_trip(socket, &pattern(100_000, seed)))
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    for proxy in [pair.entry, pair.exit] {
        proxy.signal("TERM");
        let (code, printed) = proxy.finish();
        assert_eq!(code, 0);
        let line = printed.lines().find(|line| line.starts_with("connections")).expect("a table");
        assert!(line.contains(" 20 (0 still open, "), "{printed}");
        let most: u32 =
            line.rsplit_once(" at most").unwrap().0.rsplit(' ').next().unwrap().parse().unwrap();
        assert!(most <= 2, "{line}");
        assert!(printed.contains("(2000000 bytes)"), "{printed}");
    }
}

#[test]
fn several_entries_share_one_exit() {
    let server = echo_tcp();
    let pair = Pair::tcp(&server, &[]);
    let options = ["--stats", "--stats-every", "1h"];
    let other = Proxy::start("tcp:127.0.0.1:0", &pair.exit.address, &options);
    let (mut one, mut two) = (pair.connect(), connect(&other.address));
    for round in 0..50 {
        exchange(&mut one, &pattern(700, round));
        exchange(&mut two, &pattern(900, round + 1000));
    }
    drop(two);
    other.signal("TERM");
    let (code, printed) = other.finish();
    assert_eq!(code, 0);
    // The proxy may print its first line of counters before the client connects. Only the table
    // that the proxy prints at its end is sure to count the client.
    assert!(printed.contains(" open, ") && printed.contains(" from plain, "), "{printed}");
    let table = printed.lines().find(|line| line.starts_with("connections")).expect("a table");
    assert!(table.contains(" 1 (0 still open, 1 at most)"), "{printed}");
}
