// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ownership of a link file: at most one process owns it at a time, and the next one takes over
//! when the owner has left or died (SPEC 13.3).
//!
//! ```text
//!   record n in force ──▶ is owner n gone?
//!                           record n says that owner n has left ───────────▶ yes
//!                           the lock of byte n is free ────────────────────▶ yes
//!                           byte n is locked, but process n is dead ───────▶ yes (its forked child
//!                           none of these ──▶ error Busy                          holds the lock)
//!     yes ──▶ the pages are checked ──▶ lock of byte n + 1 ──▶ is record n still in force?
//!                                          │ refused              no:  release it, begin again
//!                                          ▼                      yes: only we write record n + 1
//!                               another opens: check again          ▼
//!                                                              record n + 1: this process owns it
//!   leaving:  record n + 1 "left" ──▶ release the lock
//! ```
//!
//! Every incarnation locks a byte of its own, so a lock that a child of a dead owner holds blocks
//! no later owner. If two openers read record n, the kernel gives byte n + 1 to one of them. If
//! that opener is killed before its record is complete, record n stays in force, and the lock of
//! byte n + 1 is free again. An opener that gets the lock of byte n + 1 after record n + 1 was
//! written finds record n no longer in force, and begins again. So there is never a second owner.
//!
//! One case remains. An opener is killed between lock and record (three system calls), and another
//! thread of the opener forked a child between those two steps. In this case the child holds the
//! lock of byte `n + 1` without a record, and [`StorageError::Opening`] lasts until the child ends.
//! To skip a locked byte without proof could make a second owner.
//!
//! # Invariants
//!
//! - Record n is only written by the holder of the lock of byte n that saw record n - 1 in force
//!   under that lock, or by owner n when it leaves.
//! - No decision depends on time.

use partywall_layout::seeded_fault;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use partywall_layout::link::owner::{self, INCARNATION_MAX};
use partywall_layout::link::slot::{SEAL_BYTES, index_of};
use partywall_layout::link::{
    Closing, FileFault, OWNER_OFFSET, OwnerRecord, PAGE_SLOT_STRIDE, Slot,
};
use partywall_layout::segment::PAGE_BYTES;
use partywall_sys::{ForkGuard, Instance, Liveness, byte_lock};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

use super::error::StorageError;
use super::sync::SyncScope;

/// The ownership of a link file. Dropping the value gives up the file.
#[derive(Debug)]
pub(super) struct Ownership {
    file: File,
    record: OwnerRecord,
    maker: ForkGuard,
    leaving: Mutex<Leaving>,
}

/// State of an owner for the owner record that it writes when it leaves the link file.
#[derive(Debug, Default)]
struct Leaving {
    /// Whether this owner has begun to write the owner record that says that it has left the link
    /// file.
    has_left: bool,
    /// Whether the application has taken the events about the file's adoption, so that the next
    /// owner need not report them again.
    is_notified: bool,
}

impl Ownership {
    pub(super) fn incarnation(&self) -> u64 {
        self.record.incarnation.get()
    }

    /// Whether this owner, or one before it, adopted the file after a reboot with only the messages
    /// that it proves whole, and no application has taken the events about that.
    pub(super) fn is_adopted(&self) -> bool {
        self.record.adopted.get() == 1
    }

    /// Records whether the application has taken the events about the file's adoption. The owner
    /// writes this into its record when it leaves the file.
    pub(super) fn set_notified(&self, is_notified: bool) {
        self.leaving().is_notified = is_notified;
    }

    fn leaving(&self) -> MutexGuard<'_, Leaving> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Writes into the owner record that this owner has left the file, together with `closing`,
    /// which describes the file's last contents. The caller must have synced those contents before.
    /// After this call the caller must store nothing more in the file, and must sync it.
    pub(super) fn close(&self, closing: Closing) -> io::Result<()> {
        let mut leaving = self.leaving();
        if self.maker.is_child() || std::mem::replace(&mut leaving.has_left, true) {
            return Ok(());
        }
        write(&self.file, &self.left(closing, leaving.is_notified))
    }

    fn left(&self, closing: Closing, is_notified: bool) -> OwnerRecord {
        let sequence = U64::new(self.record.sequence.get() + 1);
        let adopted = if is_notified { U32::new(0) } else { self.record.adopted };
        OwnerRecord { sequence, left: U32::new(1), closing, adopted, ..self.record }.sealed()
    }
}

