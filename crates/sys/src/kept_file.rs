// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that outlive their process: made whole or not at all, and mapped by one writer or by readers.
//!
//! ```text
//!   make   O_TMPFILE 0600 ─▶ ftruncate ─▶ fallocate ─▶ (write) ─▶ linkat: the name, unless something has it
//!          nameless: a death leaves nothing                        └ from here on it is there, whole
//!   open   O_NOFOLLOW, O_CLOEXEC, never waiting ─▶ FileFacts: is it ours, regular, for us alone?
//!   map    read and write, absent in forked children     or     PROT_READ, of a descriptor that cannot write
//! ```
//!
//! It does not say what the bytes mean, and locks nothing ([`byte_lock`](crate::byte_lock) does).
//!
//! # Invariants
//!
//! - Every byte of a file made here was given room before it gets its name: a store to a mapping of it does not meet
//!   a full file system. (Unless somebody of the same user cuts it: that cannot be prevented for files with names.)
//! - Nothing that exists is replaced, and no mode changed.

use core::cell::UnsafeCell;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, fstatvfs, linkat, open, openat};
use rustix::io::Errno;

use crate::map::is_tmpfs;
use crate::mapping::Mapping;
use crate::memfd::{MemfdError, allocate, check_available, check_file_size, explain};
use crate::sigbus::{Guarded, TableFull};

/// A directory in which files are kept.
#[derive(Debug)]
pub struct KeptDirectory {
    fd: OwnedFd,
    path: PathBuf,
}

/// Whose something in a file system is, and what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The user that it belongs to.
    pub owner: u32,
    /// The permission bits.
    pub mode: u32,
    /// Whether it is neither directory nor device nor pipe nor socket.
    pub is_regular: bool,
    /// In bytes.
    pub size: u64,
}

impl Facts {
    /// Of what is open.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn of(fd: impl AsFd) -> io::Result<Facts> {
        let stat = fstat(fd)?;
        Ok(Facts {
            owner: stat.st_uid,
            mode: stat.st_mode & PERMISSIONS,
            is_regular: FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile,
            size: u64::try_from(stat.st_size).unwrap_or(0),
        })
    }
}

/// Why a file was not made.
#[derive(Debug)]
pub enum MakeError {
    /// The file system, a quota, or the limit of this process has no room for it.
    NoSpace {
        /// What the file system has left for this user, in bytes, if it says.
        available: Option<u64>,
        /// What the system said.
        source: io::Error,
    },
    /// The file system cannot make files without a name, or cannot reserve room.
    Unsupported {
        /// What it cannot.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Anything else.
    System {
        /// The call.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl KeptDirectory {
    /// Opens a directory that exists.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn open(path: &Path) -> io::Result<KeptDirectory> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let fd = open(path, flags, Mode::empty())?;
        Ok(KeptDirectory { fd, path: path.to_owned() })
    }

    /// As it was named.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whose it is.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn facts(&self) -> io::Result<Facts> {
        Facts::of(&self.fd)
    }

    /// Makes a file of `size` zeros that has no name yet, and goes if it never gets one.
    ///
    /// # Errors
    ///
    /// See [`MakeError`].
    pub fn make(&self, size: usize) -> Result<UnnamedFile, MakeError> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let made = openat(&self.fd, ".", flags, Mode::RUSR | Mode::WUSR);
        let fd = made.map_err(|errno| match errno {
            Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL => {
                MakeError::Unsupported { what: "files without a name", source: errno.into() }
            }
            Errno::NOSPC | Errno::DQUOT => self.no_space(errno.into()),
            _ => MakeError::System { what: "open with O_TMPFILE", source: errno.into() },
        })?;
        self.reserve(&fd, size).map_err(|error| self.explained(error))?;
        Ok(UnnamedFile { file: fd.into() })
    }

    fn reserve(&self, fd: &OwnedFd, size: usize) -> Result<(), MemfdError> {
        // There, memory is what a file takes, and more than there is would wake the out-of-memory killer.
        if is_tmpfs(fd.as_fd()).unwrap_or(false) {
            check_available(size)?;
        }
        check_file_size(size).map_err(|errno| explain("ftruncate", size, errno))?;
        allocate(fd, size)
    }

    fn explained(&self, error: MemfdError) -> MakeError {
        match error {
            MemfdError::OutOfMemory { source, .. } => self.no_space(source),
            MemfdError::FileSizeLimit { .. } => self.no_space(Errno::FBIG.into()),
            MemfdError::Unsupported { source, .. } => {
                MakeError::Unsupported { what: "reserving room for a file", source }
            }
            MemfdError::DescriptorLimit { source } => MakeError::System { what: "open", source },
            MemfdError::Other { what, source } => MakeError::System { what, source },
            MemfdError::BadSize { .. } => {
                MakeError::System { what: "ftruncate", source: Errno::INVAL.into() }
            }
        }
    }

    fn no_space(&self, source: io::Error) -> MakeError {
        let available =
            fstatvfs(&self.fd).ok().map(|all| all.f_bavail.saturating_mul(all.f_frsize));
        MakeError::NoSpace { available, source }
    }

    /// Gives a file its name, here.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AlreadyExists`] where something has it: that stays as it is. `ENOENT` where `/proc` is not
    /// mounted.
    pub fn name(&self, file: &UnnamedFile, name: &str) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        // linkat of the descriptor itself (AT_EMPTY_PATH) takes a capability, before Linux 6.10.
        let own = format!("/proc/thread-self/fd/{}", file.file.as_raw_fd());
        Ok(linkat(CWD, own, &self.fd, name, AtFlags::SYMLINK_FOLLOW)?)
    }

    /// Opens a file of this directory, following no link and waiting for nothing; for writing, too, if asked.
    ///
    /// # Errors
    ///
    /// What the system says: [`io::ErrorKind::NotFound`], `ELOOP` for a link.
    pub fn open_file(&self, name: &str, is_written: bool) -> io::Result<(File, Facts)> {
        let access = if is_written { OFlags::RDWR } else { OFlags::RDONLY };
        let flags = access | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = openat(&self.fd, name, flags, Mode::empty())?;
        let facts = Facts::of(&fd)?;
        Ok((fd.into(), facts))
    }
}

