// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall link inspect` shows every file of a directory, of the living, the dead and those never owned; tells what is
//! damaged without giving up on the rest; and changes nothing.

use crate::program;

use partywall_link::store::{OwnFile, Sizes};
use partywall_link::{Directory, Key};
use program::{run, text};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const SOUND: i32 = 0;
const UNSOUND: i32 = 1;
const UNREADABLE: i32 = 2;

fn directory() -> tempfile::TempDir {
    let made = tempfile::tempdir().unwrap();
    fs::set_permissions(made.path(), Permissions::from_mode(0o700)).unwrap();
    made
}

fn inspect(directory: &Path, more: &[&str]) -> (i32, String, String) {
    let dir = directory.to_str().unwrap();
    let output = run(&[&["link", "inspect", "--dir", dir], more].concat());
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn own(directory: &Path, local: &str, link: &str) -> OwnFile {
    let key = Key::new(local, "bob", link).unwrap();
    let sizes = Sizes { ring: 4096, entries: 8, slab: 0 };
    OwnFile::open(&Directory::open(directory).unwrap(), &key, sizes).unwrap()
}

/// A file of the specification, under the name that belongs to it.
fn place(directory: &Path, name: &str, size: u64) -> PathBuf {
    let images = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../spec/links");
    let path = directory.join(Key::new("alice", "bob", "orders").unwrap().file_name());
    fs::copy(images.join(name), &path).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_len(size).unwrap();
    path
}

#[test]
fn living_and_left_owners_are_told_apart() {
    let directory = directory();
    let living = own(directory.path(), "alice", "orders");
    drop(own(directory.path(), "carol", "fills"));
    let (code, told, errors) = inspect(directory.path(), &[]);
    assert_eq!(code, SOUND, "{errors}");
    let pid = std::process::id();
    assert!(told.contains(&format!("incarnation  1, owned by process {pid}, alive")), "{told}");
    assert!(told.contains("\"carol\" with \"bob\", link \"fills\""), "{told}");
    assert!(told.contains("has left"), "{told}");
    let (code, told, _) = inspect(directory.path(), &["--name", "carol", "--peer", "bob"]);
    assert!(code == SOUND && !told.contains("alice") && told.contains("carol"), "{told}");
    let (code, _, errors) = inspect(directory.path(), &["--link", "other"]);
    assert!(code == UNREADABLE && errors.contains("no such link"), "{errors}");
    drop(living);
}

#[test]
fn everything_that_a_state_can_have_is_shown() {
    let directory = directory();
    let path = place(directory.path(), "link-used.bin", 65_536);
    let before = fs::read(&path).unwrap();
    let (code, told, _) = inspect(directory.path(), &[]);
    assert_eq!(code, SOUND);
    for part in [
        "incarnation  1, free: process 4242",
        "is dead",
        "peer         30313233343536373839616263646566, incarnation 6",
        "epoch        3",
        "base 128, acknowledged 192",
        "consumed 8192",
        "previous     epoch 2, settled: acknowledged 128, end 640; consumed 1024",
        "quarantined  receiving: other record",
        "to report    undelivered: positions 128..640, at most, of what is sent in epoch 2",
        "to report    lost: positions 128..256, or further, of what is received in epoch 3",
        "to report    quarantined: positions 64..64, or further, of what is received in epoch 3",
        "not kept     4 more reports",
        "sizes        file 65536, ring 4096, release ring 64, slab 40960 bytes",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let (code, json, _) = inspect(directory.path(), &["--json"]);
    assert_eq!(code, SOUND);
    for part in [
        "\"status\": \"dead\"",
        "\"consumed\": 8192",
        "\"kind\": \"undelivered\"",
        "\"damaged\": []",
    ] {
        assert!(json.contains(part), "{part}: {json}");
    }
    assert!(fs::read(&path).unwrap() == before);
}

#[test]
fn a_damaged_file_is_told_and_the_others_are_shown() {
    let directory = directory();
    drop(own(directory.path(), "carol", "fills"));
    let path = place(directory.path(), "link-state-damaged.bin", 65_536);
    let before = fs::read(&path).unwrap();
    let (code, told, _) = inspect(directory.path(), &[]);
    assert_eq!(code, UNSOUND);
    assert!(told.contains("its state is damaged (SPEC 13.6)") && told.contains("carol"), "{told}");
    let (code, json, _) = inspect(directory.path(), &["--json"]);
    assert!(code == UNSOUND && json.contains("\"fault\": 12") && json.contains("carol"), "{json}");
    assert!(fs::read(&path).unwrap() == before);
}

#[test]
fn a_directory_without_links_is_told_from_none() {
    let directory = directory();
    fs::write(directory.path().join("notes.link"), "mine").unwrap();
    let (code, told, _) = inspect(directory.path(), &[]);
    assert!(code == SOUND && told.contains("no link has a file here"), "{told}");
    let (code, _, errors) = inspect(&directory.path().join("missing"), &[]);
    assert!(code == UNREADABLE && errors.contains("mkdir -m 700"), "{errors}");
    assert_eq!(run(&["link", "inspect", "--nonsense"]).status.code(), Some(UNREADABLE));
}
