// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files of a run and their removal, however the run ends.
//!
//! ```text
//! <temporary directory>/<program>-<pid>/    socket files                              mode 0700
//! /dev/shm/<program>-<pid>/                 link files                                mode 0700
//! /dev/shm/<program>-<pid>-…                shared memory of other libraries, by name
//! ```
//! A run removes its files at its end, on SIGINT and SIGTERM, and when a measurement hangs. The
//! files of a killed run are removed by its child, or by the next run, which finds that no process
//! has the pid in their names.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::cell::{Cell, WaitName};

/// The directories of this run; they are removed when the value is dropped.
pub struct Workspace {
    program: &'static str,
    directory: PathBuf,
    memory: PathBuf,
    run_name: String,
}

/// Names and sizes for one measurement, which both processes must know before they connect.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// A private directory for socket files; removed after the run.
    pub directory: PathBuf,
    /// A further private directory, for files that should not reach a disk: on a memory file system
    /// if a writable one exists. It is removed after the run.
    pub memory: PathBuf,
    /// The name of the run, which is unique on this machine. Shared memory outside the two
    /// directories of the run has names that begin with the run's name.
    pub run_name: String,
    /// The number of this measurement within the run.
    pub number: u32,
    /// The wait strategy of Partywall; `None` for all other transports, which block in the kernel.
    pub wait: Option<WaitName>,
    /// The size of each message of the measurement, in bytes.
    pub size: usize,
}

impl Setup {
    /// The path of a socket file that no other measurement uses.
    pub fn path(&self, kind: &str) -> PathBuf {
        self.directory.join(format!("{kind}-{}.sock", self.number))
    }
}

impl Workspace {
    /// Makes the directories of this run, and removes those of killed runs.
    pub fn make(program: &'static str) -> Result<Self> {
        remove_where(program, |pid| !Path::new("/proc").join(pid.to_string()).exists());
        let run_name = format!("{program}-{}", std::process::id());
        let directory = std::env::temp_dir().join(&run_name);
        make_directory(&directory).with_context(|| {
            format!("making the directory {}; set TMPDIR to a writable one", directory.display())
        })?;
        let memory = Path::new(SHARED_MEMORY).join(&run_name);
        let memory = match make_directory(&memory) {
            Ok(()) => memory,
            Err(_) => directory.clone(),
        };
        Ok(Self { program, directory, memory, run_name })
    }

    /// Makes the setup (names and sizes) of measurement number `number` of this run, which measures
    /// `cell`.
    pub fn setup(&self, number: u32, cell: Cell) -> Setup {
        Setup {
            directory: self.directory.clone(),
            memory: self.memory.clone(),
            run_name: self.run_name.clone(),
            number,
            wait: cell.wait,
            size: cell.size,
        }
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        remove_own(self.program);
    }
}

/// Removes the files that this process has made for the run of `program`.
pub fn remove_own(program: &str) {
    remove_of(program, std::process::id());
}

/// Removes the files that process `owner_pid` made for a run of `program`.
pub fn remove_of(program: &str, owner_pid: u32) {
    remove_where(program, |pid| pid == owner_pid);
}

fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

fn remove_where(program: &str, is_ours: impl Fn(u32) -> bool) {
    for directory in [std::env::temp_dir(), PathBuf::from(SHARED_MEMORY)] {
        let Ok(entries) = fs::read_dir(directory) else { continue };
        for entry in entries.filter_map(io::Result::ok) {
            let name = entry.file_name();
            if name.to_str().and_then(|name| owner(program, name)).is_some_and(&is_ours) {
                // An error of the removal is ignored: a file that cannot be removed belongs to
                // another user, who has to remove it.
                let _ = fs::remove_file(entry.path()).or_else(|_| fs::remove_dir_all(entry.path()));
            }
        }
    }
}

/// The pid of the process that made a file of this name; `None` for files of other programs.
fn owner(program: &str, name: &str) -> Option<u32> {
    let rest = name.strip_prefix(program)?.strip_prefix('-')?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// The mount point of a memory file system that most machines have.
const SHARED_MEMORY: &str = "/dev/shm";

#[cfg(test)]
mod tests {
    use super::super::cell::{Scenario, TransportName};
    use super::*;

    #[test]
    fn owner_of_a_name_of_another_program_is_none() {
        assert_eq!(owner("bench-peers", "bench-peers-12"), Some(12));
        assert_eq!(owner("bench-peers", "bench-peers-12-abc.data"), Some(12));
        assert_eq!(owner("bench-peers", "bench-peers-"), None);
        assert_eq!(owner("bench-peers", "iox2_12"), None);
    }

    #[test]
    fn workspace_dropped_leaves_no_file() {
        let workspace = Workspace::make("partywall-bench-test").unwrap();
        let cell = Cell::new(Scenario::Ping, TransportName::UDS, 64);
        let Setup { directory, memory, .. } = workspace.setup(1, cell);
        fs::write(directory.join("file"), "").unwrap();
        drop(workspace);
        assert!(!directory.exists() && !memory.exists());
    }
}
