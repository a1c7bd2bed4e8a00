// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds in /proc the shmipc regions that a process has open or mapped, and the processes that have
//! a given region.
//!
//! ```text
//!   /proc/PID/fd/N    ─▶ memfd:shmipc…, /dev/shm/…, …_buffer, …_queue_N ─▶ read via fd/N
//!   /proc/PID/maps    ─▶ such files, mapped without a descriptor    ─▶ read from /proc/PID/mem
//! ```
//! Files are opened for reading only. Their content decides later which of them are regions.

use super::memory::{Memory, is_named_like_a_region};
use crate::command::access;
use anyhow::{Context, Result, bail};
use partywall_shmipc::regions::read_memory;
use std::collections::HashSet;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// The identity of a file: device and inode.
pub type Identity = (u64, u64);

/// The shared memory that a process has open or mapped.
#[derive(Debug, Default)]
pub struct Owned {
    /// Copies of all memory of the process that could be read.
    pub memories: Vec<Memory>,
    /// Names of memory that could not be copied, each with the reason.
    pub unreadable: Vec<(String, String)>,
}

/// Returns the identity of a file, from its metadata.
pub fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// Copies all memory of a process that may be a region.
///
/// # Errors
///
/// If there is no such process, or this process may not inspect it.
pub fn of_process(pid: u32) -> Result<Owned> {
    let directory = format!("/proc/{pid}");
    if !Path::new(&directory).exists() {
        bail!("there is no process {pid}; to read a file of that name, write ./{pid}");
    }
    let explain = |error| access::explain(pid, error);
    let (mut owned, mut seen) = (Owned::default(), HashSet::new());
    for entry in fs::read_dir(format!("{directory}/fd")).map_err(explain)?.flatten() {
        let link = match fs::read_link(entry.path()) {
            // Even root may be allowed to list the directory `/proc/PID/fd` but not to read the
            // links in it. Without the links no region can be found, so the command ends with
            // advice.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return Err(explain(error));
            }
            link => link.ok(),
        };
        let Some(name) = link.and_then(|name| region_name(&name)) else { continue };
        // The process may have closed the descriptor meanwhile, or the descriptor refers to no
        // file.
        let Ok(metadata) = fs::metadata(entry.path()) else { continue };
        if metadata.is_file() && seen.insert(identity(&metadata)) {
            let source = entry.path().display().to_string();
            let bytes = read_memory(&entry.path());
            owned.add(name, source, bytes);
        }
    }
    let maps = fs::read_to_string(format!("{directory}/maps")).map_err(explain)?;
    for mapping in mappings(&maps) {
        if seen.insert(mapping.identity) {
            let Some(name) = region_name(mapping.path.as_ref()) else { continue };
            let source = format!("{directory}/mem at {:#x}", mapping.start);
            owned.add_mapping(name, source, read_mapping(&directory, &mapping));
        }
    }
    owned.memories.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(owned)
}

/// The processes that have one of `files` open or mapped, among those that this process may
/// inspect.
pub fn users_of(files: &HashSet<Identity>) -> Result<Vec<u32>> {
    let mut users = Vec::new();
    for entry in fs::read_dir("/proc").context("reading /proc failed")?.flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        let Some(pid) = pid.filter(|pid| *pid != std::process::id()) else { continue };
        let open = fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten();
        let mut open = open.filter_map(|fd| fs::metadata(fd.path()).ok());
        let maps = || fs::read_to_string(entry.path().join("maps")).unwrap_or_default();
        if open.any(|metadata| files.contains(&identity(&metadata)))
            || mappings(&maps()).iter().any(|mapping| files.contains(&mapping.identity))
        {
            users.push(pid);
        }
    }
    users.sort_unstable();
    Ok(users)
}

impl Owned {
    fn add(&mut self, name: String, source: String, bytes: io::Result<Vec<u8>>) {
        match bytes {
            Ok(bytes) => self.memories.push(Memory { name, source, bytes }),
            Err(error) => self.unreadable.push((name, format!("{source}: {error}"))),
        }
    }

    fn add_mapping(&mut self, name: String, source: String, bytes: io::Result<Vec<u8>>) {
        match bytes {
            Ok(bytes) => self.memories.push(Memory::of_mapping(name, source, bytes)),
            Err(error) => self.add(name, source, Err(error)),
        }
    }
}

/// The name of the file to which the link `link` in /proc refers, if the file may be a region.
fn region_name(link: &Path) -> Option<String> {
    let link = link.to_str()?;
    let path = link.strip_suffix(" (deleted)").unwrap_or(link);
    if let Some(name) = path.strip_prefix("/memfd:") {
        return name.strip_prefix("shmipc").map(str::to_owned);
    }
    (path.starts_with("/dev/shm/") || is_named_like_a_region(path)).then(|| path.to_owned())
}

#[derive(Debug, PartialEq, Eq)]
struct Mapping<'a> {
    start: u64,
    end: u64,
    identity: Identity,
    path: &'a str,
}

