// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of clients of an event loop that run in a process of their own, which is killed or
//! stopped. The loop learns of every death, and a stopped client delays no other client.

use partywall::blocking;
use partywall_sys::signal::{self, Signal};
use partywall_testkit::echo_loop::{Drive, EchoLoop};
use partywall_testkit::{Kind, Random, Second, TIMEOUT, pattern, soon, variable};
use std::time::Instant;

const ADDRESS: &str = "PARTYWALL_EVENTS_ADDRESS";
const SESSIONS: &str = "PARTYWALL_EVENTS_SESSIONS";
const KIND: &str = "PARTYWALL_EVENTS_KIND";
const CLIENTS: usize = 3;
const KILLS: u64 = 20;

/// Code of the second process: sends messages on channels and streams and receives the echoes,
/// until it is killed.
#[test]
fn client() {
    let Some(address) = variable(ADDRESS) else { return };
    let kind = Kind::from_name(&variable(KIND).unwrap());
    let config = kind.config();
    let connect = |_| partywall::connect_with(&address, &config).unwrap();
    let mut channels: Vec<_> = (0..CLIENTS).map(connect).collect();
    let session = blocking::connect_with(&variable(SESSIONS).unwrap()[..], &config).unwrap();
    let mut streams: Vec<_> = (0..CLIENTS).map(|_| session.open(b"").unwrap()).collect();
    let until = Instant::now() + TIMEOUT;
    for number in 0.. {
        // At most 20,000 bytes are on their way at a time. They fit into the buffer of a socket, so
        // no send waits.
        let payload = pattern(Random::new(number).size(20_000), number);
        for channel in &mut channels {
            channel.send(&payload).unwrap();
        }
        for stream in &mut streams {
            stream.send(&payload).unwrap();
        }
        for channel in &mut channels {
            assert_eq!(channel.recv_deadline(soon()).unwrap().unwrap(), payload);
        }
        for stream in &mut streams {
            assert_eq!(stream.recv_deadline(soon()).unwrap().unwrap(), payload);
        }
        if Instant::now() >= until {
            return;
        }
    }
}

fn start(kind: Kind, addresses: &[String; 2]) -> Second {
    let [address, sessions] = addresses;
    Second::start(
        "processes::client",
        &[(ADDRESS, address), (SESSIONS, sessions), (KIND, kind.name())],
    )
}

fn server(kind: Kind, drive: Drive) -> (EchoLoop, [String; 2]) {
    let mut server = EchoLoop::new(drive, usize::MAX);
    let channels = server.listen(&kind.address(), &kind.config());
    let sessions = server.listen_for_sessions(&kind.address(), &kind.config());
    (server, [channels, sessions])
}

#[test]
fn killed_client_leaves_nothing_in_the_loop() {
    for kind in Kind::ALL {
        for drive in Drive::ALL {
            let (mut server, addresses) = server(kind, drive);
            let mut chance = Random::new(7);
            for _ in 0..KILLS / 4 {
                let mut client = start(kind, &addresses);
                // The client is killed after a random number of messages, perhaps before its first
                // channel is established on both sides.
                let echoed = server.echoed + chance.below(200);
                while server.echoed < echoed || server.members() < 3 {
                    server.turn();
                }
                client.kill();
                while server.members() > 2 {
                    server.turn();
                }
            }
        }
    }
}

#[test]
fn stopped_client_holds_up_no_other() {
    for kind in Kind::ALL {
        let (mut server, addresses) = server(kind, Drive::Wait);
        let mut stopped = start(kind, &addresses);
        while server.echoed < 100 {
            server.turn();
        }
        signal::stop(stopped.pid(), soon()).unwrap();
        let others = start(kind, &addresses);
        let before = server.echoed;
        while server.echoed < before + 1000 {
            server.turn();
        }
        assert!(server.members() >= 2 + 2 * (2 * CLIENTS + 1), "{}", kind.name());
        signal::kill(stopped.pid(), Signal::CONT).unwrap();
        drop(others);
        while server.members() > 2 + 2 * CLIENTS + 1 {
            server.turn();
        }
        // The client that was stopped continues, so its messages are echoed again.
        let before = server.echoed;
        while server.echoed < before + 100 {
            server.turn();
        }
        stopped.kill();
    }
}
