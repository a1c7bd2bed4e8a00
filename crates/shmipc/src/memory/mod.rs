// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of regions: memfds and files, created by this process or received from a peer.
//!
//! ```text
//!   create  memfd ── map ── fill ── seal ─▶ descriptor to send
//!           file 0600 ── map ── fill ─────▶ path to send
//!   open    descriptor, or path below a directory ─▶ stat ─▶ allowed? ─▶ map, guard if unsealed
//!                                                          └▶ identity ─▶ one region per process
//! ```
//!
//! Names do not identify regions, because a client chooses them: two regions are the same if device
//! and inode are. File modes are never changed.
//!
//! # Which side removes files
//!
//! The creator removes its files when its last session has ended. A server removes them too, since
//! clients of other implementations may end without doing so. It keeps each file that it opened by
//! path ([`keep`]): the queue for its session, the buffers for all sessions of this process that
//! use them. It removes a file with the last of these sessions, as the servers of other
//! implementations do. Unlike them, it removes a file only
//!
//! - if the path still names the very file that was mapped, without a symbolic link;
//! - if the file's owner is known to be the client's user: without credentials, a client could name
//!   any file;
//! - if the file is not locked. Clients of this crate lock their files as long as they live, remove
//!   them, and use the same buffers for later sessions. Other clients lock no file, and reuse
//!   buffers only while a session has them.
//!
//! After a hot restart clients use other names (`…_epoch_…`). So an old process that ends removes
//! no file that a client names to the new process.

pub mod names;
pub mod queue;
mod registry;

pub use registry::{create_buffer, keep, open_buffer};

use crate::memory::names::maker;
use crate::memory::queue::{Queue, QueueLayout};
use crate::region::{Damage, PlanError};
use partywall_sys::shared_file::{
    AdoptedFile, create_memfd, open_beneath, remove_abandoned, seal_size,
};
use partywall_sys::{
    CreatedFile, FileIdentity, MemfdError, SharedFileError, SharedFileStat, SharedMap,
    sigbus::TableFull,
};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The memory of a region that this process created, or whose file it must remove. Dropping the
/// value removes the file.
#[derive(Debug)]
pub struct Backing {
    kind: Kind,
    identity: FileIdentity,
}

#[derive(Debug)]
enum Kind {
    Memfd(OwnedFd),
    File(CreatedFile),
    PeerMemory(AdoptedFile),
}

impl Backing {
    /// Creates a memfd of `size` zero bytes and maps the memfd. The peer sees `name` as the memfd's
    /// name.
    ///
    /// # Errors
    ///
    /// Fails for one of the reasons in [`BackingError`].
    pub fn create_memfd(name: &str, size: usize) -> Result<(Self, SharedMap), BackingError> {
        let fd = create_memfd(&format!("shmipc{name}"), size)?;
        let map = map(fd.as_fd(), size)?;
        let stat = stat(fd.as_fd())?;
        Ok((Self { kind: Kind::Memfd(fd), identity: stat.identity }, map))
    }

    /// Creates a file of `size` zero bytes at `path`, which must not exist, and maps the file.
    ///
    /// # Errors
    ///
    /// Fails for one of the reasons in [`BackingError`].
    pub fn create_file(path: &Path, size: usize) -> Result<(Self, SharedMap), BackingError> {
        let file = CreatedFile::create(path, size)
            .map_err(|source| BackingError::File { path: path.into(), source })?;
        let map = map(file.fd(), size)?;
        // The guard lets this process survive a truncation of the mapped file. Files have no seals
        // against truncation, and some implementations truncate a file whose name they want to use.
        map.guard()?;
        let identity = file.identity();
        Ok((Self { kind: Kind::File(file), identity }, map))
    }

    /// Seals the size of the memfd, so that no process can truncate the memory. The caller seals
    /// the memfd once it has written the initial content. If the memory is a file, the call has no
    /// effect.
    ///
    /// # Errors
    ///
    /// Fails for one of the reasons in [`BackingError`].
    pub fn seal(&self) -> Result<(), BackingError> {
        match &self.kind {
            Kind::Memfd(fd) => Ok(seal_size(fd.as_fd())?),
            Kind::File(_) | Kind::PeerMemory(_) => Ok(()),
        }
    }

    /// The descriptor of the memfd or file that holds the region.
    pub fn fd(&self) -> BorrowedFd<'_> {
        match &self.kind {
            Kind::Memfd(fd) => fd.as_fd(),
            Kind::File(file) => file.fd(),
            Kind::PeerMemory(file) => file.fd(),
        }
    }

    /// Device and inode number of the memfd or file that holds the region.
    pub fn identity(&self) -> FileIdentity {
        self.identity
    }

    /// Whether the path of the region's file still names that file; a server may have removed the
    /// file. Always true for a memfd.
    pub fn is_in_place(&self) -> bool {
        match &self.kind {
            Kind::Memfd(_) | Kind::PeerMemory(_) => true,
            Kind::File(file) => file.is_in_place(),
        }
    }
}

