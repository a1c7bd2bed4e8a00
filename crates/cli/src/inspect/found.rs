// SPDX-License-Identifier: MIT OR Apache-2.0
//! The regions and links of a process or of a file, copied and checked.
//!
//! A process keeps the descriptors of its own regions open, and only maps those of its peers. So a
//! region behind a descriptor is the process's own if the process also maps that region. A forked
//! child has the descriptors of its parent, and maps none of them.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use anyhow::{Context, Result, bail};
use partywall_layout::identity::{IDENTITY_BYTES, RegionIdentity};
use partywall_layout::link;
use partywall_sys::mount::KernelMounts;
use partywall_sys::process::{MappedRange, Process, mappings, open_descriptors, open_to_read};

use super::connection::Connection;
use crate::command::access;

/// The regions and links that were found in a process or a file, and the memory that could not be
/// used.
#[derive(Debug, Default)]
pub struct Found {
    /// The id of the inspected process; `None` if a file was inspected.
    pub pid: Option<u32>,
    /// Regions that the inspected process owns.
    pub own: Vec<Region>,
    /// Regions of other processes that the inspected process maps.
    pub mapped: Vec<Region>,
    /// Links whose file or memory the inspected process has open.
    pub links: Vec<Link>,
    /// Regions and links that the inspected process has open and does not map, because it inherited
    /// them by fork.
    pub inherited: Vec<String>,
    /// Names of memory that is named like a region or a link, but whose content is neither; each
    /// with the reason.
    pub damaged: Vec<(String, String)>,
    /// Names of memory that could not be read, each with the reason.
    pub unreadable: Vec<(String, String)>,
}

/// A private copy of the first two pages of a region.
#[derive(Debug)]
pub struct Region {
    pages: Vec<u8>,
}

/// The names of a link and the time when its file was made, from the header of the file.
#[derive(Debug)]
pub struct Link {
    /// The path of the link's file; for a link in memory, which has no file, the path of its
    /// descriptor in `/proc`.
    pub source: String,
    /// The three names of the link: that of the local end, that of the remote end, and that of the
    /// link itself.
    pub names: [String; 3],
    /// When the link's file was made, in nanoseconds since 1970.
    pub created_ns: u64,
}

/// The mappings and mounts of the inspected process, as `/proc` shows them.
struct Memory {
    /// Inode and name of each file that the process maps for writing.
    written: HashMap<u64, String>,
    mounts: KernelMounts,
}

impl Memory {
    /// Whether the process maps the file for writing, as the owner of a region or link does.
    /// `target` is the file's name in `/proc`.
    fn is_written(&self, metadata: &fs::Metadata, target: &str) -> bool {
        // An overlay file system may show two inodes of one file, but only one path, so paths are
        // compared as well as inodes.
        self.written.contains_key(&metadata.ino())
            || (target.ends_with(LINK_FILE) && self.written.values().any(|name| name == target))
    }
}

impl Region {
    /// The identity of the region's owner. The pages with the identity were checked when they were
    /// copied.
    pub fn identity(&self) -> Option<RegionIdentity<'_>> {
        RegionIdentity::read(&self.pages).ok()
    }
}

impl Found {
    /// Reads the regions and links of the process `pid`.
    ///
    /// # Errors
    /// If there is no such process, this process may not inspect it, or the process has neither
    /// regions nor links.
    pub fn of_process(pid: u32) -> Result<Self> {
        Self::up_to(pid, FOUND_MAX)
    }

    fn up_to(pid: u32, max: usize) -> Result<Self> {
        if !Path::new(&format!("/proc/{pid}")).exists() {
            bail!("there is no process {pid}; to read a file of that name, write ./{pid}");
        }
        let process = Process::Pid(i32::try_from(pid).context("no process has this number")?);
        let explain = |error| access::explain(pid, error);
        let ranges = mappings(process).map_err(explain)?;
        let mounts = KernelMounts::of(pid).map_err(explain)?;
        let written = ranges.iter().filter(|range| range.permissions == "rw-s");
        let written = written.map(|range| (range.inode, range.name.clone())).collect();
        let memory = Memory { written, mounts };
        let mut found = Self { pid: Some(pid), ..Self::default() };
        for (number, target) in open_descriptors(process).map_err(explain)? {
            if found.len() >= max {
                found.note_more(format!("/proc/{pid}/fd"), max);
                break;
            }
            let target = target.to_string_lossy().into_owned();
            found.add_descriptor(&memory, &format!("/proc/{pid}/fd/{number}"), target);
        }
        let of_peers = |range: &&MappedRange| {
            // Only mappings of memfds are read. Another file may have the name of a region and lie
            // on a file system whose server never answers.
            range.name == REGION && range.permissions == "r--s" && memory.mounts.is_memory(range)
        };
        let mut peers = ranges.iter().filter(of_peers);
        for range in peers.by_ref().take(max) {
            found.add_mapping(pid, range);
        }
        if peers.next().is_some() {
            found.note_more(format!("/proc/{pid}/maps"), max);
        }
        if found.is_empty() {
            bail!(
                "process {pid} has no connection over shared memory and no link; connections over \
                 sockets cannot be inspected"
            );
        }
        Ok(found)
    }

