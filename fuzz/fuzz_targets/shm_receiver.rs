// SPDX-License-Identifier: MIT OR Apache-2.0
//! After an honest handshake a peer writes anything into its region and to the control socket,
//! while the side under test sends and receives (SPEC 3 to 7).
//!
//! ```text
//!  input:  trust | steps
//!  step:   what (one of the actions below) | value (4 bytes) | length | as many bytes
//!  The peer
//!    stores a word    in its control page, ring, release ring or header
//!    writes a record  DATA, BLOB, FRAGMENT, SEGMENT, …
//!    sends            bytes or a segment's descriptor on the control socket
//!  The side under test
//!    receives, sends, reserves, sends a batch, arms itself to sleep, or trims its memory
//! ```
//!
//! The region does not change while the side under test reads a message, as `Trust::Trusted`
//! assumes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use partywall::{Channel, Listener, Message, TransportPolicy, TrustPolicy, TryRecvError};
use partywall_fuzz::{BYTES_MAX, ByHand, PEER_BLOCKS_MAX, RING_BYTES, connect_shm, listen};
use partywall_layout::control::{CONTROL_DOORBELL, ControlSegment};
use partywall_layout::record_ring::{BlobBody, Kind, SegmentBody, footprint, word0, word1};
use partywall_layout::segment::{CONTROL_OFFSET, GRAIN_BYTES};
use partywall_layout::{Geometry, Position, RingSize};
use partywall_sys::OwnMap;
use std::cell::RefCell;
use std::io::IoSlice;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

struct World {
    channel: Channel,
    hand: ByHand,
    /// Position at which an honest peer would write its next record.
    tail: Position,
    segments: Vec<OwnMap>,
    held: Vec<Message>,
}

fuzz_target!(|input: &[u8]| {
    thread_local! {
        static PEER: RefCell<Listener> =
            RefCell::new(listen("peer", TrustPolicy::Trusted, TransportPolicy::SharedMemory));
        static UNTRUSTED: RefCell<Listener> =
            RefCell::new(listen("isolated", TrustPolicy::Untrusted, TransportPolicy::SharedMemory));
    }
    let Some((choice, mut rest)) = input.split_first() else { return };
    let (listeners, name) =
        if choice & 1 == 0 { (&PEER, "peer") } else { (&UNTRUSTED, "isolated") };
    let (channel, hand) =
        listeners.with_borrow_mut(|listener| connect_shm(listener, name, choice & 2 == 0));
    let (segments, held) = (Vec::new(), Vec::new());
    let mut world = World { channel, hand, tail: Position(0), segments, held };
    while let [what, a, b, c, d, length, after @ ..] = rest {
        let (bytes, after) = after.split_at(after.len().min(usize::from(*length)));
        world.step(*what, u32::from_le_bytes([*a, *b, *c, *d]), bytes);
        rest = after;
    }
    world.hand.socket.shutdown_both().ok();
    world.end();
});

impl World {
    fn step(&mut self, what: u8, value: u32, bytes: &[u8]) {
        match what % 18 {
            0 => self.word(CONTROL_OFFSET + u64::from(value % 64) * 8, bytes),
            1 => self.control(value, bytes),
            2 => self.word(self.geometry().ring_offset + u64::from(value) * 8 % RING_BYTES, bytes),
            3 => {
                let offset = u64::from(value) % PEER_BLOCKS_MAX * 8;
                self.word(self.geometry().release_offset + offset, bytes);
            }
            4 => self.word(u64::from(value % 512) * 8, bytes),
            5 => self.record(Kind::Data, bytes.len(), bytes),
            6 => self.blob(value, bytes),
            7 => self.fragment(value, bytes),
            8 => self.segment(value),
            9 => self.retire(value),
            10 => {
                let kind = Kind::from_number((value % 32) as u8).unwrap_or(Kind::CloseWrite);
                self.record(kind, (value >> 8) as usize % 1200, bytes);
            }
            11 => self.control_socket(bytes),
            12 => self.receive(value),
            13 => drop(self.channel.try_send(bytes)),
            14 => self.send_large(value),
            15 => self.batch(value, bytes),
            16 => self.arm(value),
            _ => self.release(value),
        }
    }

