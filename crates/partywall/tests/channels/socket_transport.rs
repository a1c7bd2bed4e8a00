// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of edge cases of the socket transport: large messages, full buffers, closing with unread
//! bytes, the death of a peer whose child keeps the socket open, and bytes where the protocol
//! allows none.

use partywall::{
    Closed, Config, Fault, Listener, RecvError, SendError, TransportPolicy, TryRecvError,
    TrySendError, Violation,
};
use partywall_layout::hello::{FEATURE_SOCKET, Offer, Ready, TRANSPORT_SOCKET};
use partywall_layout::record_ring::Kind as RecordKind;
use partywall_layout::{Position, RecordHeader};
use partywall_sys::Socket;
use partywall_testkit::{Kind, Second, fill, is_pattern, pattern, soon, variable};
use std::io::IoSlice;
use std::process::Command;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

use partywall_testkit::hostile::channel as foe;

const MIB: usize = 1 << 20;

#[test]
fn a_large_message_arrives_before_the_deadline() {
    for kind in [Kind::Tcp, Kind::Unix] {
        let (mut client, mut server) = kind.pair(|config| config.memory_max(200 << 20));
        let bytes = pattern(128 * MIB, 7);
        std::thread::scope(|scope| {
            scope.spawn(|| client.send(&bytes).unwrap());
            let message = server.recv_deadline(soon()).unwrap().unwrap();
            assert_eq!(message.len(), bytes.len());
            assert!(is_pattern(&message, 7), "{}", kind.name());
        });
    }
}

/// Makes the channel under test, and the socket on which the test writes the peer's bytes.
fn peer() -> (Socket, partywall::Channel) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("home");
    let config = Config::default().transport(TransportPolicy::Socket);
    let address = format!("unix:{}", path.display());
    let mut listener = Listener::bind_with(&address, &config).unwrap();
    let hello = foe::hello(FEATURE_SOCKET);
    let (foe, channel) = foe::Foe::meet(&mut listener, &path, &hello);
    (foe.wire.socket, channel)
}

fn record(position: u64, kind: RecordKind, len: usize) -> Vec<u8> {
    let position = Position(position);
    let len = u32::try_from(len).unwrap();
    RecordHeader { position, kind, len, stream: 0 }.to_wire().as_bytes().to_vec()
}

fn write(socket: &Socket, bytes: &[u8]) {
    assert_eq!(socket.write(&[IoSlice::new(bytes)], false).unwrap(), bytes.len());
}

/// Rule: `try_recv` makes a bounded number of reads. If it stops exactly at the end of a message,
/// because messages follow each other without a pause, the receiver must not take this for the end
/// of the stream.
#[test]
fn a_stream_that_never_pauses_has_no_false_end() {
    let (mut client, mut server) = Kind::Tcp.pair(|config| config);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut bytes = vec![0; 3 * MIB];
            for round in 0..80 {
                let len = 2 * MIB + 4099 * round;
                fill(&mut bytes[..len], round as u64);
                client.send(&bytes[..len]).unwrap();
            }
        });
        for round in 0..80_u64 {
            let message = loop {
                match server.try_recv() {
                    Ok(message) => break message.unwrap(),
                    Err(TryRecvError::Empty) if round % 4 == 3 => {
                        break server.recv_deadline(soon()).unwrap().unwrap();
                    }
                    Err(TryRecvError::Empty) => {}
                    Err(error) => panic!("message {round}: {error}"),
                }
            };
            assert!(is_pattern(&message, round));
        }
    });
}

#[test]
fn nothing_may_follow_close_write() {
    let (socket, mut channel) = peer();
    let mut bytes = record(0, RecordKind::Data, 5);
    bytes.extend_from_slice(b"hello");
    bytes.extend_from_slice(&record(64, RecordKind::CloseWrite, 0));
    bytes.extend_from_slice(&record(128, RecordKind::Data, 1));
    bytes.push(1);
    write(&socket, &bytes);
    assert_eq!(channel.recv_deadline(soon()).unwrap().unwrap(), b"hello");
    let error = channel.recv_deadline(soon()).unwrap_err();
    let RecvError::Fault(Fault::Violation { violation, .. }) = error else { panic!("{error}") };
    assert!(matches!(violation, Violation::Unexpected { position: 128, .. }), "{violation}");
}

