// SPDX-License-Identifier: MIT OR Apache-2.0
//! The inspection of link files for an operator: reads them without a lock and without writing,
//! while their owners may be using them.
//!
//! ```text
//!   directory ─▶ each *.link ─▶ pages (read, not mapped) ─▶ Inspection
//!                                       └ damaged ─▶ read again while it changes ─▶ StorageError
//! ```
//!
//! A damaged file does not affect the result for other files. While the owner works, the fields of
//! one inspection may be of different moments.

use std::fmt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use partywall_layout::link::header;
use partywall_layout::link::state::{
    QUARANTINE_RECEIVING, REPORT_INEXACT, REPORT_OPEN, REPORT_RECEIVING,
};
use partywall_layout::link::{
    Consumed, FileFault, Image, LINK_CONTROL_OFFSET, LinkGeometry, Report, StateImage,
};
use partywall_sys::persistent_file::FileStat;
use partywall_sys::process::open_to_read;

use super::directory::{Directory, is_link_file};
use super::error::StorageError;
use super::file::read_pages;
use super::key::Key;
use super::owner::{self, OwnerState};

/// One link file in an inspected directory, with the result of its inspection.
#[derive(Debug)]
pub struct Found {
    /// The path of the link file that was inspected.
    pub path: PathBuf,
    /// The names of the end that the link file belongs to, even if the file is refused; `None` if
    /// its header is not readable.
    pub key: Option<Key>,
    /// The contents of the link file, or the reason why the file is refused.
    pub inspection: Result<Box<Inspection>, StorageError>,
}

/// The contents of the file of one end of a link, without its messages.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Inspection {
    /// The three names of the end to which the link file belongs: its own, its peer's and the
    /// link's.
    pub key: Key,
    /// The store id, a random number: a file that was lost and created again has another store id.
    pub store_id: [u8; 16],
    /// The time when the link file was created.
    pub created: SystemTime,
    /// The number of owners that the link file has had so far.
    pub incarnation: u64,
    /// The process that owns the link file, or that owned it last.
    pub owner: Owner,
    /// The number of the present epoch, which the application chooses.
    pub epoch: u64,
    /// The id of the stream that this end sends in this epoch; 0 if there is none yet.
    pub sending_stream: u64,
    /// The position of the first sent record that the link file still keeps.
    pub base: u64,
    /// The position up to which the peer had acknowledged when this end last stored its state.
    pub acked: u64,
    /// The id of the stream that this end receives in this epoch; 0 if there is none yet.
    pub receiving_stream: u64,
    /// The position up to which this end has acknowledged the received stream.
    pub consumed: u64,
    /// Store id (a random number) and incarnation (number of owners) of the peer's file; `None` if
    /// this end was never attached to a peer.
    pub peer: Option<([u8; 16], u64)>,
    /// The streams of the last epoch that this end left; `None` if this end has left no epoch.
    pub previous: Option<PreviousStream>,
    /// Reason why the link is in quarantine; `None` if the link is not in quarantine.
    pub quarantine: Option<QuarantineSnapshot>,
    /// The reports of skipped or dropped messages that the application has not acknowledged.
    pub reports: Vec<ReportSnapshot>,
    /// The number of reports that were dropped because the link file had no room for them.
    pub reports_dropped: u64,
    /// The sizes of the link file and its parts, in bytes.
    pub sizes: MemorySizes,
}

/// The process that owns a link file, or owned it last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Owner {
    /// The process id of the owner, in the owner's pid namespace; 0 if the file was never owned.
    pub pid: u32,
    /// The time when the process became the owner.
    pub since: SystemTime,
    /// Whether the process `pid` still owns the file.
    pub status: OwnerStatus,
}

/// Whether the owner of a link file still owns the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OwnerStatus {
    /// The link file was created, but no process ever owned it.
    Never,
    /// The owner gave up the link file in an orderly way.
    Left,
    /// The owner died without giving up the link file.
    Dead,
    /// The owner is alive, or stopped by a signal.
    Alive,
    /// The owner holds the lock, but its process is not visible from this pid namespace or machine.
    Unknown,
}

