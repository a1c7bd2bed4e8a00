// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that outlive their process: created complete or not at all, and mapped for writing or for
//! reading.
//!
//! ```text
//!   make   O_TMPFILE 0600 ─▶ ftruncate ─▶ fallocate ─▶ (write) ─▶ linkat: fails if the name exists
//!          unnamed: a crash leaves nothing                   └ now the file exists, complete
//!   open   O_NOFOLLOW, O_CLOEXEC, O_NONBLOCK ─▶ FileStat: of this user, regular, closed to others?
//!   map    read and write, absent in forked children   or   PROT_READ, of a read-only descriptor
//! ```
//!
//! This file does not interpret the bytes, and locks nothing ([`byte_lock`](crate::byte_lock)
//! does).
//!
//! # Invariants
//!
//! - Every byte of a file is allocated before the file gets its name, so a store to its mapping
//!   cannot meet a full file system. (A process of the same user can still truncate a file that has
//!   a name; the kernel offers no protection.)
//! - No existing file is replaced, and no mode is changed.

use core::cell::UnsafeCell;
use core::sync::atomic::AtomicBool;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, fstat, fstatvfs, fsync, linkat, open, openat, syncfs,
};
use rustix::io::Errno;

use crate::map::is_tmpfs;
use crate::mapping::Mapping;
use crate::memfd::{MemfdError, allocate, check_available, check_file_size, explain};
use crate::sigbus::{Guarded, TableFull, UNDAMAGED};

/// An open directory, which holds persistent files.
#[derive(Debug)]
pub struct PersistentDirectory {
    fd: OwnedFd,
    path: PathBuf,
}

/// Owner, mode and size of a file or directory, which the caller checks before it uses a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStat {
    /// User id of the owner of the file or directory.
    pub owner: u32,
    /// Permission bits of the file or directory.
    pub mode: u32,
    /// Whether the file is a regular file, neither a directory nor a device.
    pub is_regular: bool,
    /// Size of the file or directory in bytes.
    pub size: u64,
}

impl FileStat {
    /// Reads owner, mode and size from an open descriptor.
    ///
    /// # Errors
    ///
    /// The error that the system returned.
    pub fn of(fd: impl AsFd) -> io::Result<FileStat> {
        let stat = fstat(fd)?;
        Ok(FileStat {
            owner: stat.st_uid,
            mode: stat.st_mode & PERMISSIONS,
            is_regular: FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile,
            size: u64::try_from(stat.st_size).unwrap_or(0),
        })
    }
}

/// Why a file was not created.
#[derive(Debug)]
pub enum MakeError {
    /// The file system, a quota, or a limit of this process has no room for the file.
    NoSpace {
        /// Free space of the file system in bytes that the user of this process may use; `None` if
        /// the file system does not report it.
        available: Option<u64>,
        /// The system's error for the attempt to create the file.
        source: io::Error,
    },
    /// The file system cannot create unnamed files, or cannot reserve space for a file.
    Unsupported {
        /// The operation that the file system lacks.
        what: &'static str,
        /// The system's error for that operation.
        source: io::Error,
    },
    /// Creating the file failed with an error that no other variant names.
    System {
        /// The name of the system call that failed.
        what: &'static str,
        /// The error of that system call.
        source: io::Error,
    },
}

impl PersistentDirectory {
    /// Opens an existing directory.
    ///
    /// # Errors
    ///
    /// The error that the system returned.
    pub fn open(path: &Path) -> io::Result<PersistentDirectory> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let fd = open(path, flags, Mode::empty())?;
        Ok(PersistentDirectory { fd, path: path.to_owned() })
    }

    /// The path of this directory, as it was given to `open`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Owner and mode of the directory itself.
    ///
    /// # Errors
    ///
    /// The error that the system returned.
    pub fn stat(&self) -> io::Result<FileStat> {
        FileStat::of(&self.fd)
    }

    /// Creates an unnamed file of `size` zeros. The file vanishes when it is closed, unless
    /// [`name`](Self::name) has given it a name.
    ///
    /// # Errors
    ///
    /// Fails for one of the reasons in [`MakeError`].
    pub fn make(&self, size: usize) -> Result<UnnamedFile, MakeError> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let made = openat(&self.fd, ".", flags, Mode::RUSR | Mode::WUSR);
        let fd = made.map_err(|errno| match errno {
            Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL => {
                MakeError::Unsupported { what: "unnamed files", source: errno.into() }
            }
            Errno::NOSPC | Errno::DQUOT => self.no_space(errno.into()),
            _ => MakeError::System { what: "open with O_TMPFILE", source: errno.into() },
        })?;
        self.reserve(&fd, size).map_err(|error| self.explained(error))?;
        Ok(UnnamedFile { file: fd.into() })
    }

    fn reserve(&self, fd: &OwnedFd, size: usize) -> Result<(), MemfdError> {
        // A file on tmpfs takes memory, so its size is compared with the free memory first:
        // allocating more would trigger the out-of-memory killer.
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
                MakeError::Unsupported { what: "reserving space for a file", source }
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

    /// Gives an unnamed file the name `name` in this directory.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AlreadyExists`] if the name exists; the file of that name stays unchanged.
    /// `ENOENT` if `/proc` is not mounted.
    pub fn name(&self, file: &UnnamedFile, name: &str) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        // Before Linux 6.10, linkat of the descriptor itself (AT_EMPTY_PATH) requires a capability,
        // so the path in `/proc` is linked.
        let own = format!("/proc/thread-self/fd/{}", file.file.as_raw_fd());
        Ok(linkat(CWD, own, &self.fd, name, AtFlags::SYMLINK_FOLLOW)?)
    }

    /// Opens a file of this directory, for writing as well if `is_written`. The call follows no
    /// symbolic link and never blocks.
    ///
    /// # Errors
    ///
    /// The system's error: [`io::ErrorKind::NotFound`], `ELOOP` for a symbolic link.
    pub fn open_file(&self, name: &str, is_written: bool) -> io::Result<(File, FileStat)> {
        let access = if is_written { OFlags::RDWR } else { OFlags::RDONLY };
        let flags = access | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = openat(&self.fd, name, flags, Mode::empty())?;
        let stat = FileStat::of(&fd)?;
        Ok((fd.into(), stat))
    }

    /// Opens the file `name` of this directory for reading and appending, and creates the file if
    /// it does not exist.
    ///
    /// # Errors
    ///
    /// The system's error: `ELOOP` for a symbolic link, as in [`open_file`](Self::open_file).
    pub fn append_to(&self, name: &str) -> io::Result<(File, FileStat)> {
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW;
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR)?;
        let stat = FileStat::of(&fd)?;
        Ok((fd.into(), stat))
    }

    /// Writes the names of the files in this directory to the disk, and returns when they are on
    /// the disk.
    ///
    /// # Errors
    ///
    /// The error that the system returned. After an error, no earlier change of a name counts as
    /// written.
    pub fn sync(&self) -> io::Result<()> {
        Ok(fsync(&self.fd)?)
    }
}

