// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test in which two threads use the sending and the receiving half of a stream while the ring is
//! nearly always full. The receiving half has pending records, such as credit. These records and
//! the messages of the sending half must enter the ring in order.
//!
//! The bug for which this test was written needed an interruption within a few instructions, so one
//! run that passes proves little.

use partywall::blocking::{Listener, SendStream, Session, connect_with};
use partywall::{Config, StreamSendError, TransportPolicy, Wait};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const STREAMS: usize = 48;
const TIME: Duration = Duration::from_secs(3);

fn pair(config: &Config) -> (Session, Session) {
    let directory = tempfile::tempdir().unwrap();
    let address = format!("unix:{}/s.sock", directory.path().display());
    let mut listener = Listener::bind_with(&*address, config).unwrap();
    std::thread::scope(|scope| {
        let client = scope.spawn(|| connect_with(&*address, config).unwrap());
        let server = listener.accept().unwrap();
        (client.join().unwrap(), server)
    })
}

fn send_on(mut send: SendStream, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let deadline = Instant::now() + Duration::from_millis(200);
        match send.send_deadline(&[7; 40], deadline) {
            Ok(()) | Err(StreamSendError::TimedOut) => {}
            Err(StreamSendError::Stopped { .. }) => return,
            Err(error) => panic!("the session broke: {error}"),
        }
    }
}

/// Sends and receives on all streams as fast as possible. Stops each stream after `lives` messages,
/// and then opens another stream if `opens` is true, or else accepts one.
fn both_ways(session: &Session, opens: bool, lives: usize, stop: &AtomicBool) {
    std::thread::scope(|scope| {
        for _ in 0..STREAMS {
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let soon = Instant::now() + Duration::from_millis(200);
                    let opened = if opens {
                        session.open_deadline(&[], soon).ok()
                    } else {
                        session.accept_deadline(soon).ok().flatten()
                    };
                    if let Some(why) = session.close_reason() {
                        panic!("the session broke: {why}");
                    }
                    let Some(stream) = opened else { continue };
                    let (send, mut recv) = stream.into_split();
                    std::thread::scope(|scope| {
                        scope.spawn(|| send_on(send, stop));
                        let mut count = 0;
                        while !stop.load(Ordering::Relaxed) && count < lives {
                            let soon = Instant::now() + Duration::from_millis(200);
                            match recv.recv_deadline(soon) {
                                Ok(Some(_)) => count += 1,
                                Ok(None) => break,
                                Err(error) if session.close_reason().is_some() => {
                                    panic!("the session broke: {error}")
                                }
                                Err(partywall::StreamRecvError::TimedOut) => {}
                                Err(_) => break,
                            }
                        }
                        recv.stop(3);
                    });
                }
            });
        }
    });
}

fn race(lives: usize) {
    let config = Config::default()
        .transport(TransportPolicy::SharedMemory)
        .ring_bytes(4096)
        .inline_max(512)
        .wait(Wait::Park)
        .stream_window(128);
    let (client, server) = pair(&config);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| both_ways(&client, true, lives, &stop));
        scope.spawn(|| both_ways(&server, false, lives, &stop));
        std::thread::sleep(TIME);
        stop.store(true, Ordering::Relaxed);
    });
    assert!(client.close_reason().is_none() && server.close_reason().is_none());
}

#[test]
fn credit_is_never_followed_by_an_older_value() {
    race(usize::MAX);
}

#[test]
fn nothing_follows_the_end_of_a_direction() {
    race(30);
}
