// SPDX-License-Identifier: MIT OR Apache-2.0
//! A peer on a socket sends anything after an honest handshake. The results are messages, a
//! violation, or the end (SPEC 8).
//!
//! ```text
//!  step:   action (1) | length (2) | as many bytes as the length says
//!  The peer sends      0 raw bytes    1 a DATA record    2 a BLOB record
//!                      3 a record of any kind            6 the record that ends its direction
//!  The side under test 4 receives     5 sends
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use partywall::{Channel, Listener, TransportPolicy, TrustPolicy, TryRecvError};
use partywall_fuzz::{BYTES_MAX, ByHand, connect_socket, listen};
use partywall_layout::Position;
use partywall_layout::record_ring::{BlobBody, Kind, WireHeader, footprint, word0};
use std::cell::RefCell;
use std::io::IoSlice;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

const NAME: &str = "stream";

struct World {
    channel: Channel,
    hand: ByHand,
    position: Position,
    is_over: bool,
}

fuzz_target!(|input: &[u8]| {
    thread_local! {
        static LISTENER: RefCell<Listener> =
            RefCell::new(listen(NAME, TrustPolicy::Auto, TransportPolicy::Socket));
    }
    let (channel, hand) = LISTENER.with_borrow_mut(|listener| connect_socket(listener, NAME));
    let mut world = World { channel, hand, position: Position(0), is_over: false };
    let mut rest = input;
    while let [what, low, high, after @ ..] = rest {
        let length = usize::from(u16::from_le_bytes([*low, *high]));
        let (bytes, after) = after.split_at(after.len().min(length % 512));
        world.step(*what, length, bytes);
        rest = after;
    }
    world.hand.socket.shutdown_write().ok();
    world.receive();
    // The side under test has read all bytes of its peer, and no more follow. So the channel must
    // be over, with or without a fault.
    assert!(world.is_over, "still waiting after the peer hung up");
});

impl World {
    fn step(&mut self, what: u8, length: usize, bytes: &[u8]) {
        match what % 7 {
            0 => self.write(bytes),
            1 => self.record(Kind::Data, bytes.len(), bytes),
            2 => self.blob(length, bytes),
            3 => {
                let kind = Kind::from_number(what >> 3).unwrap_or(Kind::Pad);
                self.record(kind, length % 600, bytes);
            }
            4 => self.receive(),
            5 => {
                let _ = self.channel.try_send(bytes);
            }
            _ => self.record(Kind::CloseWrite, 0, &[]),
        }
    }

    fn record(&mut self, kind: Kind, len: usize, payload: &[u8]) {
        let header = WireHeader {
            word0: U64::new(word0(self.position, kind)),
            len: U32::new(len as u32),
            stream: U32::new(0),
        };
        self.write(header.as_bytes());
        self.write(&payload[..payload.len().min(len)]);
        self.position = self.position.plus(footprint(len as u64));
    }

    fn blob(&mut self, length: usize, bytes: &[u8]) {
        let body = BlobBody {
            block: U64::new(0),
            segment: U32::new(0),
            zero: U32::new(0),
            offset: U64::new(0),
            // The length that this BLOB announces for its bytes is correct, or more than the peer
            // will send, or more than the side under test accepts.
            length: U64::new(if length >= 512 { (length as u64) << 3 } else { bytes.len() as u64 }),
        };
        self.record(Kind::Blob, size_of::<BlobBody>(), body.as_bytes());
        self.write(bytes);
    }

    fn write(&mut self, bytes: &[u8]) {
        // The write may fail, because the side under test may have closed the connection.
        let _ = self.hand.socket.write(&[IoSlice::new(bytes)], true);
    }

    fn receive(&mut self) {
        let mut empty = 0;
        while !self.is_over && empty < 3 {
            match self.channel.receiver().try_recv_ref() {
                Ok(Some(message)) => assert!(message.len() as u64 <= BYTES_MAX),
                Err(TryRecvError::Empty) => empty += 1,
                Ok(None) | Err(_) => self.is_over = true,
            }
            match self.channel.try_recv() {
                Ok(Some(message)) => assert!(message.len() as u64 <= BYTES_MAX),
                Err(TryRecvError::Empty) => empty += 1,
                Ok(None) | Err(_) => self.is_over = true,
            }
        }
    }
}