    /// Reads the file at `path`, which holds a copy of a region's first pages.
    ///
    /// # Errors
    /// If the file cannot be read or is no region.
    pub fn of_file(path: &Path) -> Result<Self> {
        let source = path.display().to_string();
        if !fs::metadata(path).with_context(|| source.clone())?.is_file() {
            bail!("{source} is no file");
        }
        let opened = open_to_read(path).and_then(|file| read_at(&file, 0, IDENTITY_BYTES));
        let pages = opened.with_context(|| source.clone())?;
        if pages.starts_with(&link::header::LINK_MAGIC) {
            let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
            let dir = dir.unwrap_or(Path::new(".")).display();
            bail!("{source} is the file of a link: `partywall link inspect --dir {dir}` shows it");
        }
        if let Err(violation) = RegionIdentity::read(&pages) {
            bail!("{source} is no region: {violation}");
        }
        Ok(Self { own: vec![Region { pages }], ..Self::default() })
    }

    /// The connections of the inspected process: each of its own regions, with the peer's region of
    /// the same session if such a region was found.
    pub fn connections(&self) -> impl Iterator<Item = Connection<'_>> {
        // Of each session, two regions are kept: the first region found, and the first one whose
        // owner has another role. A search for each region would take time quadratic in their
        // number, which a hostile process can make large.
        let mut sessions: HashMap<[u8; 16], Vec<RegionIdentity<'_>>> = HashMap::new();
        for identity in self.mapped.iter().chain(&self.own).filter_map(Region::identity) {
            let sides = sessions.entry(identity.session_id()).or_default();
            if sides.len() < 2 && sides.iter().all(|side| side.role() != identity.role()) {
                sides.push(identity);
            }
        }
        self.own.iter().filter_map(Region::identity).map(move |own| {
            let sides = sessions.get(&own.session_id()).into_iter().flatten();
            let peer = sides.copied().find(|side| side.role() != own.role());
            Connection { own, peer }
        })
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of regions, links and failures found so far.
    fn len(&self) -> usize {
        let failed = self.damaged.len() + self.unreadable.len();
        self.own.len() + self.mapped.len() + self.links.len() + self.inherited.len() + failed
    }

    /// Adds to the list of failures that `source` lists more regions and links than the maximum
    /// `max`, so that the rest was not read.
    fn note_more(&mut self, source: String, max: usize) {
        let why = format!("it lists more than {max} regions and links; the rest is not read");
        self.unreadable.push((source, why));
    }

    fn add_descriptor(&mut self, memory: &Memory, path: &str, target: String) {
        let is_region = target == REGION;
        let is_link = target == LINK_MEMORY || target.ends_with(LINK_FILE);
        if !is_region && !is_link {
            return;
        }
        let wanted = if is_region { IDENTITY_BYTES } else { LINK_HEADER_BYTES };
        let opened = memory.mounts.open_to_read(path.as_ref()).and_then(|file| {
            let metadata = file.metadata()?;
            Ok((read_at(&file, 0, wanted)?, metadata))
        });
        match opened {
            // Two errors of opening a descriptor are no failures: the process has closed the
            // descriptor since it was listed, or the descriptor is that of a directory or device.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
            Err(error) => self.unreadable.push((path.to_owned(), error.to_string())),
            Ok((_, metadata)) if !memory.is_written(&metadata, &target) => {
                // A link with a file is named by the file's path, so that several descriptors of
                // the file count once.
                let source =
                    if target == LINK_MEMORY || is_region { path.to_owned() } else { target };
                if !self.inherited.contains(&source) {
                    self.inherited.push(source);
                }
            }
            Ok((pages, _)) if is_region => self.add_region(path.to_owned(), pages, true),
            Ok((pages, metadata)) => self.add_link(path, target, &pages, metadata.len()),
        }
    }

