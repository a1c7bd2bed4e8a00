// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks any bytes as a link record. The result is a whole record, none, or a fault (SPEC 14.3).
//! Three of four inputs get a valid checksum, so that the later checks are reached.
//!
//! ```text
//!  The first byte of the input chooses one of these forms; the bytes after it are
//!  slot | record                             a record of raw bytes
//!  slot | blob_crc, ack (20 bytes) | body    a DATA or BLOB record
//!  slot | message                            a compact record
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use partywall_layout::link::record::{Ack, Body, LinkRecord, may_be_compact, tag};
use partywall_layout::link::{LinkPrefix, compact};
use partywall_layout::record_ring::{Kind, SLOT_BYTES, word0, word1};
use partywall_layout::{Position, RingSize};
use zerocopy::IntoBytes;

const TAG: u32 = tag(0x0123_4567_89ab_cdef);

fuzz_target!(|bytes: &[u8]| {
    let Some(size) = RingSize::new(4096) else { return };
    let Some(([choice, slot], rest)) = bytes.split_first_chunk() else { return };
    let position = Position(u64::from(*slot) * SLOT_BYTES);
    let record = match choice % 4 {
        0 => rest.to_vec(),
        1 => prefixed(position, Kind::Data, rest),
        2 => prefixed(position, Kind::Blob, rest),
        _ => compact_of(position, rest),
    };
    match LinkRecord::check(position, TAG, size, &record) {
        Ok(Some(found)) => {
            assert!(size.offset(position) + found.header.footprint() <= size.bytes());
            match found.body {
                Body::Message(message) => {
                    let whole = &record[..usize::try_from(found.wire_bytes()).unwrap_or(0)];
                    assert!(whole.ends_with(message));
                }
                Body::Blob { offset, length, .. } => {
                    assert!(offset % SLOT_BYTES == 0 && length > 0);
                    assert!(offset.checked_add(length).is_some());
                }
                Body::Pad => assert_eq!(found.digest, 0),
            }
            let is_compact = found.header.kind == Kind::CompactRecord;
            assert!(!is_compact || may_be_compact(position, size) && found.ack == Ack::default());
        }
        Ok(None) => assert!(record.starts_with(&[0; 8])),
        Err(fault) => assert!((1..=8).contains(&fault.code()), "{fault}"),
    }
});

fn prefixed(position: Position, kind: Kind, rest: &[u8]) -> Vec<u8> {
    let (fields, body) = rest.split_first_chunk().unwrap_or((&[0; 20], rest));
    let [c0, c1, c2, c3, ack @ .., p0, p1, p2, p3, t0, t1, t2, t3] = *fields;
    let ack = Ack {
        position: u64::from_le_bytes(ack),
        digest: u32::from_le_bytes([p0, p1, p2, p3]),
        tag: u32::from_le_bytes([t0, t1, t2, t3]),
    };
    let blob_crc = u32::from_le_bytes([c0, c1, c2, c3]);
    let prefix = LinkPrefix::sealed(position, kind, TAG, ack, blob_crc, &[body]);
    let payload = [prefix.as_bytes(), body].concat();
    record(position, kind, TAG, &payload)
}

fn compact_of(position: Position, message: &[u8]) -> Vec<u8> {
    let crc = compact::crc(position, TAG, &[message]);
    record(position, Kind::CompactRecord, crc, message)
}

fn record(position: Position, kind: Kind, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let words = [word0(position, kind), word1(len, stream)];
    let header = words.map(u64::to_le_bytes).concat();
    [header.as_slice(), payload].concat()
}
