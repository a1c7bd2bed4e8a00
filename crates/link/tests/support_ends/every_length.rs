// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages on both sides of each limit, and links that bear them.

use super::soon;
use partywall_link::{Config, Link};
use std::thread;

/// On both sides of each limit: of a slot, of what is put together or copied elsewhere, of what
/// lies in the ring.
pub const LENS: [usize; 13] =
    [0, 1, 48, 49, 104, 105, 1000, 1024, 1025, 4096, 16_384, 65_536, 200_000];

/// So small that a few of the long ones fill it.
pub fn config() -> Config {
    let slab = 1 << 20;
    Config::default().ring_bytes(64 << 10).slab_bytes(slab).peer_max(64 << 10, slab)
}

/// Bytes that differ from message to message, and from place to place.
pub fn message(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 31 + at * 7 + at / 251) as u8).collect()
}

/// Both have to be waited for at the same time.
pub fn attach(link: &Link, served: &Link) {
    thread::scope(|scope| {
        scope.spawn(|| link.wait_attached(soon()).unwrap());
        served.wait_attached(soon()).unwrap();
    });
}
