// SPDX-License-Identifier: MIT OR Apache-2.0
//! A directory for the sockets and files of one test.

use std::path::{Path, PathBuf};

/// An empty directory, which goes with everything in it on drop.
#[derive(Debug)]
pub struct Directory(tempfile::TempDir);

impl Directory {
    /// Makes one.
    #[allow(clippy::new_without_default, reason = "it makes something outside the process")]
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// The directory itself.
    pub fn own_path(&self) -> &Path {
        self.0.path()
    }

    /// Where the file `name` is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The address of a socket with this file name.
    pub fn address(&self, name: &str) -> String {
        format!("unix:{}", self.path(name).display())
    }

    /// The names of the files in it.
    pub fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }
}
