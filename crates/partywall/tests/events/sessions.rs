// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of sessions whose drivers an event loop runs: every message arrives once, opening and
//! accepting streams waits for events of the loop, and many threads use the streams of one loop.

use partywall::event::{Event, Loop, Session, Stream};
use partywall::{BackPressure, Config, OpenError, StreamRecvError, StreamSendError, blocking};
use partywall_testkit::echo_loop::{Drive, Driven, EchoLoop};
use partywall_testkit::{Kind, Random, is_pattern, pattern, soon};
use std::collections::HashMap;
use std::time::Instant;

const SESSIONS: u64 = 3;
const STREAMS: u64 = 8;
const MESSAGES: u64 = 60;

fn small(config: Config) -> Config {
    config.ring_bytes(8192).peer_blocks_max(16).memory_max(512 << 10).stream_window(16 << 10)
}

fn length(seed: u64, number: u64) -> usize {
    Random::new(seed << 32 | number).size(9000)
}

/// A client of the echo server on one blocking stream.
fn exchange(stream: blocking::Stream, seed: u64) {
    let (mut send, mut recv) = stream.into_split();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..MESSAGES {
                let payload = pattern(length(seed, number), number);
                send.send_deadline(&payload, soon()).unwrap();
            }
        });
        for number in 0..MESSAGES {
            let message = recv.recv_deadline(soon()).unwrap().unwrap();
            assert!(message.len() == length(seed, number) && is_pattern(&message, number));
        }
        assert!(recv.recv_deadline(soon()).unwrap().is_none());
    });
}

#[test]
fn every_message_comes_back_once() {
    for kind in Kind::ALL {
        for drive in Drive::ALL {
            for taken_max in [1, usize::MAX] {
                let config = small(kind.config());
                let mut server = EchoLoop::new(drive, taken_max);
                let address = server.listen_for_sessions(&kind.address(), &config);
                std::thread::scope(|scope| {
                    for seed in 0..SESSIONS {
                        let (address, config) = (&address, &config);
                        scope.spawn(move || {
                            let session = blocking::connect_with(&address[..], config).unwrap();
                            std::thread::scope(|scope| {
                                for stream in 0..STREAMS {
                                    let opened = session.open(b"echo").unwrap();
                                    scope.spawn(move || exchange(opened, seed << 8 | stream));
                                }
                            });
                        });
                    }
                    while server.ended < SESSIONS * (STREAMS + 1) {
                        server.turn();
                    }
                });
                let name = format!("{} {drive:?}", kind.name());
                assert_eq!(server.echoed, SESSIONS * STREAMS * MESSAGES, "{name}");
                assert_eq!(server.members(), 1, "{name}: only the listener is left");
            }
        }
    }
}

/// A client in an event loop, with the numbers of messages sent and received on each stream of its
/// session.
struct Client {
    session: Session,
    streams: HashMap<u64, (Stream, u64, u64)>,
    opened: u64,
    done: u64,
}

impl Client {
    const SESSION: u64 = 0;

