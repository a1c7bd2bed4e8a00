// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that messages over the socket arrive although their sender ends the session at once. The
//! sender keeps the connection open (it lingers), up to `Config::linger`, until the peer has read
//! the messages or, over TCP, has closed the connection as well.
//!
//! ```text
//!   sender    fallback data, close ───▶ lingers ────────────────────▶ hangs up
//!   receiver            still writes, reads nothing … ─▶ reads all of it
//! ```
//!
//! The sender does not wait for a peer that shut down its write direction and reads nothing.

use crate::support_foe;

use partywall::blocking::{Listener as BlockingListener, Session, connect_with_protocol};
use partywall::{Config, StreamSendError, WaitError};
use partywall_shmipc::regions::Slice;
use partywall_shmipc::wire::encode;
use partywall_shmipc::{MemMapType, Shmipc};
use partywall_sys::{Listener, Socket};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support_foe::{Foe, Wire, small, soon};

/// Length in bytes of a message that exceeds the region, so that it uses the socket, but that a TCP
/// socket accepts without a reader.
const MESSAGE_BYTES: usize = (1 << 20) + 4096;
/// Number of bytes at the end of a message that the test leaves unread. The buffer of a Unix socket
/// has room for more.
const LAST_BYTES: usize = 16 << 10;

/// Time for which a test waits to check that an event does not happen.
const A_WHILE: Duration = Duration::from_millis(100);

fn accepted(listener: &Listener) -> Socket {
    let mut socket = None;
    support_foe::until("we connect", || {
        socket = listener.accept().unwrap();
        socket.is_some()
    });
    socket.unwrap()
}

/// A client's session over TCP, and the accepted connection, which the test controls by hand. The
/// protocol has version 2 there, in which the acceptor need not answer in the handshake.
fn over_tcp(linger: Duration, directory: &tempfile::TempDir) -> (Session, Wire) {
    let listener = Listener::listen_tcp("127.0.0.1:0".parse().unwrap(), 16).unwrap();
    let address = format!("tcp:{}", listener.local_addr().unwrap().unwrap());
    let prefix = directory.path().join("shm").to_str().unwrap().to_owned();
    let protocol = small().mem_map_type(MemMapType::DevShmFile).share_memory_path_prefix(prefix);
    let protocol = Arc::new(Shmipc::new(protocol).unwrap());
    let config = Config::default().linger(linger);
    let session = connect_with_protocol(&*address, &config, protocol).unwrap();
    let wire = Wire { socket: accepted(&listener) };
    let (header, _) = wire.receive(8).unwrap();
    let length = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
    wire.receive(length as usize - 8).unwrap();
    (session, wire)
}

/// Connects a client's session on a Unix socket to a server that the test controls by hand (a
/// `Foe`); returns both.
fn over_unix(linger: Duration, directory: &tempfile::TempDir) -> (Session, Foe) {
    let path = directory.path().join("s.sock");
    let listener = Listener::listen_unix_path(&path, 0o600, 16).unwrap();
    let protocol = Arc::new(Shmipc::new(small()).unwrap());
    let config = Config::default().linger(linger);
    std::thread::scope(|scope| {
        let connecting =
            scope.spawn(|| connect_with_protocol(&*support_foe::address(&path), &config, protocol));
        let foe = Foe::server(accepted(&listener));
        (connecting.join().unwrap().unwrap(), foe)
    })
}

/// Sends a message for which the region has no slices, so that it uses the socket. Then ends the
/// stream and the session.
fn send_and_close(session: &Session) {
    let mut stream = session.open(&[]).unwrap();
    stream.send_deadline(&[7; MESSAGE_BYTES], soon()).unwrap();
    drop(stream);
    session.close(0, "");
}

fn has_not_finished(session: &Session) {
    let early = session.finished(Some(Instant::now() + A_WHILE));
    assert!(matches!(early, Err(WaitError::TimedOut)), "it hung up: {early:?}");
}

/// Reads the message that the session sent, except for its last 16 KiB (`LAST_BYTES`).
fn read_most(wire: &Wire) {
    let (header, _) = wire.receive(16).expect("the connection was reset");
    let length = u32::from_be_bytes([header[0], header[1], header[2], header[3]]) as usize;
    assert_eq!((header[7], length), (3, 16 + MESSAGE_BYTES));
    is_message(wire, MESSAGE_BYTES - LAST_BYTES);
}

/// Reads the last 16 KiB (`LAST_BYTES`) of the message that the session sent, and then the message
/// on the socket that announces the end of the stream.
fn read_the_last(wire: &Wire) {
    is_message(wire, LAST_BYTES);
    assert_eq!(wire.receive(12).unwrap().0[7], 2, "the end of the stream");
}

fn is_message(wire: &Wire, bytes: usize) {
    let (bytes, _) = wire.receive(bytes).expect("the connection was reset");
    assert!(bytes.iter().all(|byte| *byte == 7));
}

/// As the peer, writes messages to the side that has ended its session.
fn write_on(wire: &Wire, version: u8) {
    for _ in 0..10 {
        assert!(wire.send(&encode::polling(version)), "the connection was reset");
    }
}

