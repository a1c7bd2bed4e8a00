// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that the peer created and named, which this process removes if no other process will.
//!
//! ```text
//!   dropped ─▶ locked? ── no ──▶ the path still names it? ── yes ─▶ unlink
//!                 └─ yes: its creator lives and removes it ─▶ checked again at the next drop
//! ```
//!
//! A creator that does not use [`CreatedFile`](super::CreatedFile) locks no file. When a creator is
//! killed, its socket may hang up shortly before the kernel releases its locks, hence the second
//! check. This module does not check whose file it is: the code that opened the file has checked
//! its owner.
//!
//! # Invariants
//!
//! - Only the very file that was opened is removed, beneath the same directory, across no link and
//!   no mount; a replacement stays. (Between the last check and the removal, a process that may
//!   write the directory can still replace it.)
//! - While the value lives, the file's identity cannot become another file's.
//! - A forked child removes nothing.

use super::{
    DIRECTORY, FileIdentity, SharedFileStat, identity, names_beneath, open_beneath, resolve,
};
use crate::fork::ForkGuard;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, open, statat, unlinkat};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A file that another process created and [`open_beneath`] opened; dropping the value removes the
/// file.
#[derive(Debug)]
pub struct AdoptedFile {
    fd: OwnedFd,
    named: Named,
    opener: ForkGuard,
}

/// The identity of a file, and the path by which it can be removed.
#[derive(Debug)]
struct Named {
    directory: PathBuf,
    path: PathBuf,
    identity: FileIdentity,
    owner: u32,
}

impl AdoptedFile {
    /// Takes over the file `fd`, which another process created, and which was opened as `path`
    /// beneath `directory` and described by `stat`. From now on this process removes the file if
    /// its creator does not.
    pub fn new(fd: OwnedFd, stat: &SharedFileStat, directory: &Path, path: &Path) -> AdoptedFile {
        let SharedFileStat { identity, owner, .. } = *stat;
        let named = Named { directory: directory.into(), path: path.into(), identity, owner };
        AdoptedFile { fd, named, opener: ForkGuard::current() }
    }

    /// Removes those files of other processes that stayed because their creators held locks on them
    /// when this process dropped their values, and that no process locks any more.
    pub fn remove_unlocked() {
        // The list of locked files is not locked while the files are checked, because a slow file
        // system would make other threads wait for the list.
        let mut before = std::mem::take(&mut *locked());
        before.retain(|named| named.remove_closed() == Found::Locked);
        if !before.is_empty() {
            let mut locked = locked();
            locked.append(&mut before);
            let excess = locked.len().saturating_sub(LOCKED_MAX);
            locked.drain(..excess);
        }
    }

    /// The descriptor of this file, which another process created.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The identity of this file, which another process created: device and inode number.
    pub fn identity(&self) -> FileIdentity {
        self.named.identity
    }
}

impl Drop for AdoptedFile {
    fn drop(&mut self) {
        if self.opener.is_child() {
            return;
        }
        AdoptedFile::remove_unlocked();
        if self.named.remove(self.fd.as_fd()) == Found::Locked {
            let Named { directory, path, identity, owner } = &self.named;
            let (directory, path) = (directory.clone(), path.clone());
            let mut locked = locked();
            if locked.len() == LOCKED_MAX {
                locked.pop_front();
            }
            locked.push_back(Named { directory, path, identity: *identity, owner: *owner });
        }
    }
}

/// Result of an attempt to remove a file that another process created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// The file is locked by its creator, which therefore lives and will remove the file.
    Locked,
    /// The file cannot be removed any more: this or another process has removed or replaced it, or
    /// the removal fails.
    Over,
}