    fn geometry(&self) -> Geometry {
        self.hand.region.as_ref().expect("shared memory").1
    }

    fn bytes(&mut self) -> &mut [u8] {
        self.hand.region.as_mut().expect("shared memory").0.as_mut_slice()
    }

    fn word(&mut self, offset: u64, bytes: &[u8]) {
        let mut word = [0; 8];
        let len = bytes.len().min(8);
        word[..len].copy_from_slice(&bytes[..len]);
        self.store(offset, u64::from_le_bytes(word));
    }

    fn store(&mut self, offset: u64, word: u64) {
        let offset = offset as usize;
        self.bytes()[offset..offset + 8].copy_from_slice(&word.to_le_bytes());
    }

    fn load(&mut self, offset: u64) -> u64 {
        let offset = offset as usize;
        let mut word = [0; 8];
        word.copy_from_slice(&self.bytes()[offset..offset + 8]);
        u64::from_le_bytes(word)
    }

    /// Raises one of the four words of the peer's control page on which the side under test acts.
    /// The word grows by a small step.
    fn control(&mut self, value: u32, bytes: &[u8]) {
        let offset = CONTROL_OFFSET + u64::from(value % 4) * 128;
        let step = bytes.first().map_or(1, |byte| u64::from(*byte));
        let unit = if value % 4 == 0 { 64 } else { 1 };
        let word = self.load(offset).wrapping_add(step * unit);
        self.store(offset, word);
    }

    /// Writes a record of any kind, length and content at the position where an honest peer would
    /// write its next record.
    fn record(&mut self, kind: Kind, len: usize, payload: &[u8]) {
        let size = RingSize::new(RING_BYTES).expect("possible");
        let (mut taken, mut tail) = (footprint(len as u64), self.tail);
        if taken > size.record_max() {
            return;
        }
        let until_end = size.until_end(tail);
        if taken > until_end {
            self.header(tail, Kind::Pad, until_end as usize - 16);
            tail = tail.plus(until_end);
        }
        let ring = self.geometry().ring_offset;
        let at = (ring + size.offset(tail)) as usize + 16;
        let count = payload.len().min(len);
        self.bytes()[at..at + count].copy_from_slice(&payload[..count]);
        self.header(tail, kind, len);
        taken += tail.since(self.tail);
        self.tail = self.tail.plus(taken);
        self.store(ring + size.offset(self.tail), 0);
    }

    fn header(&mut self, at: Position, kind: Kind, len: usize) {
        let offset = self.geometry().ring_offset + at.0 % RING_BYTES;
        self.store(offset + 8, word1(len as u32, 0));
        self.store(offset, word0(at, kind));
    }

    fn blob(&mut self, value: u32, bytes: &[u8]) {
        let byte = |index: usize| u64::from(bytes.get(index).copied().unwrap_or(0));
        let body = BlobBody {
            block: U64::new(byte(0)),
            segment: U32::new(byte(1) as u32 % 4),
            zero: U32::new(0),
            offset: U64::new(u64::from(value & 0xffff)),
            length: U64::new(u64::from(value >> 16) << (byte(2) % 4)),
        };
        self.record(Kind::Blob, size_of::<BlobBody>(), body.as_bytes());
    }

    fn fragment(&mut self, value: u32, bytes: &[u8]) {
        match value % 5 {
            0 | 1 => {
                let mut payload = u64::from(value >> 8 & 0x7ffff).to_le_bytes().to_vec();
                if value % 5 == 1 {
                    payload = (bytes.len() as u64 * 2).to_le_bytes().to_vec();
                }
                payload.extend_from_slice(bytes);
                self.record(Kind::FragmentFirst, payload.len(), &payload);
            }
            2 => self.record(Kind::FragmentMid, bytes.len(), bytes),
            3 => self.record(Kind::FragmentLast, bytes.len(), bytes),
            _ => self.record(Kind::FragmentAbort, 0, &[]),
        }
    }

