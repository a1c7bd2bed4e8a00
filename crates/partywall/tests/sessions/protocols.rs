// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of sessions over another protocol than Partywall's own: the same streams, and operations
//! that the protocol does not support. Listeners serve two protocols at one address.
#![cfg(feature = "tokio")]

use crate::support_protocol;

use partywall::blocking::{Listener, Session, connect_with_protocol};
use partywall::protocol::Protocol;
use partywall::{
    Begin, Closed, Config, HandshakeError, OpenError, SessionError, StreamSendError, Transport,
    WaitError,
};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support_protocol::Plain;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn plain() -> Arc<dyn Protocol> {
    Arc::new(Plain::default())
}

fn config() -> Config {
    // With the setting `begin`, Partywall's own connections share memory in the handshake. Sessions
    // of another protocol ignore it.
    Config::default().begin(Begin::SharedMemory).streams_max(64)
}

fn connect(address: &str, config: &Config) -> Session {
    connect_with_protocol(address, config, plain()).unwrap()
}

/// Returns a new address, and the temporary directory of its socket.
fn address() -> (TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let address = format!("unix:{}/s.sock", directory.path().display());
    (directory, address)
}

/// Makes a listener that serves both protocols. Returns its directory, its address and the
/// listener.
fn home(adapt: impl FnOnce(Config) -> Config) -> (TempDir, String, Listener) {
    let (directory, address) = address();
    let listener = Listener::bind_with(&*address, &adapt(config())).unwrap();
    (directory, address, listener.with_protocol(plain()))
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

/// A deadline of 20 ms for an `accept` in which the listener only handles its events, before the
/// test checks its counters.
fn briefly() -> Instant {
    Instant::now() + Duration::from_millis(20)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_address_serves_both_protocols() {
    let (_directory, address) = address();
    let listener = partywall::tokio::Listener::bind_with(&*address, &config()).unwrap();
    let listener = listener.with_protocol(plain());
    let serving = tokio::spawn(async move {
        let mut seen = Vec::new();
        for _ in 0..2 {
            let session = listener.accept().await.unwrap();
            seen.push(session.transport());
            while let Ok(Some(mut stream)) = session.accept().await {
                tokio::spawn(async move {
                    while let Ok(Some(message)) = stream.recv().await {
                        stream.send(&message).await.unwrap();
                    }
                });
            }
        }
        seen
    });
    for is_plain in [true, false] {
        let session = match is_plain {
            true => partywall::tokio::connect_with_protocol(&*address, &config(), plain())
                .await
                .unwrap(),
            false => partywall::tokio::connect_with(&*address, &config()).await.unwrap(),
        };
        let mut tasks = Vec::new();
        for index in 0..50usize {
            let session = session.clone();
            tasks.push(tokio::spawn(async move {
                // Each task opens several streams in turn, because Partywall's stream numbers and
                // the ids of the other protocol's streams become free at different times.
                for round in 0..4usize {
                    let mut stream = session.open(&[]).await.unwrap();
                    for len in [1, 2, 63, 1000, 70_001, 300_000] {
                        let payload: Vec<u8> =
                            (0..len).map(|at| (at * 7 + index + round) as u8).collect();
                        let mut memory = stream.reserve(len).await.unwrap();
                        memory.copy_from_slice(&payload);
                        memory.commit().await.unwrap();
                        assert!(
                            stream.recv().await.unwrap().unwrap() == payload,
                            "{len} bytes differ"
                        );
                    }
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        session.drained().await.unwrap();
        session.close(0, "");
        session.finished().await;
    }
    assert_eq!(serving.await.unwrap(), [Transport::Protocol("plain"), Transport::SharedMemory]);
}

#[test]
fn what_the_other_side_closes_is_received_and_no_longer_sent_to() {
    let (_directory, address, mut listener) = home(|both| both);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let session = connect(&address, &config());
            let mut stream = session.open(&[]).unwrap();
            stream.send(b"all").unwrap();
            stream.send(b"there is").unwrap();
            drop(stream);
            // The peer's stream is accepted first, because `drained` would wait for it as well.
            let mut stream = session.accept_deadline(soon()).unwrap().unwrap();
            assert_eq!(stream.recv_deadline(soon()).unwrap().unwrap(), b"from there");
            assert!(matches!(stream.recv_deadline(soon()), Ok(None)));
            drop(stream);
            session.drained(Some(soon())).unwrap();
        });
        let session = listener.accept_deadline(soon()).unwrap();
        let (mut send, mut recv) = session.accept_deadline(soon()).unwrap().unwrap().into_split();
        assert_eq!(recv.recv_deadline(soon()).unwrap().unwrap(), b"all");
        assert_eq!(recv.recv_deadline(soon()).unwrap().unwrap(), b"there is");
        assert!(matches!(recv.recv_deadline(soon()), Ok(None)));
        let stopped = send.stopped(Some(soon())).unwrap();
        assert!(matches!(stopped, StreamSendError::Stopped { code: 0 }), "{stopped}");
        assert!(matches!(send.send(b"late"), Err(StreamSendError::Stopped { code: 0 })));
        drop((send, recv));
        // The accepting side may open streams too.
        session.open(&[]).unwrap().send(b"from there").unwrap();
        session.drained(Some(soon())).unwrap();
        let end = session.closed(Some(soon())).unwrap();
        assert!(matches!(end, SessionError::Closed(Closed::Finished)), "{end}");
    });
}

#[test]
fn finishing_one_direction_does_not_close_the_other() {
    let (_directory, address, mut listener) = home(|both| both);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let session = listener.accept_deadline(soon()).unwrap();
            let mut stream = session.accept_deadline(soon()).unwrap().unwrap();
            assert_eq!(stream.recv_deadline(soon()).unwrap().unwrap(), b"question");
            stream.send(b"answer").unwrap();
            assert!(matches!(stream.recv_deadline(soon()), Ok(None)));
            drop(stream);
            // The session lives until the peer has closed it, so that the peer receives the end of
            // its stream before the end of the session.
            session.closed(Some(soon())).unwrap();
        });
        let session = connect(&address, &config());
        let (mut send, mut recv) = session.open(&[]).unwrap().into_split();
        send.send(b"question").unwrap();
        send.finish();
        assert_eq!(recv.recv_deadline(soon()).unwrap().unwrap(), b"answer");
        drop((send, recv));
        session.drained(Some(soon())).unwrap();
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_flow_through_the_adapters() {
    let (_directory, address) = address();
    let listener = partywall::tokio::Listener::bind_with(&*address, &config()).unwrap();
    let listener = listener.with_protocol(plain());
    let serving = tokio::spawn(async move {
        let session = listener.accept().await.unwrap();
        let mut io = session.accept().await.unwrap().unwrap().into_io();
        let mut all = Vec::new();
        io.read_to_end(&mut all).await.unwrap();
        all
    });
    let config = config();
    let connecting = partywall::tokio::connect_with_protocol(&*address, &config, plain());
    let session = connecting.await.unwrap();
    let mut io = session.open(&[]).await.unwrap().into_io();
    let bytes: Vec<u8> = (0..1_000_003usize).map(|at| ((at * 31) >> 3) as u8).collect();
    io.write_all(&bytes).await.unwrap();
    io.flush().await.unwrap();
    drop(io);
    assert!(serving.await.unwrap() == bytes);
}

#[test]
fn a_session_that_ends_waits_until_what_it_sent_was_taken_but_not_for_ever() {
    let (_directory, address) = address();
    for is_taken_in_time in [true, false] {
        let protocol = Plain::default();
        let is_behind = Arc::clone(&protocol.is_behind);
        let linger = Duration::from_millis(if is_taken_in_time { 60_000 } else { 50 });
        let (theirs, protocol) = (Config::default().linger(linger), Arc::new(protocol));
        let listener = Listener::bind_with(&*address, &config()).unwrap();
        let mut listener = listener.with_protocol(plain());
        std::thread::scope(|scope| {
            let client =
                scope.spawn(|| connect_with_protocol(&*address, &theirs, protocol).unwrap());
            let server = listener.accept_deadline(soon()).unwrap();
            let client = client.join().unwrap();
            is_behind.store(true, Ordering::SeqCst);
            client.open(&[]).unwrap().send(b"last").unwrap();
            client.close(0, "");
            if is_taken_in_time {
                let early = client.finished(Some(Instant::now() + Duration::from_millis(100)));
                assert!(matches!(early, Err(WaitError::TimedOut)), "{early:?}");
                is_behind.store(false, Ordering::SeqCst);
            }
            client.finished(Some(soon())).unwrap();
            let mut stream = server.accept_deadline(soon()).unwrap().unwrap();
            assert_eq!(stream.recv_deadline(soon()).unwrap().unwrap(), b"last");
        });
    }
}

#[test]
fn streams_beyond_the_limit_are_refused() {
    let (_directory, address, mut listener) = home(|both| both.streams_max(2));
    std::thread::scope(|scope| {
        let client = scope.spawn(|| connect(&address, &config()));
        let server = listener.accept_deadline(soon()).unwrap();
        let client = client.join().unwrap();
        let mut streams: Vec<_> = (0..3).map(|_| client.open(&[]).unwrap()).collect();
        let mut third = streams.pop().unwrap();
        let end = third.recv_deadline(soon());
        assert!(matches!(end, Ok(None)), "{end:?}");
        let _kept = [
            server.accept_deadline(soon()).unwrap().unwrap(),
            server.accept_deadline(soon()).unwrap().unwrap(),
        ];
        assert!(matches!(server.try_accept(), Err(WaitError::WouldBlock)));
        streams[0].send(b"goes on").unwrap();
    });
}

#[test]
fn operation_without_protocol_equivalent_is_unsupported() {
    let (_directory, address, mut listener) = home(|both| both);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| connect(&address, &config()));
        let _server = listener.accept_deadline(soon()).unwrap();
        let client = client.join().unwrap();
        let pinged = client.ping(Some(soon()));
        let Err(WaitError::Session(SessionError::Unsupported { what: "pings" })) = pinged else {
            panic!("{pinged:?}")
        };
        let opened = client.open(b"metadata");
        let expected = OpenError::Session(SessionError::Unsupported { what: "" }).to_string();
        let error = opened.unwrap_err().to_string();
        assert_eq!(error.replace("metadata of streams", ""), expected);
        assert_eq!(client.streams(), 0);
    });
}