#[test]
fn over_tcp_nothing_that_is_under_way_is_destroyed() {
    let directory = tempfile::tempdir().unwrap();
    let (session, wire) = over_tcp(Duration::from_secs(60), &directory);
    send_and_close(&session);
    has_not_finished(&session);
    write_on(&wire, 2);
    read_most(&wire);
    has_not_finished(&session);
    read_the_last(&wire);
    assert!(wire.receive(1).is_none());
    // Expected: the peer's own writes still succeed after the peer has read the message to the end.
    write_on(&wire, 2);
    has_not_finished(&session);
    write_on(&wire, 2);
    drop(wire);
    session.finished(Some(soon())).unwrap();
}

#[test]
fn on_a_unix_socket_it_is_waited_for_until_it_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let (session, foe) = over_unix(Duration::from_secs(60), &directory);
    send_and_close(&session);
    write_on(&foe.wire, 3);
    read_most(&foe.wire);
    has_not_finished(&session);
    read_the_last(&foe.wire);
    // On a Unix socket the session finishes once the peer has read everything, although the peer
    // does not close the connection.
    session.finished(Some(soon())).unwrap();
    foe.wire.hears_the_end();
}

#[test]
fn peer_that_never_reads_is_waited_for_up_to_linger() {
    let directory = tempfile::tempdir().unwrap();
    let linger = Duration::from_millis(300);
    let before = Instant::now();
    let (session, wire) = over_tcp(linger, &directory);
    send_and_close(&session);
    session.finished(Some(soon())).unwrap();
    drop(wire);
    let (session, foe) = over_unix(linger, &directory);
    send_and_close(&session);
    session.finished(Some(soon())).unwrap();
    drop(foe);
    assert!(before.elapsed() >= 2 * linger, "{:?}", before.elapsed());
}

#[test]
fn peer_that_hung_up_is_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let linger = Duration::from_secs(3600);
    let (session, wire) = over_tcp(linger, &directory);
    send_and_close(&session);
    drop(wire);
    session.finished(Some(soon())).unwrap();
    let (session, foe) = over_unix(linger, &directory);
    send_and_close(&session);
    drop(foe);
    session.finished(Some(soon())).unwrap();
}

/// Connects a client that has allocated all slices of its region, so that the server's messages use
/// the socket. The client has also sent more data than the server's limit of unread bytes.
fn silent(path: &Path) -> (Foe, Vec<Slice>) {
    let foe = Foe::client(path);
    let region = Arc::clone(&foe.memory.region);
    let take = |bytes| std::iter::from_fn(move || region.reserve(bytes));
    let taken: Vec<Slice> = take.clone()(5000).chain(take(1)).collect();
    for stream in [2, 3] {
        assert!(foe.wire.send(&[&encode::fallback_header(3, stream, 1)[..], b"x"].concat()));
    }
    let much = [&encode::fallback_header(3, 2, 60_000)[..], &[7; 60_000]].concat();
    for _ in 0..=UNREAD_BYTES / 60_000 {
        assert!(foe.wire.send(&much));
    }
    (foe, taken)
}

#[test]
fn peer_that_shut_down_writing_is_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.sock");
    let protocol = partywall_shmipc::Config::default()
        .fallback_message_max(1 << 20)
        .fallback_unread_max(UNREAD_BYTES);
    let config = Config::default().linger(Duration::from_secs(3600));
    let listener = BlockingListener::bind_with(&*support_foe::address(&path), &config).unwrap();
    let mut listener = listener.with_protocol(Arc::new(Shmipc::new(protocol).unwrap()));
    let (session, (foe, taken)) = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| silent(&path));
        (listener.accept_deadline(soon()).unwrap(), connecting.join().unwrap())
    });
    let mut first = session.accept_deadline(soon()).unwrap().unwrap();
    let mut second = session.accept_deadline(soon()).unwrap().unwrap();
    while first.send_deadline(&[1; 60_000], Instant::now() + A_WHILE).is_ok() {}
    let is_reported = |sent: Result<(), StreamSendError>| {
        let timed_out = matches!(sent, Err(StreamSendError::TimedOut));
        assert!(sent.is_err() && !timed_out, "{sent:?}");
    };
    std::thread::scope(|scope| {
        // The peer shuts down its write direction while a sender on the first stream waits for
        // room. A sender on the second stream begins after the shutdown. The shutdown must make
        // both sends fail before their deadlines.
        let later = soon() + A_WHILE;
        let waiting = scope.spawn(move || first.send_deadline(&[2; 60_000], later));
        std::thread::sleep(A_WHILE);
        foe.wire.socket.shutdown_write().unwrap();
        support_foe::until("it is reported", || waiting.is_finished());
        is_reported(waiting.join().unwrap());
    });
    is_reported(second.send_deadline(&[3; 60_000], soon()));
    session.close(0, "");
    session.finished(Some(soon())).unwrap();
    drop((foe, taken));
}

/// The server's limit, in bytes, of messages from the socket that its application has not read.
/// Above the limit, the server does not read the socket.
const UNREAD_BYTES: u64 = 1 << 20;
