// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where regions lie: memfds and files, made by us or opened on the word of the other side.
//!
//! ```text
//!   make   memfd ── map ── fill ── seal ─▶ descriptor to be sent      file 0600 ── map ── fill ─▶ path to be told
//!   open   descriptor, or a path beneath one directory ─▶ facts ─▶ allowed? ─▶ map, guarded unless sealed
//!                                                            └▶ identity ─▶ one region per process
//! ```
//!
//! Names decide nothing: two regions are the same if device and inode are (a name is whatever a client says). It
//! never changes a mode.
//!
//! # Who removes files
//!
//! Whoever made them, when its last session has ended; and a server, since peers end without. It keeps each file that it
//! opened by its path ([`keep`]), the queue for the one session and the buffers for all of this process that have them,
//! and removes it with the last, as servers of the peers do. Unlike those, it does so only
//!
//! - if the name still means the very file that was mapped, and leads to it over no link;
//! - if the file's owner is known to be the client's: of strangers, anything could be named;
//! - if it is not locked. Our clients lock their files, and name their buffers again for the next session; who locks,
//!   lives and removes them. Peers lock nothing, and name buffers again only while they have a session that has them.
//!
//! After a hot restart, clients call everything otherwise (`…_epoch_…`), so an old process that ends removes nothing that
//! a client names to the new one.

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

/// What a region lies in that we made, or are to remove. A file is removed when this is dropped.
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
    /// Makes a memfd of `size` zeros and maps it; `name` is what the other side is told it is called.
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

    /// Makes a file of `size` zeros where there was none, and maps it.
    ///
    /// # Errors
    ///
    /// Fails for one of the reasons in [`BackingError`].
    pub fn create_file(path: &Path, size: usize) -> Result<(Self, SharedMap), BackingError> {
        let file = CreatedFile::create(path, size)
            .map_err(|source| BackingError::File { path: path.into(), source })?;
        let map = map(file.fd(), size)?;
        // There are no seals for files, and some peers truncate what has a name that they want.
        map.guard()?;
        let identity = file.identity();
        Ok((Self { kind: Kind::File(file), identity }, map))
    }

    /// Keeps everybody from changing the size of a memfd, once it is filled; nothing for a file.
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

    /// The descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        match &self.kind {
            Kind::Memfd(fd) => fd.as_fd(),
            Kind::File(file) => file.fd(),
            Kind::PeerMemory(file) => file.fd(),
        }
    }

    /// Which file it is.
    pub fn identity(&self) -> FileIdentity {
        self.identity
    }

    /// Whether the other side still finds it by its name, which a server may have removed; memfds need none.
    pub fn is_in_place(&self) -> bool {
        match &self.kind {
            Kind::Memfd(_) | Kind::PeerMemory(_) => true,
            Kind::File(file) => file.is_in_place(),
        }
    }
}

/// Removes the files with this prefix whose makers were killed; how many. Only such as are ours by name and owner.
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

/// What we accept from the other side.
#[derive(Clone, Debug)]
pub struct MemoryRules {
    /// The most bytes that a region may have.
    pub size_max: u64,
    /// Beneath which files may lie, in the same mount.
    pub directory: PathBuf,
    /// To whom files must belong; `None` where nobody knows.
    pub owner: Option<u32>,
    /// Whether what may be shrunk under us is guarded.
    pub is_guarded: bool,
}

impl MemoryRules {
    /// Regions of up to `size_max` bytes, files beneath `/dev/shm` that belong to `owner`.
    pub fn new(size_max: u64, owner: Option<u32>) -> Self {
        Self { size_max, directory: PathBuf::from(DIRECTORY_DEFAULT), owner, is_guarded: true }
    }
}

/// Something that the other side made, opened and found to be allowed; not mapped yet.
#[derive(Debug)]
pub struct PeerMemory {
    fd: OwnedFd,
    stat: SharedFileStat,
    is_guarded: bool,
    /// Beneath which directory it lies, and where, if its owner is whom it was to be.
    place: Option<(PathBuf, PathBuf)>,
}

