// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that the golden vectors, the valid images in the specification's folder, equal those that
//! the module `vectors::golden` makes. For each vector, the reader returns the content that its row
//! of INDEX.md states.
#![forbid(unsafe_code)]

use crate::vectors;

use std::fs;
use std::path::PathBuf;
use vectors::{golden, index, reader};

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../spec/vectors")
}

#[test]
fn files_are_what_the_generator_makes() {
    let images = golden::images();
    for image in &images {
        let file = fs::read(directory().join(&image.name)).unwrap();
        assert!(file == image.bytes, "{} differs: run the example `vectors`", image.name);
    }
    let text = fs::read_to_string(directory().join("INDEX.md")).unwrap();
    assert_eq!(text, index::text(golden::PREFACE, &images));
}

#[test]
fn every_file_has_a_row_and_every_row_a_file() {
    let mut rows: Vec<String> = index::rows(&directory()).into_iter().map(|row| row.name).collect();
    rows.sort();
    assert_eq!(rows, index::files(&directory()));
}

#[test]
fn every_file_is_read_as_its_row_says() {
    let rows = index::rows(&directory());
    assert!(!rows.is_empty());
    for row in rows {
        let bytes = fs::read(directory().join(&row.name)).unwrap();
        let line = reader::read(&row.kind, row.from, &bytes);
        assert_eq!(line.as_ref(), Ok(&row.expected), "{}", row.name);
    }
}
