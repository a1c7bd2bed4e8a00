// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that the other side made and named, removed by us when nobody else will.
//!
//! ```text
//!   dropped ─▶ locked? ── no ──▶ the name still means it? ── yes ─▶ unlink
//!                 └─ yes: its maker lives, and removes it ─▶ noted, and looked at again with the next one
//! ```
//!
//! Makers that have no [`CreatedFile`](super::CreatedFile) lock nothing. One that is being killed may have hung up a moment
//! before the system takes its locks: hence the second look. It opens nothing in the first place, and judges no owner:
//! whoever opened it did.
//!
//! # Invariants
//!
//! - Only the very file that was opened is removed, beneath the same directory, over no link and no mount; what
//!   replaced it stays. (Between the last look and the removal, one who may write the directory can still replace it.)
//! - As long as its value lives, its identity cannot become another file's.
//! - A process that was forked removes nothing.

use super::{DIRECTORY, FileFacts, FileIdentity, identity, names_beneath, open_beneath, resolve};
use crate::fork::ForkGuard;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, open, statat, unlinkat};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A file that another process made and that was opened by [`open_beneath`], removed when dropped.
#[derive(Debug)]
pub struct AdoptedFile {
    fd: OwnedFd,
    named: Named,
    opener: ForkGuard,
}

/// Which file has which name.
#[derive(Debug)]
struct Named {
    directory: PathBuf,
    path: PathBuf,
    identity: FileIdentity,
    owner: u32,
}

impl AdoptedFile {
    /// Sees to it that `fd`, of which `facts` are known, opened as `path` beneath `directory`, is removed.
    pub fn new(fd: OwnedFd, facts: &FileFacts, directory: &Path, path: &Path) -> AdoptedFile {
        let FileFacts { identity, owner, .. } = *facts;
        let named = Named { directory: directory.into(), path: path.into(), identity, owner };
        AdoptedFile { fd, named, opener: ForkGuard::current() }
    }

    /// Removes those that could not be removed when dropped, since they were locked, and are no more.
    pub fn look_again() {
        // They are looked at without the lock: a file system may take its time.
        let mut before = std::mem::take(&mut *locked());
        before.retain(|named| named.remove_closed() == Found::Locked);
        if !before.is_empty() {
            let mut locked = locked();
            locked.append(&mut before);
            let excess = locked.len().saturating_sub(LOCKED_MAX);
            locked.drain(..excess);
        }
    }

    /// The descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Which file it is.
    pub fn identity(&self) -> FileIdentity {
        self.named.identity
    }
}

impl Drop for AdoptedFile {
    fn drop(&mut self) {
        if self.opener.is_child() {
            return;
        }
        AdoptedFile::look_again();
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

/// How it was with a file that was to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// Its maker lives.
    Locked,
    /// Removed, by us or somebody else, or replaced; or it cannot be.
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
        // Its maker may have removed it before its lock was ours, and the name be another's now.
        let named = statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW);
        if named.is_ok_and(|stat| identity(&stat) == self.identity) {
            // Somebody else may have removed it between the two calls: gone is gone.
            let _ = unlinkat(&parent, name, AtFlags::empty());
        }
        Found::Over
    }

    /// The directory that it lies in, and its name there.
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

    /// As before, for one that was closed meanwhile.
    fn remove_closed(&self) -> Found {
        let Ok(fd) = open_beneath(&self.directory, &self.path) else { return Found::Over };
        let is_it = |facts: FileFacts| {
            facts.identity == self.identity && facts.owner == self.owner && facts.is_regular
        };
        if FileFacts::of(fd.as_fd()).is_ok_and(is_it) {
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

/// How many are remembered. Those of makers that live go by themselves.
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
        let facts = FileFacts::of(fd.as_fd()).unwrap();
        AdoptedFile::new(fd, &facts, directory, path)
    }

    #[test]
    fn a_file_that_was_adopted_is_removed_and_what_replaced_it_is_not() {
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
    fn no_link_is_followed_to_remove_a_file() {
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
    fn the_file_of_a_maker_that_lives_is_left_to_it_and_looked_at_again() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let (path, other) = (directory.join("file"), directory.join("other"));
        let created = CreatedFile::create(&path, 4096).unwrap();
        drop(adopt(directory, &path));
        assert!(path.exists(), "its maker lives");
        // As if killed: the lock goes, and the file stays.
        flock(created.fd(), FlockOperation::Unlock).unwrap();
        fs::write(&other, b"x").unwrap();
        drop(adopt(directory, &other));
        assert!(!other.exists());
        // Another test may be looking at it, and have found it locked.
        let deadline = Instant::now() + Duration::from_secs(10);
        while path.exists() {
            assert!(Instant::now() < deadline, "it is not looked at again");
            AdoptedFile::look_again();
        }
    }
}
