// SPDX-License-Identifier: MIT OR Apache-2.0
//! Inspects the files of links without a lock, without writing, and while their owners work on
//! them.
//!
//! ```text
//!   directory ─▶ each *.link ─▶ pages (read, not mapped) ─▶ Inspection
//!                                       └ damaged ─▶ read again while it changes ─▶ StorageError
//! ```
//!
//! A damaged file says nothing about the others. While the owner works, the fields may be of
//! different moments.

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

/// One file that was inspected.
#[derive(Debug)]
pub struct Found {
    /// The path of the file.
    pub path: PathBuf,
    /// The contents of the file, or why they are refused.
    pub inspection: Result<Box<Inspection>, StorageError>,
}

/// The contents of the file of a link.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Inspection {
    /// The names of the end that the file belongs to.
    pub key: Key,
    /// The store id: a file that was lost and made anew has another one.
    pub store_id: [u8; 16],
    /// The time when it was made.
    pub created: SystemTime,
    /// The number of its owners so far.
    pub incarnation: u64,
    /// The last owner.
    pub owner: Owner,
    /// The epoch, which the application chooses.
    pub epoch: u64,
    /// The stream that is sent in this epoch; 0 if there is none yet.
    pub sending_stream: u64,
    /// The position of the first record that is kept.
    pub base: u64,
    /// How far the peer had acknowledged when the state was last committed.
    pub acked: u64,
    /// The stream that is consumed in this epoch; 0 if there is none yet.
    pub receiving_stream: u64,
    /// How far this end has acknowledged.
    pub consumed: u64,
    /// Store id and incarnation of the peer, if one was ever met.
    pub peer: Option<([u8; 16], u64)>,
    /// The last epoch that was left.
    pub previous: Option<PreviousStream>,
    /// Why the link is in quarantine; `None` if it is not.
    pub quarantine: Option<QuarantineSnapshot>,
    /// The reports that the application has not taken.
    pub reports: Vec<ReportSnapshot>,
    /// The number of further reports, which found no room.
    pub reports_dropped: u64,
    /// The sizes in bytes.
    pub sizes: MemorySizes,
}

/// The process that owns a file, or did last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Owner {
    /// The process id in its own pid namespace; 0 if the file was never owned.
    pub pid: u32,
    /// The time when it became the owner.
    pub since: SystemTime,
    /// Whether it still owns the file.
    pub status: OwnerStatus,
}

/// Whether the owner of a file still owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OwnerStatus {
    /// The file was made, and never owned.
    Never,
    /// The owner has left by itself.
    Left,
    /// The owner died.
    Dead,
    /// The owner is alive, or stopped by a signal.
    Alive,
    /// The owner holds the lock, but its process is not visible from here.
    Unknown,
}

/// The streams of the epoch before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PreviousStream {
    /// The number of the epoch.
    pub epoch: u64,
    /// How far the peer had acknowledged, as far as is known.
    pub acked: u64,
    /// The end of what was sent.
    pub tail: u64,
    /// How far this end had acknowledged.
    pub consumed: u64,
    /// Whether the messages of it that will never be consumed were reported.
    pub is_settled: bool,
}

/// Why a link is in quarantine: the stores of its two ends contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuarantineSnapshot {
    /// `receiver ahead`, `no boundary` or `other record`.
    pub why: &'static str,
    /// Whether it concerns the stream that this end receives, not the one that it sends.
    pub is_receiving: bool,
}

/// A range that was skipped or dropped, or that quarantine keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReportSnapshot {
    /// `gap`, `lost`, `undelivered` or `quarantined`.
    pub kind: &'static str,
    /// Whether it concerns the stream that this end receives, not the one that it sends.
    pub is_receiving: bool,
    /// Whether the range is exactly what was dropped.
    pub is_exact: bool,
    /// Whether the end of the range is unknown; it is at least `to`.
    pub is_open: bool,
    /// The epoch of the range.
    pub epoch: u64,
    /// The first position: that of a [message](crate::Message::position), or where one would have
    /// been.
    pub from: u64,
    /// The position behind the last.
    pub to: u64,
}

/// One line: which positions were skipped or dropped, and why.
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

/// The sizes of a file and its parts, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemorySizes {
    /// The size of the file.
    pub file: u64,
    /// The size of the record ring.
    pub ring: u64,
    /// The size of the release ring.
    pub release_ring: u64,
    /// The size of the slab.
    pub slab: u64,
}

/// Inspects all files of links in a directory, in the order of their file names.
///
/// # Errors
///
/// The directory is not fit for links, or cannot be read. The fault of a single file is in its
/// [`Found`].
pub fn inspect(directory: &Path) -> Result<Vec<Found>, StorageError> {
    let directory = Directory::open(directory)?;
    let names = directory.files()?;
    Ok(names.iter().filter_map(|name| inspect_file(&directory, name, None)).collect())
}

/// Inspects the file of one end of a link; `None` if there is none.
///
/// # Errors
///
/// The errors of [`inspect`].
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
    for _ in 0..READS_MAX {
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
            // Its owner may have been writing.
            Err(found) => (fault, seen) = (found, pages),
        }
    }
    Err(StorageError::File { path: path.to_owned(), fault })
}

/// Whether the record that was read is still in force, or was a moment ago.
///
/// Its owner may have put others in force meanwhile, and the word that was read may be of one of
/// these (SPEC 13.5). The remaining inaccuracy is acceptable: operators read the result, and no
/// decision follows from it.
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
        // The file was renamed: no owner would open it.
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
    /// The quarantine in a state.
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

/// How often a file that seems damaged is read again while it changes.
const READS_MAX: u32 = 16;