/// Removes the region files with this prefix whose creators were killed; returns how many files it
/// removed. Only files of this user that are named as this crate names files are removed.
pub fn sweep(prefix: &str) -> usize {
    let path = Path::new(prefix);
    let (Some(directory), Some(start)) = (path.parent(), path.file_name().and_then(OsStr::to_str))
    else {
        return 0;
    };
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    let abandoned = entries.flatten().filter(|entry| {
        let name = entry.file_name();
        let maker = name.to_str().and_then(|name| maker(start, name));
        maker.is_some_and(|pid| remove_abandoned(&entry.path(), pid))
    });
    abandoned.count()
}

/// Rules that the peer's memory must follow before this process maps it.
#[derive(Clone, Debug)]
pub struct MemoryRules {
    /// Size of the largest region that the peer may share, in bytes.
    pub size_max: u64,
    /// The directory below which the peer's files may lie, on the same mount.
    pub directory: PathBuf,
    /// Required owner of the peer's files; `None` if the peer has no credentials.
    pub owner: Option<u32>,
    /// Whether this process guards itself against the truncation of memory that is not sealed.
    pub is_guarded: bool,
}

impl MemoryRules {
    /// Creates rules that allow regions of up to `size_max` bytes, in files below `/dev/shm` that
    /// belong to `owner`. This process survives the truncation of memory that is not sealed.
    pub fn new(size_max: u64, owner: Option<u32>) -> Self {
        Self { size_max, directory: PathBuf::from(DIRECTORY_DEFAULT), owner, is_guarded: true }
    }
}

/// Memory of the peer that this process has opened, and that follows the rules. The memory is not
/// mapped yet.
#[derive(Debug)]
pub struct PeerMemory {
    fd: OwnedFd,
    stat: SharedFileStat,
    is_guarded: bool,
    /// Directory and path of the peer's file, if the file has the required owner, so that this
    /// process may remove it.
    place: Option<(PathBuf, PathBuf)>,
}

impl PeerMemory {
    /// Opens the peer's memory from a received descriptor.
    ///
    /// # Errors
    ///
    /// Fails for one of the reasons in [`BackingError`].
    pub fn descriptor(fd: OwnedFd, allowed: &MemoryRules) -> Result<Self, BackingError> {
        let stat = stat(fd.as_fd())?;
        check(&stat, allowed.size_max)?;
        if !stat.is_memory {
            // The descriptor refers to a file that is not in memory. A process of the peer might
            // supply the file's pages, and every access would wait for that process.
            return Err(BackingError::NoMemory);
        }
        Ok(Self { fd, stat, is_guarded: allowed.is_guarded, place: None })
    }

    /// Opens the peer's memory from a file that the peer named. The file may be on any file system,
    /// because the configuration of this process chose the directory. (In contrast, a descriptor
    /// that the peer sends must refer to a file in memory.)
    ///
    /// # Errors
    ///
    /// Fails for one of the reasons in [`BackingError`].
    pub fn path(path: &Path, allowed: &MemoryRules) -> Result<Self, BackingError> {
        let fd = open_beneath(&allowed.directory, path)?;
        let stat = stat(fd.as_fd())?;
        check(&stat, allowed.size_max)?;
        match allowed.owner {
            Some(expected) if stat.owner != expected => {
                Err(BackingError::Owner { path: path.into(), owner: stat.owner, expected })
            }
            owner => {
                let place = owner.map(|_| (allowed.directory.clone(), path.to_owned()));
                Ok(Self { fd, stat, is_guarded: allowed.is_guarded, place })
            }
        }
    }

    /// Device and inode number of the peer's memory.
    pub fn identity(&self) -> FileIdentity {
        self.stat.identity
    }

    /// Whether seals prevent the truncation of the peer's memory.
    pub fn is_sealed(&self) -> bool {
        self.stat.is_sealed
    }

    /// Whether the peer's memory can be truncated, and the rules demand that this process survives
    /// a truncation.
    pub fn needs_guard(&self) -> bool {
        self.is_guarded && !self.stat.is_sealed
    }

    /// Maps the peer's memory. If the memory can be truncated and the rules ask for a guard, this
    /// process survives a truncation.
    ///
    /// # Errors
    ///
    /// Fails for one of the reasons in [`BackingError`].
    pub fn map(&self) -> Result<SharedMap, BackingError> {
        let size = usize::try_from(self.stat.size).unwrap_or(usize::MAX);
        let map = map(self.fd.as_fd(), size)?;
        if self.needs_guard() {
            map.guard()?;
        }
        Ok(map)
    }

