// SPDX-License-Identifier: MIT OR Apache-2.0
//! What memory that two processes write lies in: memfds and files, made by us or named by the other side.
//!
//! ```text
//!   made    memfd   memfd_create → ftruncate → fallocate → (map, fill) → seal SHRINK|GROW|SEAL
//!           file    open O_EXCL|O_NOFOLLOW 0600 → ftruncate → fallocate → (map, fill) → unlink by its maker alone
//!   given   memfd   fstat: FileFacts
//!           path    beneath one directory, following no link, entering no mount → fstat: FileFacts
//!                   → adopted, if whoever opened it says so: unlink where its maker does not
//! ```
//!
//! It maps nothing ([`SharedMap`](crate::SharedMap) does) and decides nothing about what was given: whoever opens
//! compares the facts with what it allows. It never changes a mode, and removes what another process made only where
//! that was killed ([`remove_abandoned`]) or where it is told to ([`AdoptedFile`]), never while a maker that locks lives.
//!
//! # Invariants
//!
//! - Every byte of what was made is backed by memory before the constructor returns (no SIGBUS later).
//! - A file that was made here is removed when its [`CreatedFile`] is dropped, by the process that made it, and only
//!   if the name still means the same file.

mod adopted;

pub use adopted::AdoptedFile;

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, ResolveFlags, SealFlags};
use rustix::fs::{fcntl_add_seals, fcntl_get_seals, flock, fstat, statat, unlink};
use rustix::fs::{open, openat, openat2};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::fork::ForkGuard;
use crate::map::is_tmpfs;
use crate::memfd::{
    MemfdError, allocate, check_available, check_file_size, create_sealable, explain,
};
use crate::peer::own_euid;

/// What a file is, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
}

/// What the system says about an open file.
#[derive(Clone, Copy, Debug)]
pub struct FileFacts {
    /// Which file it is, as long as somebody has it open or mapped.
    pub identity: FileIdentity,
    /// In bytes.
    pub size: u64,
    /// The user that it belongs to.
    pub owner: u32,
    /// Whether it is neither directory nor device nor socket.
    pub is_regular: bool,
    /// Whether nobody can take its pages away: seals keep it from shrinking, and it is ordinary shared memory (huge
    /// pages may be missing at the first access, seals or not).
    pub is_sealed: bool,
    /// Whether it is shared memory. The pages of any other file come from somewhere: from a disk, or from a process
    /// that takes its time.
    pub is_memory: bool,
}

impl FileFacts {
    /// Asks the system.
    ///
    /// # Errors
    ///
    /// What fstat says.
    pub fn of(fd: BorrowedFd<'_>) -> io::Result<FileFacts> {
        let stat = fstat(fd)?;
        // Files that have no seals say EINVAL.
        let seals = fcntl_get_seals(fd).unwrap_or(SealFlags::empty());
        let is_memory = is_tmpfs(fd)?;
        Ok(FileFacts {
            identity: identity(&stat),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            owner: stat.st_uid,
            is_regular: FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile,
            is_sealed: seals.contains(SealFlags::SHRINK) && is_memory,
            is_memory,
        })
    }
}

#[allow(clippy::unnecessary_cast, reason = "the types differ by architecture")]
fn identity(stat: &rustix::fs::Stat) -> FileIdentity {
    FileIdentity { device: stat.st_dev as u64, inode: stat.st_ino as u64 }
}

/// Makes a memfd of `size` zeros that can be sealed; `name` shows in `/proc/PID/maps`, as far as the kernel has
/// room for it.
///
/// # Errors
///
/// See [`MemfdError`].
pub fn create_memfd(name: &str, size: usize) -> Result<OwnedFd, MemfdError> {
    if size == 0 {
        return Err(MemfdError::BadSize { size });
    }
    check_available(size)?;
    check_file_size(size).map_err(|e| explain("ftruncate", size, e))?;
    let fd = create_sealable(shortened(name))?;
    allocate(&fd, size)?;
    Ok(fd)
}

/// Keeps everybody, us included, from changing the size of a memfd; it can still be written.
///
/// # Errors
///
/// See [`MemfdError`].
pub fn seal_size(fd: BorrowedFd<'_>) -> Result<(), MemfdError> {
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(fd, seals).map_err(|e| explain("F_ADD_SEALS", 0, e))
}

