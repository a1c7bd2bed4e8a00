// SPDX-License-Identifier: MIT OR Apache-2.0
//! Looking into the files of links without a lock, without writing, and while others work on them.
//!
//! ```text
//!   directory ─▶ each *.link ─▶ pages (read, not mapped) ─▶ Inspection
//!                                       └ damaged ─▶ looked at again, if somebody may just be writing ─▶ StorageError
//! ```
//!
//! One damaged file says nothing about the others. What is found is of no single moment if its owner is at work.

use std::fmt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use partywall_layout::link::state::{
    QUARANTINE_RECEIVING, REPORT_INEXACT, REPORT_OPEN, REPORT_RECEIVING,
};
use partywall_layout::link::{
    Consumed, FileFault, Image, LINK_CONTROL_OFFSET, LinkGeometry, Report, StateImage,
};
use partywall_sys::persistent_file::FileStat;

use super::directory::Directory;
use super::error::StorageError;
use super::file::read_pages;
use super::key::Key;
use super::owner::{self, OwnerState};

/// One file that was looked at.
#[derive(Debug)]
pub struct Found {
    /// Where it lies.
    pub path: PathBuf,
    /// What is in it, or why it cannot be believed.
    pub inspection: Result<Box<Inspection>, StorageError>,
}

/// What is in the file of a link.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Inspection {
    /// Whose file it is.
    pub key: Key,
    /// A file that was lost and made anew has another.
    pub store_id: [u8; 16],
    /// When it was made.
    pub created: SystemTime,
    /// How many owners it has had.
    pub incarnation: u64,
    /// The last of them.
    pub owner: Owner,
    /// Chosen by the application.
    pub epoch: u64,
    /// The stream that is sent in this epoch; 0 if there is none yet.
    pub sending_stream: u64,
    /// Records are kept from here on.
    pub base: u64,
    /// Up to here the peer has consumed, as far as was known when the state was last committed.
    pub acked: u64,
    /// The stream that is consumed in this epoch; 0 if there is none yet.
    pub receiving_stream: u64,
    /// Up to here this end has consumed.
    pub consumed: u64,
    /// Lineage and incarnation of the peer, if it was ever met.
    pub peer: Option<([u8; 16], u64)>,
    /// The last epoch that was left.
    pub previous: Option<PreviousStream>,
    /// Why the link stands until a person decides; `None` if it does not.
    pub quarantine: Option<QuarantineSnapshot>,
    /// What the application has still to be told.
    pub reports: Vec<ReportSnapshot>,
    /// How many reports more there were, for which there was no room.
    pub reports_dropped: u64,
    /// In bytes.
    pub sizes: MemorySizes,
}

/// The process that owns a file, or did last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Owner {
    /// As its own pid namespace counts; 0 if there was never one.
    pub pid: u32,
    /// Since when.
    pub since: SystemTime,
    /// What has become of it.
    pub status: OwnerStatus,
}

/// What has become of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OwnerStatus {
    /// The file was made, and never owned.
    Never,
    /// It has left by itself.
    Left,
    /// It died.
    Dead,
    /// It lives; stopped, perhaps.
    Alive,
    /// It has the lock, and cannot be seen from here.
    Unknown,
}

/// The streams of the epoch before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PreviousStream {
    /// Its number.
    pub epoch: u64,
    /// Up to here the peer had consumed, as far as is known.
    pub acked: u64,
    /// The end of what was sent.
    pub tail: u64,
    /// Up to here this end had consumed.
    pub consumed: u64,
    /// Whether what nobody will consume of it was reported.
    pub is_settled: bool,
}

/// Why a link stands: the memories of its two ends contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuarantineSnapshot {
    /// `receiver ahead`, `no boundary` or `other record`.
    pub why: &'static str,
    /// Whether it is about what this end receives, not what it sends.
    pub is_receiving: bool,
}

