// SPDX-License-Identifier: MIT OR Apache-2.0
//! Our own half: a memfd that this process alone can write.
//!
//! ```text
//!   memfd_create → ftruncate → fallocate → mmap rw → seal SHRINK|GROW|FUTURE_WRITE|SEAL → hand over
//!                                             │        └ from here on nobody can map it writable,
//!                                             │          write(), truncate or unseal it, us included
//!                                             └ but this mapping keeps its right to write
//! ```
//!
//! It does not say what the bytes mean, nor send the descriptor anywhere.
//!
//! # Invariants
//!
//! - Every byte is backed by memory before the constructor returns: later stores never meet a full
//!   system (no SIGBUS), and a reader is never charged for our pages.
//! - The descriptor leaves this module sealed. The size never changes.
//! - A forked child has no such mapping (`MADV_DONTFORK`); in a child, access panics and drop does nothing.

use core::cell::UnsafeCell;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::fs::{fallocate, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;

use crate::mapping::Mapping;
use crate::{cgroup, limits};

/// A writable mapping of a sealed memfd: the memory of one half.
///
/// ```
/// use partywall_sys::{OwnMap, PeerMap};
/// use std::os::fd::AsFd;
///
/// let mut own = OwnMap::create("half", 64 * 1024)?;
/// own.as_mut_slice()[0] = 7;
/// let peer = PeerMap::map(own.as_fd(), 64 * 1024, 1 << 20)?;
/// assert_eq!(peer.len(), own.len());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct OwnMap {
    // Unmapped before the descriptor is closed; the order does not matter to the kernel.
    mapping: Mapping,
    fd: OwnedFd,
}

impl OwnMap {
    /// Creates, allocates, maps and seals `size` bytes of zeros; `name` shows in `/proc/PID/maps`.
    ///
    /// # Errors
    ///
    /// See [`MemfdError`]: a bad size, a system that cannot do this, no memory, no descriptors.
    pub fn create(name: &str, size: usize) -> Result<OwnMap, MemfdError> {
        if size == 0 || size % SIZE_GRANULE != 0 {
            return Err(MemfdError::BadSize { size });
        }
        check_available(size)?;
        check_file_size(size).map_err(|e| explain("ftruncate", size, e))?;
        let fd = create_sealable(name)?;
        allocate(&fd, size)?;
        let mapping = Mapping::writable(fd.as_fd(), size).map_err(|e| explain("mmap", size, e))?;
        fcntl_add_seals(&fd, REQUIRED_SEALS)
            .map_err(|e| explain("F_ADD_SEALS with F_SEAL_FUTURE_WRITE", size, e))?;
        Ok(OwnMap { mapping, fd })
    }

    /// The bytes, for writing before the half is handed over.
    ///
    /// # Panics
    ///
    /// In a forked child.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.mapping.as_mut_slice()
    }

    /// The bytes, for the one writer that knows which of them the neighbour may be reading.
    ///
    /// # Panics
    ///
    /// In a forked child.
    pub fn cells(&self) -> &[UnsafeCell<u8>] {
        self.mapping.cells()
    }

    /// The size in bytes, a nonzero multiple of [`SIZE_GRANULE`].
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// The sealed descriptor, to be sent to the neighbour.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// True in a process forked from the one that made this: the memory is not there.
    pub fn is_inherited(&self) -> bool {
        self.mapping.is_inherited()
    }
}

impl AsFd for OwnMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}

impl fmt::Debug for OwnMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnMap").field("fd", &self.fd).field("len", &self.len()).finish()
    }
}

/// Whether this machine and control group have so much memory now, as far as can be told before it is used.
#[must_use]
pub fn is_available(bytes: u64) -> bool {
    usize::try_from(bytes).is_ok_and(|bytes| check_available(bytes).is_ok())
}

/// Refuses what this machine or control group plainly does not have.
///
/// fallocate would take page after page and then not fail, but wake the out-of-memory killer, which may
/// choose anybody.
pub(crate) fn check_available(size: usize) -> Result<(), MemfdError> {
    if size < CHECKED_SIZE_MIN {
        return Ok(());
    }
    let machine = limits::memory_available().unwrap_or(u64::MAX);
    let group = cgroup::memory_max().unwrap_or(u64::MAX);
    if size as u64 > machine.min(group) {
        return Err(explain("fallocate", size, Errno::NOMEM));
    }
    Ok(())
}

