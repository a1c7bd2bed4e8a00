// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files behind memory that two processes write: memfds and files that this process creates, or
//! that the peer names.
//!
//! ```text
//!   created   memfd   memfd_create → ftruncate → fallocate → (map, fill) → seal SHRINK|GROW|SEAL
//!             file    open O_EXCL|O_NOFOLLOW 0600 → ftruncate → fallocate → (map, fill)
//!                     → unlinked by its creator alone
//!   received  memfd   fstat: SharedFileStat
//!             path    beneath one directory, no symbolic link, no other mount
//!                     → fstat: SharedFileStat
//!                     → adopted on request: unlinked if its creator does not
//! ```
//!
//! This file maps no memory ([`SharedMap`](crate::SharedMap) does) and accepts no file by itself:
//! the caller compares the facts with its policy. It never changes a mode. It removes another
//! process's file only if that process was killed ([`remove_abandoned`]) or on request
//! ([`AdoptedFile`]), and never while a creator that locks its files lives.
//!
//! # Invariants
//!
//! - Every byte of a created file is backed by memory before the constructor returns (no SIGBUS
//!   later).
//! - A file that this process created is removed when its [`CreatedFile`] is dropped, only by the
//!   process that created it, and only if the path still names the same file.

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

/// Device and inode number: they identify a file independently of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
}

/// Properties of an open file, as the kernel reports them. The caller compares these facts with its
/// policy before it accepts a file of the peer.
#[derive(Clone, Copy, Debug)]
pub struct SharedFileStat {
    /// Device and inode number of the file; they identify it while any process has the file open or
    /// mapped.
    pub identity: FileIdentity,
    /// Size of the open file in bytes.
    pub size: u64,
    /// User id of the open file's owner.
    pub owner: u32,
    /// Whether the open file is a regular file.
    pub is_regular: bool,
    /// Whether the file's pages cannot vanish: seals prevent shrinking, and the file is on tmpfs.
    /// (Huge pages may be missing at the first access even if sealed.)
    pub is_sealed: bool,
    /// Whether the file is on tmpfs. The pages of any other file may come from a disk, or from a
    /// slow process.
    pub is_memory: bool,
}