/// A range that was skipped or dropped, or that quarantine keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReportSnapshot {
    /// `gap`, `lost`, `undelivered` or `quarantined`.
    pub kind: &'static str,
    /// Whether it concerns what this end receives, not what it sends.
    pub is_receiving: bool,
    /// Whether the range is exactly what was dropped.
    pub is_exact: bool,
    /// Whether nobody knows the end of the range; then it is at least up to `to`.
    pub is_open: bool,
    /// In which epoch.
    pub epoch: u64,
    /// The first position: that of a [message](crate::Message::position), or where one would have been.
    pub from: u64,
    /// The position behind the last.
    pub to: u64,
}

/// In one line: what became of which positions, as far as is known.
impl fmt::Display for ReportSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, epoch, from, to, .. } = self;
        let direction = if self.is_receiving { "received" } else { "sent" };
        let about = match (self.is_exact, self.is_open) {
            (true, _) => "",
            (false, false) => ", at most,",
            (false, true) => ", or further,",
        };
        write!(f, "{kind}: positions {from}..{to}{about} of what is {direction} in epoch {epoch}")
    }
}

/// How large a file and its parts are, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemorySizes {
    /// The whole file.
    pub file: u64,
    /// The record ring.
    pub ring: u64,
    /// The release ring.
    pub release_ring: u64,
    /// The slab.
    pub slab: u64,
}

/// Looks at all files of links in a directory, in the order of their file names.
///
/// # Errors
///
/// The directory is not one for links, or cannot be read. What is wrong with a file is in its [`Found`].
pub fn inspect(directory: &Path) -> Result<Vec<Found>, StorageError> {
    let directory = Directory::open(directory)?;
    let names = directory.files()?;
    Ok(names.iter().filter_map(|name| inspect_file(&directory, name, None)).collect())
}

/// Looks at the file of one end of a link; `None` if there is none.
///
/// # Errors
///
/// As [`inspect`].
pub fn inspect_link(directory: &Path, key: &Key) -> Result<Option<Found>, StorageError> {
    let directory = Directory::open(directory)?;
    Ok(inspect_file(&directory, &key.file_name(), Some(key)))
}

fn inspect_file(directory: &Directory, name: &str, key: Option<&Key>) -> Option<Found> {
    let path = directory.file_path(name);
    let inspection = match directory.open_file(name, false) {
        Ok(None) => return None,
        Ok(Some((file, stat))) => inspect_open_file(&file, stat, key, &path),
        Err(error) => Err(error),
    };
    Some(Found { path, inspection })
}

fn inspect_open_file(
    file: &std::fs::File,
    stat: FileStat,
    key: Option<&Key>,
    path: &Path,
) -> Result<Box<Inspection>, StorageError> {
    let system =
        |what| move |source| StorageError::System { path: path.to_owned(), what, cause: source };
    let mut fault = FileFault::Foreign;
    let mut seen = Vec::new();
    for _ in 0..LOOKS_MAX {
        let pages = read_pages(file, stat.size).map_err(system("reading"))?;
        match Image::check(&pages, stat.size, key.map(Key::names)) {
            Ok(image) if !is_still(file, &image.consumed).map_err(system("reading"))? => {
                fault = FileFault::ConsumedDamaged;
            }
            Ok(image) => {
                let status = owner::status(file, &image.owner).map_err(system("a lock"))?;
                return snapshot(&image, status, path).map(Box::new);
            }
            Err(found) if pages == seen => {
                fault = found;
                break;
            }
            // Read while its owner wrote, perhaps.
            Err(found) => (fault, seen) = (found, pages),
        }
    }
    Err(StorageError::File { path: path.to_owned(), fault })
}

/// Whether the record that was read is in force, or was just now: its owner may have put others in force meanwhile, and the word that was read
/// may be of one of these (SPEC 13.5). What is left is shown to people, and nothing follows from it.
fn is_still(file: &std::fs::File, found: &Consumed) -> std::io::Result<bool> {
    let mut seal = [0; 8];
    file.read_exact_at(&mut seal, LINK_CONTROL_OFFSET + found.seal_offset())?;
    Ok(u64::from_le_bytes(seal) == found.record.seal.get())
}