#[test]
fn channel_listener_refuses_other_protocol() {
    let (directory, address) = address();
    let refused = Arc::new(Mutex::new(Vec::new()));
    let reports = Arc::clone(&refused);
    let config = config().on_refused(move |error| {
        let is_stranger = matches!(error, HandshakeError::NotPartywall { .. });
        reports.lock().unwrap().push(is_stranger);
    });
    let mut listener = partywall::Listener::bind_with(&*address, &config).unwrap();
    let mut client = UnixStream::connect(directory.path().join("s.sock")).unwrap();
    client.write_all(b"#wire1\n\0").unwrap();
    let deadline = soon();
    while refused.lock().unwrap().is_empty() {
        assert!(Instant::now() < deadline, "it is not refused");
        assert!(listener.accept_deadline(briefly()).is_err());
    }
    assert_eq!(*refused.lock().unwrap(), [true]);
    assert_eq!(client.read(&mut [0; 8]).unwrap_or(0), 0);
}

#[test]
fn first_words_may_come_byte_by_byte_and_strangers_are_refused() {
    let refused = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&refused);
    let (directory, _, mut listener) = home(|both| {
        both.on_refused(move |error| {
            list.lock().unwrap().push(matches!(error, HandshakeError::NotPartywall { .. }));
        })
    });
    let mut slow = UnixStream::connect(directory.path().join("s.sock")).unwrap();
    for byte in b"#wire1\n" {
        slow.write_all(&[*byte]).unwrap();
        if *byte != b'\n' {
            assert!(listener.try_accept().is_err());
        }
    }
    let session = listener.accept_deadline(soon()).unwrap();
    assert_eq!(session.transport(), Transport::Protocol("plain"));
    for (count, stranger) in [&b"#wire2\n"[..], b"GET / HTTP/1.1\r\n\r\n"].iter().enumerate() {
        let mut client = UnixStream::connect(directory.path().join("s.sock")).unwrap();
        client.write_all(stranger).unwrap();
        let deadline = soon();
        while refused.lock().unwrap().len() <= count {
            assert!(Instant::now() < deadline, "it is not refused");
            assert!(listener.accept_deadline(briefly()).is_err());
        }
        assert_eq!(client.read(&mut [0; 8]).unwrap_or(0), 0);
    }
    assert_eq!(*refused.lock().unwrap(), [true, true]);
}

#[test]
fn messages_of_streams_that_are_not_open_are_dropped() {
    let (directory, _, mut listener) = home(|both| both);
    let mut client = UnixStream::connect(directory.path().join("s.sock")).unwrap();
    let word = |value: u32| value.to_be_bytes();
    client.write_all(b"#wire1\n").unwrap();
    client.write_all(&[word(9), word(1), word(1)].concat()).unwrap();
    client.write_all(b"x").unwrap();
    client.write_all(&[word(1), word(0), word(0)].concat()).unwrap();
    let session = listener.accept_deadline(soon()).unwrap();
    let mut stream = session.accept_deadline(soon()).unwrap().unwrap();
    client.write_all(&[word(1), word(1), word(2)].concat()).unwrap();
    client.write_all(b"yz").unwrap();
    assert_eq!(stream.recv_deadline(soon()).unwrap().unwrap(), b"yz");
    drop(client);
    let end = session.closed(Some(soon())).unwrap();
    assert!(matches!(end, SessionError::Closed(_)), "{end}");
    drop(stream);
}
