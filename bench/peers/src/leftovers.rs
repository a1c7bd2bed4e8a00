// SPDX-License-Identifier: MIT OR Apache-2.0
//! Everything a run puts into the file system, and its removal: nothing stays behind, however a run ends.
//!
//! ```text
//! <temporary directory>/bench-peers-<pid>/     sockets, iceoryx2's registry          mode 0700
//! /dev/shm/bench-peers-<pid>-…                 iceoryx2's shared memory
//! ```
//! A run removes its own at its end, when it is interrupted and when a measurement hangs. What a killed run left is
//! removed by its child, or by the next run: a name whose process has gone belongs to nobody.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::setup::Setup;

/// The private directory of this run; dropping it removes everything.
pub struct Workspace {
    directory: PathBuf,
    run_name: String,
}

impl Workspace {
    /// Makes the directory; removes what killed runs left.
    pub fn make() -> Result<Self> {
        remove_abandoned();
        let run_name = format!("{PREFIX}{}", std::process::id());
        let directory = std::env::temp_dir().join(&run_name);
        let make = || DirBuilder::new().mode(0o700).create(&directory);
        make().with_context(|| {
            format!("making the directory {}; set TMPDIR to a writable one", directory.display())
        })?;
        Ok(Self { directory, run_name })
    }

    /// The meeting place of measurement `number`.
    pub fn setup(&self, number: u32) -> Setup {
        Setup { directory: self.directory.clone(), run_name: self.run_name.clone(), number }
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        remove_own();
    }
}

/// Removes what this process left.
pub fn remove_own() {
    remove_of(std::process::id());
}

/// Removes what process `owner_pid` left, or still holds.
pub fn remove_of(owner_pid: u32) {
    remove_where(|pid| pid == owner_pid);
}

/// Removes what processes left that are no more.
pub fn remove_abandoned() {
    remove_where(|pid| !Path::new("/proc").join(pid.to_string()).exists());
}

fn remove_where(is_left: impl Fn(u32) -> bool) {
    for directory in [std::env::temp_dir(), PathBuf::from(SHARED_MEMORY)] {
        let Ok(entries) = fs::read_dir(directory) else { continue };
        for entry in entries.filter_map(std::io::Result::ok) {
            if entry.file_name().to_str().and_then(owner).is_some_and(&is_left) {
                // Nobody uses it any more, so there is nothing to do if it cannot be removed.
                let _ = fs::remove_file(entry.path()).or_else(|_| fs::remove_dir_all(entry.path()));
            }
        }
    }
}

/// The process that a name belongs to; `None` if it is not one of ours.
fn owner(name: &str) -> Option<u32> {
    let rest = name.strip_prefix(PREFIX)?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

const PREFIX: &str = "bench-peers-";
const SHARED_MEMORY: &str = "/dev/shm";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_are_ours() {
        assert_eq!(owner("bench-peers-12"), Some(12));
        assert_eq!(owner("bench-peers-12-abc.data"), Some(12));
        assert_eq!(owner("bench-peers-"), None);
        assert_eq!(owner("iox2_12"), None);
    }

    #[test]
    fn a_workspace_leaves_nothing_behind() {
        let workspace = Workspace::make().unwrap();
        let directory = workspace.setup(1).directory;
        fs::write(directory.join("file"), "").unwrap();
        drop(workspace);
        assert!(!directory.exists());
    }
}
