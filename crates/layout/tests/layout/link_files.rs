// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that each link file in `spec/links` is read as its row in INDEX.md says. No change of a
//! single byte makes a reader accept an older owner record, state or consumed record.
#![forbid(unsafe_code)]

use crate::vectors;

use partywall_layout::link::{FileFault, Image, LINK_CONTROL_OFFSET, PARTS_OFFSET, file_name_hash};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use vectors::index;
use vectors::links::{self, Maker, NAMES};

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../spec/links")
}

#[test]
fn every_file_is_read_as_its_row_says() {
    let mut codes = BTreeSet::new();
    for row in index::rows(&directory()) {
        let bytes = fs::read(directory().join(&row.name)).unwrap();
        match links::read(&bytes, row.from) {
            Ok(line) => assert_eq!(line, row.expected, "{}", row.name),
            Err(fault) => {
                assert_eq!(fault.code().to_string(), row.expected, "{}: {fault}", row.name);
                assert!(fault.to_string().ends_with("(SPEC 13.6)"), "{fault}");
                codes.insert(fault.code());
            }
        }
    }
    assert_eq!(codes, (1..=14).collect(), "each fault has a file");
}

#[test]
fn files_are_what_the_generator_makes() {
    let images = links::images();
    for image in &images {
        let file = fs::read(directory().join(&image.name)).unwrap();
        assert!(file == image.bytes, "{} differs: run the example `vectors`", image.name);
    }
    let text = fs::read_to_string(directory().join("INDEX.md")).unwrap();
    assert_eq!(text, index::text(links::PREFACE, &images));
    let mut names: Vec<String> = images.into_iter().map(|image| image.name).collect();
    names.sort();
    assert_eq!(names, index::files(&directory()));
}

#[test]
fn file_name_is_hash_of_names_and_lengths() {
    assert_eq!(file_name_hash(NAMES), 0xc357_7146_f595_3aeb);
    assert_ne!(file_name_hash(["a", "bc", "d"]), file_name_hash(["ab", "c", "d"]));
}

/// Checks the `pages` of a link file. Returns the header, owner record, state image and consumed
/// position that a process would use if it opened the file now.
fn in_force(pages: &[u8], size: u64) -> Result<Image, FileFault> {
    Image::check(pages, size, Some(NAMES))
}

#[test]
fn single_changed_byte_restores_no_older_image() {
    let mut torn = Maker::used();
    for image in links::images().into_iter().filter(|image| image.name == "link-torn.bin") {
        torn.put(0, &image.bytes);
    }
    for maker in [Maker::new(), Maker::used(), torn] {
        let good = in_force(&maker.bytes, maker.size).unwrap();
        let mut pages = maker.bytes.clone();
        let mut refused = 0;
        for index in 0..pages.len() {
            // The values that the test stores in one byte of the file, one after the other: each
            // bit flipped alone, all bits flipped, and the next lower and higher values.
            let byte = pages[index];
            let near = [byte.wrapping_add(1), byte.wrapping_sub(1), byte.wrapping_sub(2), 0, 0xff];
            let single = (0..8).map(|bit| byte ^ (1 << bit));
            for other in single.chain(near).filter(|other| *other != byte) {
                pages[index] = other;
                match in_force(&pages, maker.size) {
                    Ok(found) => assert_eq!(found, good, "byte {index}: {byte} to {other}"),
                    Err(_) => refused += 1,
                }
            }
            pages[index] = byte;
        }
        assert!(refused > 13 * 4096, "the header alone");
    }
}

#[test]
fn killed_update_leaves_previous_image() {
    let before = Maker::used();
    let good = in_force(&before.bytes, before.size).unwrap();
    let after = {
        let mut next = before.clone();
        let consumed = partywall_layout::link::ConsumedRecord::new(4, 77, 12_288, 12);
        next.consumed(consumed);
        next
    };
    let place = usize::try_from(LINK_CONTROL_OFFSET + 64).unwrap();
    // A process that consumes messages stores the word `since` of the control page first. Then it
    // stores the words of the consumed record, of which the seal is the last. The test stops this
    // sequence after each step.
    let since = place + 40..place + 48;
    assert_ne!(before.bytes[since.clone()], after.bytes[since.clone()]);
    for words in 0..5 {
        let mut torn = before.clone();
        for written in [since.clone(), place..place + 8 * words] {
            assert_eq!(in_force(&torn.bytes, torn.size).as_ref(), Ok(&good), "{words} words");
            torn.bytes[written.clone()].copy_from_slice(&after.bytes[written]);
        }
        assert_eq!(in_force(&torn.bytes, torn.size).as_ref(), Ok(&good), "{words} words");
    }
    assert_eq!(in_force(&after.bytes, after.size).unwrap().consumed_to(), (12_288, 12));
    assert_eq!(before.bytes.len() as u64, PARTS_OFFSET);
}
