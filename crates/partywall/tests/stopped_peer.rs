// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process that is stopped for half a minute is not dead: nobody says so, and nothing is lost. Each
//! test mostly waits; they run at the same time.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod support;

use partywall::{
    Config, Listener, RecvError, SendError, TransportPolicy, TryRecvError, TrySendError,
};
use partywall_sys::signal::{Signal, kill};
use std::time::{Duration, Instant};
use support::{Place, Victim, Watchdog, millis, number_of, payload, within};

/// How long the other process is stopped.
const STOPPED: Duration = Duration::from_secs(30);
/// More than fits into ring, memory and socket buffers, so that both sides have to wait for each other.
const MESSAGES: u64 = 4000;

fn len_of(number: u64) -> usize {
    if number % 10 == 0 { 20_000 } else { 8 + number as usize % 900 }
}

fn config(transport: &str) -> Config {
    let is_wall = transport == "wall";
    let policy = if is_wall { TransportPolicy::Wall } else { TransportPolicy::Socket };
    Config::default().transport(policy).memory_max(1 << 20)
}

/// The second process: sends back what it receives.
#[test]
fn child() {
    if support::role().is_none() {
        return;
    }
    let config = config(&support::argument("transport"));
    let channel = partywall::connect_with(support::argument("address"), &config).unwrap();
    let (mut sender, mut receiver) = channel.split();
    while let Ok(message) = receiver.recv() {
        number_of(&message);
        sender.send(&message).unwrap();
    }
}

fn stopped_and_continued(transport: &'static str) {
    let _watchdog = Watchdog::new("a stopped process", Duration::from_secs(150));
    let place = Place::new();
    let mut listener = Listener::bind_with(place.address("stage"), &config(transport)).unwrap();
    let arguments = [("address", place.address("stage")), ("transport", transport.to_owned())];
    let arguments = arguments.each_ref().map(|(name, value)| (*name, value.as_str()));
    let echo = Victim::spawn(&mut support::second_process("Echo", &arguments));
    let channel = listener.accept_deadline(within(Duration::from_secs(20))).unwrap();
    let (mut sender, mut receiver) = channel.split();
    let sending = std::thread::spawn(move || {
        let mut waited = 0;
        for number in 1..=MESSAGES {
            loop {
                match sender.send_deadline(&payload(number, len_of(number)), within(millis(500))) {
                    Ok(()) => break,
                    Err(SendError::TimedOut) => waited += 1,
                    Err(other) => panic!("declared dead: {other}"),
                }
            }
        }
        (sender, waited)
    });
    for number in 1..=100 {
        assert_eq!(number_of(&receiver.recv().unwrap()), number);
    }
    kill(echo.pid(), Signal::STOP).unwrap();
    let stopped = Instant::now();
    let mut next = 101;
    while stopped.elapsed() < STOPPED {
        match receiver.recv_deadline(stopped + STOPPED) {
            // On its way before.
            Ok(message) => {
                assert_eq!(number_of(&message), next);
                next += 1;
            }
            Err(RecvError::TimedOut) => {}
            Err(other) => panic!("declared dead: {other}"),
        }
    }
    assert!(matches!(receiver.try_recv(), Err(TryRecvError::Empty)));
    assert!(next < MESSAGES, "it was stopped before the end");
    kill(echo.pid(), Signal::CONT).unwrap();
    for number in next..=MESSAGES {
        assert_eq!(number_of(&receiver.recv().unwrap()), number);
    }
    let (mut sender, waited) = sending.join().unwrap();
    assert!(waited > 10, "the sender had to wait meanwhile: {waited} times");
    assert!(matches!(sender.try_send(b"12345678"), Ok(()) | Err(TrySendError::Full)));
    drop((sender, receiver, echo));
}

#[test]
fn over_the_wall_it_loses_nothing() {
    stopped_and_continued("wall");
}

#[test]
fn over_the_socket_it_loses_nothing() {
    stopped_and_continued("socket");
}
