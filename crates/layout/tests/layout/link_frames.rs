// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that the link frames of the specification are read as their rows in INDEX.md say, and that
//! every change of a single byte is detected.
#![forbid(unsafe_code)]

use crate::vectors;

use partywall_layout::link::frame::{
    FRAME_BODY_MAX, FRAME_HEADER_BYTES, FrameFault, FrameHeader, FrameKind,
};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use vectors::{index, link_frames};

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../spec/link-frames")
}

#[test]
fn every_file_is_read_as_its_row_says() {
    let (mut codes, mut kinds) = (BTreeSet::new(), BTreeSet::new());
    for row in index::rows(&directory()) {
        let bytes = fs::read(directory().join(&row.name)).unwrap();
        match link_frames::read(&bytes) {
            Ok(line) => {
                assert_eq!(line, row.expected, "{}", row.name);
                kinds.insert(bytes[0]);
            }
            Err(fault) => {
                assert_eq!(fault.code().to_string(), row.expected, "{}: {fault}", row.name);
                assert!(fault.to_string().ends_with("(SPEC 15.4)"), "{fault}");
                codes.insert(fault.code());
            }
        }
    }
    assert_eq!(codes, (1..=7).collect(), "each fault has a file");
    assert_eq!(kinds, (1..=8).map(|kind| kind << 1).collect(), "each kind has a file");
}

#[test]
fn files_are_what_the_generator_makes() {
    let images = link_frames::images();
    for image in &images {
        let file = fs::read(directory().join(&image.name)).unwrap();
        assert!(file == image.bytes, "{} differs: run the example `vectors`", image.name);
    }
    let text = fs::read_to_string(directory().join("INDEX.md")).unwrap();
    assert_eq!(text, index::text(link_frames::PREFACE, &images));
    let mut names: Vec<String> = images.into_iter().map(|image| image.name).collect();
    names.sort();
    assert_eq!(names, index::files(&directory()));
}

#[test]
fn single_changed_byte_is_detected() {
    let good = link_frames::images().into_iter().filter(|image| image.expected.len() > 1);
    for image in good {
        let mut bytes = image.bytes.clone();
        for index in 0..bytes.len() {
            let byte = bytes[index];
            for other in (0..8).map(|bit| byte ^ (1 << bit)).chain([!byte]) {
                bytes[index] = other;
                let read = link_frames::read(&bytes);
                assert!(read.is_err(), "{}, byte {index}: {read:?}", image.name);
            }
            bytes[index] = byte;
        }
    }
}

#[test]
fn other_version_is_refused_with_its_nonce() {
    let images = link_frames::images();
    let newer = images.iter().find(|image| image.name == "link-frame-attach-newer-short.bin");
    let fault = link_frames::read(&newer.unwrap().bytes).unwrap_err();
    assert_eq!(fault, FrameFault::Version { min: 2, max: 3, nonce: 0x0102_0304_0506_0708 });
}

#[test]
fn header_length_never_exceeds_body_limit() {
    for kind in [FrameKind::Attach, FrameKind::Attached, FrameKind::Refuse, FrameKind::Leave] {
        let mut header = FrameHeader::new(kind, &[]);
        let lengths = (0..=FRAME_BODY_MAX + 1).chain([usize::try_from(u32::MAX).unwrap()]);
        let accepted = lengths.filter(|bytes| {
            header.body_bytes = u32::try_from(*bytes).unwrap().into();
            header.check() == Ok((kind, *bytes))
        });
        let (least, most) = kind.body_bytes();
        assert_eq!(accepted.collect::<Vec<_>>(), (least..=most).collect::<Vec<_>>());
        assert!(most <= FRAME_BODY_MAX && size_of::<FrameHeader>() == FRAME_HEADER_BYTES);
    }
}