impl Drop for Ownership {
    fn drop(&mut self) {
        if self.maker.is_child() {
            return;
        }
        let Leaving { has_left, is_notified } = *self.leaving();
        if !has_left {
            // A failed write is ignored: the lock is released next, and a free lock also shows the
            // next opener that this owner is gone.
            let _ = write(&self.file, &self.left(Closing::default(), is_notified));
        }
        // The lock is released explicitly. Closing the descriptor is not enough, because a forked
        // child would keep the lock.
        let _ = byte_lock::unlock(&self.file, self.record.incarnation.get());
    }
}

/// The result of one attempt of this process to become the owner of a link file.
pub(super) enum Attempt {
    /// This process is now the owner of the link file.
    Taken(Ownership),
    /// Another process became the owner of the link file first: the caller checks the file again.
    Again(File),
    /// Another process is becoming the owner: it holds the lock of the next incarnation, but has
    /// not written its owner record.
    Opening(File),
}

/// Checks that the owner named in `record` can never use the file again.
///
/// # Errors
/// [`StorageError::Busy`] if that owner may be alive.
pub(super) fn ensure_gone(
    file: &File,
    record: &OwnerRecord,
    path: &Path,
) -> Result<(), StorageError> {
    match status(file, record).map_err(|source| system(path, "a lock", source))? {
        OwnerState::Left | OwnerState::Gone => Ok(()),
        OwnerState::Alive | OwnerState::Unknown => Err(StorageError::Busy {
            path: path.to_owned(),
            pid: record.pid.get(),
            since: moment(record.since_ns.get()),
        }),
    }
}

/// Whether the owner that an owner record names still owns the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnerState {
    Left,
    Gone,
    Alive,
    Unknown,
}

/// Tests whether the owner's lock is held, and then whether the owner's process is alive. The test
/// itself takes no lock.
pub(super) fn status(file: &File, record: &OwnerRecord) -> io::Result<OwnerState> {
    if record.left.get() == 1 {
        return Ok(OwnerState::Left);
    }
    if !byte_lock::is_locked(file, record.incarnation.get())? {
        return Ok(OwnerState::Gone);
    }
    Ok(match instance(record).liveness() {
        Liveness::Dead if !seeded_fault("link_lock_is_life") => OwnerState::Gone,
        Liveness::Alive | Liveness::Dead => OwnerState::Alive,
        Liveness::Unknown => OwnerState::Unknown,
    })
}

/// Tries to become the next owner after the owner that the record `seen` names. That owner must be
/// gone. `prepare` is called once no other process can become the owner, and before this process
/// does. It returns whether the file is adopted with only the messages that it proves whole. If
/// `prepare` fails, nothing has changed.
///
/// The new owner record is on the disk when this function returns. So whenever a later change of
/// the file is on the disk, the new record is there too, and the previous owner's mark that the
/// file is closed no longer counts.
pub(super) fn follow(
    file: File,
    seen: &OwnerRecord,
    own: &Instance,
    path: &Path,
    prepare: impl FnOnce(&File) -> Result<bool, StorageError>,
) -> Result<Attempt, StorageError> {
    let lock = |source| system(path, "a lock", source);
    let incarnation = seen.incarnation.get() + 1;
    if incarnation > INCARNATION_MAX {
        let what = "there is no further incarnation";
        let fault = FileFault::Contradiction { what, found: incarnation };
        return Err(StorageError::File { path: path.to_owned(), fault });
    }
    let maker = ForkGuard::current();
    if !byte_lock::try_lock(&file, incarnation).map_err(lock)? {
        return Ok(Attempt::Opening(file));
    }
    let is_unchanged = read(&file, path)? == Some(*seen);
    if !is_unchanged && !seeded_fault("link_lock_is_enough") {
        byte_lock::unlock(&file, incarnation).map_err(lock)?;
        return Ok(Attempt::Again(file));
    }
    let is_adopted = match prepare(&file) {
        Ok(is_adopted) => is_adopted,
        Err(error) => {
            byte_lock::unlock(&file, incarnation).map_err(lock)?;
            return Err(error);
        }
    };
    let record = following(seen, own, is_adopted);
    if let Err(source) = write(&file, &record) {
        // The failed write may have left a part of the owner record, which readers ignore without
        // its seal. Closing the file releases the lock.
        return Err(system(path, "writing the owner", source));
    }
    let ownership = Ownership { file, record, maker, leaving: Mutex::default() };
    if !seeded_fault("link_owner_not_synced") {
        SyncScope::File
            .sync(&ownership.file)
            .map_err(|source| system(path, "syncing the owner", source))?;
    }
    Ok(Attempt::Taken(ownership))
}

