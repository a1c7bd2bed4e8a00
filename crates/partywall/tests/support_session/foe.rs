// SPDX-License-Identifier: MIT OR Apache-2.0
//! The other side of a session, by hand: it completes the handshake over a Unix socket like anybody and
//! then writes what records it likes.
#![allow(dead_code, reason = "each test file uses a part")]

use crate::support::foe::{Wire, hello};
use partywall_layout::hello::{FEATURE_SOCKET, Offer, Ready, SERVICE_SESSION, TRANSPORT_SOCKET};
use partywall_layout::record::{Kind, WireHeader};
use partywall_layout::ring::footprint;
use partywall_layout::{Position, RecordHeader};
use std::io::IoSlice;
use std::path::Path;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

/// A neighbour after its handshake; it opens the odd numbers.
pub struct SessionFoe {
    pub wire: Wire,
    position: Position,
}

/// A record that our side sent.
#[derive(Debug, PartialEq, Eq)]
pub struct Heard {
    pub kind: u64,
    pub stream: u32,
    pub body: Vec<u8>,
}

impl SessionFoe {
    /// Connects to a listener that somebody else drives.
    pub fn meet(path: &Path) -> Self {
        let wire = Wire::connect(path);
        let mut own = hello(FEATURE_SOCKET);
        own.service = U32::new(SERVICE_SESSION);
        own.stream_window = U64::new(1 << 20);
        own.streams_max = U32::new(100);
        assert!(wire.send_hello(&own));
        assert!(!wire.receive().0.is_empty(), "HELLO");
        assert!(!wire.receive().0.is_empty(), "OFFER");
        assert!(wire.send(Offer::new(TRANSPORT_SOCKET, 1, 0, 0).as_bytes(), &[]));
        assert!(wire.send(Ready::new(TRANSPORT_SOCKET, 1).as_bytes(), &[]));
        assert!(!wire.receive().0.is_empty(), "READY");
        Self { wire, position: Position(0) }
    }

    /// Sends a record; whether the other side still takes any.
    pub fn say(&mut self, kind: Kind, stream: u32, body: &[u8]) -> bool {
        let len = u32::try_from(body.len()).unwrap();
        let header = RecordHeader { position: self.position, kind, len, stream };
        self.position = self.position.plus(footprint(len.into()));
        let bytes = [header.to_wire().as_bytes(), body].concat();
        let mut sent = 0;
        while sent < bytes.len() {
            match self.wire.socket.write(&[IoSlice::new(&bytes[sent..])], false) {
                Ok(count) => sent += count,
                Err(_) => return false,
            }
        }
        true
    }

    pub fn ping(&mut self, token: u64) -> bool {
        self.say(Kind::Ping, 0, &[0u64.to_le_bytes(), token.to_le_bytes()].concat())
    }

    pub fn reset(&mut self, stream: u32, directions: u32) -> bool {
        self.say(Kind::Reset, stream, &[7u32.to_le_bytes(), directions.to_le_bytes()].concat())
    }

    pub fn credit(&mut self, stream: u32, credited: u64) -> bool {
        self.say(Kind::Credit, stream, &credited.to_le_bytes())
    }

    /// The first part of a message of `total` bytes.
    pub fn first(&mut self, stream: u32, total: u64, bytes: &[u8]) -> bool {
        self.say(Kind::FragmentFirst, stream, &[&total.to_le_bytes(), bytes].concat())
    }

    /// The next record of our side; `None` when it hung up.
    pub fn hear(&self) -> Option<Heard> {
        let mut header = [0; size_of::<WireHeader>()];
        self.read(&mut header)?;
        let header = WireHeader::read_from_bytes(&header).unwrap();
        let mut body = vec![0; header.len.get() as usize];
        self.read(&mut body)?;
        let kind = header.word0.get() >> 1 & 31;
        Some(Heard { kind, stream: header.stream.get(), body })
    }

    /// Reads until a record of this kind comes; `None` when our side hung up.
    pub fn hear_until(&self, kind: Kind, stream: u32) -> Option<Heard> {
        loop {
            let heard = self.hear()?;
            if heard.kind == kind as u64 && heard.stream == stream {
                return Some(heard);
            }
        }
    }

    /// Reads until this question is answered; whether it was.
    pub fn hear_answer(&self, token: u64) -> bool {
        let answer = [1u64.to_le_bytes(), token.to_le_bytes()].concat();
        while let Some(heard) = self.hear_until(Kind::Ping, 0) {
            if heard.body == answer {
                return true;
            }
        }
        false
    }

    fn read(&self, into: &mut [u8]) -> Option<()> {
        let mut filled = 0;
        while filled < into.len() {
            match self.wire.socket.read(&mut into[filled..], false) {
                Ok(count @ 1..) => filled += count,
                _ => return None,
            }
        }
        Some(())
    }
}
