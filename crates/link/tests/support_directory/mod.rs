// SPDX-License-Identifier: MIT OR Apache-2.0
//! Directories for link files: accessible to this user only, and in /dev/shm where it exists.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Makes a temporary directory with one subdirectory for each of `names`; dropping the result
/// removes it.
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
