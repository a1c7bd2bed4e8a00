// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test in which a process is stopped at each step of the move from the socket to shared memory
//! (SPEC 8.5), as the connecting or as the accepting side. Its peer waits for no step, and every
//! message comes back once and in order.

use partywall::{Channel, Listener, Transport};
use partywall_sys::signal::{Signal, kill, stop};
use partywall_testkit::{
    Kind, Second, alone, argument, number_of, payload, role, second_process, soon, until,
};

/// Number of messages that are echoed; by then both directions use shared memory.
const ECHOES: u64 = 64;
/// Number of messages that the first process sends while the second process is stopped.
const BURST: u64 = 12;

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
    let command = &mut second_process("stopped_moves::echoer", role, &[("address", &address)]);
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

/// Input: the second process is stopped right after message `step` was sent to it, during a step of
/// the move to shared memory. Expected: the first process continues to send, and each message comes
/// back once and in order.
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
    let _alone = alone();
    for step in 0..24 {
        stops_at(step, "connector");
        stops_at(step, "acceptor");
    }
}
