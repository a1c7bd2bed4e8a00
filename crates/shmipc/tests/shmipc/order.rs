// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with messages that arrive late, or in another order than they were sent. Such messages
//! must not reopen a closed stream, lose a slice, or let the end of a stream overtake its data.

use crate::support_foe;

use partywall::blocking::{Listener, Session};
use partywall::{StreamRecvError, StreamSendError};
use partywall_shmipc::regions::Element;
use partywall_shmipc::wire::encode;
use partywall_shmipc::{MemMapType, Shmipc};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support_foe::{Foe, Memory, Wire, soon, until};

/// Connects a hostile client, and returns it with the server's session.
fn pair() -> (Foe, Session) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.sock");
    let listener = Listener::bind(&*support_foe::address(&path)).unwrap();
    let mut listener = listener.with_protocol(Arc::new(Shmipc::default()));
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| Foe::client(&path));
        let session = listener.accept_deadline(soon()).unwrap();
        (connecting.join().unwrap(), session)
    })
}

fn fallback(stream: u32, payload: &[u8]) -> Vec<u8> {
    [&encode::fallback_header(3, stream, payload.len() as u32)[..], payload].concat()
}

#[test]
fn late_data_of_a_stream_that_we_closed_opens_no_ghost_and_is_given_back() {
    let (mut foe, session) = pair();
    let before = foe.memory.region.free_counts();
    for stream in 2..50 {
        foe.say(stream, b"hello");
        let mut ours = session.accept_deadline(soon()).unwrap().unwrap();
        assert_eq!(ours.recv_deadline(soon()).unwrap().unwrap(), b"hello");
        drop(ours);
        assert_eq!(foe.hear(), (stream, None));
        foe.say(stream, &[7; 10_000]);
        assert!(foe.wire.send(&fallback(stream, b"late")));
        assert!(foe.put(stream, 0, 1));
    }
    until("all slices are back", || foe.memory.region.free_counts() == before);
    let ghost = session.accept_deadline(Instant::now() + Duration::from_millis(100));
    assert!(ghost.is_err(), "a ghost");
    foe.say(99, b"another");
    let mut ours = session.accept_deadline(soon()).unwrap().unwrap();
    assert_eq!(ours.recv_deadline(soon()).unwrap().unwrap(), b"another");
}

#[test]
fn late_data_of_a_stream_that_they_closed_opens_no_ghost_either() {
    let (mut foe, session) = pair();
    let before = foe.memory.region.free_counts();
    foe.say(2, b"hello");
    let mut ours = session.accept_deadline(soon()).unwrap().unwrap();
    assert_eq!(ours.recv_deadline(soon()).unwrap().unwrap(), b"hello");
    assert!(foe.put(2, 0, 1));
    assert!(matches!(ours.recv_deadline(soon()), Ok(None)));
    assert!(foe.wire.send(&fallback(2, b"overtaken by the end, over TCP")));
    foe.say(2, b"late");
    until("all slices are back", || foe.memory.region.free_counts() == before);
    let accepted = session.accept_deadline(Instant::now() + Duration::from_millis(100));
    assert!(!matches!(accepted, Ok(Some(_))), "{accepted:?}");
}

#[test]
fn an_end_in_the_ring_waits_for_the_data_on_the_socket() {
    for _ in 0..50 {
        let (mut foe, session) = pair();
        foe.say(2, b"by the ring");
        assert!(foe.wire.send(&fallback(2, b"by the socket")));
        assert!(foe.wire.send(&fallback(2, &[7; 200_000])));
        assert!(foe.put(2, 0, 1));
        let mut ours = session.accept_deadline(soon()).unwrap().unwrap();
        assert_eq!(ours.recv_deadline(soon()).unwrap().unwrap(), b"by the ring");
        assert_eq!(ours.recv_deadline(soon()).unwrap().unwrap(), b"by the socket");
        assert_eq!(ours.recv_deadline(soon()).unwrap().unwrap(), [7; 200_000]);
        assert!(matches!(ours.recv_deadline(soon()), Ok(None)));
    }
}

#[test]
fn an_end_on_the_socket_waits_for_the_data_in_the_ring() {
    for _ in 0..50 {
        let (mut foe, session) = pair();
        // The client adds elements to the ring without a wake-up, as if another thread of the
        // client had to send the wake-up and were delayed.
        for index in 0..60_u32 {
            let offset = foe.memory.message(&index.to_le_bytes());
            foe.memory.producer.put(Element { stream: 2, offset, status: 0 }).unwrap();
        }
        assert!(foe.wire.send(&encode::stream_close(3, 2)));
        let mut ours = session.accept_deadline(soon()).unwrap().unwrap();
        for index in 0..60_u32 {
            assert_eq!(ours.recv_deadline(soon()).unwrap().unwrap(), index.to_le_bytes());
        }
        assert!(matches!(ours.recv_deadline(soon()), Ok(None)));
    }
}

