// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that the session images, records of one side of a session, equal those that the module
//! `vectors::sessions` makes. For each image, the reader returns the content that its row of
//! INDEX.md states.
#![forbid(unsafe_code)]

use crate::vectors;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use vectors::{index, reader, sessions};

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../spec/sessions")
}

#[test]
fn files_are_what_the_generator_makes() {
    let images = sessions::images();
    for image in &images {
        let file = fs::read(directory().join(&image.name)).unwrap();
        assert!(file == image.bytes, "{} differs: run `cargo xtask gen`", image.name);
    }
    let text = fs::read_to_string(directory().join("INDEX.md")).unwrap();
    assert_eq!(text, index::text(sessions::PREFACE, &images));
    let mut names: Vec<String> = images.into_iter().map(|image| image.name).collect();
    names.sort();
    assert_eq!(names, index::files(&directory()));
}

#[test]
fn every_sequence_is_read_as_its_row_says() {
    let mut codes = BTreeSet::new();
    let (mut good, mut hostile) = (0, 0);
    for row in index::rows(&directory()) {
        let bytes = fs::read(directory().join(&row.name)).unwrap();
        match reader::read(&row.kind, row.from, &bytes) {
            Ok(line) => {
                assert_eq!(line, row.expected, "{}", row.name);
                good += 1;
            }
            Err(violation) => {
                assert_eq!(violation.code().to_string(), row.expected, "{}: {violation}", row.name);
                codes.insert(violation.code());
                hostile += 1;
            }
        }
    }
    assert!(good >= 25 && hostile >= 100, "{good} good and {hostile} hostile images");
    assert_eq!(codes, BTreeSet::from([4, 5, 7, 11, 14, 16, 17]));
}