/// The last messages must arrive although the sender closes its socket with unread bytes, to which
/// the kernel usually responds with a reset that discards them.
#[test]
fn over_tcp_nothing_is_lost_at_an_end_amid_unread_bytes() {
    for _ in 0..5 {
        let (mut client, mut server) = Kind::Tcp.pair(|config| config);
        for _ in 0..50 {
            server.send(&[1; 1000]).unwrap();
        }
        let bytes = pattern(6 * MIB, 5);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                client.send(&bytes).unwrap();
                drop(client);
            });
            std::thread::sleep(Duration::from_millis(20));
            let message = server.recv_deadline(soon()).unwrap().unwrap();
            assert!(is_pattern(&message, 5));
            let end = server.recv_deadline(soon());
            assert!(matches!(end, Ok(None)), "{end:?}");
            drop(server);
        });
    }
}

#[test]
fn an_end_over_tcp_waits_for_nobody_unless_bytes_are_unread() {
    let mut longest = Duration::ZERO;
    for _ in 0..20 {
        let (mut client, mut server) = Kind::Tcp.pair(|config| config);
        client.send(b"question").unwrap();
        assert_eq!(server.recv_deadline(soon()).unwrap().unwrap(), b"question");
        server.send(b"answer").unwrap();
        assert_eq!(client.recv_deadline(soon()).unwrap().unwrap(), b"answer");
        let started = Instant::now();
        drop(client);
        longest = longest.max(started.elapsed());
        let started = Instant::now();
        drop(server);
        longest = longest.max(started.elapsed());
    }
    println!("the longest of 40 ends took {longest:?}");
    assert!(longest < Duration::from_millis(500), "{longest:?}");
    // The peer neither reads nor closes the connection. Expected: closing this side waits for the
    // peer for about a second.
    let (client, mut server) = Kind::Tcp.pair(|config| config);
    server.send(b"never read").unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let started = Instant::now();
    drop(client);
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    drop(server);
}

const ADDRESS: &str = "PARTYWALL_SOCKET_ADDRESS";

/// Code of a second process: makes the handshake frame by frame, and starts a child whose standard
/// input is the socket, so that the socket stays open after the death of this process.
#[test]
fn parent_of_a_silent_heir() {
    let Some(path) = variable(ADDRESS) else { return };
    let wire = foe::Wire::connect(path.as_ref());
    assert!(wire.send_hello(&foe::hello(FEATURE_SOCKET)));
    assert!(wire.send(Offer::socket(1).as_bytes(), &[]));
    for frame in ["HELLO", "OFFER", "READY"] {
        assert!(!wire.receive().0.is_empty(), "{frame}");
    }
    assert!(wire.send(Ready::new(TRANSPORT_SOCKET, 1).as_bytes(), &[]));
    let heir = wire.socket.try_clone().unwrap().into_fd();
    let mut heir = Command::new("sleep").arg("20").stdin(heir).spawn().unwrap();
    let mut bytes = record(0, RecordKind::Data, 4);
    bytes.extend_from_slice(b"heir");
    write(&wire.socket, &bytes);
    heir.wait().unwrap();
}

#[test]
fn a_sender_that_only_tries_learns_of_a_death_that_an_heir_hides() {
    if variable(ADDRESS).is_some() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("home").display().to_string();
    let config = Kind::Unix.config();
    let mut listener = Listener::bind_with(format!("unix:{path}"), &config).unwrap();
    let second = Second::start("socket_transport::parent_of_a_silent_heir", &[(ADDRESS, &path)]);
    let mut channel = listener.accept_deadline(soon()).unwrap();
    assert_eq!(channel.recv_deadline(soon()).unwrap().unwrap(), b"heir");
    while channel.try_send(&[0; 8000]).is_ok() {}
    assert!(matches!(channel.try_send(b"x"), Err(TrySendError::Full)));
    drop(second);
    let died = Instant::now();
    loop {
        match channel.try_send(b"x") {
            Err(TrySendError::Closed(Closed::Disconnected)) => break,
            Ok(()) | Err(TrySendError::Full) => {
                assert!(died.elapsed() < Duration::from_secs(10), "the heir hides it");
            }
            Err(error) => panic!("{error}"),
        }
    }
    let after = channel.send(b"x");
    assert!(matches!(after, Err(SendError::Closed(Closed::Disconnected))), "{after:?}");
}