fn snapshot(image: &Image, status: OwnerState, path: &Path) -> Result<Inspection, StorageError> {
    let [local, remote, link] = image.header.names();
    let no_name =
        |_| StorageError::File { path: path.to_owned(), fault: FileFault::Name { which: "local" } };
    let key = Key::new(local, remote, link).map_err(no_name)?;
    if path.file_name().is_none_or(|name| name != key.file_name().as_str()) {
        // It was renamed: no owner would open it.
        return Err(StorageError::File { path: path.to_owned(), fault: FileFault::OtherLink });
    }
    let (record, state) = (&image.owner, &image.state);
    let old = &state.previous;
    let LinkGeometry { file_bytes, ring, peer_blocks_max, slab_bytes, .. } = image.geometry;
    let peer = state.peer_incarnation.get();
    Ok(Inspection {
        key,
        store_id: image.header.store_id,
        created: owner::moment(image.header.created_ns.get()),
        incarnation: record.incarnation.get(),
        owner: Owner {
            pid: record.pid.get(),
            since: owner::moment(record.since_ns.get()),
            status: match status {
                _ if record.incarnation.get() == 0 => OwnerStatus::Never,
                OwnerState::Left => OwnerStatus::Left,
                OwnerState::Gone => OwnerStatus::Dead,
                OwnerState::Alive => OwnerStatus::Alive,
                OwnerState::Unknown => OwnerStatus::Unknown,
            },
        },
        epoch: state.epoch.get(),
        sending_stream: state.sending_stream.get(),
        base: state.sending_base.get(),
        acked: state.sending_acked.get(),
        receiving_stream: state.receiving_stream.get(),
        consumed: image.consumed_to().0,
        peer: (peer != 0).then_some((state.peer_store_id, peer)),
        previous: old.is_there().then(|| PreviousStream {
            epoch: old.epoch.get(),
            acked: old.acked.get(),
            tail: old.tail.get(),
            consumed: old.consumed.get(),
            is_settled: old.is_settled(),
        }),
        quarantine: quarantine(state.quarantine.get()),
        reports: state.reports().iter().map(report).collect(),
        reports_dropped: state.reports_dropped.get(),
        sizes: MemorySizes {
            file: file_bytes,
            ring: ring.bytes(),
            release_ring: peer_blocks_max * 8,
            slab: slab_bytes,
        },
    })
}

impl QuarantineSnapshot {
    /// That of a state.
    pub(crate) fn in_force(state: &StateImage) -> Option<Self> {
        quarantine(state.quarantine.get())
    }
}

fn quarantine(number: u32) -> Option<QuarantineSnapshot> {
    let why = match number & !QUARANTINE_RECEIVING {
        0 => return None,
        1 => "receiver ahead",
        2 => "no boundary",
        _ => "other record",
    };
    Some(QuarantineSnapshot { why, is_receiving: number & QUARANTINE_RECEIVING != 0 })
}

fn report(report: &Report) -> ReportSnapshot {
    let flags = report.flags.get();
    ReportSnapshot {
        kind: match report.kind.get() {
            1 => "gap",
            2 => "lost",
            3 => "undelivered",
            _ => "quarantined",
        },
        is_receiving: flags & REPORT_RECEIVING != 0,
        is_exact: flags & REPORT_INEXACT == 0,
        is_open: flags & REPORT_OPEN != 0,
        epoch: report.epoch.get(),
        from: report.from.get(),
        to: report.to.get(),
    }
}

impl From<&partywall_reconcile::Report> for ReportSnapshot {
    fn from(report: &partywall_reconcile::Report) -> Self {
        use partywall_reconcile::{Cause, Direction};
        let span = &report.span;
        Self {
            kind: match report.cause {
                Cause::Gap => "gap",
                Cause::Lost => "lost",
                Cause::Undelivered => "undelivered",
                Cause::Quarantined(_) => "quarantined",
            },
            is_receiving: report.direction == Direction::Incoming,
            is_exact: span.exact,
            is_open: span.to.is_none(),
            epoch: report.epoch.0,
            from: span.from.0,
            to: span.to.unwrap_or(span.known_to).0,
        }
    }
}

/// How often a file that looks damaged is read, as long as it changes.
const LOOKS_MAX: u32 = 16;
