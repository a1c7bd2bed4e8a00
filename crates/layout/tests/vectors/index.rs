// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file `INDEX.md` in a folder of images (the contents of frames, rings or files): a table with
//! one row per image.
//!
//! ```text
//! | file | kind | from | expected | what it shows |
//! ```

use super::Image;
use std::fs;
use std::io;
use std::path::Path;

/// One row of the table in an `INDEX.md`: an image and the result that a reader of this image must
/// return.
#[derive(Debug)]
pub struct Row {
    pub name: String,
    /// What the bytes in the image's file are, such as `frame` or `ring`. The kind decides which
    /// reader the test uses.
    pub kind: String,
    /// Position in the ring at which the reader begins, if the image is a ring or one record of a
    /// link's ring; 0 otherwise.
    pub from: u64,
    /// The expected result of reading the image: the line that states its content, or the number of
    /// the broken rule.
    pub expected: String,
}

pub fn text(preface: &str, images: &[Image]) -> String {
    let mut text = format!("{preface}\n| file | kind | from | expected | what it shows |\n");
    text += "|---|---|---|---|---|\n";
    for image in images {
        let Image { name, kind, from, expected, about, .. } = image;
        text += &format!("| `{name}` | {kind} | {from} | `{expected}` | {about} |\n");
    }
    text
}

pub fn rows(directory: &Path) -> Vec<Row> {
    let text = fs::read_to_string(directory.join("INDEX.md")).unwrap();
    text.lines().filter(|line| line.starts_with("| `")).map(row).collect()
}

fn row(line: &str) -> Row {
    let cells = line.split(" | ").map(|cell| cell.trim_matches(['|', ' ', '`']));
    let cells: Vec<&str> = cells.collect();
    let [name, kind, from, expected, _about] = cells[..] else {
        panic!("a row has five cells: {line}");
    };
    let (name, kind, expected) = (name.to_owned(), kind.to_owned(), expected.to_owned());
    Row { name, kind, from: from.parse().unwrap(), expected }
}

pub fn write(directory: &Path, preface: &str, images: &[Image]) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    for image in images {
        fs::write(directory.join(&image.name), &image.bytes)?;
    }
    fs::write(directory.join("INDEX.md"), text(preface, images))
}

/// Lists the names of the image files in `directory`, sorted.
pub fn files(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".bin")).collect();
    names.sort();
    names
}