/// Writes all changes of the file system that holds `file` to the disk, and returns when they are
/// on the disk. For many files one such call is cheaper than to sync each of them.
///
/// # Errors
///
/// The error that the system returned.
pub fn sync_file_system(file: impl AsFd) -> io::Result<()> {
    Ok(syncfs(file)?)
}

/// A file without a name, invisible to other processes.
#[derive(Debug)]
pub struct UnnamedFile {
    file: File,
}

impl UnnamedFile {
    /// The open file, which has no name yet. The process that made the file writes its content
    /// before the file gets a name.
    pub fn file(&self) -> &File {
        &self.file
    }
}

/// A file that this process has mapped for writing; a forked child does not inherit the mapping.
pub struct FileMap {
    mapping: Mapping,
}

impl FileMap {
    /// Maps the first `size` bytes of `file` for writing. The file must have at least `size` bytes.
    ///
    /// # Errors
    ///
    /// The error of mmap.
    pub fn writable(file: BorrowedFd<'_>, size: usize) -> io::Result<FileMap> {
        Ok(FileMap { mapping: Mapping::writable(file, size)? })
    }

    /// The bytes of the mapped file.
    ///
    /// # Panics
    ///
    /// In a forked child.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.mapping.as_mut_slice()
    }

    /// Whether the calling process was forked from the process that mapped the file: in such a
    /// child the file is not mapped.
    pub fn is_inherited(&self) -> bool {
        self.mapping.is_inherited()
    }
}

impl fmt::Debug for FileMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileMap({} bytes)", self.mapping.len())
    }
}

/// Opens another, read-only descriptor of the file behind `fd`. The new descriptor does not share
/// the locks of `fd`.
///
/// # Errors
///
/// The system's error; `ENOENT` if `/proc` is not mounted.
pub fn reopen_read_only(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    use std::os::fd::AsRawFd;
    let own = format!("/proc/thread-self/fd/{}", fd.as_raw_fd());
    Ok(open(own, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())?)
}

/// A file that this process has mapped for reading, and that another process may write.
pub struct FileView {
    // Fields are dropped in the order of their declaration: `guard`, by which this process survives
    // a truncation of the file, is unregistered before the memory is unmapped.
    guard: Option<Guarded>,
    mapping: Mapping,
}

impl FileView {
    /// Maps the first `size` bytes of `file` for reading.
    ///
    /// # Errors
    ///
    /// The error of mmap; `EACCES` if the descriptor is not readable.
    pub fn read_only(file: BorrowedFd<'_>, size: usize) -> io::Result<FileView> {
        Ok(FileView { guard: None, mapping: Mapping::read_only(file, size)? })
    }

    /// Makes this process survive the truncation of the file: see [`sigbus`](crate::sigbus).
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

    /// Whether this process has noticed that a guarded file was truncated. From then on zeros
    /// replace the file's content.
    #[inline]
    pub fn is_damaged(&self) -> bool {
        self.guard.as_ref().is_some_and(Guarded::is_damaged)
    }

    /// The flag that says whether the file was truncated; [`is_damaged`](Self::is_damaged) loads it
    /// with Acquire. The flag belongs to this view as long as the view lives. A caller that cannot
    /// afford a function call loads the flag itself.
    pub fn damage(&self) -> &'static AtomicBool {
        self.guard.as_ref().map_or(&UNDAMAGED, Guarded::damage)
    }

    /// The bytes of the mapped file. The file's owner may change any of them at any time.
    pub fn cells(&self) -> &[UnsafeCell<u8>] {
        self.mapping.cells()
    }
}

impl fmt::Debug for FileView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileView({} bytes)", self.mapping.len())
    }
}

/// The bits of a file's mode that are permissions; the other bits state the kind of file.
const PERMISSIONS: u32 = 0o7777;
