// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scaffolding of this crate's tests: a deadline, and a temporary directory.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "each test file uses some of it")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A deadline long enough for a loaded machine; only a failing test reaches it.
pub fn deadline() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(20))
}

/// A new directory, which is removed with its content on drop.
pub struct Directory(PathBuf);

impl Directory {
    pub fn new() -> Directory {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // ORDER: Relaxed: only the uniqueness of the directory's number matters.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("partywall-sys-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Directory(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