    fn open(&mut self) {
        while self.opened < STREAMS {
            match self.session.try_open(b"echo", self.opened + 1) {
                Ok(stream) => {
                    self.opened += 1;
                    self.streams.insert(self.opened, (stream, 0, 0));
                    self.advance(self.opened);
                }
                Err(OpenError::WouldBlock) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn serve(&mut self, event: Event) {
        if event.tag == Self::SESSION {
            self.open();
        } else if self.streams.contains_key(&event.tag) {
            self.advance(event.tag);
        }
    }

    fn advance(&mut self, tag: u64) {
        let (stream, sent, received) = self.streams.get_mut(&tag).unwrap();
        while *sent < MESSAGES {
            match stream.try_send(&pattern(length(tag, *sent), *sent)) {
                Ok(()) => *sent += 1,
                Err(StreamSendError::Full) => break,
                Err(error) => panic!("{error}"),
            }
            if *sent == MESSAGES {
                stream.finish();
            }
        }
        loop {
            match stream.try_recv() {
                Ok(Some(message)) => {
                    assert!(message.len() == length(tag, *received));
                    assert!(is_pattern(&message, *received));
                    *received += 1;
                }
                Ok(None) => break,
                Err(StreamRecvError::Empty) => return,
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!((*sent, *received), (MESSAGES, MESSAGES));
        self.streams.remove(&tag);
        self.done += 1;
    }
}

#[test]
fn client_and_server_are_both_loops() {
    for kind in Kind::ALL {
        for drive in Drive::ALL {
            // The server allows 4 streams at a time, fewer than the client opens. So the client has
            // to wait until a stream has ended.
            let config = small(kind.config()).streams_max(4);
            let mut server = EchoLoop::new(drive, usize::MAX);
            let address = server.listen_for_sessions(&kind.address(), &config);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut driven = Driven::new(drive);
                    let session =
                        driven.events.connect(&address[..], &config, Client::SESSION).unwrap();
                    let (streams, opened, done) = (HashMap::new(), 0, 0);
                    let mut client = Client { session, streams, opened, done };
                    let mut ready = Vec::new();
                    client.open();
                    while client.done < STREAMS {
                        driven.turn(&mut ready);
                        ready.iter().for_each(|event| client.serve(*event));
                    }
                    client.session.close(7, "done");
                    while !client.session.is_finished() {
                        driven.turn(&mut ready);
                    }
                });
                while server.ended < STREAMS + 1 {
                    server.turn();
                }
            });
            assert_eq!(server.echoed, STREAMS * MESSAGES, "{} {drive:?}", kind.name());
        }
    }
}

/// Makes a session whose ring is full: the server's loop does not run, and the client has sent
/// messages on the stream with tag 1 until there was no room.
fn full(kind: Kind, config: &Config) -> (EchoLoop, Loop, Session, Stream) {
    let mut server = EchoLoop::new(Drive::Wait, usize::MAX);
    let address = server.listen_for_sessions(&kind.address(), config);
    let events = Loop::new().unwrap();
    let session = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| events.connect(&address[..], config, Client::SESSION));
        while server.members() < 2 {
            server.turn();
        }
        connecting.join().unwrap().unwrap()
    });
    let mut stream = session.try_open(b"", 1).unwrap();
    // Each message of eight bytes takes as much room in the ring as OPEN.
    while stream.try_send(&[7; 8]).is_ok() {}
    (server, events, session, stream)
}

/// Runs both loops until the client's loop reports `tag` as writable.
fn until_writable(server: &mut EchoLoop, events: &Loop, tag: u64, what: &str) {
    let (mut ready, until) = (Vec::new(), soon());
    loop {
        server.driven.turn_until(&mut ready, Instant::now());
        events.poll(&mut ready).unwrap();
        if ready.iter().any(|event| event.tag == tag && event.kinds.is_writable()) {
            return;
        }
        assert!(Instant::now() < until, "{what}: {tag} never gets writable");
    }
}

/// Input: the ring has no room for OPEN, and no stream ends. Expected: the loop reports the session
/// as writable once the ring has room.
#[test]
fn session_is_writable_once_there_is_room_to_open() {
    for kind in [Kind::SharedMemory, Kind::Untrusted] {
        let config = small(kind.config()).stream_window(1 << 20);
        let (mut server, events, session, _stream) = full(kind, &config);
        assert!(matches!(session.try_open(b"", 2), Err(OpenError::WouldBlock)), "{}", kind.name());
        until_writable(&mut server, &events, Client::SESSION, kind.name());
        session.try_open(b"", 2).unwrap();
    }
}

/// Rule: after `Full`, the loop reports the stream as writable under each back-pressure policy,
/// because no call in an event loop waits.
#[test]
fn stream_is_writable_again_under_each_policy() {
    for policy in [BackPressure::Block, BackPressure::Error, BackPressure::Overflow] {
        let config = small(Kind::SharedMemory.config()).stream_window(1 << 20);
        let config = config.back_pressure(policy);
        let (mut server, events, _session, mut stream) = full(Kind::SharedMemory, &config);
        until_writable(&mut server, &events, 1, &format!("{policy:?}"));
        stream.try_send(&[7; 8]).unwrap();
    }
}

