// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers of the tests of link files: they make a directory, open link files in this process or in
//! a second one, and inspect the files byte by byte.
#![allow(dead_code, reason = "each test file uses a part")]

#[path = "../support_directory/mod.rs"]
mod parent;

use partywall_layout::link::{OWNER_OFFSET, OwnerRecord, PAGE_SLOT_STRIDE, Slot};
use partywall_link::store::{OwnFile, Sizes};
use partywall_link::{Directory, Inspection, Key, StorageError, inspect_link};
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use zerocopy::{FromBytes, IntoBytes};

/// The smallest sizes that a link file may have: a ring of 4096 bytes, 8 entries of the release
/// ring, no slab.
pub const SIZES: Sizes = Sizes { ring: 4096, entries: 8, slab: 0 };

/// The environment variable by which a test passes the directory of the link file to its second
/// process.
pub const DIRECTORY: &str = "PARTYWALL_LINK_DIRECTORY";

pub fn key() -> Key {
    Key::new("alice", "bob", "orders").unwrap()
}

/// A temporary directory that only this user can access, in /dev/shm where that exists.
pub fn directory() -> tempfile::TempDir {
    parent::with(&[])
}

pub fn file(directory: &Path) -> PathBuf {
    directory.join(key().file_name())
}

pub fn open(directory: &Path) -> Result<OwnFile, StorageError> {
    OwnFile::open(&Directory::open(directory)?, &key(), SIZES)
}

pub fn inspection_of(directory: &Path) -> Inspection {
    *inspect_link(directory, &key()).unwrap().expect("there is a file").inspection.unwrap()
}

/// Writes a file image of the specification to the path of [`key`]'s link file, extended to `size`
/// bytes.
pub fn place(directory: &Path, image: &[u8], size: u64) -> PathBuf {
    let path = file(directory);
    fs::write(&path, image).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_len(size).unwrap();
    path
}

/// Changes the boot id in the owner records of a file to the present one, as if the machine had not
/// been rebooted since.
pub fn set_this_boot(path: &Path) {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let boot = u128::from_str_radix(&text.trim().replace('-', ""), 16).unwrap();
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    for slot in [0, 1] {
        let at = OWNER_OFFSET + slot * PAGE_SLOT_STRIDE;
        let mut bytes = [0; size_of::<OwnerRecord>()];
        if file.read_exact_at(&mut bytes, at).is_err() {
            continue; // the file ends before this owner record
        }
        let record = OwnerRecord::read_from_bytes(&bytes).unwrap();
        if record.sealed() == record {
            let here = OwnerRecord { boot_id: boot.to_be_bytes(), ..record }.sealed();
            file.write_all_at(here.as_bytes(), at).unwrap();
        }
    }
}
