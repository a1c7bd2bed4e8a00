// SPDX-License-Identifier: MIT OR Apache-2.0
//! A directory for the sockets and files of one test.

use std::path::{Path, PathBuf};

/// An empty temporary directory. Dropping the value removes the directory with everything in it.
#[derive(Debug)]
pub struct Directory(tempfile::TempDir);

impl Directory {
    /// Makes an empty temporary directory for one test.
    #[allow(clippy::new_without_default, reason = "it makes something outside the process")]
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// The path of the temporary directory itself.
    pub fn own_path(&self) -> &Path {
        self.0.path()
    }

    /// The path of the file `name` in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The address of a Unix socket whose file in the directory has the name `name`.
    pub fn address(&self, name: &str) -> String {
        format!("unix:{}", self.path(name).display())
    }

    /// The names of the files that are in the directory now.
    pub fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }
}
