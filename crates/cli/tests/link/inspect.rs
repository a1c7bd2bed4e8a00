// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that `partywall link inspect` prints all link files of a directory, whether their owner
//! lives, has died or has left. It reports a damaged file, continues with the next, and changes no
//! file.

use crate::{linked, program};

use linked::Ground;
use partywall_link::store::{OwnFile, Sizes};
use partywall_link::{Directory, Key};
use program::{run, text, wait_until};
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

/// Copies the link file `name` of the folder `spec/links` into `directory`. The copy has the length
/// `size`, and the file name that belongs to its link.
fn place(directory: &Path, name: &str, size: u64) -> PathBuf {
    let images = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../spec/links");
    let path = directory.join(Key::new("alice", "bob", "orders").unwrap().file_name());
    fs::copy(images.join(name), &path).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_len(size).unwrap();
    path
}

#[test]
fn live_and_left_owners_are_distinguished() {
    let directory = directory();
    let living = own(directory.path(), "alice", "orders");
    drop(own(directory.path(), "carol", "fills"));
    let (code, output, errors) = inspect(directory.path(), &[]);
    assert_eq!(code, SOUND, "{errors}");
    let pid = std::process::id();
    assert!(output.contains(&format!("incarnation  1, owned by process {pid}, alive")), "{output}");
    assert!(output.contains("\"carol\" with \"bob\", link \"fills\""), "{output}");
    assert!(output.contains("has left"), "{output}");
    let (code, output, _) = inspect(directory.path(), &["--name", "carol", "--peer", "bob"]);
    assert!(code == SOUND && !output.contains("alice") && output.contains("carol"), "{output}");
    let (code, _, errors) = inspect(directory.path(), &["--link", "other"]);
    assert!(code == UNREADABLE && errors.contains("no such link"), "{errors}");
    drop(living);
}

#[test]
fn one_file_is_inspected_whatever_its_name() {
    let directory = directory();
    let path = place(directory.path(), "link-used.bin", 65_536);
    let copy = directory.path().join("of\u{1b}a\nreset.copy");
    fs::copy(&path, &copy).unwrap();
    for file in [&path, &copy] {
        let output = run(&["link", "inspect", file.to_str().unwrap()]);
        let (printed, errors) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(SOUND), "{errors}");
        assert!(printed.contains("\"alice\" with \"bob\", link \"orders\""), "{printed}");
        assert!(!printed.replace('\n', "").contains(char::is_control), "{printed:?}");
    }
    let printed = text(&run(&["link", "inspect", copy.to_str().unwrap()]).stdout);
    assert!(printed.contains("of\\u{1b}a\\nreset.copy"), "{printed}");
    // Input: `link inspect` gets a directory in place of a file. Expected result: the command
    // inspects all link files of the directory, as with --dir.
    let output = run(&["link", "inspect", directory.path().to_str().unwrap()]);
    assert!(text(&output.stdout).contains("link \"orders\""));
    let missing = directory.path().join("missing.link");
    let output = run(&["link", "inspect", missing.to_str().unwrap(), "--json"]);
    assert_eq!(output.status.code(), Some(UNREADABLE));
    let whole: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(whole["error"].as_str().unwrap().contains("missing.link"), "{whole}");
    assert!(text(&output.stderr).contains("missing.link"));
}

/// Input: files whose names end in `.link`, which no link made, and a link's file that is removed.
/// Expected: `link inspect` names each of these files.
#[test]
fn foreign_empty_and_missing_files_are_named() {
    let directory = directory();
    fs::write(directory.path().join("notes.link"), "mine").unwrap();
    let empty = directory.path().join("0123456789abcdef.link");
    fs::write(&empty, "").unwrap();
    fs::set_permissions(&empty, Permissions::from_mode(0o600)).unwrap();
    drop(own(directory.path(), "carol", "fills"));
    let key = Key::new("carol", "bob", "fills").unwrap();
    fs::remove_file(directory.path().join(key.file_name())).unwrap();
    let (code, output, _) = inspect(directory.path(), &[]);
    assert_eq!(code, UNSOUND, "{output}");
    for part in ["notes.link: damaged, foreign", "0123456789abcdef.link: damaged, foreign"] {
        assert!(output.contains(part), "{part}: {output}");
    }
    assert!(output.contains(&format!("{}: missing", key.file_name())), "{output}");
    let (code, json, _) = inspect(directory.path(), &["--json"]);
    let whole: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, whole["damaged"].as_array().unwrap().len()), (UNSOUND, 2), "{whole}");
    let missing = whole["missing"][0].as_str().unwrap();
    assert!(missing.ends_with(&key.file_name()), "{whole}");
    drop(own(directory.path(), "carol", "fills"));
    let (_, output, _) = inspect(directory.path(), &[]);
    assert!(!output.contains("missing"), "{output}");
}

