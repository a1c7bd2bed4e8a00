// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that the checks of `partywall_layout` never panic: for any bytes that a peer may send or
//! store, they return a value or the rule that is broken.
//!
//! A random number generator with a fixed seed makes the same cases in each run; the fuzz targets
//! in `fuzz/` explore more.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use crate::vectors;

use partywall_layout::hello::{self, FRAME_BYTES_MAX, PREAMBLE_BYTES};
use partywall_layout::record_ring::{RING_BYTES_MAX, SLOT_BYTES};
use partywall_layout::segment::{CONTROL_OFFSET, PAGE_BYTES};
use partywall_layout::{Geometry, Kind, Position, RecordHeader, RegionHeader, RingSize, Violation};
use vectors::{REGION_BYTES, SESSION, golden, hostile, reader};
use zerocopy::FromBytes;

const CASES: u32 = 100_000;

/// The random number generator of G. Marsaglia: "Xorshift RNGs", Journal of Statistical Software 8
/// (14), 2003.
struct Xorshift(u64);

impl Xorshift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte = self.next().to_le_bytes()[0];
        }
    }

    /// Returns a random value: one near 0, one near a power of two, or any number of 64 bits.
    fn edge(&mut self) -> u64 {
        let near = (self.next() % 5).wrapping_sub(2);
        match self.next() % 4 {
            0 => near,
            1 | 2 => (1 << (self.next() % 64)) + (near & 0xff),
            _ => self.next(),
        }
    }

    /// Damages `bytes`: changes a few random bytes, or truncates `bytes` at a random place.
    fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len());
            match self.next() % 3 {
                0 => bytes[at] = self.next().to_le_bytes()[0],
                1 => bytes[at] ^= 1 << (self.next() % 8),
                _ => {
                    let value = self.edge().to_le_bytes();
                    let end = (at + 8).min(bytes.len());
                    bytes[at..end].copy_from_slice(&value[..end - at]);
                }
            }
        }
        if self.below(8) == 0 {
            let len = self.below(bytes.len() + 1);
            bytes.truncate(len);
        }
    }
}

#[test]
fn arbitrary_frames_do_not_panic() {
    let mut random = Xorshift(1);
    let tags = [hello::HELLO_TAG, hello::OFFER_TAG, hello::READY_TAG, hello::REJECT_TAG];
    for case in 0..CASES {
        let mut bytes = vec![0; random.below(200)];
        random.fill(&mut bytes);
        if case % 4 != 0 && bytes.len() >= PREAMBLE_BYTES {
            bytes[..8].copy_from_slice(&tags[random.below(4)]);
            let length = u32::try_from(bytes.len()).unwrap();
            bytes[12..16].copy_from_slice(&length.to_le_bytes());
        }
        if let Some(preamble) = bytes.first_chunk::<PREAMBLE_BYTES>() {
            if let Ok(length) = hello::frame_length(preamble) {
                assert!((PREAMBLE_BYTES..=FRAME_BYTES_MAX).contains(&length));
            }
        }
        if let Err(violation) = hello::parse(&bytes) {
            assert_eq!(violation.code(), 15);
        }
    }
}

#[test]
fn arbitrary_region_headers_do_not_panic_and_accepted_ones_fit() {
    let mut random = Xorshift(2);
    let good = golden::images().into_iter().find(|image| image.kind == "region").unwrap().bytes;
    let mut accepted = 0;
    for case in 0..CASES {
        let mut bytes = good.clone();
        if case % 4 == 0 {
            random.fill(&mut bytes);
        } else {
            // Each change replaces one of the six eight-byte numbers of the region header that lie
            // between the region's size and the session id.
            for _ in 0..=random.below(2) {
                let at = 32 + 8 * random.below(6);
                let value =
                    if random.below(2) == 0 { random.edge() } else { random.edge() & !4095 };
                bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
        }
        let (header, _) = RegionHeader::read_from_prefix(&bytes).unwrap();
        match Geometry::check(&header, REGION_BYTES, &SESSION, 1) {
            Ok(geometry) => {
                accepted += 1;
                assert_fits(&geometry);
            }
            Err(violation) => assert_eq!(violation.code(), 1),
        }
    }
    assert!(accepted > 0, "some changes keep the rules");
}

/// Asserts that the parts of a region lie within it and do not overlap: control page, record ring,
/// release ring and slab. `Geometry::check` has accepted the region.
fn assert_fits(geometry: &Geometry) {
    let release_end = geometry.release_offset + geometry.peer_blocks_max * 8;
    assert!(geometry.ring_offset >= CONTROL_OFFSET + PAGE_BYTES);
    assert!(geometry.release_offset >= geometry.ring_offset + geometry.ring.bytes());
    assert!(geometry.slab_offset >= release_end);
    assert!(geometry.slab_offset + geometry.slab_bytes <= REGION_BYTES);
}

#[test]
fn arbitrary_record_headers_do_not_panic_and_accepted_ones_stay_in_the_ring() {
    let mut random = Xorshift(3);
    let mut accepted = 0;
    for _ in 0..CASES {
        let power = 8 + u32::try_from(random.below(23)).unwrap();
        let size = RingSize::new((1 << power).min(RING_BYTES_MAX)).unwrap();
        let position = Position((random.edge() / 2) & !(SLOT_BYTES - 1));
        let first = match random.below(3) {
            0 => random.next(),
            _ => position.0 | random.next() & 0x3e | 1,
        };
        let second = random.edge();
        match RecordHeader::check(position, size, first, second) {
            Ok(Some(header)) => {
                accepted += 1;
                let end = size.offset(position) + header.footprint();
                assert!(end <= size.bytes(), "{header:?} in {size:?}");
                assert!(header.kind == Kind::Pad || header.footprint() <= size.record_max());
                let of_link = RecordHeader::check_of_link(position, size, first, second);
                assert_eq!(of_link, Ok(Some(header)), "links have all that others have");
            }
            Ok(None) => assert_eq!(first, 0),
            Err(Violation::Kind { kind: 16, .. }) => {
                match RecordHeader::check_of_link(position, size, first, second) {
                    Ok(header) => {
                        assert_eq!(header.map(|header| header.kind), Some(Kind::CompactRecord))
                    }
                    Err(violation) => assert_eq!(violation.code(), 5, "{violation}"),
                }
            }
            Err(Violation::Word { .. }) => assert_ne!(first & !0x3e, position.0 | 1),
            Err(violation) => assert!(matches!(violation.code(), 3 | 5 | 6), "{violation}"),
        }
    }
    assert!(accepted > 0);
}

#[test]
fn damaged_images_do_not_panic() {
    let mut random = Xorshift(4);
    let images: Vec<_> = golden::images().into_iter().chain(hostile::images()).collect();
    for case in 0..CASES as usize {
        let image = &images[case % images.len()];
        // To save time, only every 16th case damages a socket stream of more than 8 KiB: it is
        // mostly payload, which no check reads.
        if image.bytes.len() > 8192 && case % 16 != 0 {
            continue;
        }
        let mut bytes = image.bytes.clone();
        random.damage(&mut bytes);
        match image.kind {
            "ring" | "session" => bytes.resize(image.bytes.len(), 0),
            "region" => bytes.resize(128, 0),
            _ => {}
        }
        let _ = reader::read(image.kind, image.from, &bytes);
    }
}
