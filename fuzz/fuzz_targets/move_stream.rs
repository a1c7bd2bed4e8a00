// SPDX-License-Identifier: MIT OR Apache-2.0
//! A connector whose connection began on the socket sends anything: on the socket, and on the pair
//! of the move. The results are messages, a violation, or the end (SPEC 8.5).
//!
//! ```text
//!  step:   action (1) | length (1) | as many bytes as the length says
//!  The peer sends      0 raw bytes on the socket   1 a DATA record   2 MOVE, one end of a pair
//!                      3 raw bytes on the pair     4 HELLO and OFFER on the pair
//!                      5 READY on the pair         6 SWITCH          7 a record of any kind
//!  The honest side     8 receives                  9 sends
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use partywall::{Channel, Listener, TransportPolicy, TrustPolicy, TryRecvError};
use partywall_fuzz::{BYTES_MAX, begin_on_socket, hello, listen, region_by_hand};
use partywall_layout::Position;
use partywall_layout::hello::{
    FEATURE_SHM, FEATURE_SOCKET, Offer, REGION_ALONE, Ready, TRANSPORT_SHM,
};
use partywall_layout::record_ring::{Kind, WireHeader, footprint, word0};
use partywall_sys::Socket;
use std::cell::RefCell;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

const NAME: &str = "move";

struct World {
    channel: Channel,
    socket: Socket,
    pair: Option<Socket>,
    position: Position,
    is_over: bool,
}

fuzz_target!(|input: &[u8]| {
    thread_local! {
        static LISTENER: RefCell<Listener> =
            RefCell::new(listen(NAME, TrustPolicy::Auto, TransportPolicy::Auto));
    }
    let (channel, socket) = LISTENER.with_borrow_mut(|listener| begin_on_socket(listener, NAME));
    let mut world = World { channel, socket, pair: None, position: Position(0), is_over: false };
    let mut rest = input;
    while let [what, length, after @ ..] = rest {
        let (bytes, after) = after.split_at(after.len().min(usize::from(*length)));
        world.step(*what, bytes);
        rest = after;
    }
    drop(world.pair.take());
    world.socket.shutdown_write().ok();
    world.receive();
    // The side under test has read all bytes of its peer, and no more follow. So the channel must
    // be over, with or without a fault.
    assert!(world.is_over, "still waiting after the peer hung up");
});

impl World {
    fn step(&mut self, what: u8, bytes: &[u8]) {
        match what % 10 {
            0 => self.write(bytes, &[]),
            1 => self.record(Kind::Data, bytes, &[]),
            2 => {
                let (ours, theirs) = Socket::pair().expect("a pair");
                self.record(Kind::Move, bytes, &[theirs.as_fd()]);
                self.pair.get_or_insert(ours);
            }
            3 => self.write_on_pair(bytes, &[]),
            4 => {
                let (region, size) = region_by_hand();
                let greeting = hello(FEATURE_SHM | FEATURE_SOCKET);
                let offer = Offer::shm(size, REGION_ALONE);
                let frames = [greeting.as_bytes(), offer.as_bytes()].concat();
                self.write_on_pair(&frames, &[region.fd()]);
            }
            5 => self.write_on_pair(Ready::new(TRANSPORT_SHM, 0).as_bytes(), &[]),
            6 => self.record(Kind::Switch, bytes, &[]),
            7 => {
                let kind = Kind::from_number(what >> 3).unwrap_or(Kind::CloseWrite);
                self.record(kind, bytes, &[]);
            }
            8 => self.receive(),
            _ => {
                let _ = self.channel.try_send(bytes);
            }
        }
    }

    fn record(&mut self, kind: Kind, payload: &[u8], descriptors: &[BorrowedFd<'_>]) {
        let len = payload.len();
        let header = WireHeader {
            word0: U64::new(word0(self.position, kind)),
            len: U32::new(len as u32),
            stream: U32::new(0),
        };
        self.write(&[header.as_bytes(), payload].concat(), descriptors);
        self.position = self.position.plus(footprint(len as u64));
    }

    fn write(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
        if !bytes.is_empty() {
            // The write may fail, because the side under test may have closed the connection.
            let _ = self.socket.send(&[IoSlice::new(bytes)], descriptors, false, true);
        }
    }

    fn write_on_pair(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
        if let (Some(pair), false) = (&self.pair, bytes.is_empty()) {
            let _ = pair.send(&[IoSlice::new(bytes)], descriptors, false, true);
        }
    }

    fn receive(&mut self) {
        let mut empty = 0;
        // Of the polls that find no message, only one in a few hundred checks whether the peer has
        // closed the connection. So the loop ends only after 600 such polls in a row.
        while !self.is_over && empty < 600 {
            match self.channel.try_recv() {
                Ok(Some(message)) => assert!(message.len() as u64 <= BYTES_MAX),
                Err(TryRecvError::Empty) => empty += 1,
                Ok(None) | Err(_) => self.is_over = true,
            }
        }
    }
}
