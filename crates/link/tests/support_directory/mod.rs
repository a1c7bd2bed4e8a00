// SPDX-License-Identifier: MIT OR Apache-2.0
//! Directories for the files of links: for us alone, in memory where there is some.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A directory in which each of these has one of its own. It goes when it is dropped.
pub fn with(names: &[&str]) -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let made = tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir()).unwrap();
    fs::set_permissions(made.path(), fs::Permissions::from_mode(0o700)).unwrap();
    for name in names {
        let path = made.path().join(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    }
    made
}
