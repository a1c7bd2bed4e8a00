// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that the link records of the specification are read as their rows in INDEX.md say, and
//! that a record with one changed byte is refused.
#![forbid(unsafe_code)]

use crate::vectors;

use partywall_layout::link::LinkRecord;
use partywall_layout::link::record::{self, Ack, tag};
use partywall_layout::{Position, RingSize};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use vectors::{RING_BYTES, index, link_records};

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../spec/link-records")
}

#[test]
fn every_file_is_read_as_its_row_says() {
    let mut codes = BTreeSet::new();
    for row in index::rows(&directory()) {
        let bytes = fs::read(directory().join(&row.name)).unwrap();
        match link_records::read(&bytes, row.from) {
            Ok(line) => assert_eq!(line, row.expected, "{}", row.name),
            Err(fault) => {
                assert_eq!(fault.code().to_string(), row.expected, "{}: {fault}", row.name);
                assert!(fault.to_string().ends_with("(SPEC 14.3)"), "{fault}");
                codes.insert(fault.code());
            }
        }
    }
    assert_eq!(codes, (1..=8).collect(), "each fault has a file");
}

#[test]
fn files_are_what_the_generator_makes() {
    let images = link_records::images();
    for image in &images {
        let file = fs::read(directory().join(&image.name)).unwrap();
        assert!(file == image.bytes, "{} differs: run the example `vectors`", image.name);
    }
    let text = fs::read_to_string(directory().join("INDEX.md")).unwrap();
    assert_eq!(text, index::text(link_records::PREFACE, &images));
    let mut names: Vec<String> = images.into_iter().map(|image| image.name).collect();
    names.sort();
    assert_eq!(names, index::files(&directory()));
}

#[test]
fn record_with_changed_byte_is_refused() {
    for image in link_records::images().iter().filter(|image| image.expected.contains("digest")) {
        let good = link_records::read(&image.bytes, image.from).unwrap();
        let header = partywall_layout::record_ring::HEADER_BYTES;
        let size = RingSize::new(RING_BYTES).unwrap();
        let tag = tag(link_records::STREAM);
        let position = Position(image.from);
        let check = |bytes: &[u8]| LinkRecord::check(position, tag, size, bytes).map(|_| ());
        let whole = LinkRecord::check(position, tag, size, &image.bytes).unwrap().unwrap();
        assert!(whole.wire_bytes() >= header && good.contains("ack="));
        let mut bytes = image.bytes.clone();
        for at in 0..usize::try_from(whole.wire_bytes()).unwrap() {
            for other in 0..=255 {
                let byte = std::mem::replace(&mut bytes[at], other);
                // If the first word of a record is 0, there is no record. The change of one byte
                // makes this word 0 only in records at the first four positions of the ring; in all
                // other records more than one byte of the word is not 0.
                let is_nothing = bytes[..8] == [0; 8] && image.from < 256;
                assert_eq!(check(&bytes).is_ok(), other == byte || is_nothing, "byte {at}");
                bytes[at] = byte;
            }
            assert!(check(&bytes[..at]).is_err(), "{at} bytes of it");
        }
    }
}

#[test]
fn tag_is_never_zero() {
    assert_eq!(tag(0), 1);
    assert_eq!(tag(0x7777_7777_7777_7777), 1);
    assert_eq!(tag(0x0000_0001_0000_0002), 3);
}

/// Input: a compact record that is valid except for its tag, which belongs to another stream. An
/// earlier stream may have left such a record in the ring. Expected result: the reader refuses the
/// record.
#[test]
fn compact_record_of_other_tag_is_refused() {
    let image = link_records::images().into_iter().find(|image| image.name == "record-compact.bin");
    let image = image.unwrap();
    let size = RingSize::new(RING_BYTES).unwrap();
    let own = tag(link_records::STREAM);
    let read = |tag| LinkRecord::check(Position(image.from), tag, size, &image.bytes);
    assert!(read(own).is_ok());
    for bit in 0..32 {
        for other in [own ^ 1 << bit, own.rotate_left(bit) ^ 1, 1 << bit] {
            assert_eq!(read(other).map_err(|fault| fault.code()), Err(6), "tag {other:#x}");
        }
    }
}

#[test]
fn checksum_of_parts_equals_checksum_of_whole() {
    let seal = |parts: &[&[u8]]| {
        let kind = partywall_layout::Kind::Data;
        record::LinkPrefix::sealed(Position(64), kind, 5, Ack::default(), 0, parts)
    };
    assert_eq!(seal(&[b"hello", b"", b" world"]), seal(&[b"hello world"]));
    assert_ne!(seal(&[b"hello"]), seal(&[b"hellp"]));
}