/// The two streams of the epoch before the present one, with the positions at which this end left
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PreviousStream {
    /// The number of the previous epoch.
    pub epoch: u64,
    /// The position up to which the peer is known to have acknowledged the stream that this end
    /// sent in the previous epoch.
    pub acked: u64,
    /// The position after the last record that this end sent in the previous epoch.
    pub tail: u64,
    /// The position up to which this end had acknowledged the stream that the peer sent in the
    /// previous epoch.
    pub consumed: u64,
    /// Whether this end has reported the messages of the previous epoch that will never be
    /// consumed.
    pub is_settled: bool,
}

/// Reason why a link is in quarantine: the files of its two ends contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuarantineSnapshot {
    /// The contradiction as text: `receiver ahead` (of its sender), `no boundary` (no record ends
    /// at the receiver's position) or `other record` (a different record ends there).
    pub why: &'static str,
    /// Whether the contradiction concerns the stream that this end receives, not the one that it
    /// sends.
    pub is_receiving: bool,
}

/// A report to the application: a range of positions that was skipped or dropped, or that the link
/// keeps in quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReportSnapshot {
    /// The kind of the report as text: `gap`, `lost`, `undelivered` or `quarantined`.
    pub kind: &'static str,
    /// Whether the range belongs to the stream that this end receives, not the one that it sends.
    pub is_receiving: bool,
    /// Whether all messages of the range were dropped; if false, perhaps only some of them were
    /// dropped.
    pub is_exact: bool,
    /// Whether the end of the range is unknown. The range then ends at `to` or later.
    pub is_open: bool,
    /// The epoch in which the range was sent.
    pub epoch: u64,
    /// The first position of the range, counted as in
    /// [`Message::position`](crate::Message::position).
    pub from: u64,
    /// The position after the last byte of the range.
    pub to: u64,
}

/// Prints the report as one line: which positions were skipped or dropped, and why.
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

/// The sizes of a link file and its parts, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemorySizes {
    /// The size of the link file in bytes.
    pub file: u64,
    /// The size of the file's record ring in bytes.
    pub ring: u64,
    /// The size of the file's release ring in bytes.
    pub release_ring: u64,
    /// The size of the file's slab in bytes.
    pub slab: u64,
}

/// Inspects all link files in a directory, in the order of their file names. Every other file whose
/// name ends in `.link` is among them, with the reason why it is refused.
///
/// # Errors
///
/// [`StorageError`] if the directory is unfit for links or unreadable. The fault of a single file
/// is in its [`Found`].
pub fn inspect(directory: &Path) -> Result<Vec<Found>, StorageError> {
    let directory = Directory::open(directory)?;
    let found = |name: &String| match is_link_file(name) {
        true => inspect_named(&directory, name, None),
        // The file has another name than those of link files. So it was renamed, or is a foreign
        // file.
        false => inspect_path(&directory.file_path(name), Name::OfLink).ok(),
    };
    Ok(directory.files()?.iter().filter_map(found).collect())
}

/// Inspects one file, whatever its name: that of a link, or a copy of it.
///
/// # Errors
///
/// [`StorageError`] if the file cannot be opened. Its fault, if it has one, is in [`Found`].
pub fn inspect_file(path: &Path) -> Result<Found, StorageError> {
    inspect_path(path, Name::Any)
}

fn inspect_path(path: &Path, name: Name) -> Result<Found, StorageError> {
    let opening = |cause| StorageError::System { path: path.to_owned(), what: "opening", cause };
    let file = open_to_read(path).map_err(opening)?;
    let stat = FileStat::of(&file).map_err(opening)?;
    let (inspection, key) =
        (inspect_open_file(&file, stat, None, path, name), key_of_any_layout(&file, stat));
    Ok(Found { path: path.to_owned(), key, inspection })
}

