// SPDX-License-Identifier: MIT OR Apache-2.0
//! A sender that makes the bytes of test images: it writes records into plain bytes, by the rules
//! of SPEC 4.5 and 8.
//!
//! The sender does not check whether the ring has room, because the images are small.

use partywall_layout::record_ring::{BlobCredit, SegmentBody, footprint, word0, word1};
use partywall_layout::{BlobBody, Kind, Position, RecordHeader, RingSize};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

/// A ring that a sender fills by the rules of SPEC 4.5, and its open batch: records not yet
/// published.
pub struct RingWriter {
    pub image: Vec<u8>,
    size: RingSize,
    published: Position,
    tail: Position,
    first_word: u64,
    /// Stream number in the header of each record that is appended from now on.
    pub stream: u32,
}

impl RingWriter {
    pub fn new(bytes: u64) -> Self {
        let size = RingSize::new(bytes).unwrap();
        let image = vec![0; usize::try_from(bytes).unwrap()];
        let (published, tail) = (Position(0), Position(0));
        Self { image, size, published, tail, first_word: 0, stream: 0 }
    }

    /// Appends a record to the open batch. If the record does not fit between the tail and the end
    /// of the ring, a PAD record that fills this space precedes it.
    pub fn append(&mut self, kind: Kind, payload: &[u8]) {
        let until_end = self.size.until_end(self.tail);
        if footprint(payload.len() as u64) > until_end {
            self.record(Kind::Pad, u32::try_from(until_end - 16).unwrap(), &[]);
        }
        self.record(kind, u32::try_from(payload.len()).unwrap(), payload);
    }

    pub fn publish(&mut self) {
        self.word(self.tail, 0, 0);
        self.word(self.published, 0, self.first_word);
        self.published = self.tail;
    }

    /// Drops the open batch, as a sender that gives up does. Its records are not published, but
    /// most of their bytes stay in the ring.
    pub fn abort(&mut self) {
        self.tail = self.published;
    }

    /// Appends one record, and publishes it as a batch of its own.
    pub fn send(&mut self, kind: Kind, payload: &[u8]) {
        self.append(kind, payload);
        self.publish();
    }

    pub fn tail(&self) -> u64 {
        self.tail.0
    }

    fn record(&mut self, kind: Kind, len: u32, payload: &[u8]) {
        let word = word0(self.tail, kind);
        if self.tail == self.published {
            self.first_word = word;
        } else {
            self.word(self.tail, 0, word);
        }
        self.word(self.tail, 8, word1(len, self.stream));
        let start = self.place(self.tail) + 16;
        self.image[start..start + payload.len()].copy_from_slice(payload);
        self.tail = self.tail.plus(footprint(len.into()));
    }

    fn word(&mut self, at: Position, offset: usize, word: u64) {
        let start = self.place(at) + offset;
        self.image[start..start + 8].copy_from_slice(&word.to_le_bytes());
    }

    fn place(&self, at: Position) -> usize {
        usize::try_from(self.size.offset(at)).unwrap()
    }
}

/// Collects the bytes that a sender writes to a socket if it keeps the rules of SPEC 8.
#[derive(Default)]
pub struct SocketWriter {
    pub stream: Vec<u8>,
    /// Stream number in the header of each record that is sent from now on.
    pub stream_number: u32,
    position: u64,
}

impl SocketWriter {
    /// Sends a record of `kind`, and then `following`, bytes that are not part of the record, such
    /// as the message of a BLOB.
    pub fn send(&mut self, kind: Kind, payload: &[u8], following: &[u8]) {
        let len = u32::try_from(payload.len()).unwrap();
        let stream = self.stream_number;
        let header = RecordHeader { position: Position(self.position), kind, len, stream };
        self.stream.extend_from_slice(header.to_wire().as_bytes());
        self.stream.extend_from_slice(payload);
        self.stream.extend_from_slice(following);
        self.position += header.footprint();
    }
}

pub fn blob(block: u64, segment: u32, offset: u64, length: u64) -> Vec<u8> {
    let (block, offset, length) = (U64::new(block), U64::new(offset), U64::new(length));
    let (segment, zero) = (U32::new(segment), U32::new(0));
    BlobBody { block, segment, zero, offset, length }.as_bytes().to_vec()
}

/// The body of a BLOB record that also carries credit for its stream.
pub fn blob_with_credit(blob: &[u8], credited: BlobCredit) -> Vec<u8> {
    [blob, credited.as_bytes()].concat()
}

pub fn segment(number: u32, size: u64) -> Vec<u8> {
    let (number, zero) = (U32::new(number), U32::new(0));
    SegmentBody { number, zero, size: U64::new(size) }.as_bytes().to_vec()
}

/// The payload of a message's first fragment: the message's `total` length in bytes, then `bytes`.
pub fn first(total: u64, bytes: &[u8]) -> Vec<u8> {
    let mut payload = total.to_le_bytes().to_vec();
    payload.extend_from_slice(bytes);
    payload
}