/// Refuses what RLIMIT_FSIZE forbids: the kernel would not only refuse it, but send SIGXFSZ, which kills
/// by default.
pub(crate) fn check_file_size(size: usize) -> Result<(), Errno> {
    match limits::file_size().soft {
        Some(limit) if size as u64 > limit => Err(Errno::FBIG),
        _ => Ok(()),
    }
}

pub(crate) fn create_sealable(name: &str) -> Result<OwnedFd, MemfdError> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let created = match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // Linux before 6.3 does not know the flag.
        Err(Errno::INVAL) => memfd_create(name, flags),
        other => other,
    };
    created.map_err(|e| explain("memfd_create", 0, e))
}

/// Gives the file its size and every page of it.
pub(crate) fn allocate(fd: &OwnedFd, size: usize) -> Result<(), MemfdError> {
    ftruncate(fd, size as u64).map_err(|e| explain("ftruncate", size, e))?;
    // A signal makes fallocate give back what it had and start over.
    for _ in 0..FALLOCATE_ATTEMPTS_MAX {
        match fallocate(fd, FallocateFlags::empty(), 0, size as u64) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => continue,
            Err(e) => return Err(explain("fallocate", size, e)),
        }
    }
    Err(explain("fallocate", size, Errno::INTR))
}

pub(crate) fn explain(what: &'static str, size: usize, errno: Errno) -> MemfdError {
    let source = io::Error::from(errno);
    match errno {
        Errno::NOSYS | Errno::PERM | Errno::ACCESS | Errno::INVAL | Errno::OPNOTSUPP => {
            MemfdError::Unsupported { what, source }
        }
        Errno::FBIG => MemfdError::FileSizeLimit { size },
        Errno::NOSPC | Errno::NOMEM | Errno::DQUOT => MemfdError::OutOfMemory { size, source },
        Errno::MFILE | Errno::NFILE => MemfdError::DescriptorLimit { source },
        _ => MemfdError::Other { what, source },
    }
}

/// Why a half could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemfdError {
    /// The size asked for is not a nonzero multiple of [`SIZE_GRANULE`].
    #[error("{size} bytes is no size for shared memory: use a nonzero multiple of 65536")]
    BadSize {
        /// What was asked for, in bytes.
        size: usize,
    },
    /// The kernel or a sandbox does not let us make sealed memory.
    #[error(
        "this system refuses sealed shared memory ({what}: {source}); it takes Linux 5.1 and a \
         sandbox that allows memfd_create and file seals. The socket transport works without"
    )]
    Unsupported {
        /// The step that was refused.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// Not enough memory, or a limit on it.
    #[error(
        "no memory for {size} bytes of shared memory ({source}): make the half smaller, or raise \
         the memory limit of the control group"
    )]
    OutOfMemory {
        /// What was asked for, in bytes.
        size: usize,
        /// What the kernel said.
        source: io::Error,
    },
    /// To RLIMIT_FSIZE, shared memory is a file.
    #[error(
        "{size} bytes of shared memory exceed the limit for files: raise RLIMIT_FSIZE (ulimit -f)"
    )]
    FileSizeLimit {
        /// What was asked for, in bytes.
        size: usize,
    },
    /// No descriptor left, in this process or in the system.
    #[error(
        "no file descriptor left for shared memory ({source}): raise RLIMIT_NOFILE (ulimit -n)"
    )]
    DescriptorLimit {
        /// What the kernel said: EMFILE names the process, ENFILE the system.
        source: io::Error,
    },
    /// Something no one expects here.
    #[error("{what} failed unexpectedly while making shared memory: {source}")]
    Other {
        /// The step that failed.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Sizes of shared memory are nonzero multiples of this many bytes: the largest page size of any
/// machine we run on.
pub const SIZE_GRANULE: usize = 64 * 1024;

/// What a half must be sealed against before its descriptor leaves its process.
pub(crate) const REQUIRED_SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

/// From this size on we look first whether there is so much memory; it costs some file reads.
const CHECKED_SIZE_MIN: usize = 16 << 20;

/// How often signals may interrupt the allocation before we call it a failure.
const FALLOCATE_ATTEMPTS_MAX: u32 = 100;