impl SharedFileStat {
    /// Reads the properties of the open file `fd` from the kernel.
    ///
    /// # Errors
    ///
    /// The error of fstat.
    pub fn of(fd: BorrowedFd<'_>) -> io::Result<SharedFileStat> {
        let stat = fstat(fd)?;
        // `fcntl_get_seals` returns EINVAL for a kind of file that has no seals.
        let seals = fcntl_get_seals(fd).unwrap_or(SealFlags::empty());
        let is_memory = is_tmpfs(fd)?;
        Ok(SharedFileStat {
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

/// Creates a sealable memfd of `size` zeros. `name`, shortened to what the kernel accepts, shows in
/// `/proc/PID/maps`.
///
/// # Errors
///
/// Fails for one of the reasons in [`MemfdError`].
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

/// Seals a memfd, so that no process, not even this one, can change its size. The bytes of the
/// memfd stay writable.
///
/// # Errors
///
/// Fails for one of the reasons in [`MemfdError`].
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

/// A file that this process created; dropping the value removes the file.
#[derive(Debug)]
pub struct CreatedFile {
    fd: OwnedFd,
    path: PathBuf,
    identity: FileIdentity,
    maker: ForkGuard,
}

impl CreatedFile {
    /// Creates a new file of `size` zeros with mode 0600.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AlreadyExists`] if the name exists, `ENOSPC` if the file system is full.
    pub fn create(path: &Path, size: usize) -> io::Result<CreatedFile> {
        check_file_size(size)?;
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = open(path, flags, Mode::RUSR | Mode::WUSR)?;
        let identity = identity(&fstat(&fd)?);
        let maker = ForkGuard::current();
        // If a later step of this function fails, `file` is dropped, which removes the new file.
        let file = CreatedFile { fd, path: path.to_owned(), identity, maker };
        allocate(&file.fd, size).map_err(into_io)?;
        // The lock of the file shows other processes that its creator lives. An error is ignored,
        // because no other process has a reason to lock the file.
        let _ = flock(&file.fd, FlockOperation::NonBlockingLockExclusive);
        Ok(file)
    }

    /// The descriptor of the created file.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The identity of the created file: device and inode number.
    pub fn identity(&self) -> FileIdentity {
        self.identity
    }

    /// The path at which the file was created.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the path still names the created file.
    pub fn is_in_place(&self) -> bool {
        let named = statat(CWD, &self.path, AtFlags::SYMLINK_NOFOLLOW);
        named.is_ok_and(|stat| identity(&stat) == self.identity)
    }
}

impl Drop for CreatedFile {
    fn drop(&mut self) {
        if !self.maker.is_child() && self.is_in_place() {
            // Another process may remove the file after the check that the path still names it, and
            // before this call of `unlink`. In either case the file is removed, as this process
            // wanted.
            let _ = unlink(&self.path);
        }
    }
}

/// Removes the file at `path`, which a [`CreatedFile`] of process `pid` made, if that process was
/// killed. Returns whether this call removed the file. The file stays while the process that made
/// it lives, in this pid namespace or (as the file's lock shows) in another one.
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

/// Opens the file `path`, which must lie beneath `directory`, for reading and writing. No link is
/// followed below `directory`, no mount is entered, and nothing is created. So the file is on the
/// file system of `directory`. A file system mounted beneath `directory` may be served by the user
/// who mounted it, who can delay each access for ever.
///
/// # Errors
///
/// Fails for one of the reasons in [`SharedFileError`].
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

/// The names of the directories and of the file on the way from `directory` to `path`. There is at
/// least one such name.
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

/// Opens the file at the end of the path `names`, without following a link or entering another
/// mount.
fn resolve(at: OwnedFd, names: &[&OsStr], last: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let rest: PathBuf = names.iter().collect();
    match openat2(&at, &rest, last, Mode::empty(), resolve) {
        // Linux before 5.6 and some sandboxes lack openat2, so the names are opened one after the
        // other.
        Err(Errno::NOSYS | Errno::PERM) => open_stepwise(at, names, last),
        opened => opened,
    }
}

/// Opens the file at the end of `names` name by name, for kernels without openat2. The function
/// recognises a mount by its device number, which the mounted file system reports. If that file
/// system never answers, the call blocks.
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

/// Why a file that the peer named was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SharedFileError {
    /// The peer named a path that is not within the allowed directory.
    #[error("{} does not lie beneath {}", path.display(), directory.display())]
    Outside {
        /// The path of the file, as the peer named it.
        path: PathBuf,
        /// The directory in which the peer's files must lie.
        directory: PathBuf,
    },
    /// The file is on another mount than the allowed directory, and lies beneath that directory.
    #[error(
        "{} lies in another mount than {}, and only files of that one are opened: keep them in one, or choose a \
         directory within the other",
        path.display(),
        directory.display()
    )]
    OtherMount {
        /// The path of the file, as the peer named it.
        path: PathBuf,
        /// The directory in which the peer's files must lie.
        directory: PathBuf,
    },
    /// The system call that opens the file failed.
    #[error("{} cannot be opened: {source}", path.display())]
    System {
        /// The path of the file, as the peer named it.
        path: PathBuf,
        /// The system's error; `ELOOP` for a symbolic link.
        source: io::Error,
    },
}

/// Flags for opening the peer's file. They also keep the call from blocking, except on some
/// devices: a pipe that is opened for reading and writing needs no process at its other end.
const FILE: OFlags = OFlags::RDWR
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::PATH).union(OFlags::CLOEXEC);

/// Length in bytes of the longest name of a memfd, to which the kernel prepends `memfd:`.
const MEMFD_NAME_BYTES_MAX: usize = 249;

/// Upper bound of the number of names in a path from the allowed directory to the peer's file. It
/// bounds the system calls that a peer's path can cause.
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
    fn fallback_of_old_kernels_opens_same_files() {
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
    fn file_of_other_mount_beneath_directory_is_refused() {
        let comm = PathBuf::from(format!("/proc/{}/comm", std::process::id()));
        assert!(open_beneath(Path::new("/proc"), &comm).is_ok());
        let error = open_beneath(Path::new("/"), &comm).unwrap_err();
        assert!(matches!(error, SharedFileError::OtherMount { .. }), "{error}");
    }
}