/// The paths of the link files that are listed in `directory` and missing there, in order: they
/// were removed, or lost in a reboot. The list keeps a link whose file was removed on purpose.
///
/// # Errors
///
/// [`StorageError`] if the directory is unfit for links, or it or its list is unreadable.
pub fn missing_files(directory: &Path) -> Result<Vec<PathBuf>, StorageError> {
    let directory = Directory::open(directory)?;
    // The list of link files is read before the names in the directory: a file that is made in
    // between is then not taken for missing.
    let mut names = directory.listed_names()?;
    let files = directory.files()?;
    names.retain(|name| files.binary_search(name).is_err());
    Ok(names.iter().map(|name| directory.file_path(name)).collect())
}

/// Inspects the file of one end of a link; `None` if the end has no file.
///
/// # Errors
///
/// [`StorageError`] lists the reasons.
pub fn inspect_link(directory: &Path, key: &Key) -> Result<Option<Found>, StorageError> {
    let directory = Directory::open(directory)?;
    Ok(inspect_named(&directory, &key.file_name(), Some(key)))
}

fn inspect_named(directory: &Directory, name: &str, key: Option<&Key>) -> Option<Found> {
    let path = directory.file_path(name);
    let (inspection, key) = match directory.open_file(name, false) {
        Ok(None) => return None,
        Ok(Some((file, stat))) => (
            inspect_open_file(&file, stat, key, &path, Name::OfLink),
            key_of_any_layout(&file, stat),
        ),
        Err(error) => (Err(error), None),
    };
    Some(Found { path, key, inspection })
}

/// Reads the three names of a link from the header of a file, even if the layout of the rest of the
/// file is unknown.
fn key_of_any_layout(file: &std::fs::File, stat: FileStat) -> Option<Key> {
    let header = header::of_any_layout(&read_pages(file, stat.size).ok()?)?;
    let [local, remote, link] = header.names();
    Key::new(local, remote, link).ok()
}

fn inspect_open_file(
    file: &std::fs::File,
    stat: FileStat,
    key: Option<&Key>,
    path: &Path,
    name: Name,
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
                return snapshot(&image, status, path, name).map(Box::new);
            }
            Err(found) if pages == seen => {
                fault = found;
                break;
            }
            // The pages of the file seem damaged, but the owner may have been writing while they
            // were read. So they are read once more.
            Err(found) => (fault, seen) = (found, pages),
        }
    }
    Err(StorageError::File { path: path.to_owned(), fault })
}

/// Whether the slot of the file from which the acked offset `found` was read still holds the same
/// record.
///
/// Each slot also has a count of the bytes that were acknowledged after its record. If the owner
/// has replaced the record since, the count that was read may belong to the newer record (SPEC
/// 13.5). A small inaccuracy remains, but only operators read the result: no decision follows from
/// it.
fn is_still(file: &std::fs::File, found: &Consumed) -> std::io::Result<bool> {
    let mut seal = [0; 8];
    file.read_exact_at(&mut seal, LINK_CONTROL_OFFSET + found.seal_offset())?;
    Ok(u64::from_le_bytes(seal) == found.record.seal.get())
}

/// Whether an inspected file has to have the name that belongs to its link.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Name {
    Any,
    OfLink,
}

fn snapshot(
    image: &Image,
    status: OwnerState,
    path: &Path,
    name: Name,
) -> Result<Inspection, StorageError> {
    let [local, remote, link] = image.header.names();
    let no_name =
        |_| StorageError::File { path: path.to_owned(), fault: FileFault::Name { which: "local" } };
    let key = Key::new(local, remote, link).map_err(no_name)?;
    let is_named = path.file_name().is_some_and(|name| name == key.file_name().as_str());
    if name == Name::OfLink && !is_named {
        // The header names another link: an operator renamed the file, so no owner would open it
        // under this name.
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
    /// The quarantine that the stored state `state` records, in the form for an operator; `None` if
    /// the link is not in quarantine.
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

/// Maximum number of reads of a file that seems damaged and changes between reads, because its
/// owner writes. After that the file counts as damaged.
const READS_MAX: u32 = 16;