#[test]
fn all_parts_of_a_state_are_printed() {
    let directory = directory();
    let path = place(directory.path(), "link-used.bin", 65_536);
    let before = fs::read(&path).unwrap();
    let (code, output, _) = inspect(directory.path(), &[]);
    assert_eq!(code, SOUND);
    for part in [
        "incarnation  1, free: process 4242",
        "is dead",
        "peer         30313233343536373839616263646566, incarnation 6",
        "epoch        3",
        "base 128, acknowledged 192",
        "consumed 8192",
        "previous     epoch 2, settled: acknowledged 128, end 640; consumed 1024 (bytes of each stream)",
        "quarantined  receiving: other record",
        "to report    undelivered: positions 128..640, at most, of what is sent in epoch 2",
        "to report    lost: positions 128..256, or further, of what is received in epoch 3",
        "to report    quarantined: positions 64..64, or further, of what is received in epoch 3",
        "not kept     4 more reports",
        "sizes        file 65536, ring 4096, release ring 64, slab 40960 bytes",
    ] {
        assert!(output.contains(part), "{part}: {output}");
    }
    let (code, json, _) = inspect(directory.path(), &["--json"]);
    assert_eq!(code, SOUND);
    for part in [
        "\"status\": \"dead\"",
        "\"consumed_bytes\": 8192",
        "\"ring_bytes\": 4096",
        "\"kind\": \"undelivered\"",
        "\"damaged\": []",
    ] {
        assert!(json.contains(part), "{part}: {json}");
    }
    let whole: serde_json::Value = serde_json::from_str(&json).unwrap();
    for direction in ["sending", "receiving"] {
        let stream = whole["links"][0][direction]["stream"].as_str().unwrap();
        assert_eq!(stream.len(), 16, "{whole}");
        assert!(output.contains(&format!("stream {stream}")), "{stream}: {output}");
    }
    assert!(fs::read(&path).unwrap() == before);
}

#[test]
fn damaged_file_is_printed_with_the_others() {
    let directory = directory();
    drop(own(directory.path(), "carol", "fills"));
    let path = place(directory.path(), "link-state-damaged.bin", 65_536);
    let before = fs::read(&path).unwrap();
    let (code, output, _) = inspect(directory.path(), &[]);
    assert_eq!(code, UNSOUND);
    assert!(
        output.contains("its state is damaged (SPEC 13.6)") && output.contains("carol"),
        "{output}"
    );
    let (code, json, _) = inspect(directory.path(), &["--json"]);
    assert!(code == UNSOUND && json.contains("\"fault\": 12") && json.contains("carol"), "{json}");
    assert!(fs::read(&path).unwrap() == before);
}

#[test]
fn file_from_before_the_release_is_named_with_the_version_that_finishes_it() {
    let directory = directory();
    let path = place(directory.path(), "link-layout-former.bin", 65_536);
    let before = fs::read(&path).unwrap();
    let (code, output, _) = inspect(directory.path(), &[]);
    assert_eq!(code, UNSOUND);
    let dir = directory.path().to_str().unwrap();
    let end = ["--name", "alice", "--peer", "bob", "--link", "orders", "--dir", dir];
    let sent = run(&[&["link", "send", "unix:@nowhere"], &end[..]].concat());
    assert_eq!(sent.status.code(), Some(1), "{}", text(&sent.stderr));
    for printed in [&output, &text(&sent.stderr)] {
        assert!(printed.contains("by revision 581432a6 or one before it"), "{printed}");
        assert!(printed.contains("until its peer has acknowledged everything"), "{printed}");
    }
    assert!(output.contains("\"alice\" with \"bob\", link \"orders\""), "{output}");
    assert!(fs::read(&path).unwrap() == before);
    // Input: a link file of an older version, whose owner left without closing the file. The field
    // `closing` of its owner record is all zeros.
    place(directory.path(), "link-left.bin", 65_536);
    let (code, output, _) = inspect(directory.path(), &[]);
    assert!(code == SOUND && output.contains("base 128, acknowledged 192"), "{output}");
}

#[test]
fn directory_without_links_is_distinguished_from_a_missing_one() {
    let directory = directory();
    fs::write(directory.path().join("notes"), "mine").unwrap();
    let (code, output, _) = inspect(directory.path(), &[]);
    assert!(code == SOUND && output.contains("no link has a file here"), "{output}");
    let (code, _, errors) = inspect(&directory.path().join("missing"), &[]);
    assert!(code == UNREADABLE && errors.contains("mkdir -m 700"), "{errors}");
    assert_eq!(run(&["link", "inspect", "--nonsense"]).status.code(), Some(UNREADABLE));
}

#[test]
fn inspect_of_a_process_names_its_link() {
    let ground = Ground::new(false);
    let input = ground.write("input", "kept, because there is no receiver\n");
    let sender = ground.start(&ground.alice(&["--in", &input]));
    let pid = sender.0.id().to_string();
    wait_until("the sender has its file open", || run(&["inspect", &pid]).status.success());
    let output = run(&["inspect", &pid, "--json"]);
    let whole: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let link = &whole["links"][0];
    assert_eq!((&link["local"], &link["remote"]), (&"alice".into(), &"bob".into()), "{whole}");
    assert_eq!(link["link"], "messages");
    assert!(link["created_ns"].as_u64().unwrap() > 0);
    let source = ground.file_of("alice", "link");
    assert_eq!(link["source"], source.to_str().unwrap());
    let printed = text(&run(&["inspect", &pid]).stdout);
    assert!(printed.contains("link \"messages\" of \"alice\" with \"bob\""), "{printed}");
}
