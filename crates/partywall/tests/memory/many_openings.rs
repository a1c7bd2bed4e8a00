// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that a process keeps no descriptor, mapping or memory of a closed connection. After 10,000
//! connections, this process has no more descriptors and mappings than before, and hardly more
//! resident memory.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use partywall::{Begin, Channel, Config, Listener, Transport};
use partywall_sys::process::{Process, open_descriptors};
use partywall_testkit::{Directory, Footprint, alone, pair, soon};
use std::thread;

/// Number of connections that are opened and closed, each with one message in each direction.
const OPENINGS: usize = 10_000;
/// Number of connections that are opened and closed before the first count of descriptors, mappings
/// and memory, so that this count includes all that the process allocates only once.
const BEFORE: usize = 100;
/// Maximum growth of resident memory in bytes. It is above 0, because the kernel updates its count
/// of resident memory only in steps of some hundred KiB.
const RESIDENT_MAX: u64 = 4 << 20;

#[test]
fn ten_thousand_openings_leave_nothing_behind() {
    open_often(&Config::default().begin(Begin::SharedMemory), 1);
}

/// Input: connections that move from the socket to shared memory after a few messages. Expected:
/// this process keeps nothing of the closed connections.
#[test]
fn ten_thousand_moves_leave_nothing_behind() {
    open_often(&Config::default().begin(Begin::Socket), 12);
}

/// Opens and closes connections. On each, `round_trips` messages are sent in each direction.
fn open_often(config: &Config, round_trips: usize) {
    let _alone = alone();
    let directory = Directory::new();
    let address = directory.address("often");
    let mut listener = Listener::bind_with(&address, config).unwrap();
    let config = config.clone();
    let client = thread::spawn(move || {
        for _ in 0..BEFORE + OPENINGS {
            let mut channel = partywall::connect_with(&address, &config).unwrap();
            for _ in 0..round_trips {
                channel.send(b"there").unwrap();
                assert_eq!(channel.recv_deadline(soon()).unwrap().unwrap(), b"back");
            }
            assert_eq!(channel.transport(), Transport::SharedMemory);
        }
    });
    let mut serve = |count: usize| {
        for _ in 0..count {
            let mut channel = listener.accept_deadline(soon()).unwrap();
            for _ in 0..round_trips {
                assert_eq!(channel.recv_deadline(soon()).unwrap().unwrap(), b"there");
                channel.send(b"back").unwrap();
            }
            assert!(matches!(channel.recv_deadline(soon()), Ok(None)));
        }
    };
    serve(BEFORE);
    let before = Footprint::now();
    serve(OPENINGS);
    client.join().unwrap();
    let after = Footprint::now();
    // At the first count, the client may have been opening the next connection, so that count may
    // include more descriptors.
    assert!(after.descriptors <= before.descriptors, "{before:?} {after:?}");
    assert!(after.shared_mappings <= before.shared_mappings, "{before:?} {after:?}");
    assert!(after.resident_bytes < before.resident_bytes + RESIDENT_MAX, "{before:?} {after:?}");
}

#[test]
fn moved_channel_holds_as_many_descriptors_as_one_that_shared_memory_at_once() {
    let _alone = alone();
    let place = Directory::new();
    let count = || open_descriptors(Process::Own).unwrap().len();
    let mut held = Vec::new();
    for begin in [Begin::Socket, Begin::Socket, Begin::SharedMemory] {
        let before = count();
        let config = Config::default().begin(begin);
        let (mut client, mut server) = pair(&place.address("held"), &config, &config);
        for _ in 0..64 {
            pass(&mut client, &mut server);
            pass(&mut server, &mut client);
        }
        assert_eq!(client.transport(), Transport::SharedMemory);
        held.push(count() - before);
        drop((client, server));
        assert_eq!(count(), before, "{begin:?}");
    }
    assert_eq!(held[1], held[2], "the socket on which the channel began is closed");
}

fn pass(from: &mut Channel, to: &mut Channel) {
    from.send(b"a message").unwrap();
    assert_eq!(to.recv_deadline(soon()).unwrap().unwrap(), b"a message");
}