/// Parses the lines of `/proc/PID/maps`: `START-END perms offset MAJOR:MINOR inode path`.
fn mappings(maps: &str) -> Vec<Mapping<'_>> {
    let mut found: Vec<Mapping<'_>> = Vec::new();
    for line in maps.lines() {
        let Some((start, end, offset, identity, path)) = fields(line) else { continue };
        let before = found.last_mut();
        match before.filter(|before| before.end == start && before.identity == identity) {
            // The line of `/proc/PID/maps` continues the mapping of the line before it, perhaps
            // with other permissions.
            Some(before) if offset == before.end - before.start => before.end = end,
            _ if offset == 0 => found.push(Mapping { start, end, identity, path }),
            _ => {}
        }
    }
    found
}

fn fields(line: &str) -> Option<(u64, u64, u64, Identity, &str)> {
    let mut parts = line.splitn(6, ' ');
    let (start, end) = parts.next()?.split_once('-')?;
    let (_, offset, device, inode) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let hexadecimal = |text| u64::from_str_radix(text, 16).ok();
    let (major, minor) = device.split_once(':')?;
    let (major, minor) = (hexadecimal(major)?, hexadecimal(minor)?);
    // The major and minor device numbers of the mapped file are packed into one number, as the C
    // library does it.
    let device =
        (major & 0xfff) << 8 | (major & !0xfff) << 32 | (minor & 0xff) | (minor & !0xff) << 12;
    let identity = (device, inode.parse().ok().filter(|inode| *inode != 0)?);
    let path = parts.next().unwrap_or("").trim_start();
    Some((hexadecimal(start)?, hexadecimal(end)?, hexadecimal(offset)?, identity, path))
}

/// Reads the bytes of a mapping, up to the end of the mapping or of its file.
fn read_mapping(directory: &str, mapping: &Mapping<'_>) -> io::Result<Vec<u8>> {
    let memory = File::open(format!("{directory}/mem"))?;
    let size = mapping.end - mapping.start;
    if size > u64::from(u32::MAX) {
        return Err(ErrorKind::FileTooLarge.into());
    }
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
    let mut read = 0;
    while read < bytes.len() {
        match memory.read_at(&mut bytes[read..], mapping.start + read as u64) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if read == 0 => return Err(error),
            // The read fails at a page of the mapping after the end of the file: the file was
            // truncated, or its size is no multiple of a page.
            Err(_) => break,
        }
    }
    bytes.truncate(read);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapping_in_pieces_is_one() {
        let maps = "\
7f00-7f10 r--p 00000000 00:19 44                         /dev/shm/a_buffer\n\
7f10-7f20 rw-s 00000010 00:19 44                         /dev/shm/a_buffer\n\
7f20-7f30 rw-s 00000000 00:01 9   /memfd:shmipc/dev/shm/x y_queue_0 (deleted)\n\
7f30-7f40 rw-p 00000000 00:00 0                          [heap]\n\
7f50-7f60 rw-s 00001000 00:19 45                         /dev/shm/b_buffer\n\
nonsense\n";
        let found = mappings(maps);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].start, found[0].end, found[0].identity), (0x7f00, 0x7f20, (0x19, 44)));
        assert_eq!(found[1].path, "/memfd:shmipc/dev/shm/x y_queue_0 (deleted)");
        assert_eq!(region_name(found[1].path.as_ref()).unwrap(), "/dev/shm/x y_queue_0");
    }

    #[test]
    fn memory_without_a_descriptor_is_read() {
        use partywall_shmipc::regions::{Backing, BufferRegion, Class};
        let (backing, map) = Backing::create_memfd("/mapped_only_buffer", 8192).unwrap();
        let region = BufferRegion::create(map, &[Class { size: 60, percent: 100 }]).unwrap();
        drop(backing);
        let owned = of_process(std::process::id()).unwrap();
        let found = owned.memories.iter().find(|found| found.name == "/mapped_only_buffer");
        let found = found.unwrap_or_else(|| panic!("{:?}", owned.unreadable));
        assert!(found.source.contains("/mem at 0x"), "{}", found.source);
        assert_eq!(found.kind(), super::super::memory::Kind::Buffers);
        drop(region);
    }

    #[test]
    fn other_files_than_regions_are_not_read() {
        let name = |link: &str| region_name(link.as_ref());
        assert_eq!(name("/memfd:shmipc/a_buffer (deleted)").unwrap(), "/a_buffer");
        assert_eq!(name("/dev/shm/whatever").unwrap(), "/dev/shm/whatever");
        assert_eq!(name("/tmp/a_7_queue_3").unwrap(), "/tmp/a_7_queue_3");
        for link in ["/memfd:partywall (deleted)", "/tmp/a", "socket:[7]", "/usr/lib/libc.so.6"] {
            assert_eq!(name(link), None, "{link}");
        }
    }
}
