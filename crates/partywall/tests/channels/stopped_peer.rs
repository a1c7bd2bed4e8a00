// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that a process which SIGSTOP stops does not count as dead: no message is lost, and no
//! channel ends. It is stopped for half a minute, or at one step of the move to shared memory.

use partywall::{Channel, Listener, RecvError, Transport};
use partywall_sys::signal::{Signal, kill, stop};
use partywall_testkit::{
    Kind, Second, argument, fill, is_pattern, number_of, payload, role, second_process, soon,
    until, variable,
};
use std::time::{Duration, Instant};

const ADDRESS: &str = "PARTYWALL_STOPPED_ADDRESS";
const KIND: &str = "PARTYWALL_STOPPED_KIND";
const MESSAGES: u64 = 30_000;
const STOPPED: Duration = Duration::from_secs(30);

#[test]
fn sender() {
    let Some(address) = variable(ADDRESS) else { return };
    let config = Kind::from_name(&variable(KIND).unwrap()).config();
    let mut channel = partywall::connect_with(&address, &config).unwrap();
    for number in 0..MESSAGES {
        let mut bytes = vec![0; if number % 100 == 0 { 100_000 } else { 100 }];
        fill(&mut bytes, number);
        channel.send_deadline(&bytes, Instant::now() + 2 * STOPPED).unwrap();
    }
    // The second process closes the channel once it has received every message.
    let end = channel.recv();
    assert!(matches!(end, Ok(None) | Err(RecvError::Disconnected)), "{end:?}");
}

fn survives(kind: Kind) {
    let mut listener = Listener::bind_with(kind.address(), &kind.config()).unwrap();
    let address = listener.local_address().to_string();
    let mut second =
        Second::start("stopped_peer::sender", &[(ADDRESS, &address), (KIND, kind.name())]);
    let mut channel = listener.accept_deadline(soon()).unwrap();
    let mut number = 0;
    let mut receive = |channel: &mut partywall::Channel, until: Instant| {
        let message = channel.recv_deadline(until)?.expect("a message");
        assert!(is_pattern(&message, number), "message {number}");
        number += 1;
        Ok::<_, RecvError>(number)
    };
    while receive(&mut channel, soon()).unwrap() < MESSAGES / 3 {}
    stop(second.pid(), soon()).unwrap();
    let stopped_until = Instant::now() + STOPPED;
    // Expected: messages that the stopped process had sent still arrive. Afterwards `recv` times
    // out, and reports no death.
    let end = loop {
        if let Err(end) = receive(&mut channel, stopped_until) {
            break end;
        }
    };
    assert!(matches!(end, RecvError::TimedOut), "{}: {end:?}", kind.name());
    kill(second.pid(), Signal::CONT).unwrap();
    while receive(&mut channel, soon()).unwrap() < MESSAGES {}
    drop(channel);
    assert!(second.wait().success());
}

#[test]
fn half_a_minute_over_the_shm() {
    if variable(ADDRESS).is_none() {
        survives(Kind::SharedMemory);
    }
}

#[test]
fn half_a_minute_over_the_socket() {
    if variable(ADDRESS).is_none() {
        survives(Kind::Unix);
    }
}

/// Number of messages of the tests of the move: by then each direction is in shared memory.
const ECHOES: u64 = 64;
/// Number of messages that the first process sends while the second one is stopped.
const BURST: u64 = 12;

/// Code of the second process: echoes messages as the connecting or the accepting side.
#[test]
fn echoer() {
    let Some(role) = role() else { return };
    let (address, config) = (argument("address"), Kind::Moving.config());
    let mut channel = if role == "connector" {
        partywall::connect_with(&address, &config).unwrap()
    } else {
        Listener::bind_with(&address, &config).unwrap().accept_deadline(soon()).unwrap()
    };
    while let Some(message) = channel.recv_deadline(soon()).unwrap() {
        channel.send_deadline(&message, soon()).unwrap();
    }
    assert_eq!(channel.transport(), Transport::SharedMemory);
}

fn start(role: &str) -> (Second, Channel) {
    let (address, config) = (Kind::Moving.address(), Kind::Moving.config());
    let command = &mut second_process("stopped_peer::echoer", role, &[("address", &address)]);
    if role == "connector" {
        let mut listener = Listener::bind_with(&address, &config).unwrap();
        let second = Second::spawn(command);
        return (second, listener.accept_deadline(soon()).unwrap());
    }
    let second = Second::spawn(command);
    let mut channel = None;
    until("the second process listens", || {
        channel = partywall::connect_with(&address, &config).ok();
        channel.is_some()
    });
    (second, channel.unwrap())
}

/// Input: the second process is stopped right after message `step` was sent to it, so somewhere in
/// one step of the move. Expected: the other side sends on meanwhile, and each message comes back
/// once and in order.
fn stops_at(step: u64, role: &str) {
    let (mut second, mut channel) = start(role);
    let (mut sent, mut received) = (0, 0);
    while received < ECHOES {
        let is_stopped = sent == step;
        for _ in 0..if is_stopped { BURST } else { 1 } {
            channel.send_deadline(&payload(sent, 40), soon()).unwrap();
            if sent == step {
                stop(second.pid(), soon()).unwrap();
            }
            sent += 1;
        }
        if is_stopped {
            kill(second.pid(), Signal::CONT).unwrap();
        }
        while received < sent {
            let message = channel.recv_deadline(soon()).unwrap().unwrap();
            assert_eq!((number_of(&message), message.len()), (received, 40), "{role}, {step}");
            received += 1;
        }
    }
    assert_eq!(channel.transport(), Transport::SharedMemory, "{role}, {step}");
    drop(channel);
    assert!(second.wait().success());
}

#[test]
fn moving_peer_that_is_stopped_at_any_step_goes_on() {
    if variable(ADDRESS).is_some() {
        return;
    }
    for step in 0..24 {
        stops_at(step, "connector");
        stops_at(step, "acceptor");
    }
}
