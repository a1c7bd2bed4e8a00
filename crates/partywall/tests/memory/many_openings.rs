// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that a process keeps no descriptor, mapping or memory of a closed connection. After 10,000
//! connections, this process has no more descriptors and mappings than before, and hardly more
//! resident memory.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use partywall::{Config, Listener, Transport};
use partywall_testkit::{Directory, Footprint, alone, soon};
use std::thread;

/// Number of connections that are opened and closed. On each of them, one message is sent in each
/// direction.
const OPENINGS: usize = 10_000;
/// Number of connections that are opened and closed before the test first counts descriptors,
/// mappings and memory. The first count then includes everything that the process allocates only
/// once.
const BEFORE: usize = 100;
/// Upper bound of the growth of resident memory in bytes. It is above 0, because the kernel updates
/// its count of resident memory only in steps of some hundred KiB.
const RESIDENT_MAX: u64 = 4 << 20;

#[test]
fn ten_thousand_openings_leave_nothing_behind() {
    let _alone = alone();
    let directory = Directory::new();
    let address = directory.address("often");
    let mut listener = Listener::bind_with(&address, &Config::default()).unwrap();
    let client = thread::spawn(move || {
        for _ in 0..BEFORE + OPENINGS {
            let mut channel = partywall::connect(&address).unwrap();
            assert_eq!(channel.transport(), Transport::SharedMemory);
            channel.send(b"there").unwrap();
            assert_eq!(channel.recv_deadline(soon()).unwrap().unwrap(), b"back");
        }
    });
    let mut serve = |count: usize| {
        for _ in 0..count {
            let mut channel = listener.accept_deadline(soon()).unwrap();
            assert_eq!(channel.recv_deadline(soon()).unwrap().unwrap(), b"there");
            channel.send(b"back").unwrap();
            assert!(matches!(channel.recv_deadline(soon()), Ok(None)));
        }
    };
    serve(BEFORE);
    let before = Footprint::now();
    serve(OPENINGS);
    client.join().unwrap();
    let after = Footprint::now();
    // At the time of the first count, the client may have been opening the next connection, so the
    // first count may be higher than the second.
    assert!(after.descriptors <= before.descriptors, "{before:?} {after:?}");
    assert!(after.shared_mappings <= before.shared_mappings, "{before:?} {after:?}");
    assert!(after.resident_bytes < before.resident_bytes + RESIDENT_MAX, "{before:?} {after:?}");
}
