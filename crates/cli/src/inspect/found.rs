// SPDX-License-Identifier: MIT OR Apache-2.0
//! The regions and links of a process or of a file, copied and checked.
//!
//! A process keeps the descriptors of its own regions open, and only maps those of its peers. So a
//! region behind a descriptor is the process's own.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use partywall_layout::identity::{IDENTITY_BYTES, RegionIdentity};
use partywall_layout::link;
use partywall_sys::process::{MappedRange, Process, mappings, open_descriptors};

use super::connection::Connection;
use crate::command::access;

/// The regions and links that were found, and what could not be used.
#[derive(Debug, Default)]
pub struct Found {
    /// The process id, if a process was inspected.
    pub pid: Option<u32>,
    /// Regions that the process owns.
    pub own: Vec<Region>,
    /// Regions of other processes that the process maps.
    pub mapped: Vec<Region>,
    /// Links whose file or memory the process has open.
    pub links: Vec<Link>,
    /// Memory that is named like a region or link but is none, each with the reason.
    pub damaged: Vec<(String, String)>,
    /// Memory that could not be read, each with the reason.
    pub unreadable: Vec<(String, String)>,
}

/// A private copy of the first two pages of a region.
#[derive(Debug)]
pub struct Region {
    pages: Vec<u8>,
}

/// The names and the age of a link, from the header of its file.
#[derive(Debug)]
pub struct Link {
    /// The path of the file, or of the descriptor of memory without a path.
    pub source: String,
    /// Local, remote and link name.
    pub names: [String; 3],
    /// When the file was made, in nanoseconds since 1970.
    pub created_ns: u64,
}

impl Region {
    /// The identity in the copy; it was checked when the copy was made.
    pub fn identity(&self) -> Option<RegionIdentity<'_>> {
        RegionIdentity::read(&self.pages).ok()
    }
}

impl Found {
    /// Reads the regions and links of a process.
    ///
    /// # Errors
    /// If there is no such process, this process may not inspect it, or it has neither.
    pub fn of_process(pid: u32) -> Result<Self> {
        if !Path::new(&format!("/proc/{pid}")).exists() {
            bail!("there is no process {pid}; a file of this name is ./{pid}");
        }
        let process = Process::Pid(i32::try_from(pid).context("no process has this number")?);
        let explain = |error| access::explain(pid, error);
        let ranges = mappings(process).map_err(explain)?;
        let mut found = Self { pid: Some(pid), ..Self::default() };
        for (number, target) in open_descriptors(process).map_err(explain)? {
            let target = target.to_string_lossy().into_owned();
            found.add_descriptor(&format!("/proc/{pid}/fd/{number}"), target);
        }
        let of_peers = |range: &&MappedRange| range.name == REGION && range.permissions == "r--s";
        for range in ranges.iter().filter(of_peers) {
            found.add_mapping(pid, range);
        }
        if found.is_empty() {
            bail!(
                "process {pid} has no connection over shared memory and no link; connections over \
                 sockets cannot be inspected"
            );
        }
        Ok(found)
    }

    /// Reads a copy of a region, from its start.
    ///
    /// # Errors
    /// If the file cannot be read or is no region.
    pub fn of_file(path: &Path) -> Result<Self> {
        let source = path.display().to_string();
        if !fs::metadata(path).with_context(|| source.clone())?.is_file() {
            bail!("{source} is no file");
        }
        let pages = read_at(path, 0, IDENTITY_BYTES).with_context(|| source.clone())?;
        if let Err(violation) = RegionIdentity::read(&pages) {
            bail!("{source} is no region: {violation}");
        }
        Ok(Self { own: vec![Region { pages }], ..Self::default() })
    }

    /// The connections: for each own region, the peer's region of the same session if it was found.
    pub fn connections(&self) -> impl Iterator<Item = Connection<'_>> {
        self.own.iter().filter_map(|own| {
            let identity = own.identity()?;
            let is_peer = |other: &RegionIdentity<'_>| {
                other.session_id() == identity.session_id() && other.role() != identity.role()
            };
            let candidates = self.mapped.iter().chain(&self.own);
            let peer = candidates.filter_map(Region::identity).find(is_peer);
            Some(Connection { own: identity, peer })
        })
    }

    fn is_empty(&self) -> bool {
        self.own.is_empty()
            && self.mapped.is_empty()
            && self.links.is_empty()
            && self.damaged.is_empty()
            && self.unreadable.is_empty()
    }

    fn add_descriptor(&mut self, path: &str, target: String) {
        let is_region = target == REGION;
        let is_link = target == LINK_MEMORY || target.ends_with(LINK_FILE);
        if !is_region && !is_link {
            return;
        }
        // The process may have closed the descriptor meanwhile.
        let Ok(metadata) = fs::metadata(path) else { return };
        if !metadata.is_file() {
            return;
        }
        let wanted = if is_region { IDENTITY_BYTES } else { LINK_HEADER_BYTES };
        match read_at(path.as_ref(), 0, wanted) {
            Err(error) => self.unreadable.push((path.to_owned(), error.to_string())),
            Ok(pages) if is_region => self.add_region(path.to_owned(), pages, true),
            Ok(pages) => self.add_link(path, target, &pages, metadata.len()),
        }
    }

    fn add_mapping(&mut self, pid: u32, range: &MappedRange) {
        let source = format!("/proc/{pid}/mem at {:#x}", range.start);
        match read_at(format!("/proc/{pid}/mem").as_ref(), range.start, IDENTITY_BYTES) {
            Err(error) => self.unreadable.push((source, error.to_string())),
            Ok(pages) => self.add_region(source, pages, false),
        }
    }

    fn add_region(&mut self, source: String, pages: Vec<u8>, is_own: bool) {
        // A listener makes a region in advance, which is empty until a connection takes it.
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
                // A process may have several descriptors of one file.
                if self.links.iter().all(|known| known.source != link.source) {
                    self.links.push(link);
                }
            }
            Err(fault) => self.damaged.push((source, fault.to_string())),
        }
    }
}

/// Reads up to `length` bytes from `offset` on; fewer if the file ends before.
fn read_at(path: &Path, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
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

/// Name of a region's memory in `/proc`.
const REGION: &str = "/memfd:partywall-region (deleted)";
/// Name in `/proc` of the memory of a link that has no file.
const LINK_MEMORY: &str = "/memfd:partywall-link (deleted)";
/// End of the name of a link's file.
const LINK_FILE: &str = ".link";
/// Length of the header of a link's file in bytes.
const LINK_HEADER_BYTES: usize = size_of::<link::LinkHeader>();