/// A file that nobody can find yet.
#[derive(Debug)]
pub struct UnnamedFile {
    file: File,
}

impl UnnamedFile {
    /// To write what has to be in it before it gets its name.
    pub fn file(&self) -> &File {
        &self.file
    }
}

/// A file as memory that this process writes and its forked children do not have.
pub struct FileMap {
    mapping: Mapping,
}

impl FileMap {
    /// Maps the first `size` bytes, which must be there.
    ///
    /// # Errors
    ///
    /// What mmap says.
    pub fn writable(file: BorrowedFd<'_>, size: usize) -> io::Result<FileMap> {
        Ok(FileMap { mapping: Mapping::writable(file, size)? })
    }

    /// The bytes.
    ///
    /// # Panics
    ///
    /// In a forked child.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.mapping.as_mut_slice()
    }

    /// True in a process forked from the one that made this: the memory is not there.
    pub fn is_inherited(&self) -> bool {
        self.mapping.is_inherited()
    }
}

impl fmt::Debug for FileMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileMap({} bytes)", self.mapping.len())
    }
}

/// Another descriptor of the same file, that can only read it and has no part in its locks.
///
/// # Errors
///
/// What the system says; `ENOENT` where `/proc` is not mounted.
pub fn reopen_read_only(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    use std::os::fd::AsRawFd;
    let own = format!("/proc/thread-self/fd/{}", fd.as_raw_fd());
    Ok(open(own, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())?)
}

/// A file as memory that another process writes.
pub struct FileView {
    // Forgotten before the memory is unmapped.
    guard: Option<Guarded>,
    mapping: Mapping,
}

impl FileView {
    /// Maps the first `size` bytes for reading.
    ///
    /// # Errors
    ///
    /// What mmap says; `EACCES` if the descriptor cannot be read.
    pub fn read_only(file: BorrowedFd<'_>, size: usize) -> io::Result<FileView> {
        Ok(FileView { guard: None, mapping: Mapping::read_only(file, size)? })
    }

    /// From now on this process survives that somebody truncates the file: see [`sigbus`](crate::sigbus).
    ///
    /// # Errors
    ///
    /// [`TableFull`] if too many mappings are guarded already.
    pub fn guarded(mut self) -> Result<FileView, TableFull> {
        if self.guard.is_none() {
            let start = self.mapping.cells().as_ptr().expose_provenance();
            self.guard = Some(Guarded::register(start, self.mapping.len())?);
        }
        Ok(self)
    }

    /// Whether the file was truncated under a guarded view, and this process has noticed: there are zeros in its place.
    #[inline]
    pub fn is_damaged(&self) -> bool {
        self.guard.as_ref().is_some_and(Guarded::is_damaged)
    }

    /// The bytes; their owner may change any of them at any time.
    pub fn cells(&self) -> &[UnsafeCell<u8>] {
        self.mapping.cells()
    }
}

impl fmt::Debug for FileView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileView({} bytes)", self.mapping.len())
    }
}

/// What of a mode is permissions.
const PERMISSIONS: u32 = 0o7777;