impl PeerMemory {
    /// A descriptor that was received.
    ///
    /// # Errors
    ///
    /// Fails for one of the reasons in [`BackingError`].
    pub fn descriptor(fd: OwnedFd, allowed: &MemoryRules) -> Result<Self, BackingError> {
        let stat = stat(fd.as_fd())?;
        check(&stat, allowed.size_max)?;
        if !stat.is_memory {
            // Its pages might come from a process of the other side's, and each access wait for that.
            return Err(BackingError::NoMemory);
        }
        Ok(Self { fd, stat, is_guarded: allowed.is_guarded, place: None })
    }

    /// A file that was named. Its file system is that of the directory, which the one who allows it chose: so it need
    /// not be memory, as what a descriptor refers to must.
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

    /// Which file it is.
    pub fn identity(&self) -> FileIdentity {
        self.stat.identity
    }

    /// Whether its seals keep everybody from shrinking it.
    pub fn is_sealed(&self) -> bool {
        self.stat.is_sealed
    }

    /// Whether somebody may shrink it, and that is to be survived.
    pub fn needs_guard(&self) -> bool {
        self.is_guarded && !self.stat.is_sealed
    }

    /// Maps it, guarded if somebody may shrink it and guarding was asked for.
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

    /// What removes it; `None` if that is not for us to do.
    fn backing(self) -> Option<Backing> {
        let (directory, path) = self.place?;
        let file = AdoptedFile::new(self.fd, &self.stat, &directory, &path);
        Some(Backing { identity: file.identity(), kind: Kind::PeerMemory(file) })
    }
}

/// Fills `map`, fresh memory of `backing` and as large as [`Queue::size_bytes`] says, with an empty queue.
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

/// The queue region in `given`. Each session has its own.
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

/// Why there is no memory for a region.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackingError {
    /// No memfd could be made.
    #[error(transparent)]
    Memfd(#[from] MemfdError),
    /// No file could be made.
    #[error("{} cannot be made: {source}", path.display())]
    File {
        /// Where.
        path: PathBuf,
        /// The error that the system returned.
        source: io::Error,
    },
    /// The other side's file could not be opened.
    #[error(transparent)]
    Open(#[from] SharedFileError),
    /// The other side sent or named something else.
    #[error("the peer's shared memory is no regular file")]
    NoFile,
    /// The other side sent a file that lies elsewhere.
    #[error("the peer's descriptor is of a file, not of a memfd or of shared memory")]
    NoMemory,
    /// The other side's memory is empty or too large.
    #[error(
        "the peer's shared memory has {size} bytes: more than 0 and at most {size_max} are accepted \
         (Config::region_bytes_max)"
    )]
    Size {
        /// Number of bytes.
        size: u64,
        /// Number of bytes.
        size_max: u64,
    },
    /// The other side named a file that is not its own.
    #[error("{} belongs to user {owner}, but the peer is user {expected}", path.display())]
    Owner {
        /// As the other side named it.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Whose it should be.
        expected: u32,
    },
    /// The other side's memory can be truncated, and no more guards are to be had.
    #[error(transparent)]
    Unguarded(#[from] TableFull),
    /// A system call failed.
    #[error("{what} failed on shared memory: {source}")]
    System {
        /// Which.
        what: &'static str,
        /// The error that the system returned.
        source: io::Error,
    },
}

/// Why there is no region.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// No memory for it.
    #[error(transparent)]
    Backing(#[from] BackingError),
    /// It cannot be laid out as asked for.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// What is in the memory cannot be.
    #[error("the peer's shared memory makes no sense: {0}")]
    Damage(#[from] Damage),
}

/// Where peers put their files by default.
pub const DIRECTORY_DEFAULT: &str = "/dev/shm";