    fn segment(&mut self, value: u32) {
        let number = 1 + self.segments.len() as u32 + (value >> 4 & 1);
        let bytes = GRAIN_BYTES * (1 + u64::from(value >> 5 & 1));
        let Ok(memory) = OwnMap::create("by-hand", bytes as usize) else { return };
        let mut frame = ControlSegment::new(number).as_bytes().to_vec();
        if value & 0x80 != 0 {
            // The input gives the frame that announces the segment: its type, its number of
            // descriptors, its length, and its bytes up to that length.
            frame[..4].copy_from_slice(&(value >> 8 ^ 0x0008_0102).to_le_bytes());
            frame.resize(usize::from(frame[2]).clamp(1, 80), 0xee);
        }
        if value & 1 == 0 {
            let descriptors = [memory.fd()];
            let _ = self.hand.socket.send(&[IoSlice::new(&frame)], &descriptors, false, true);
        } else if value & 2 == 0 {
            let _ = self.hand.socket.write(&[IoSlice::new(&frame)], true);
        }
        let size = U64::new(bytes + u64::from(value >> 6 & 1));
        let body = SegmentBody { number: U32::new(number), zero: U32::new(0), size };
        self.record(Kind::Segment, size_of::<SegmentBody>(), body.as_bytes());
        self.segments.push(memory);
    }

    fn retire(&mut self, value: u32) {
        let number = U32::new(value % 5);
        let body = SegmentBody { number, zero: U32::new(0), size: U64::new(GRAIN_BYTES) };
        self.record(Kind::SegmentRetire, size_of::<SegmentBody>(), body.as_bytes());
    }

    fn control_socket(&mut self, bytes: &[u8]) {
        let bytes = if bytes.is_empty() { &[CONTROL_DOORBELL][..] } else { bytes };
        let _ = self.hand.socket.write(&[IoSlice::new(bytes)], true);
    }

    fn receive(&mut self, value: u32) {
        if value & 1 == 0 {
            if let Ok(Some(message)) = self.channel.receiver().try_recv_ref() {
                assert!(message.len() as u64 <= BYTES_MAX);
            }
            return;
        }
        if let Ok(Some(message)) = self.channel.try_recv() {
            look_at(&message);
            if self.held.len() < 16 {
                self.held.push(message);
            }
        }
    }

    fn send_large(&mut self, value: u32) {
        let len = (value >> 2) as usize % (BYTES_MAX as usize + 1);
        if let Ok(mut reserved) = self.channel.sender().try_reserve(len) {
            reserved.iter_mut().step_by(4096).for_each(|byte| *byte = 7);
            match value & 3 {
                0 => drop(reserved),
                _ => drop(reserved.try_commit()),
            }
        }
    }

    fn batch(&mut self, value: u32, bytes: &[u8]) {
        // The batch's deadline has passed already, so an operation that would block fails.
        let mut batch = self.channel.sender().batch_deadline(std::time::Instant::now());
        for _ in 0..value % 8 {
            if batch.send(bytes).is_err() {
                break;
            }
        }
        if value & 8 == 0 {
            let _ = batch.commit();
        }
    }

    fn arm(&mut self, value: u32) {
        match value % 3 {
            0 => drop(self.channel.receiver().arm()),
            1 => drop(self.channel.sender().arm()),
            _ => drop(self.channel.sender().trim()),
        }
    }

    fn release(&mut self, value: u32) {
        if !self.held.is_empty() {
            let message = self.held.swap_remove(value as usize % self.held.len());
            look_at(&message);
        }
    }

    /// Checks that the channel of the side under test ends after the peer has closed the
    /// connection, whatever the peer did before.
    fn end(&mut self) {
        for _ in 0..10_000 {
            match self.channel.try_recv() {
                Ok(Some(message)) => look_at(&message),
                Err(TryRecvError::Empty) => {}
                Ok(None) | Err(_) => {
                    self.held.clear();
                    return;
                }
            }
        }
        panic!("still waiting after the peer hung up");
    }
}

/// Reads every byte of the received message, as a user of the library would.
fn look_at(message: &Message) {
    assert!(message.len() as u64 <= BYTES_MAX);
    std::hint::black_box(message.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte)));
}
