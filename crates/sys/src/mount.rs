// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors of another process, opened for reading without a call into a file system that a
//! process serves.
//!
//! ```text
//!   /proc/PID/fd/N ─ O_PATH ─▶ mount id, of fdinfo ─▶ a mount of a kernel's file system? ─▶ open
//!                                                      └ FUSE, or not listed ─▶ Unsupported
//! ```
//!
//! A process that serves a FUSE file system may never answer `stat`, `open` or `read`, and the
//! caller could then not even be killed. `O_PATH` and `fdinfo` ask no file system.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use rustix::fs::{MemfdFlags, Mode, OFlags, fstat, major, memfd_create, minor, open};

use crate::process::{MappedRange, open_to_read};
use crate::procfs::{fdinfo, field, read_text};

/// The mounts that a process sees and whose file systems the kernel itself serves, so that reading
/// from them never waits for another process.
#[derive(Debug)]
pub struct KernelMounts {
    /// The mount id of the kernel's own mount that holds all memfds; no list of mounts contains it.
    memory: u64,
    /// Major and minor device number of the file system that holds all memfds.
    memory_device: (u32, u32),
    listed: HashSet<u64>,
}

impl KernelMounts {
    /// Reads the mounts that the process `pid` sees.
    ///
    /// # Errors
    ///
    /// There is no such process, the caller may not inspect it, or `/proc` is not mounted.
    pub fn of(pid: u32) -> io::Result<Self> {
        Self::listed_in(&read_text(format!("/proc/{pid}/mountinfo"))?)
    }

    fn listed_in(mountinfo: &str) -> io::Result<Self> {
        let memory = memfd_create("partywall-mount", MemfdFlags::CLOEXEC)?;
        let device = fstat(&memory)?.st_dev;
        Ok(Self {
            memory: mount_id(memory)?,
            memory_device: (major(device), minor(device)),
            listed: mountinfo.lines().filter_map(kernel_mount).collect(),
        })
    }

    /// Whether a mapping is that of a memfd, so that the kernel alone serves its pages.
    #[must_use]
    pub fn is_memory(&self, range: &MappedRange) -> bool {
        range.device == self.memory_device
    }

    /// Opens for reading the file behind a descriptor of the inspected process; `path` is the path
    /// of that descriptor in `/proc`. The call never blocks.
    ///
    /// # Errors
    ///
    /// The system's error, [`io::ErrorKind::InvalidInput`] if the file is not regular, or
    /// [`io::ErrorKind::Unsupported`] if a process may serve its file system.
    pub fn open_to_read(&self, path: &Path) -> io::Result<File> {
        let found = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let mount = mount_id(&found)?;
        if mount != self.memory && !self.listed.contains(&mount) {
            let why = "a process may serve its file system (FUSE), and never answer";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        // The `O_PATH` descriptor `found` still refers to the file that was checked, whatever the
        // inspected process does with its own descriptor.
        open_to_read(format!("/proc/thread-self/fd/{}", found.as_raw_fd()).as_ref())
    }
}

fn mount_id(fd: impl AsFd) -> io::Result<u64> {
    let info = fdinfo(fd)?;
    let id = field(&info, "mnt_id").and_then(|value| value.trim().parse().ok());
    id.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Returns the mount id in a line of `mountinfo`; `None` if a process may serve that mount's file
/// system.
fn kernel_mount(line: &str) -> Option<u64> {
    let (mount, file_system) = line.split_once(" - ")?;
    let kind = file_system.split(' ').next()?;
    let is_served = kind.starts_with("fuse") || kind == "9p";
    if is_served { None } else { mount.split(' ').next()?.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Process, mappings, own_program};
    use crate::{OwnMap, SIZE_GRANULE};
    use std::os::fd::OwnedFd;

    fn path(fd: &OwnedFd) -> String {
        format!("/proc/self/fd/{}", fd.as_raw_fd())
    }

    #[test]
    fn mount_of_a_file_system_that_a_process_serves_is_left_out() {
        let ext4 = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext4 /dev/root rw,errors=continue";
        assert_eq!(kernel_mount(ext4), Some(36));
        for kind in ["fuse", "fuseblk", "fuse.sshfs", "9p"] {
            assert_eq!(kernel_mount(&ext4.replace("ext4", kind)), None, "{kind}");
        }
        assert_eq!(kernel_mount("36 35 98:0"), None);
    }

    #[test]
    fn memfd_is_opened_without_a_mount_and_an_unlisted_file_is_not() {
        let memory = memfd_create("memory", MemfdFlags::CLOEXEC).unwrap();
        let file = OwnedFd::from(tempfile::tempfile().unwrap());
        let none = KernelMounts::listed_in("").unwrap();
        none.open_to_read(path(&memory).as_ref()).unwrap();
        let error = none.open_to_read(path(&file).as_ref()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error}");
        let own = KernelMounts::of(std::process::id()).unwrap();
        own.open_to_read(path(&memory).as_ref()).unwrap();
        let map = OwnMap::create("partywall-mount-map", SIZE_GRANULE).unwrap();
        let ranges = mappings(Process::Own).unwrap();
        let is_map = |range: &&MappedRange| range.name.contains("partywall-mount-map");
        assert!(own.is_memory(ranges.iter().find(is_map).unwrap()));
        let program = own_program();
        assert!(!own.is_memory(ranges.iter().find(|range| range.name == program).unwrap()));
        drop(map);
        own.open_to_read(path(&file).as_ref()).unwrap();
        let directory = OwnedFd::from(File::open("/").unwrap());
        let error = own.open_to_read(path(&directory).as_ref()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
    }
}