#[test]
fn a_ring_that_is_never_empty_holds_up_no_end() {
    let (mut foe, session) = pair();
    foe.say(2, b"ends by the ring");
    foe.say(3, b"ends by the socket");
    foe.say(4, b"goes on");
    let mut streams: Vec<_> =
        (0..3).map(|_| session.accept_deadline(soon()).unwrap().unwrap()).collect();
    let mut busy = streams.pop().unwrap();
    let (is_over, is_third_over) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(move || while let Ok(Some(_)) = busy.recv() {});
        let (over, third_over) = (&is_over, &is_third_over);
        let talking = scope.spawn(move || {
            let (mut round, mut has_closed) = (0_u32, false);
            while !over.load(Ordering::Relaxed) {
                // Input: a client that keeps the ring full all the time with messages on stream 4.
                if let Some(slice) = foe.memory.region.reserve(8) {
                    let offset = foe.memory.region.send_one(slice).unwrap();
                    while !foe.put(4, offset, 0) {
                        std::hint::spin_loop();
                    }
                }
                round += 1;
                if round == 500 {
                    assert!(foe.wire.send(&encode::stream_close(3, 3)));
                }
                // The client closes stream 2 through the ring only after stream 3 has ended: a
                // close in the ring makes the server read the socket, and the close of stream 3
                // must be read without that.
                if !has_closed && third_over.load(Ordering::Relaxed) {
                    has_closed = true;
                    while !foe.put(2, 0, 1) {}
                }
            }
            foe
        });
        for stream in streams.iter_mut().rev() {
            assert!(matches!(stream.recv_deadline(soon()), Ok(Some(_))));
            let end = stream.recv_deadline(soon());
            assert!(matches!(end, Ok(None)), "{end:?}");
            is_third_over.store(true, Ordering::Relaxed);
        }
        is_over.store(true, Ordering::Relaxed);
        drop(talking.join().unwrap());
    });
}

#[test]
fn wake_ups_without_anything_and_anything_without_wake_ups() {
    let (mut foe, session) = pair();
    for _ in 0..10_000 {
        assert!(foe.wire.send(&encode::polling(3)));
    }
    foe.say(2, b"hello");
    let mut ours = session.accept_deadline(soon()).unwrap().unwrap();
    assert_eq!(ours.recv_deadline(soon()).unwrap().unwrap(), b"hello");
    // The ring's flag "no wake-up is needed" is set before the client adds an element, as if
    // another thread of the client had set the flag. That thread would send the wake-up a little
    // later, as the test does.
    foe.memory.producer.mark_working();
    let offset = foe.memory.message(b"unnotified");
    foe.memory.producer.put(Element { stream: 2, offset, status: 0 }).unwrap();
    foe.wire.send(&encode::polling(3));
    assert_eq!(ours.recv_deadline(soon()).unwrap().unwrap(), b"unnotified");
}

#[test]
fn messages_before_hang_up_arrive_and_the_rest_is_freed() {
    let (mut foe, session) = pair();
    let region = Arc::clone(&foe.memory.region);
    let before = region.free_counts();
    for index in 0..20_u32 {
        let offset = foe.memory.message(&index.to_le_bytes());
        foe.memory.producer.put(Element { stream: 2, offset, status: 0 }).unwrap();
    }
    // The client shuts the connection down without closing its stream by a message on the socket.
    foe.wire.socket.shutdown_both().unwrap();
    let mut ours = session.accept_deadline(soon()).unwrap().unwrap();
    for index in 0..20_u32 {
        assert_eq!(ours.recv_deadline(soon()).unwrap().unwrap(), index.to_le_bytes());
    }
    assert!(!matches!(ours.recv_deadline(soon()), Ok(Some(_))));
    until("everything is given back", || region.free_counts() == before);
    drop(foe);
}

