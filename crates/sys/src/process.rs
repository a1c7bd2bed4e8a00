// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program of this process, and the resources of a process: descriptors, mappings, resident
//! memory. Tests use these numbers to detect leaks; tools find shared memory by them.
//!
//! The numbers of another process may be outdated when the call returns.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{Mode, OFlags, open};

use crate::procfs::{field, read_text};

/// The process that a function of this file inspects: its descriptors, mappings or resident memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// The process that calls the function.
    Own,
    /// The process with the given process id.
    Pid(i32),
}

/// One mapping of a process, a line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MappedRange {
    /// Address of the first byte of the mapped range.
    pub start: u64,
    /// Length of the mapped range in bytes.
    pub len: u64,
    /// Major and minor number of the file system of the mapped file; 0 and 0 if there is no file.
    pub device: (u32, u32),
    /// Inode of the mapped file; 0 if there is none.
    pub inode: u64,
    /// Permissions such as `r--s`: read, write, execute, and `s` for shared or `p` for private.
    pub permissions: String,
    /// Name of the mapped file; empty if the range maps no file. A memfd has the name `/memfd:name
    /// (deleted)`.
    pub name: String,
}

/// The path of the program that this process executes; empty if `/proc` does not show it. Only the
/// first call of a process asks the system.
pub fn own_program() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    // A forked child inherits the path of the program. The path stays right, because the child
    // executes the same program until it calls `exec`, which clears the memory.
    PROGRAM.get_or_init(|| {
        std::env::current_exe().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default()
    })
}

/// The open descriptors of a process, each by number and target. The descriptor that this call
/// itself opens is left out.
///
/// # Errors
///
/// There is no such process, or the caller may not inspect it.
pub fn open_descriptors(process: Process) -> io::Result<Vec<(i32, PathBuf)>> {
    // The kernel's list of open descriptors contains the one through which this call reads the
    // list. `this` is the target of that descriptor, by which the loop recognises it and leaves it
    // out.
    let this = PathBuf::from(format!("/proc/{}/fd", std::process::id()));
    let mut found = Vec::new();
    for entry in fs::read_dir(directory(process).join("fd"))? {
        let entry = entry?;
        // The link of a descriptor cannot be read if the process has closed the descriptor since
        // the directory was read.
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        if process == Process::Own && target == this {
            continue;
        }
        if let Ok(number) = entry.file_name().to_string_lossy().parse() {
            found.push((number, target));
        }
    }
    found.sort();
    Ok(found)
}

/// Opens a file for reading that another process chose, such as the target of its descriptor. The
/// call never blocks, even if the file is a FIFO without a writer or has a lease.
///
/// # Errors
///
/// The system's error, or [`io::ErrorKind::InvalidInput`] if the file is not regular.
pub fn open_to_read(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(open(path, flags, Mode::empty())?);
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"))
}

/// The mappings of a process, sorted by address.
///
/// # Errors
///
/// There is no such process, or the caller may not inspect it.
pub fn mappings(process: Process) -> io::Result<Vec<MappedRange>> {
    let text = read_text(directory(process).join("maps"))?;
    Ok(text.lines().filter_map(parse_mapping).collect())
}

/// Resident memory of a process, shared memory included, in bytes. The kernel counts in batches, so
/// the value is exact to some hundred KiB.
///
/// # Errors
///
/// There is no such process, or it is a zombie.
pub fn resident_bytes(process: Process) -> io::Result<u64> {
    let text = read_text(directory(process).join("status"))?;
    let kibibytes = field(&text, "VmRSS").and_then(|value| value.split_whitespace().next());
    let kibibytes: Option<u64> = kibibytes.and_then(|word| word.parse().ok());
    Ok(kibibytes.ok_or(io::ErrorKind::InvalidData)? * 1024)
}

fn directory(process: Process) -> PathBuf {
    match process {
        Process::Own => PathBuf::from("/proc/self"),
        Process::Pid(pid) => PathBuf::from(format!("/proc/{pid}")),
    }
}

/// Parses a line of `/proc/PID/maps` such as `7f00-7f80 r--s 00000000 00:01 1030 /memfd:region
/// (deleted)`.
fn parse_mapping(line: &str) -> Option<MappedRange> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let permissions = words.next()?.to_owned();
    let (major, minor) = words.nth(1)?.split_once(':')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    let (device, inode) = ((number(major)?, number(minor)?), words.next()?.parse().ok()?);
    let name = words.next().unwrap_or("").trim().to_owned();
    Some(MappedRange { start, len: end.checked_sub(start)?, device, inode, permissions, name })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, mknodat};

    #[test]
    fn own_program_is_the_file_of_this_process() {
        let linked = fs::read_link("/proc/self/exe").unwrap();
        assert_eq!(own_program(), linked.to_str().unwrap());
    }

    #[test]
    fn only_a_regular_file_is_opened_and_a_fifo_does_not_block() {
        assert!(open_to_read(Path::new("/proc/self/mem")).is_ok());
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for path in [fifo.as_path(), directory.path(), Path::new("/dev/null")] {
            let error = open_to_read(path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{}", path.display());
        }
    }

    #[test]
    fn line_of_maps_is_parsed() {
        let line =
            "7f0000000000-7f0000010000 r--s 00000000 00:01 1030      /memfd:region (deleted)";
        let range = parse_mapping(line).unwrap();
        assert_eq!((range.start, range.len), (0x7f00_0000_0000, 0x10000));
        assert_eq!(range.permissions, "r--s");
        assert_eq!((range.device, range.inode), ((0, 1), 1030));
        assert_eq!(range.name, "/memfd:region (deleted)");
        assert_eq!(parse_mapping("7f00-7f80 rw-p 00000000 00:00 0").unwrap().name, "");
        assert_eq!(parse_mapping("nonsense"), None);
    }
}
