// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of calls without a runtime: answers in any order, cancelled calls, deadlines, and the
//! result of each call.

use partywall::blocking::{Listener, Session, Stream, connect_with};
use partywall::{Begin, Config, StreamRecvError};
use partywall_extras::calls::blocking::{Client, Server};
use partywall_extras::calls::{CallError, CallViolation, CallsConfig, Lost, ServeError, VIOLATION};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(60);

struct Pair {
    here: Stream,
    there: Stream,
    _sessions: (Session, Session),
    _directory: tempfile::TempDir,
}

fn pair() -> Pair {
    let directory = tempfile::tempdir().unwrap();
    let address = format!("unix:{}/c.sock", directory.path().display());
    let config = Config::default().begin(Begin::SharedMemory);
    let mut listener = Listener::bind_with(&*address, &config).unwrap();
    let client = thread::spawn(move || connect_with(&*address, &config).unwrap());
    let server = listener.accept().unwrap();
    let client = client.join().unwrap();
    let here = client.open(b"calls").unwrap();
    let there = server.accept().unwrap().unwrap();
    Pair { here, there, _sessions: (client, server), _directory: directory }
}

fn soon() -> Option<Instant> {
    Some(Instant::now() + TIMEOUT)
}

fn at_once() -> Option<Instant> {
    Some(Instant::now())
}

fn ends(pair: Pair, config: CallsConfig) -> (Client, Server, impl Sized) {
    let (client, server) = (Client::new(pair.here, config), Server::new(pair.there, config));
    (client, server, (pair._sessions, pair._directory))
}

