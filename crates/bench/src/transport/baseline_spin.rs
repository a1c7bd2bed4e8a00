// SPDX-License-Identifier: MIT OR Apache-2.0
//! The transport `baseline-spin`, the baseline of shared memory: the payload and one flag word, in
//! one buffer per direction.
//!
//! ```text
//! request (the parent writes)      reply (the child writes)
//! ├── n bytes ──┤ pad to 8 │ flag: u64    the count of messages so far, stored last (Release)
//!                            └ the reader polls it until it changes, then reads n bytes in place
//! ```
//! Each buffer is sealed memory that the peer maps read-only, like the regions of a channel. The
//! additional time of a channel pays for the queue, the checks and the ability to sleep.
//!
//! The buffer has *no* space for a second message, and the transport neither sleeps nor reports an
//! end. So only `ping` runs on it. A reader returns an error if the flag does not change for ten
//! seconds.

use std::cell::UnsafeCell;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use partywall_ring::mem::{OwnMem, PeerMem, Readable, Writable};
use partywall_sys::{OwnMap, PeerMap, SIZE_GRANULE, Socket};

use super::handover::{self, HandoverListener};
use super::{Acceptor, ChannelTransport, Endpoint};
use crate::harness::workspace::Setup;

/// The transport `baseline-spin` (plain shared memory and a flag word) as a type that the
/// benchmark's scenarios can use.
pub struct BaselineSpin;

/// The end of the child process, which receives the descriptor of the parent's buffer and sends
/// that of its own.
pub struct SpinAcceptor {
    handover: HandoverListener,
    size: usize,
}

/// One end of a connection: the buffer that this process writes, and the buffer that the peer
/// writes.
pub struct SpinEndpoint {
    own: OwnMem,
    peer: PeerMem,
    sent: u64,
    received: u64,
}

impl ChannelTransport for BaselineSpin {
    type Endpoint = SpinEndpoint;
    type Acceptor = SpinAcceptor;

    fn bind(setup: &Setup) -> Result<SpinAcceptor> {
        Ok(SpinAcceptor { handover: HandoverListener::bind(setup)?, size: setup.size })
    }

    fn connect(setup: &Setup, address: &str) -> Result<SpinEndpoint> {
        SpinEndpoint::exchange(&handover::connect(address)?, setup.size)
    }
}

impl Acceptor for SpinAcceptor {
    type Endpoint = SpinEndpoint;

    fn address(&self) -> String {
        self.handover.address()
    }

    fn accept(&mut self) -> Result<SpinEndpoint> {
        SpinEndpoint::exchange(&self.handover.accept()?, self.size)
    }
}

impl SpinEndpoint {
    /// Makes a buffer, sends its descriptor to the peer, and maps the peer's buffer.
    fn exchange(socket: &Socket, size: usize) -> Result<Self> {
        let total = (flag_offset(size) + FLAG_SIZE).next_multiple_of(SIZE_GRANULE);
        let own = OwnMap::create("bench-baseline", total)?;
        handover::send(socket, &[own.as_fd()])?;
        let [descriptor] = handover::receive(socket)?;
        let peer = PeerMap::map(descriptor.as_fd(), total as u64, total as u64)?;
        Ok(Self {
            own: OwnMem::new(Box::new(Own(own))),
            peer: PeerMem::new(Arc::new(Peer(peer))),
            sent: 0,
            received: 0,
        })
    }
}

impl Endpoint for SpinEndpoint {
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
        let mut polls = 0_u32;
        let mut deadline = None;
        while self.peer.load(flag) != self.received {
            std::hint::spin_loop();
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(POLLS_PER_CLOCK_READ)
                && Instant::now() > *deadline.get_or_insert_with(|| Instant::now() + TIMEOUT)
            {
                bail!("the flag of the other process has not changed for {} s", TIMEOUT.as_secs());
            }
        }
        Ok(read(self.peer.slice(0, size)))
    }
}

/// The offset of the flag word in a buffer for a payload of `size` bytes: the first multiple of 8
/// after the payload. A short payload and its flag thereby share a cache line.
const fn flag_offset(size: usize) -> usize {
    size.next_multiple_of(FLAG_SIZE)
}

/// Sealed memory that this process writes. The wrapper gives it the trait `Writable`, through which
/// the ring crate stores words in memory.
struct Own(OwnMap);

impl Writable for Own {
    fn as_mut_slice(&mut self) -> &mut [u8] {
        self.0.as_mut_slice()
    }
}

/// Sealed memory that the peer writes. The wrapper gives it the trait `Readable`, through which the
/// ring crate loads words from memory.
struct Peer(PeerMap);

impl Readable for Peer {
    fn cells(&self) -> &[UnsafeCell<u8>] {
        self.0.cells()
    }
}

const FLAG_SIZE: usize = 8;

/// Number of polls of the flag between two reads of the clock, which takes longer than a poll and
/// would delay the receipt.
const POLLS_PER_CLOCK_READ: u32 = 1 << 20;

/// Maximum time that a reader waits for the flag to change before it returns an error; a working
/// peer changes the flag within microseconds.
const TIMEOUT: Duration = Duration::from_secs(10);