    /// Returns a value that removes the peer's file when it is dropped; `None` if this process may
    /// not remove the file.
    fn backing(self) -> Option<Backing> {
        let (directory, path) = self.place?;
        let file = AdoptedFile::new(self.fd, &self.stat, &directory, &path);
        Some(Backing { identity: file.identity(), kind: Kind::PeerMemory(file) })
    }
}

/// Writes an empty queue into the memory that `map` maps, and seals the memory. `backing` is the
/// fresh memfd or file of that memory, of [`Queue::size_bytes`] bytes.
///
/// # Errors
///
/// Fails for one of the reasons in [`RegionError`].
pub fn create_queue(
    backing: &Backing,
    map: SharedMap,
    capacity: u32,
) -> Result<Queue, RegionError> {
    let queue = Queue::create(map, capacity, QueueLayout::NATIVE)?;
    backing.seal()?;
    Ok(queue)
}

/// Opens the queue region in the memory `given`. Each session has a queue region of its own.
///
/// # Errors
///
/// Fails for one of the reasons in [`RegionError`].
pub fn open_queue(given: &PeerMemory) -> Result<Queue, RegionError> {
    Ok(Queue::map(given.map()?, QueueLayout::NATIVE)?)
}

fn map(fd: BorrowedFd<'_>, size: usize) -> Result<SharedMap, BackingError> {
    SharedMap::map(fd, size).map_err(|source| BackingError::System { what: "mmap", source })
}

fn stat(fd: BorrowedFd<'_>) -> Result<SharedFileStat, BackingError> {
    SharedFileStat::of(fd).map_err(|source| BackingError::System { what: "fstat", source })
}

fn check(stat: &SharedFileStat, size_max: u64) -> Result<(), BackingError> {
    if !stat.is_regular {
        return Err(BackingError::NoFile);
    }
    if stat.size == 0 || stat.size > size_max {
        return Err(BackingError::Size { size: stat.size, size_max });
    }
    Ok(())
}

/// Why the memory of a region, a memfd or a file, could not be created, opened or mapped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackingError {
    /// Creating a memfd for a region failed.
    #[error(transparent)]
    Memfd(#[from] MemfdError),
    /// Creating a file for a region failed.
    #[error("{} cannot be made: {source}", path.display())]
    File {
        /// Path of the file that could not be created.
        path: PathBuf,
        /// The error that the system returned for the file.
        source: io::Error,
    },
    /// Opening the peer's file failed.
    #[error(transparent)]
    Open(#[from] SharedFileError),
    /// The peer's memory is not a regular file.
    #[error("the peer's shared memory is no regular file")]
    NoFile,
    /// The peer's descriptor refers to a file that does not lie in memory (on tmpfs).
    #[error("the peer's descriptor is of a file, not of a memfd or of shared memory")]
    NoMemory,
    /// The peer's memory is empty, or larger than the rules allow.
    #[error(
        "the peer's shared memory has {size} bytes: more than 0 and at most {size_max} are accepted \
         (Config::region_bytes_max)"
    )]
    Size {
        /// Size of the peer's memory in bytes.
        size: u64,
        /// Largest size that the rules allow, in bytes.
        size_max: u64,
    },
    /// The peer named a file of another user.
    #[error("{} belongs to user {owner}, but the peer is user {expected}", path.display())]
    Owner {
        /// Path of the other user's file, as the peer sent it.
        path: PathBuf,
        /// User id of the owner of the file that the peer named.
        owner: u32,
        /// User id of the peer.
        expected: u32,
    },
    /// The peer's memory can be truncated, and this process cannot guard a further mapping, because
    /// too many mappings are guarded already.
    #[error(transparent)]
    Unguarded(#[from] TableFull),
    /// A system call on the memory of a region failed.
    #[error("{what} failed on shared memory: {source}")]
    System {
        /// The name of the system call that failed.
        what: &'static str,
        /// The error that the system call returned.
        source: io::Error,
    },
}

/// Why a region of queues or buffers could not be created or opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// The memory of the region could not be created, opened or mapped.
    #[error(transparent)]
    Backing(#[from] BackingError),
    /// The settings of this process fit no layout of a region, for example because the region is
    /// too small.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The memory has content that no region or queue can have.
    #[error("the peer's shared memory makes no sense: {0}")]
    Damage(#[from] Damage),
}

/// Default directory in which other implementations create their files.
pub const DIRECTORY_DEFAULT: &str = "/dev/shm";
