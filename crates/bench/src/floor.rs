// SPDX-License-Identifier: MIT OR Apache-2.0
//! Floor of shared memory: the bytes and one flag word, one buffer per direction, and nothing else.
//!
//! ```text
//! request (the parent writes)      reply (the child writes)
//! ├── n bytes ──┤ pad to 8 │ flag: u64    the count of messages so far, stored last (Release)
//!                            └ the reader looks at it until it changes, then reads the n bytes in place
//! ```
//! Both are sealed memory of their own that the other side maps read-only, as the halves of a wall are; so what
//! a wall takes beyond this is the price of being a queue, of checking, and of being able to sleep.
//!
//! It has *no* room for a second message, no sleep and no end: it is good for ping-pong only. A reader whose
//! neighbour has gone gives up after a while.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use partywall_ring::mem::{OwnMem, PeerMem, Readable, Writable};
use partywall_sys::{OwnMap, PeerMap, SIZE_GRANULE, Socket};
use std::os::fd::AsFd;

use super::handover::{self, HandoverDoor};
use super::lane::{Door, Lane, Setup, Transport};

/// The transport `floor-spin`.
pub struct FloorSpin;

/// Waits for the parent's buffer, and gives ours in exchange.
pub struct FloorDoor {
    handover: HandoverDoor,
    size: usize,
}

/// Our buffer and the other one.
pub struct FloorLane {
    own: OwnMem,
    peer: PeerMem,
    sent: u64,
    received: u64,
}

impl Transport for FloorSpin {
    type Lane = FloorLane;
    type Door = FloorDoor;

    fn bind(setup: &Setup) -> Result<FloorDoor> {
        Ok(FloorDoor { handover: HandoverDoor::bind(setup)?, size: setup.size })
    }

    fn connect(setup: &Setup, address: &str) -> Result<FloorLane> {
        FloorLane::exchange(&handover::connect(address)?, setup.size)
    }
}

impl Door for FloorDoor {
    type Lane = FloorLane;

    fn address(&self) -> String {
        self.handover.address()
    }

    fn accept(&mut self) -> Result<FloorLane> {
        FloorLane::exchange(&self.handover.accept()?, self.size)
    }
}

impl FloorLane {
    /// Makes our buffer, gives it away and takes the other.
    fn exchange(socket: &Socket, size: usize) -> Result<Self> {
        let total = (flag_offset(size) + FLAG_SIZE).next_multiple_of(SIZE_GRANULE);
        let own = OwnMap::create("bench-floor", total)?;
        handover::give(socket, &[own.as_fd()])?;
        let [theirs] = handover::take(socket)?;
        let peer = PeerMap::map(theirs.as_fd(), total as u64, total as u64)?;
        Ok(Self {
            own: OwnMem::new(Box::new(Own(own))),
            peer: PeerMem::new(Arc::new(Peer(peer))),
            sent: 0,
            received: 0,
        })
    }
}

impl Lane for FloorLane {
    #[inline]
    fn send(&mut self, size: usize, fill: impl FnOnce(&mut [u8])) -> Result<()> {
        fill(self.own.slice_mut(0, size));
        self.sent += 1;
        self.own.publish(flag_offset(size), self.sent);
        Ok(())
    }

    #[inline]
    fn receive<R>(&mut self, size: usize, read: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let flag = flag_offset(size);
        self.received += 1;
        let mut looks = 0_u32;
        let mut give_up_at = None;
        while self.peer.load(flag) != self.received {
            std::hint::spin_loop();
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(LOOKS_PER_CLOCK)
                && Instant::now() > *give_up_at.get_or_insert_with(|| Instant::now() + GIVE_UP)
            {
                bail!("the neighbour's flag has not changed for {} s", GIVE_UP.as_secs());
            }
        }
        Ok(read(self.peer.slice(0, size)))
    }
}

/// The flag comes right after the bytes, in the same cache line if they leave room.
const fn flag_offset(size: usize) -> usize {
    size.next_multiple_of(FLAG_SIZE)
}

/// Our sealed memory, as the ring crate wants it.
struct Own(OwnMap);

impl Writable for Own {
    fn as_mut_slice(&mut self) -> &mut [u8] {
        self.0.as_mut_slice()
    }
}

/// The neighbour's.
struct Peer(PeerMap);

impl Readable for Peer {
    fn cells(&self) -> &[UnsafeCell<u8>] {
        self.0.cells()
    }
}

const FLAG_SIZE: usize = 8;

/// The clock is looked at once in so many looks at the flag.
const LOOKS_PER_CLOCK: u32 = 1 << 20;

/// Longest wait for a neighbour that has nothing else to do.
const GIVE_UP: Duration = Duration::from_secs(10);
