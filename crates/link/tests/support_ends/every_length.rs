// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages whose lengths lie around each limit, and links that can carry them.

use super::soon;
use partywall_link::{Config, Link};
use std::thread;

/// Message lengths in bytes on both sides of several limits: of the bytes in one slot of the ring,
/// of messages that are assembled in private memory, and of messages that go into the ring instead
/// of the slab.
pub const LENS: [usize; 13] =
    [0, 1, 48, 49, 104, 105, 1000, 1024, 1025, 4096, 16_384, 65_536, 200_000];

/// A configuration with sizes so small that a few of the long messages fill the ring and the slab.
pub fn config() -> Config {
    let slab = 1 << 20;
    Config::default().ring_bytes(64 << 10).slab_bytes(slab).peer_max(64 << 10, slab)
}

pub fn message(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 31 + at * 7 + at / 251) as u8).collect()
}

/// Attaches both ends of a link. Each end waits in a thread of its own, because an end makes its
/// part of the handshake only while a thread waits on it.
pub fn attach(link: &Link, served: &Link) {
    thread::scope(|scope| {
        scope.spawn(|| link.wait_attached(soon()).unwrap());
        served.wait_attached(soon()).unwrap();
    });
}
