// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nothing of a closed connection is kept.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use partywall::{Config, Listener, Transport};
use partywall_testkit::{Directory, Footprint, alone, soon};
use std::thread;

/// Openings, each with one message there and back.
const OPENINGS: usize = 10_000;
/// Openings before the first count.
const BEFORE: usize = 100;
/// The kernel counts resident memory in batches of some hundred KiB.
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
    // At the first count the client may be opening the next connection.
    assert!(after.descriptors <= before.descriptors, "{before:?} {after:?}");
    assert!(after.shared_mappings <= before.shared_mappings, "{before:?} {after:?}");
    assert!(after.resident_bytes < before.resident_bytes + RESIDENT_MAX, "{before:?} {after:?}");
}
