// SPDX-License-Identifier: MIT OR Apache-2.0
//! A large message over a socket costs time in proportion to its length, and no more.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod support;

use partywall::{Config, TransportPolicy};
use std::time::{Duration, Instant};
use support::{Place, pair};

/// The time to pass one message of `len` bytes.
fn time(len: usize) -> Duration {
    let place = Place::new();
    let config = Config::default().transport(TransportPolicy::Socket).memory_max(1 << 30);
    let (mut client, mut server) = pair(&place.address("stage"), &config);
    let bytes = vec![7; len];
    let started = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| client.send(&bytes).unwrap());
        assert!(server.recv().unwrap() == bytes);
    });
    started.elapsed()
}

#[test]
fn sixteen_times_the_length_takes_nothing_like_its_square_of_time() {
    // The shortest of some, because others use this machine, too.
    let short = (0..5).map(|_| time(16 << 20)).min().unwrap();
    let long = (0..2).map(|_| time(256 << 20)).min().unwrap();
    println!("16 MiB in {short:?}, 256 MiB in {long:?}");
    assert!(long < short * 16 * 5, "16 MiB took {short:?}, 256 MiB {long:?}");
}
