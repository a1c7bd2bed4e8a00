// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that the reader refuses every hostile image, the bytes of a peer that breaks a rule, with
//! the code that the image's row of INDEX.md gives.
#![forbid(unsafe_code)]

use crate::vectors;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use vectors::{hostile, index, reader};

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../spec/hostile")
}

#[test]
fn every_file_has_a_row_and_every_row_a_file() {
    let mut rows: Vec<String> = index::rows(&directory()).into_iter().map(|row| row.name).collect();
    rows.sort();
    assert_eq!(rows, index::files(&directory()));
}

#[test]
fn every_image_is_refused_with_its_code() {
    let mut codes = BTreeSet::new();
    for row in index::rows(&directory()) {
        let bytes = fs::read(directory().join(&row.name)).unwrap();
        match reader::read(&row.kind, row.from, &bytes) {
            Ok(line) => panic!("{} was accepted: {line}", row.name),
            Err(violation) => {
                assert_eq!(violation.code().to_string(), row.expected, "{}: {violation}", row.name);
                codes.insert(violation.code());
            }
        }
    }
    // The violations with the codes 8, 9 and 10 concern words of the control page and the release
    // ring. No image contains these words.
    let all: BTreeSet<u32> = (1..=15).filter(|code| !(8..=10).contains(code)).collect();
    assert_eq!(codes, all, "each violation has an image");
}

#[test]
fn generated_images_are_what_the_generator_makes() {
    for image in hostile::images() {
        let file = fs::read(directory().join(&image.name)).unwrap();
        assert!(file == image.bytes, "{} differs: run the example `vectors`", image.name);
    }
}