impl Named {
    fn remove(&self, fd: BorrowedFd<'_>) -> Found {
        let Some((parent, name)) = self.parent() else { return Found::Over };
        let named = statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW);
        if !named.is_ok_and(|stat| identity(&stat) == self.identity) {
            return Found::Over;
        }
        if flock(fd, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Found::Locked;
        }
        // The creator may have removed the file before this process took the lock of the file. If
        // so, another file may have the name by now.
        let named = statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW);
        if named.is_ok_and(|stat| identity(&stat) == self.identity) {
            // Another process may remove the file after the last check and before this call of
            // `unlinkat`. In either case the file is removed, as this process wanted.
            let _ = unlinkat(&parent, name, AtFlags::empty());
        }
        Found::Over
    }

    fn parent(&self) -> Option<(OwnedFd, &OsStr)> {
        let names = names_beneath(&self.directory, &self.path).ok()?;
        let (name, above) = names.split_last()?;
        let at = open(&self.directory, DIRECTORY, Mode::empty()).ok()?;
        if above.is_empty() {
            return Some((at, name));
        }
        let parent = resolve(at, above, DIRECTORY | OFlags::NOFOLLOW).ok()?;
        Some((parent, name))
    }

    /// Opens the file again, because the caller has closed its descriptor, and removes the file
    /// unless it is locked or another file has its name.
    fn remove_closed(&self) -> Found {
        let Ok(fd) = open_beneath(&self.directory, &self.path) else { return Found::Over };
        let is_it = |stat: SharedFileStat| {
            stat.identity == self.identity && stat.owner == self.owner && stat.is_regular
        };
        if SharedFileStat::of(fd.as_fd()).is_ok_and(is_it) {
            self.remove(fd.as_fd())
        } else {
            Found::Over
        }
    }
}

fn locked() -> MutexGuard<'static, VecDeque<Named>> {
    LOCKED.lock().unwrap_or_else(PoisonError::into_inner)
}

static LOCKED: Mutex<VecDeque<Named>> = Mutex::new(VecDeque::new());

/// Upper bound of the files that are remembered for a later check because their creator locked
/// them. Beyond the bound the oldest file is forgotten. That does no harm if its creator still
/// lives, because a living creator removes its own files.
const LOCKED_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CreatedFile;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::time::{Duration, Instant};

    fn adopt(directory: &Path, path: &Path) -> AdoptedFile {
        let fd = open_beneath(directory, path).unwrap();
        let stat = SharedFileStat::of(fd.as_fd()).unwrap();
        AdoptedFile::new(fd, &stat, directory, path)
    }

    #[test]
    fn adopted_file_is_removed_but_not_its_replacement() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        fs::create_dir(directory.join("sub")).unwrap();
        let (path, kept) = (directory.join("sub/file"), directory.join("kept"));
        fs::write(&path, b"x").unwrap();
        drop(adopt(directory, &path));
        assert!(!path.exists());

        fs::write(&path, b"x").unwrap();
        let adopted = adopt(directory, &path);
        fs::rename(&path, &kept).unwrap();
        fs::write(&path, b"y").unwrap();
        drop(adopted);
        assert!(path.exists() && kept.exists());

        let adopted = adopt(directory, &path);
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        drop(adopted);
        assert!(path.is_dir());
    }

    #[test]
    fn removal_follows_no_link() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        for sub in ["sub", "other"] {
            fs::create_dir(directory.join(sub)).unwrap();
        }
        let path = directory.join("sub/file");
        fs::write(&path, b"x").unwrap();
        let adopted = adopt(directory, &path);
        fs::rename(&path, directory.join("other/file")).unwrap();
        fs::remove_dir(directory.join("sub")).unwrap();
        symlink("other", directory.join("sub")).unwrap();
        drop(adopted);
        assert!(directory.join("other/file").exists());
    }

    #[test]
    fn file_of_living_creator_is_removed_after_unlock() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let (path, other) = (directory.join("file"), directory.join("other"));
        let created = CreatedFile::create(&path, 4096).unwrap();
        drop(adopt(directory, &path));
        assert!(path.exists(), "its maker lives");
        // The test unlocks the file, which makes the state after the creator was killed: the kernel
        // has released the lock, and the file stays.
        flock(created.fd(), FlockOperation::Unlock).unwrap();
        fs::write(&other, b"x").unwrap();
        drop(adopt(directory, &other));
        assert!(!other.exists());
        // Another test may check the file at this moment, and may have found it locked. So this
        // test tries again until a deadline.
        let deadline = Instant::now() + Duration::from_secs(10);
        while path.exists() {
            assert!(Instant::now() < deadline, "the locked file is not checked again");
            AdoptedFile::remove_unlocked();
        }
    }
}