#[test]
fn calls_of_many_threads_get_their_own_answers() {
    let (client, server, _kept) = ends(pair(), CallsConfig::default().in_flight_max(3));
    let servers: Vec<_> = (0..3)
        .map(|_| {
            let server = server.clone();
            thread::spawn(move || {
                let mut count = 0;
                while let Some(request) = server.recv(soon()).unwrap() {
                    let answer = [&request[..], b"!"].concat();
                    request.answer(&answer, soon()).unwrap();
                    count += 1;
                }
                count
            })
        })
        .collect();
    let clients: Vec<_> = (0..8_u32)
        .map(|thread| {
            let client = client.clone();
            thread::spawn(move || {
                for call in 0..100_u32 {
                    let len = if call % 10 == 0 { 20_000 } else { 40 };
                    let mut payload = vec![thread as u8; len];
                    payload[1] = call as u8;
                    let answer = client.call(&payload, soon()).unwrap();
                    assert_eq!(answer[..len], payload[..]);
                    assert_eq!(answer.len(), len + 1);
                }
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    drop(client);
    let answered: u32 = servers.into_iter().map(|server| server.join().unwrap()).sum();
    assert_eq!(answered, 800);
}

#[test]
fn handlers_fail_with_a_code_or_drop_the_call_and_one_way_calls_have_no_answer() {
    let (client, server, _kept) = ends(pair(), CallsConfig::default());
    let serving = thread::spawn(move || {
        let mut one_way = 0;
        while let Some(request) = server.recv(soon()).unwrap() {
            match &request[..] {
                b"fail" => request.fail(7, b"why", soon()).unwrap(),
                b"drop" => drop(request),
                b"one way" => {
                    assert!(request.is_one_way());
                    one_way += 1;
                    request.answer(b"nobody", soon()).unwrap();
                }
                _ => request.answer(b"good", soon()).unwrap(),
            }
        }
        one_way
    });
    let Err(CallError::Failed { code: 7, detail }) = client.call(b"fail", soon()) else { panic!() };
    assert_eq!(detail, &b"why"[..]);
    assert!(matches!(client.call(b"drop", soon()), Err(CallError::Aborted)));
    client.call_one_way(b"one way", soon()).unwrap();
    assert_eq!(client.call(b"x", soon()).unwrap(), b"good");
    let (mut first, mut second) =
        (client.begin(b"1", soon()).unwrap(), client.begin(b"fail", soon()).unwrap());
    assert!(matches!(second.wait(soon()), Err(CallError::Failed { .. })));
    assert_eq!(first.wait(soon()).unwrap(), b"good");
    drop((first, second, client));
    assert_eq!(serving.join().unwrap(), 1);
}

#[test]
fn dropped_call_is_cancelled_at_the_server() {
    let (client, server, _kept) = ends(pair(), CallsConfig::default().in_flight_max(1));
    let call = client.begin(b"long", None).unwrap();
    let request = server.recv(soon()).unwrap().unwrap();
    assert!(!request.is_cancelled());
    let refused = client.begin(b"second", Some(Instant::now() + Duration::from_millis(1)));
    assert!(matches!(refused, Err(CallError::DeadlineExceeded)));
    drop(call);
    let until = Instant::now() + TIMEOUT;
    while !request.is_cancelled() {
        assert!(Instant::now() < until, "CANCEL does not come");
        thread::yield_now();
    }
    request.answer(b"nobody gets it", soon()).unwrap();
    let again = client.begin(b"third", soon()).unwrap();
    assert_eq!(server.recv(soon()).unwrap().unwrap()[..], *b"third");
    drop(again);
}

#[test]
fn deadline_ends_the_call_on_both_sides() {
    let (client, server, _kept) = ends(pair(), CallsConfig::default());
    let deadline = Instant::now() + Duration::from_millis(20);
    let mut call = client.begin(b"slow", Some(deadline)).unwrap();
    let request = server.recv(soon()).unwrap().unwrap();
    assert!(request.deadline().is_some());
    assert!(matches!(call.wait(None), Err(CallError::DeadlineExceeded)));
    let until = Instant::now() + TIMEOUT;
    while !request.is_cancelled() {
        assert!(Instant::now() < until, "the deadline does not pass");
        thread::yield_now();
    }
    drop(request);
    // The server sends an error for the aborted call while the client sends the message CANCEL for
    // it. Neither of the two messages breaks the stream.
    drop(call);
    let mut next = client.begin(b"next", soon()).unwrap();
    server.recv(soon()).unwrap().unwrap().answer(b"here", soon()).unwrap();
    assert_eq!(next.wait(soon()).unwrap(), b"here");
}

#[test]
fn calls_beyond_the_limit_are_refused() {
    let (client, server, _kept) = ends(pair(), CallsConfig::default().waiting_max(1));
    let mut calls: Vec<_> = (0..3).map(|_| client.begin(b"x", soon()).unwrap()).collect();
    let first = server.recv(soon()).unwrap().unwrap();
    let until = Instant::now() + TIMEOUT;
    let refused = loop {
        // `is_cancelled` makes the server receive the messages that have arrived. The second call
        // of the client then waits for the server's `recv`, so the third is one more than may wait
        // (`waiting_max`), and is refused.
        let _ = first.is_cancelled();
        match calls[2].wait(Some(Instant::now() + Duration::from_millis(1))) {
            Err(CallError::DeadlineExceeded) => assert!(Instant::now() < until, "no refusal"),
            refused => break refused,
        }
    };
    assert!(matches!(refused, Err(CallError::Busy)));
    first.answer(b"one", soon()).unwrap();
    server.recv(soon()).unwrap().unwrap().answer(b"two", soon()).unwrap();
    assert_eq!(calls[0].wait(soon()).unwrap(), b"one");
    assert_eq!(calls[1].wait(soon()).unwrap(), b"two");
}

#[test]
fn ends_of_either_side_are_noticed() {
    let (client, server, _kept) = ends(pair(), CallsConfig::default());
    let late = server.recv(at_once()).err();
    assert!(matches!(late, Some(ServeError::Recv(StreamRecvError::TimedOut))), "{late:?}");
    let mut call = client.begin(b"x", soon()).unwrap();
    drop(server.recv(soon()).unwrap());
    assert!(matches!(call.wait(soon()), Err(CallError::Aborted)));
    drop(server);
    let lost = client.call(b"y", soon());
    assert!(matches!(lost, Err(CallError::Lost(_))), "{lost:?}");

    let (client, server, _kept) = ends(pair(), CallsConfig::default());
    client.call_one_way(b"last", soon()).unwrap();
    drop(client);
    assert_eq!(server.recv(soon()).unwrap().unwrap()[..], *b"last");
    assert!(server.recv(soon()).unwrap().is_none());
}

#[test]
fn violations_reset_the_stream() {
    let pair = pair();
    let (mut raw, server) = (pair.here, Server::new(pair.there, CallsConfig::default()));
    raw.send(b"short").unwrap();
    let found = server.recv(soon());
    let short = ServeError::Violation(CallViolation::Short { len: 5 });
    assert_eq!(found.unwrap_err().to_string(), short.to_string());
    assert!(matches!(raw.recv(), Err(StreamRecvError::Reset { code: VIOLATION })));

    let pair = self::pair();
    let (client, mut raw) = (Client::new(pair.here, CallsConfig::default()), pair.there);
    let mut call = client.begin(b"x", soon()).unwrap();
    raw.send(&[1; 16]).unwrap();
    let lost = call.wait(soon());
    assert!(matches!(lost, Err(CallError::Lost(Lost::Violation(_)))), "{lost:?}");
    assert!(client.lost().is_some());
}

#[test]
fn two_sides_that_send_much_at_once_do_not_wait_for_each_other() {
    let (client, server, _kept) = ends(pair(), CallsConfig::default());
    let serving = thread::spawn(move || {
        let mut held = Vec::new();
        while let Some(request) = server.recv(soon()).unwrap() {
            held.push(request);
            if held.len() == 8 {
                for request in held.drain(..) {
                    let answer = request.to_vec();
                    request.answer(&answer, soon()).unwrap();
                }
            }
        }
    });
    let payload = vec![5; 60_000];
    let mut calls = Vec::new();
    for _ in 0..64 {
        calls.push(client.begin(&payload, soon()).unwrap());
    }
    for mut call in calls {
        assert_eq!(call.wait(soon()).unwrap(), payload);
    }
    drop(client);
    serving.join().unwrap();
}

#[test]
fn answers_and_slots_reach_their_threads_although_another_goes_on_receiving() {
    let (client, server, _kept) = ends(pair(), CallsConfig::default().in_flight_max(2));
    let mut unanswered = client.begin(b"later", None).unwrap();
    let held = server.recv(soon()).unwrap().unwrap();
    let receiving = thread::spawn(move || unanswered.wait(None));
    let serving = thread::spawn(move || {
        while let Some(request) = server.recv(None).unwrap() {
            request.answer(b"now", None).unwrap();
        }
    });
    // Two threads make calls, but only two calls may be in flight, and one of them is never
    // answered. So each thread may have to wait for the other's call to end.
    let (done, finished) = mpsc::channel();
    for _ in 0..2 {
        let (client, done) = (client.clone(), done.clone());
        thread::spawn(move || {
            for _ in 0..1000 {
                assert_eq!(client.call(b"x", None).unwrap(), b"now");
            }
            done.send(()).unwrap();
        });
    }
    for _ in 0..2 {
        finished.recv_timeout(TIMEOUT).expect("every call has its answer");
    }
    held.answer(b"at last", None).unwrap();
    assert_eq!(receiving.join().unwrap().unwrap(), b"at last");
    drop(client);
    serving.join().unwrap();
}
