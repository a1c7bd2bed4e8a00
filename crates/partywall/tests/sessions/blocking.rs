// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `partywall::blocking`, the interface to sessions for threads: streams, calls with
//! deadlines, and destructors.

use partywall::blocking::{Listener, Session, Stream, connect_with};
use partywall::{
    Begin, Config, OpenError, StreamRecvError, StreamSendError, TransportPolicy, Wait, WaitError,
};
use std::cell::RefCell;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

fn pair(address: &str, config: &Config) -> (Session, Session) {
    let mut listener = Listener::bind_with(address, config).unwrap();
    let address = listener.local_address().to_string();
    std::thread::scope(|scope| {
        let client = scope.spawn(|| connect_with(&address, config).unwrap());
        let server = listener.accept().unwrap();
        (client.join().unwrap(), server)
    })
}

fn each(mut test: impl FnMut(&str, Session, Session)) {
    let directory = tempfile::tempdir().unwrap();
    let path = format!("unix:{}/s.sock", directory.path().display());
    let config = Config::default().begin(Begin::SharedMemory);
    let kinds = [
        ("shm", &path[..], config.clone().transport(TransportPolicy::SharedMemory)),
        ("parked", &path, config.clone().wait(Wait::Park)),
        ("timed", &path, config.clone().wait(Wait::Poll(Duration::from_millis(1)))),
        ("unix", &path, config.clone().transport(TransportPolicy::Socket)),
        ("default", &path, Config::default()),
        ("tcp", "tcp:127.0.0.1:0", config),
    ];
    for (name, address, config) in kinds {
        let (client, server) = pair(address, &config);
        test(name, client, server);
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

#[test]
fn many_threads_echo_over_one_session() {
    each(|name, client, server| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..8 {
                    let mut stream = server.accept().unwrap().unwrap();
                    scope.spawn(move || {
                        while let Ok(Some(message)) = stream.recv() {
                            stream.send(&message).unwrap();
                        }
                    });
                }
            });
            for index in 0..8usize {
                let client = &client;
                scope.spawn(move || {
                    let mut stream = client.open(&[]).unwrap();
                    for round in 0..30usize {
                        let len = [0, 1, 500, 600, 40_000, 400_000][(index + round) % 6];
                        let payload: Vec<u8> = (0..len).map(|at| (at + index) as u8).collect();
                        stream.send(&payload).unwrap();
                        let back = stream.recv_deadline(soon()).unwrap().unwrap();
                        assert!(back == payload, "{name}: {len} bytes differ");
                    }
                    stream.finish();
                    assert!(matches!(stream.recv(), Ok(None)));
                });
            }
        });
        client.drained(Some(soon())).unwrap();
        assert!(client.ping(Some(soon())).is_ok());
    });
}

#[test]
fn whoever_waits_has_a_deadline() {
    each(|name, client, server| {
        let mut stream = client.open(b"hello").unwrap();
        let passed = Instant::now();
        let timed_out = stream.recv_deadline(passed);
        let is_timed_out = matches!(timed_out, Err(StreamRecvError::TimedOut));
        assert!(is_timed_out, "{name}: {timed_out:?}");
        assert!(matches!(stream.try_recv(), Err(StreamRecvError::Empty)));
        assert!(matches!(client.accept_deadline(passed), Err(WaitError::TimedOut)));
        assert!(matches!(client.try_accept(), Err(WaitError::WouldBlock)));
        let mut there = server.accept_deadline(soon()).unwrap().unwrap();
        assert_eq!(there.metadata(), b"hello");
        // The peer reads no message, so credit runs out, and the wait for it must end at the
        // deadline.
        let mut sent = 0;
        let full = loop {
            match stream.try_send(&[7; 1000]) {
                Ok(()) => sent += 1,
                // Over a socket, `Full` may also mean that the kernel's buffer is full, before the
                // credit is used up.
                Err(StreamSendError::Full) if sent < 200 => std::thread::yield_now(),
                Err(error) => break error,
            }
        };
        assert!(matches!(full, StreamSendError::Full), "{name}: {full}");
        let late = stream.sender().send_deadline(&[7; 300_000], passed);
        let is_timed_out = matches!(late, Err(StreamSendError::TimedOut));
        assert!(is_timed_out, "{name}: {late:?}");
        stream.finish();
        let mut count = 0;
        while let Ok(Some(message)) = there.recv_deadline(soon()) {
            assert_eq!(message, [7; 1000]);
            count += 1;
        }
        assert!(count > 100, "{name}: {count}");
        assert!(matches!(there.recv(), Ok(None)));
    });
}

#[test]
fn bytes_go_both_ways_and_end() {
    each(|name, client, server| {
        let bytes: Vec<u8> = (0..3_000_000u32).map(|at| ((at * 31) >> 3) as u8).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut io = server.accept().unwrap().unwrap().into_io();
                let mut all = Vec::new();
                io.read_to_end(&mut all).unwrap();
                io.write_all(&all).unwrap();
            });
            let mut io = client.open(&[]).unwrap().into_io();
            io.write_all(&bytes).unwrap();
            io.finish();
            let mut back = Vec::new();
            io.read_to_end(&mut back).unwrap();
            assert!(back == bytes, "{name}: {} bytes came back", back.len());
        });
    });
}

/// A value whose destructor makes blocking calls. The destructor runs when the thread ends, after
/// other thread-local values are destroyed.
struct Farewell {
    stream: Stream,
    answers: std::sync::mpsc::Sender<Vec<u8>>,
}

impl Drop for Farewell {
    fn drop(&mut self) {
        self.stream.send(b"farewell").unwrap();
        let answer = self.stream.recv_deadline(soon()).unwrap().unwrap();
        self.answers.send(answer.to_vec()).unwrap();
    }
}

thread_local! {
    static FAREWELL: RefCell<Option<Farewell>> = const { RefCell::new(None) };
}

#[test]
fn a_stream_is_used_and_dropped_by_the_destructor_of_a_thread_local_value() {
    each(|name, client, server| {
        let (answers, answered) = std::sync::mpsc::channel();
        let leaving = std::thread::spawn(move || {
            // Thread-local values are destroyed in reverse order, so `FAREWELL`, the first that
            // this thread uses, is destroyed last.
            FAREWELL.with_borrow_mut(|farewell| {
                let mut stream = client.open(&[]).unwrap();
                stream.send(b"hello").unwrap();
                stream.recv().unwrap().unwrap();
                *farewell = Some(Farewell { stream, answers });
            });
        });
        let mut there = server.accept_deadline(soon()).unwrap().unwrap();
        assert_eq!(there.recv_deadline(soon()).unwrap().unwrap(), b"hello");
        there.send(b"hello").unwrap();
        assert_eq!(there.recv_deadline(soon()).unwrap().unwrap(), b"farewell");
        there.send(b"and to you").unwrap();
        leaving.join().unwrap();
        assert_eq!(answered.recv().unwrap(), b"and to you", "{name}");
    });
}

#[test]
fn the_end_of_a_session_reaches_everybody() {
    each(|name, client, server| {
        let mut stream = client.open(&[]).unwrap();
        let _there = server.accept_deadline(soon()).unwrap().unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| stream.recv());
            let accepting = scope.spawn(|| client.accept());
            server.close(0, "");
            let ended = waiting.join().unwrap();
            assert!(matches!(ended, Err(StreamRecvError::Session(_))), "{name}: {ended:?}");
            assert!(matches!(accepting.join().unwrap(), Ok(None)), "{name}");
        });
        client.closed(Some(soon())).unwrap();
        assert!(matches!(client.open(&[]), Err(OpenError::Session(_))), "{name}");
    });
}