fn shortened(name: &str) -> &str {
    let mut end = name.len().min(MEMFD_NAME_BYTES_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

/// A file that this process made, removed when dropped.
#[derive(Debug)]
pub struct CreatedFile {
    fd: OwnedFd,
    path: PathBuf,
    identity: FileIdentity,
    maker: ForkGuard,
}

impl CreatedFile {
    /// Makes a file of `size` zeros that only this user can open, where there was none.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AlreadyExists`] where something has the name, `ENOSPC` where the file system is full.
    pub fn create(path: &Path, size: usize) -> io::Result<CreatedFile> {
        check_file_size(size)?;
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = open(path, flags, Mode::RUSR | Mode::WUSR)?;
        let identity = identity(&fstat(&fd)?);
        let maker = ForkGuard::current();
        // From here on it is removed where something fails.
        let file = CreatedFile { fd, path: path.to_owned(), identity, maker };
        allocate(&file.fd, size).map_err(into_io)?;
        // Whoever finds it later can tell whether its maker lives; nobody else has a reason to have it locked.
        let _ = flock(&file.fd, FlockOperation::NonBlockingLockExclusive);
        Ok(file)
    }

    /// The descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Which file it is.
    pub fn identity(&self) -> FileIdentity {
        self.identity
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether its name still means it.
    pub fn is_in_place(&self) -> bool {
        let named = statat(CWD, &self.path, AtFlags::SYMLINK_NOFOLLOW);
        named.is_ok_and(|stat| identity(&stat) == self.identity)
    }
}

impl Drop for CreatedFile {
    fn drop(&mut self) {
        if !self.maker.is_child() && self.is_in_place() {
            // Somebody else may have removed it between the two calls: gone is gone.
            let _ = unlink(&self.path);
        }
    }
}

/// Removes a file that a [`CreatedFile`] left behind whose process, `pid`, was killed; whether it did. Others of this
/// user's are left alone as long as such a process lives, here or, since the file is locked then, in another namespace.
pub fn remove_abandoned(path: &Path, pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    if test_kill_process(pid) != Err(Errno::SRCH) {
        return false;
    }
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let Ok(fd) = open(path, flags, Mode::empty()) else { return false };
    let Ok(stat) = fstat(&fd) else { return false };
    let is_ours =
        stat.st_uid == own_euid() && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !is_ours || flock(&fd, FlockOperation::NonBlockingLockExclusive).is_err() {
        return false;
    }
    let named = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW);
    named.is_ok_and(|named| identity(&named) == identity(&stat)) && unlink(path).is_ok()
}

fn into_io(error: MemfdError) -> io::Error {
    match error {
        MemfdError::OutOfMemory { source, .. }
        | MemfdError::Unsupported { source, .. }
        | MemfdError::DescriptorLimit { source }
        | MemfdError::Other { source, .. } => source,
        MemfdError::FileSizeLimit { .. } => Errno::FBIG.into(),
        MemfdError::BadSize { .. } => Errno::INVAL.into(),
    }
}

/// Opens the file `path`, which must lie beneath `directory`, for reading and writing; no link is followed below
/// `directory`, no mount is entered, and nothing is created. So the file is of the file system that `directory` lies
/// on: of what else is mounted beneath it, the user who mounted it may be the one who answers, late or never.
///
/// # Errors
///
/// See [`SharedFileError`].
pub fn open_beneath(directory: &Path, path: &Path) -> Result<OwnedFd, SharedFileError> {
    let names = names_beneath(directory, path)?;
    let opened = open(directory, DIRECTORY, Mode::empty()).and_then(|at| resolve(at, &names, FILE));
    opened.map_err(|errno| match errno {
        Errno::XDEV => {
            SharedFileError::OtherMount { path: path.into(), directory: directory.into() }
        }
        _ => SharedFileError::System { path: path.into(), source: errno.into() },
    })
}

/// The names on the way from `directory` to `path`; one at least.
fn names_beneath<'a>(directory: &Path, path: &'a Path) -> Result<Vec<&'a OsStr>, SharedFileError> {
    let outside = || SharedFileError::Outside { path: path.into(), directory: directory.into() };
    let rest = path.strip_prefix(directory).map_err(|_| outside())?;
    let mut names = Vec::new();
    for component in rest.components().take(DEPTH_MAX + 1) {
        match component {
            Component::Normal(name) => names.push(name),
            _ => return Err(outside()),
        }
    }
    if names.is_empty() || !directory.is_absolute() || names.len() > DEPTH_MAX {
        return Err(outside());
    }
    Ok(names)
}