/// Input: more bytes are unread than the limit allows, so the server does not read the socket, and
/// the ring is full, too. Then the client closes the connection. Expected: a sender of the server
/// that waits for room gets the end of the session.
#[test]
fn blocked_sender_learns_of_the_end_while_nothing_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.sock");
    let little = partywall_shmipc::Config::default()
        .fallback_message_max(1 << 20)
        .fallback_unread_max(1 << 20);
    let config = partywall::Config::default().trust(partywall::TrustPolicy::Untrusted);
    let listener = Listener::bind_with(&*support_foe::address(&path), &config).unwrap();
    let mut listener = listener.with_protocol(Arc::new(Shmipc::new(little).unwrap()));
    let (foe, session) = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| Foe::client(&path));
        let session = listener.accept_deadline(soon()).unwrap();
        (connecting.join().unwrap(), session)
    });
    // The server holds unread bytes up to its limit, and the socket's buffers hold the rest of the
    // messages.
    for _ in 0..11 {
        foe.wire.send(&fallback(2, &[7; 100_000]));
    }
    let mut ours = session.accept_deadline(soon()).unwrap().unwrap();
    let brief = || Instant::now() + Duration::from_millis(100);
    while ours.send_deadline(b"into the ring", brief()).is_ok() {}
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| ours.send_deadline(b"for ever?", soon()));
        std::thread::yield_now();
        drop(foe);
        let ended = sending.join().unwrap();
        assert!(matches!(&ended, Err(StreamSendError::Session(_))), "{ended:?}");
    });
}

/// Connects a client under test over TCP to a hostile server. Returns the client's session, and the
/// server.
fn over_tcp(directory: &std::path::Path) -> (Session, Foe) {
    let listener = partywall_sys::Listener::listen_tcp("127.0.0.1:0".parse().unwrap(), 16).unwrap();
    let address = format!("tcp:{}", listener.local_addr().unwrap().unwrap());
    let prefix = directory.join("shm").to_str().unwrap().to_owned();
    let protocol =
        support_foe::small().mem_map_type(MemMapType::DevShmFile).share_memory_path_prefix(prefix);
    let (config, protocol) =
        (partywall::Config::default(), Arc::new(Shmipc::new(protocol).unwrap()));
    let connected = partywall::blocking::connect_with_protocol(&*address, &config, protocol);
    let session = connected.unwrap();
    let mut accepted = None;
    until("we connect", || {
        accepted = listener.accept().unwrap();
        accepted.is_some()
    });
    let wire = Wire { socket: accepted.unwrap() };
    let (header, _) = wire.receive(8).unwrap();
    let length = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
    wire.receive(length as usize - 8).unwrap();
    let file = |what: &str| {
        let mut entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let path = entries.find(|path| path.to_str().unwrap().contains(what)).unwrap();
        std::fs::File::options().read(true).write(true).open(path).unwrap().into()
    };
    let memory = Memory::server(file("buffer"), file("queue"));
    (session, Foe { wire, memory })
}

/// Tests that the receiver reports the close of a stream, which comes through the ring, only after
/// the stream's last message on the socket. On a Unix socket everything written has arrived. But a
/// sender may write a message in two parts, and add the close of the stream to the ring between the
/// two writes.
#[test]
fn an_end_in_the_ring_waits_for_the_rest_of_a_message_on_the_socket() {
    for cut in [3, 10, 500] {
        let (mut foe, session) = pair();
        foe.say(2, b"hello");
        foe.say(3, b"hello");
        let mut streams: Vec<_> =
            (0..2).map(|_| session.accept_deadline(soon()).unwrap().unwrap()).collect();
        let mut other = streams.pop().unwrap();
        let mut ours = streams.pop().unwrap();
        assert!(matches!(ours.recv_deadline(soon()), Ok(Some(_))));
        assert!(matches!(other.recv_deadline(soon()), Ok(Some(_))));
        let bytes = fallback(2, &[7; 1000]);
        let (first, rest) = bytes.split_at(cut);
        assert!(foe.wire.send(first));
        for stream in [3, 2] {
            foe.memory.producer.put(Element { stream, offset: 0, status: 1 }).unwrap();
        }
        // The ring's flag is set, so that the sender sends no wake-up: a wake-up cannot be sent
        // within a message on the socket. The message's next byte wakes the receiver instead.
        let _ = foe.memory.producer.mark_working();
        let (next, rest) = rest.split_at(1);
        assert!(foe.wire.send(next));
        let early = ours.recv_deadline(Instant::now() + Duration::from_millis(50));
        let is_waiting = matches!(early, Err(StreamRecvError::TimedOut));
        assert!(is_waiting, "{cut}: {early:?}");
        assert!(foe.wire.send(rest));
        assert_eq!(ours.recv_deadline(soon()).unwrap().unwrap(), [7; 1000]);
        assert!(matches!(ours.recv_deadline(soon()), Ok(None)));
        assert!(matches!(other.recv_deadline(soon()), Ok(None)));
    }
}

