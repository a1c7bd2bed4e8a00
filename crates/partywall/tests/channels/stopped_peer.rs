// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that a process which SIGSTOP stops for half a minute does not count as dead: no message is
//! lost, and no channel ends.

use partywall::{Listener, RecvError};
use partywall_sys::signal::{Signal, kill, stop};
use partywall_testkit::{Kind, Second, fill, is_pattern, soon, variable};
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
    // Messages that the stopped process had sent still arrive. Afterwards `recv` times out, and
    // reports no death.
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