/// Opens what these names lead to, over no link and no mount.
fn resolve(at: OwnedFd, names: &[&OsStr], last: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let rest: PathBuf = names.iter().collect();
    match openat2(&at, &rest, last, Mode::empty(), resolve) {
        // Before Linux 5.6, and in some sandboxes.
        Err(Errno::NOSYS | Errno::PERM) => open_stepwise(at, names, last),
        opened => opened,
    }
}

/// The same where the system does not do it in one call: another file system is told by its device, which has to be
/// asked of it, so one that never answers is waited for.
fn open_stepwise(mut at: OwnedFd, names: &[&OsStr], flags: OFlags) -> Result<OwnedFd, Errno> {
    let device = fstat(&at)?.st_dev;
    let last = names.len().saturating_sub(1);
    for (index, name) in names.iter().enumerate() {
        let flags = if index == last { flags } else { DIRECTORY | OFlags::NOFOLLOW };
        at = step(&at, name, flags)?;
        if fstat(&at)?.st_dev != device {
            return Err(Errno::XDEV);
        }
    }
    Ok(at)
}

fn step(at: &OwnedFd, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    openat(at, name, flags, Mode::empty())
}

/// Why a file that the other side named was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SharedFileError {
    /// It does not lie where such files are allowed to.
    #[error("{} does not lie beneath {}", path.display(), directory.display())]
    Outside {
        /// As the other side named it.
        path: PathBuf,
        /// Beneath which it would have to lie.
        directory: PathBuf,
    },
    /// It lies on what is mounted somewhere beneath the directory.
    #[error(
        "{} lies in another mount than {}, and only files of that one are opened: keep them in one, or choose a \
         directory within the other",
        path.display(),
        directory.display()
    )]
    OtherMount {
        /// As the other side named it.
        path: PathBuf,
        /// In whose mount it would have to lie.
        directory: PathBuf,
    },
    /// It cannot be opened.
    #[error("{} cannot be opened: {source}", path.display())]
    System {
        /// As the other side named it.
        path: PathBuf,
        /// What the system said; `ELOOP` for a link.
        source: io::Error,
    },
}

/// Nor is anything waited for: opening a pipe for reading and writing does not, but devices may.
const FILE: OFlags = OFlags::RDWR
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::PATH).union(OFlags::CLOEXEC);

/// The kernel takes 249 bytes, and puts `memfd:` before them.
const MEMFD_NAME_BYTES_MAX: usize = 249;

/// How deep beneath the directory a file may lie.
const DEPTH_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn stepwise(directory: &Path, names: &[&str]) -> Result<OwnedFd, Errno> {
        let at = open(directory, DIRECTORY, Mode::empty()).unwrap();
        let names: Vec<_> = names.iter().map(OsStr::new).collect();
        open_stepwise(at, &names, FILE)
    }

    #[test]
    fn old_kernels_open_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        fs::create_dir(directory.join("sub")).unwrap();
        fs::write(directory.join("sub/file"), b"x").unwrap();
        symlink("sub", directory.join("link")).unwrap();
        symlink("sub/file", directory.join("file")).unwrap();
        assert!(stepwise(directory, &["sub", "file"]).is_ok());
        assert_eq!(stepwise(directory, &["file"]).unwrap_err(), Errno::LOOP);
        assert_eq!(stepwise(directory, &["link", "file"]).unwrap_err(), Errno::NOTDIR);
        assert_eq!(stepwise(directory, &["sub", "none"]).unwrap_err(), Errno::NOENT);
        let pid = std::process::id().to_string();
        let other = stepwise(Path::new("/"), &["proc", &pid, "comm"]);
        assert_eq!(other.unwrap_err(), Errno::XDEV);
    }

    #[test]
    fn what_is_mounted_beneath_a_directory_is_not_of_it() {
        let comm = PathBuf::from(format!("/proc/{}/comm", std::process::id()));
        assert!(open_beneath(Path::new("/proc"), &comm).is_ok());
        let error = open_beneath(Path::new("/"), &comm).unwrap_err();
        assert!(matches!(error, SharedFileError::OtherMount { .. }), "{error}");
    }
}