#[test]
fn streams_are_used_by_threads_while_another_runs_the_loop() {
    for kind in Kind::ALL {
        let config = small(kind.config());
        let mut server = EchoLoop::new(Drive::Wait, usize::MAX);
        let address = server.listen_for_sessions(&kind.address(), &config);
        let events = Loop::new().unwrap();
        let session = std::thread::scope(|scope| {
            let connecting = scope.spawn(|| events.connect(&address[..], &config, u64::MAX));
            while server.members() < 2 {
                server.turn();
            }
            connecting.join().unwrap().unwrap()
        });
        std::thread::scope(|scope| {
            let (session, events) = (&session, &events);
            let (mut wakers, mut threads) = (Vec::new(), Vec::new());
            // The streams are opened first, because messages could leave no room in the ring for
            // OPEN.
            let streams: Vec<_> =
                (0..STREAMS).map(|tag| session.try_open(b"", tag).unwrap()).collect();
            for (tag, mut stream) in (0..).zip(streams) {
                let (wake, woken) = std::sync::mpsc::channel();
                wakers.push(wake);
                threads.push(scope.spawn(move || {
                    let mut received = 0;
                    for number in 0..MESSAGES {
                        let payload = pattern(length(tag, number), number);
                        while let Err(error) = stream.try_send(&payload) {
                            assert!(matches!(error, StreamSendError::Full), "{error}");
                            woken.recv_timeout(partywall_testkit::TIMEOUT).unwrap();
                            received += receive(&mut stream, received);
                        }
                    }
                    while received < MESSAGES {
                        received += receive(&mut stream, received);
                        if received < MESSAGES {
                            woken.recv_timeout(partywall_testkit::TIMEOUT).unwrap();
                        }
                    }
                }));
            }
            scope.spawn(move || {
                let mut ready = Vec::new();
                while !threads.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                    // The end of a thread is no event of the loop, so each turn lasts at most 20
                    // ms.
                    let until = Instant::now() + std::time::Duration::from_millis(20);
                    events.wait(&mut ready, Some(until)).unwrap();
                    for event in &ready {
                        if let Some(wake) = wakers.get(usize::try_from(event.tag).unwrap()) {
                            let _ = wake.send(());
                        }
                    }
                }
                threads.into_iter().for_each(|thread| thread.join().unwrap());
            });
            while server.echoed < STREAMS * MESSAGES {
                server.turn();
            }
        });
    }
}

/// Receives all messages that have arrived on a stream, the first of them with the number `from`.
/// Returns how many they are.
fn receive(stream: &mut Stream, from: u64) -> u64 {
    let mut count = 0;
    while let Ok(Some(message)) = stream.try_recv() {
        assert!(is_pattern(&message, from + count));
        count += 1;
    }
    count
}

#[test]
fn reservations_of_streams_wait_for_memory_and_credit() {
    let config = small(Kind::SharedMemory.config());
    let mut server = EchoLoop::new(Drive::Wait, usize::MAX);
    let address = server.listen_for_sessions(&Kind::SharedMemory.address(), &config);
    let client = std::thread::spawn(move || {
        let mut driven = Driven::new(Drive::Wait);
        let session = driven.events.connect(&address[..], &config, 0).unwrap();
        let mut stream = session.try_open(b"", 1).unwrap();
        let (mut ready, mut received) = (Vec::new(), 0);
        for number in 0..100 {
            let mut reservation = loop {
                match stream.sender().try_reserve_owned(6000) {
                    Ok(reservation) => break reservation,
                    Err(StreamSendError::Full) => driven.turn(&mut ready),
                    Err(other) => panic!("{other}"),
                }
                received += receive(&mut stream, received);
            };
            partywall_testkit::fill(&mut reservation, number);
            while let Err((back, error)) = stream.sender().try_commit_owned(reservation) {
                assert!(matches!(error, StreamSendError::Full), "{error}");
                reservation = back;
                driven.turn(&mut ready);
                received += receive(&mut stream, received);
            }
        }
        while received < 100 {
            driven.turn(&mut ready);
            received += receive(&mut stream, received);
        }
    });
    while server.echoed < 100 {
        server.turn();
    }
    client.join().unwrap();
}
