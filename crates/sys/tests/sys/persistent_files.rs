// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that persistent files are invisible until they are named, which happens when they are
//! complete, that they replace no file and are not opened through a symbolic link, and that a file
//! without room leaves nothing.
#![forbid(unsafe_code)]

use partywall_sys::{FileMap, FileView, MakeError, PersistentDirectory};
use std::fs;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, symlink};

const SIZE: usize = 128 * 1024;

fn entries(directory: &tempfile::TempDir) -> usize {
    fs::read_dir(directory.path()).unwrap().count()
}

#[test]
fn file_is_invisible_until_named() {
    let directory = tempfile::tempdir().unwrap();
    let store = PersistentDirectory::open(directory.path()).unwrap();
    drop(store.make(SIZE).unwrap());
    let made = store.make(SIZE).unwrap();
    made.file().write_all_at(b"whole", 0).unwrap();
    assert_eq!(entries(&directory), 0);
    store.name(&made, "file").unwrap();
    let (mut file, stat) = store.open_file("file", true).unwrap();
    assert_eq!((stat.size, stat.mode, stat.is_regular), (SIZE as u64, 0o600, true));
    let mut map = FileMap::writable(file.as_fd(), SIZE).unwrap();
    assert_eq!(&map.as_mut_slice()[..5], b"whole");
    map.as_mut_slice()[SIZE - 1] = 7;
    file = store.open_file("file", false).unwrap().0;
    assert_eq!(FileView::read_only(file.as_fd(), SIZE).unwrap().cells().len(), SIZE);
    assert!(FileMap::writable(file.as_fd(), SIZE).is_err(), "it was opened for reading");
    assert_eq!(fs::read(directory.path().join("file")).unwrap()[SIZE - 1], 7);
}

#[test]
fn taken_name_is_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let store = PersistentDirectory::open(directory.path()).unwrap();
    fs::write(directory.path().join("file"), "before").unwrap();
    let made = store.make(SIZE).unwrap();
    assert_eq!(store.name(&made, "file").unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(fs::read(directory.path().join("file")).unwrap(), b"before");
    symlink("file", directory.path().join("link")).unwrap();
    assert!(store.open_file("link", false).is_err());
    assert_eq!(store.open_file("none", true).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn file_without_room_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = PersistentDirectory::open(directory.path()).unwrap();
    let error = store.make(1 << 45).unwrap_err();
    assert!(matches!(error, MakeError::NoSpace { .. }), "{error:?}");
    assert_eq!(entries(&directory), 0);
}
