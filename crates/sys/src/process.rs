// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a process holds: descriptors, mappings, resident memory. For tests that nothing is left behind.
//!
//! A snapshot of another process is as old as the call that made it.

use std::fs;
use std::io;
use std::path::PathBuf;

use crate::procfs::{field, read_text};

/// A process to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// The calling one.
    Own,
    /// One by number.
    Pid(i32),
}

/// One mapping of a process, a line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MappedRange {
    /// Address of the first byte.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
    /// Such as `r--s`: read, write, execute, and `s`hared or `p`rivate.
    pub permissions: String,
    /// The file, empty if there is none; a memfd is `/memfd:name (deleted)`.
    pub name: String,
}

/// The open descriptors, number and what it refers to. Of the caller, without the one used for looking.
///
/// # Errors
///
/// No such process, or not ours to look at.
pub fn open_descriptors(process: Process) -> io::Result<Vec<(i32, PathBuf)>> {
    // As the kernel names the directory that we read, whose descriptor is in it.
    let this = PathBuf::from(format!("/proc/{}/fd", std::process::id()));
    let mut found = Vec::new();
    for entry in fs::read_dir(directory(process).join("fd"))? {
        let entry = entry?;
        // Closed meanwhile: not open.
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

/// The mappings, by address.
///
/// # Errors
///
/// No such process, or not ours to look at.
pub fn mappings(process: Process) -> io::Result<Vec<MappedRange>> {
    let text = read_text(directory(process).join("maps"))?;
    Ok(text.lines().filter_map(parse_mapping).collect())
}

/// Memory in use and not swapped out, shared memory included, in bytes. The kernel counts it in batches:
/// right to some hundred KiB.
///
/// # Errors
///
/// No such process, or one that has died.
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

/// `7f00-7f80 r--s 00000000 00:01 1030 /memfd:half (deleted)`
fn parse_mapping(line: &str) -> Option<MappedRange> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let permissions = words.next()?.to_owned();
    let name = words.nth(3).unwrap_or("").trim().to_owned();
    Some(MappedRange { start, len: end.checked_sub(start)?, permissions, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_maps_is_read() {
        let line = "7f0000000000-7f0000010000 r--s 00000000 00:01 1030      /memfd:half (deleted)";
        let range = parse_mapping(line).unwrap();
        assert_eq!((range.start, range.len), (0x7f00_0000_0000, 0x10000));
        assert_eq!(range.permissions, "r--s");
        assert_eq!(range.name, "/memfd:half (deleted)");
        assert_eq!(parse_mapping("7f00-7f80 rw-p 00000000 00:00 0").unwrap().name, "");
        assert_eq!(parse_mapping("nonsense"), None);
    }
}