/// The owner record of the next owner, after the owner that the record `seen` names. The new record
/// keeps the mark that the file was adopted after a reboot: a later owner can tell the application
/// even if this owner is killed before.
fn following(seen: &OwnerRecord, own: &Instance, is_adopted: bool) -> OwnerRecord {
    let was_adopted = seen.adopted.get() == 1 && !seeded_fault("link_adoption_forgotten");
    OwnerRecord {
        sequence: U64::new(seen.sequence.get() + 1),
        incarnation: U64::new(seen.incarnation.get() + 1),
        since_ns: U64::new(now_ns()),
        start_ticks: U64::new(own.start_ticks),
        boot_id: own.boot_id,
        pid_namespace: U64::new(own.pid_namespace),
        time_namespace: U64::new(own.time_namespace),
        pid: U32::new(own.pid),
        left: U32::new(0),
        adopted: U32::new(u32::from(is_adopted || was_adopted)),
        ..OwnerRecord::nobody()
    }
    .sealed()
}

/// Reads the newest complete owner record of the file; `None` while another process writes one, or
/// if it is damaged.
fn read(file: &File, path: &Path) -> Result<Option<OwnerRecord>, StorageError> {
    let mut page = [0; OWNER_PAGE_BYTES];
    file.read_exact_at(&mut page, OWNER_OFFSET)
        .map_err(|source| system(path, "reading", source))?;
    Ok(owner::check(&page).ok())
}

const OWNER_PAGE_BYTES: usize = 4096;
const _: () = assert!(OWNER_PAGE_BYTES as u64 == PAGE_BYTES);

/// Writes an owner record into the slot with the older record: first the record's body, then its
/// seal, from which on the new record counts instead of the other.
fn write(file: &File, record: &OwnerRecord) -> io::Result<()> {
    let slot = index_of(record.sequence.get()) as u64;
    let offset = OWNER_OFFSET + slot * PAGE_SLOT_STRIDE;
    let (body, seal) = record.as_bytes().split_at(size_of::<OwnerRecord>() - SEAL_BYTES);
    file.write_all_at(body, offset)?;
    file.write_all_at(seal, offset + body.len() as u64)
}

fn instance(record: &OwnerRecord) -> Instance {
    Instance {
        pid: record.pid.get(),
        start_ticks: record.start_ticks.get(),
        boot_id: record.boot_id,
        pid_namespace: record.pid_namespace.get(),
        time_namespace: record.time_namespace.get(),
    }
}

fn system(path: &Path, what: &'static str, source: io::Error) -> StorageError {
    StorageError::System { path: PathBuf::from(path), what, cause: source }
}

/// The present time in nanoseconds since 1970. It is only printed: no decision depends on it.
pub(crate) fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

pub(super) fn moment(since_ns: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(since_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follow_at(path: &Path, seen: &OwnerRecord) -> Attempt {
        let file = File::options().read(true).write(true).open(path).unwrap();
        follow(file, seen, &Instance::of_self().unwrap(), path, |_| Ok(false)).unwrap()
    }

    #[test]
    fn opener_with_an_outdated_record_takes_no_file_whose_next_lock_is_free() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("owner");
        std::fs::write(&path, [0; OWNER_OFFSET as usize + OWNER_PAGE_BYTES]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let nobody = OwnerRecord::nobody();
        let first = following(&nobody, &Instance::of_self().unwrap(), false);
        [nobody, first].iter().for_each(|record| write(&file, record).unwrap());
        let seen = read(&file, &path).unwrap().unwrap();
        // Another opener has seen the same owner record. It becomes the owner of the file and
        // leaves the file, so the lock of its incarnation is free again.
        let Attempt::Taken(second) = follow_at(&path, &seen) else { panic!("not taken") };
        assert_eq!(second.incarnation(), 2);
        drop(second);
        assert!(!byte_lock::is_locked(&file, 2).unwrap());
        assert!(matches!(follow_at(&path, &seen), Attempt::Again(_)));
        // The failed attempt to become the owner has released its lock of the file. So the next
        // opener, which reads the owner record in force, can become the owner.
        let current = read(&file, &path).unwrap().unwrap();
        assert_eq!((current.incarnation.get(), current.left.get()), (2, 1));
        let Attempt::Taken(third) = follow_at(&path, &current) else { panic!("not taken") };
        assert_eq!(third.incarnation(), 3);
    }
}