    fn add_mapping(&mut self, pid: u32, range: &MappedRange) {
        let source = format!("/proc/{pid}/mem at {:#x}", range.start);
        let opened = open_to_read(format!("/proc/{pid}/mem").as_ref());
        match opened.and_then(|file| read_at(&file, range.start, IDENTITY_BYTES)) {
            Err(error) => self.unreadable.push((source, error.to_string())),
            Ok(pages) => self.add_region(source, pages, false),
        }
    }

    fn add_region(&mut self, source: String, pages: Vec<u8>, is_own: bool) {
        // A listener makes a region in advance, whose pages are all zeros until a connection takes
        // it. Such a region is left out.
        if pages.len() == IDENTITY_BYTES && pages.iter().all(|byte| *byte == 0) {
            return;
        }
        if let Err(violation) = RegionIdentity::read(&pages) {
            self.damaged.push((source, violation.to_string()));
            return;
        }
        let regions = if is_own { &mut self.own } else { &mut self.mapped };
        regions.push(Region { pages });
    }

    fn add_link(&mut self, path: &str, target: String, page: &[u8], file_bytes: u64) {
        let source = if target == LINK_MEMORY { path.to_owned() } else { target };
        match link::header::check(page, file_bytes, None) {
            Ok((header, _)) => {
                let names = header.names().map(str::to_owned);
                let link = Link { source, names, created_ns: header.created_ns.get() };
                // A process may have several descriptors of one link file; the link is added once.
                if self.links.iter().all(|known| known.source != link.source) {
                    self.links.push(link);
                }
            }
            Err(fault) => self.damaged.push((source, fault.to_string())),
        }
    }
}

/// Reads up to `length` bytes of the file from `offset` on; fewer if the file ends before.
fn read_at(file: &fs::File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let mut read = 0;
    while read < length {
        match file.read_at(&mut bytes[read..], offset + read as u64) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(read);
    Ok(bytes)
}

/// Maximum number of regions and links of a process, and of mappings of its peers' regions, that
/// are read. A process can have a million descriptors of one region, and each costs a copy of 8
/// KiB.
const FOUND_MAX: usize = 1 << 15;

/// Name in `/proc` of the memory that holds a region.
const REGION: &str = "/memfd:partywall-region (deleted)";
/// Name in `/proc` of the memory of a link that has no file.
const LINK_MEMORY: &str = "/memfd:partywall-link (deleted)";
/// The ending of the name of each link's file.
const LINK_FILE: &str = ".link";
const LINK_HEADER_BYTES: usize = size_of::<link::LinkHeader>();

#[cfg(test)]
mod tests {
    use super::*;
    use partywall_layout::RegionHeader;
    use partywall_sys::OwnMap;
    use std::mem::offset_of;

    fn image() -> Vec<u8> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/vectors");
        fs::read(folder.join("identity-none.bin")).unwrap()
    }

    fn region(session_id: [u8; 16], owner_pid: u32, role: u32) -> Region {
        let mut pages = image();
        let mut put = |at: usize, bytes: &[u8]| pages[at..at + bytes.len()].copy_from_slice(bytes);
        put(offset_of!(RegionHeader, session_id), &session_id);
        put(offset_of!(RegionHeader, owner_pid), &owner_pid.to_le_bytes());
        put(offset_of!(RegionHeader, role), &role.to_le_bytes());
        Region { pages }
    }

    #[test]
    fn process_with_too_many_regions_is_read_in_part_and_says_so() {
        let regions: Vec<_> = (0..3)
            .map(|_| {
                let mut map = OwnMap::create("partywall-region", 64 << 10).unwrap();
                map.as_mut_slice()[..IDENTITY_BYTES].copy_from_slice(&image());
                map
            })
            .collect();
        let found = Found::up_to(std::process::id(), 2).unwrap();
        assert_eq!(found.own.len(), 2);
        let (_, why) = found.unreadable.last().unwrap();
        assert!(why.contains("more than 2 regions"), "{why}");
        drop(regions);
    }

    #[test]
    fn peer_is_the_first_region_of_the_session_with_another_role() {
        let own = vec![region([1; 16], 10, 0), region([2; 16], 11, 1), region([1; 16], 12, 1)];
        let mapped = vec![
            region([1; 16], 20, 0),
            region([1; 16], 21, 1),
            region([1; 16], 22, 7),
            region([3; 16], 23, 0),
        ];
        let found = Found { own, mapped, ..Found::default() };
        let pids =
            |one: Connection<'_>| (one.own.owner_pid(), one.peer.map(|peer| peer.owner_pid()));
        let connections: Vec<_> = found.connections().map(pids).collect();
        assert_eq!(connections, [(10, Some(21)), (11, None), (12, Some(20))]);
    }
}
