// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers of tests of a link's outgoing stream: memory of the stream that the test can read, and a
//! receiver that reads the stream's bytes as from a socket.
//!
//! ```text
//!  Retained ── OwnMem ring, slab ──▶ memory ◀── PeerMem ── Memory::image   the next owner's view
//!     └ slices ──▶ bytes ──▶ Receiver: records judged by layout, messages
//! ```
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use partywall_layout::link::LinkRecord;
use partywall_layout::link::record::{self, Body};
use partywall_layout::{RingSize, record_ring};
use partywall_link::retained::{Boundary, Damage, Retained, SendCursor};
use partywall_reconcile::{Position, StreamId};
use partywall_ring::{OwnMem, PeerMem, mem};
use std::io::IoSlice;

/// The fields of a link file's state image that describe the outgoing stream. The next owner
/// recovers the stream from these fields.
#[derive(Clone, Copy, Debug)]
pub struct State {
    pub stream: StreamId,
    pub base: Boundary,
}

impl State {
    pub fn new(stream: u64) -> Self {
        Self { stream: StreamId::new(stream).unwrap(), base: Boundary::START }
    }
}

/// An image of one outgoing stream: a copy of all bytes of its ring and its slab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub ring: Vec<u8>,
    pub slab: Vec<u8>,
}

impl Image {
    pub fn zeroed(ring: usize, slab: usize) -> Self {
        Self { ring: vec![0; ring], slab: vec![0; slab] }
    }

    pub fn size(&self) -> RingSize {
        RingSize::new(self.ring.len() as u64).unwrap()
    }

    /// Makes new memory that contains the bytes of this image: ring and slab for the owner of the
    /// stream, and a second mapping of both for the test.
    pub fn memory(&self) -> (OwnMem, OwnMem, Memory) {
        let (mut ring, seen_ring) = mem::pair(self.ring.len());
        let (mut slab, seen_slab) = mem::pair(self.slab.len());
        ring.write(0, &self.ring);
        slab.write(0, &self.slab);
        (ring, slab, Memory { ring: seen_ring, slab: seen_slab })
    }

    /// Recovers the stream from this image, as the next owner does. Returns the stream and its
    /// memory, or the damage that the owner finds.
    pub fn found(&self, state: State) -> Result<(Retained, Memory), Damage> {
        let (ring, slab, memory) = self.memory();
        let State { stream, base } = state;
        let found = Retained::found(ring, self.size(), slab, stream, base.position, base.digest)?;
        Ok((found, memory))
    }
}

/// The ring and slab of a living owner, mapped once more so that the test can read them.
#[derive(Debug)]
pub struct Memory {
    ring: PeerMem,
    slab: PeerMem,
}

impl Memory {
    pub fn image(&self) -> Image {
        let mut image = Image::zeroed(self.ring.len(), self.slab.len());
        self.ring.copy(0, &mut image.ring);
        self.slab.copy(0, &mut image.slab);
        image
    }
}

/// Makes an empty stream with a ring and a slab of the given sizes. Returns the stream, its memory,
/// and the state image fields that name the stream.
pub fn stream(ring: usize, slab: usize) -> (Retained, Memory, State) {
    let image = Image::zeroed(ring, slab);
    let (ring, slab, memory) = image.memory();
    let state = State::new(5);
    (Retained::empty(ring, image.size(), slab, state.stream), memory, state)
}

/// The next bytes of the stream, at most `bytes_max`, as the sender passes them to a socket:
/// fetched in several pieces of memory.
pub fn next_bytes(retained: &Retained, from: &SendCursor, bytes_max: usize) -> Vec<u8> {
    let mut slices = [IoSlice::new(&[]); 3];
    let count = from.slices(retained, bytes_max, &mut slices).unwrap();
    let bytes: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.to_vec()).collect();
    assert!(bytes.len() <= bytes_max && slices[..count].iter().all(|slice| !slice.is_empty()));
    bytes
}

/// All bytes of the stream from `from` on, as a socket carries them.
pub fn all_bytes(retained: &Retained, from: Position) -> Vec<u8> {
    let (mut cursor, mut all) = (retained.cursor(from).unwrap(), Vec::new());
    loop {
        let bytes = next_bytes(retained, &cursor, usize::MAX);
        if bytes.is_empty() {
            assert_eq!(cursor.next(), retained.tail());
            return all;
        }
        cursor.advance(retained, bytes.len()).unwrap();
        all.extend(bytes);
    }
}

pub fn all_messages(retained: &Retained, from: Position) -> Vec<Vec<u8>> {
    let mut receiver = RingReader::new(retained.stream(), from, retained.ring_size());
    receiver.take(&all_bytes(retained, from));
    assert!(receiver.bytes.is_empty(), "the stream ends with a whole record");
    receiver.messages
}

/// A receiver for tests: it reads the bytes of the stream as a socket carries them, checks the
/// records, and keeps the messages.
#[derive(Debug)]
pub struct RingReader {
    tag: u32,
    size: RingSize,
    next: Position,
    /// The boundary (position and digest) at the end of the last message that was received
    /// completely.
    pub received: Boundary,
    bytes: Vec<u8>,
    pub messages: Vec<Vec<u8>>,
}

impl RingReader {
    pub fn new(stream: StreamId, from: Position, size: RingSize) -> Self {
        let received = Boundary { position: from, ..Boundary::START };
        let tag = record::tag(stream.0.get());
        Self { tag, size, next: from, received, bytes: Vec::new(), messages: Vec::new() }
    }

    /// Simulates a cut of the connection: the receiver drops an incomplete message, and the next
    /// connection resumes after the last complete message.
    pub fn cut(&mut self) {
        self.bytes.clear();
        self.next = self.received.position;
    }

    pub fn take(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        while self.one() {}
    }

    fn one(&mut self) -> bool {
        if self.bytes.len() < 16 {
            return false;
        }
        let word = |at: usize| u64::from_le_bytes(self.bytes[at..at + 8].try_into().unwrap());
        let at = record_ring::Position(self.next.0);
        let header = LinkRecord::check_header(at, self.tag, self.size, word(0), word(8));
        let header = header.unwrap().expect("nothing is sent that is not published");
        let whole = record::wire_bytes(&header) as usize;
        if self.bytes.len() < whole {
            return false;
        }
        let record = LinkRecord::check(at, self.tag, self.size, &self.bytes).unwrap().unwrap();
        assert_eq!(record.wire_bytes() as usize, whole);
        let end = Position(self.next.0 + header.footprint());
        let taken = match record.body {
            Body::Message(message) => {
                self.messages.push(message.to_vec());
                whole
            }
            Body::Blob { length, crc, .. } => {
                let Some(blob) = self.bytes.get(whole..whole + length as usize) else {
                    return false;
                };
                assert_eq!(record::blob_crc(blob), crc);
                self.messages.push(blob.to_vec());
                whole + length as usize
            }
            Body::Pad => whole,
        };
        if record.body != Body::Pad {
            let digest = partywall_reconcile::RecordDigest(record.digest);
            self.received = Boundary { position: end, digest };
        }
        self.next = end;
        self.bytes.drain(..taken);
        true
    }
}

pub fn message(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|index| (number * 31 + index * 7 + 1) as u8).collect()
}