/// Input: a wake-up and data of a stream arrive in one read of the socket, and the stream's close
/// is in the ring. That close is the only reason why the server reads the socket. Expected: the
/// server processes all frames of that read before it reports the close.
#[test]
fn all_frames_of_one_read_are_processed() {
    let (mut foe, session) = pair();
    for stream in 2..2000 {
        foe.say(stream, b"hello");
        let mut ours = session.accept_deadline(soon()).unwrap().unwrap();
        std::thread::scope(|scope| {
            let receives = scope.spawn(|| {
                let mut received = 0;
                loop {
                    match ours.recv_deadline(soon()) {
                        Ok(Some(_)) => received += 1,
                        end => return (received, end),
                    }
                }
            });
            for _ in 0..stream % 7 {
                foe.say(stream, b"awake");
            }
            let both = [&encode::polling(3)[..], &fallback(stream, b"last")].concat();
            assert!(foe.wire.send(&both));
            foe.memory.producer.put(Element { stream, offset: 0, status: 1 }).unwrap();
            if foe.memory.producer.mark_working() {
                assert!(foe.wire.send(&encode::polling(3)));
            }
            let (received, end) = receives.join().unwrap();
            assert!(matches!(end, Ok(None)), "{stream}: {end:?}");
            assert_eq!(received, 1 + stream % 7 + 1, "{stream}");
        });
    }
}

/// Input: the connection ends within a message of a stream, while the ring has the stream's close.
/// Expected result: receiving on the stream fails, because its data is incomplete.
#[test]
fn an_end_in_the_ring_is_not_believed_where_the_connection_was_cut_within_a_message() {
    let directory = tempfile::tempdir().unwrap();
    for is_tcp in [false, true] {
        let (session, mut foe, mut ours, stream);
        if is_tcp {
            (session, foe) = over_tcp(directory.path());
            ours = session.open(&[]).unwrap();
            ours.send_deadline(b"hello", soon()).unwrap();
            stream = foe.hear().0;
        } else {
            (foe, session) = pair();
            foe.say(2, b"hello");
            ours = session.accept_deadline(soon()).unwrap().unwrap();
            assert!(matches!(ours.recv_deadline(soon()), Ok(Some(_))));
            stream = 2;
        }
        let version = if is_tcp { 2 } else { 3 };
        let message = [&encode::fallback_header(version, stream, 1000)[..], &[7; 1000]].concat();
        assert!(foe.wire.send(&message[..500]));
        foe.memory.producer.put(Element { stream, offset: 0, status: 1 }).unwrap();
        let _ = foe.memory.producer.mark_working();
        foe.wire.socket.shutdown_both().unwrap();
        let end = ours.recv_deadline(soon());
        let is_reported = matches!(&end, Err(StreamRecvError::Session(_)));
        assert!(is_reported, "over TCP: {is_tcp}: {end:?}");
    }
}

/// Tests that the receiver reports a close from the ring only after the rest of the stream's
/// message has arrived. Over TCP the sender's buffers may still hold that rest when the close is
/// already in the ring.
#[test]
fn over_tcp_an_end_in_the_ring_waits_for_the_rest_of_a_message() {
    let directory = tempfile::tempdir().unwrap();
    let (session, mut foe) = over_tcp(directory.path());
    let mut ours = session.open(&[]).unwrap();
    ours.send_deadline(b"hello", soon()).unwrap();
    let stream = foe.hear().0;
    let answer = [&encode::fallback_header(2, stream, 1000)[..], &[7; 1000]].concat();
    let (first, rest) = answer.split_at(500);
    assert!(foe.wire.send(first));
    foe.memory.producer.put(Element { stream, offset: 0, status: 1 }).unwrap();
    let _ = foe.memory.producer.mark_working();
    assert!(foe.wire.send(rest.get(..100).unwrap()));
    let early = ours.recv_deadline(Instant::now() + Duration::from_millis(100));
    assert!(matches!(early, Err(StreamRecvError::TimedOut)), "{early:?}");
    assert!(foe.wire.send(&rest[100..]));
    assert_eq!(ours.recv_deadline(soon()).unwrap().unwrap(), [7; 1000]);
    assert!(matches!(ours.recv_deadline(soon()), Ok(None)));
}
