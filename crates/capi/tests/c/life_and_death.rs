// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with a peer in C that is killed, stopped or forks. The outcomes are the same as with a
//! peer in Rust.

use crate::compiler::{Program, Running, Sanitizers};
use partywall::{Channel, Listener, RecvError};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait of a call that has to succeed.
const LIMIT: Duration = Duration::from_secs(30);

/// Starts the peer process, which does what `act` says, and returns it with the channel to it. The
/// directory of the program is deleted when the program is dropped.
fn peer(act: &str) -> (Program, Running, Channel) {
    let program = Program::build_as("c11", "tests/peer.c", Sanitizers::Off);
    let address = format!("unix:{}/app.sock", program.directory().display());
    let mut listener = Listener::bind(&address).unwrap();
    let running = program.start(&["-", act, &address], Stdio::null(), Stdio::inherit());
    let channel = listener.accept_deadline(Instant::now() + LIMIT).unwrap();
    (program, running, channel)
}

#[test]
fn messages_of_a_killed_peer_are_received_before_its_death() {
    let (_program, _running, mut channel) = peer("killed");
    for wanted in 0..100_u32 {
        let message = channel.recv_deadline(Instant::now() + LIMIT).unwrap().unwrap();
        assert_eq!(*message, wanted.to_ne_bytes());
    }
    let ended = channel.recv_deadline(Instant::now() + LIMIT);
    assert!(matches!(ended, Err(RecvError::Disconnected)), "{ended:?}");
}

#[test]
fn stopped_peer_is_not_a_dead_one() {
    let (_program, running, mut channel) = peer("stopped");
    channel.send(b"question").unwrap();
    let waited = channel.recv_deadline(Instant::now() + Duration::from_millis(200));
    assert!(matches!(waited, Err(RecvError::TimedOut)), "{waited:?}");
    // The first SIGCONT may come before the peer has stopped itself, and then has no effect. So
    // SIGCONT is sent again until the peer goes on.
    let until = Instant::now() + LIMIT;
    let answer = loop {
        let pid = running.0.id().to_string();
        assert!(Command::new("kill").args(["-CONT", &pid]).status().unwrap().success());
        match channel.recv_deadline(Instant::now() + Duration::from_millis(100)) {
            Err(RecvError::TimedOut) => assert!(Instant::now() < until, "the peer stays stopped"),
            received => break received.unwrap().unwrap(),
        }
    };
    assert_eq!(*answer, *b"question");
    drop(channel);
    running.succeed();
}

#[test]
fn forked_child_gets_a_status_and_its_parent_goes_on() {
    let (_program, running, mut channel) = peer("forks");
    let message = channel.recv_deadline(Instant::now() + LIMIT).unwrap().unwrap();
    assert_eq!(*message, [b'f'; 5000]);
    channel.send(b"question").unwrap();
    let answer = channel.recv_deadline(Instant::now() + LIMIT).unwrap().unwrap();
    assert_eq!(*answer, *b"question");
    drop(channel);
    running.succeed();
}
