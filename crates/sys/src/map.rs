// SPDX-License-Identifier: MIT OR Apache-2.0
//! The peer's region: a received descriptor, checked, then mapped read-only.
//!
//! ```text
//!   checks, in this order                 reason
//!   F_GET_SEALS has all required seals    the peer cannot shrink the memory: no SIGBUS
//!   the memory is on tmpfs                no huge pages of hugetlbfs
//!   announced size ≤ limit                the maximum that this process accepts
//!   announced size = k × 64 KiB           the rule for every region
//!   st_size = announced size
//!   st_blocks × 512 ≥ announced size      no holes
//!   then mmap, for reading only
//! ```
//!
//! This file reads no byte of the memory: its callers check the content.
//!
//! # Invariants
//!
//! - The seals are checked first, so the properties checked later can no longer change.
//! - The mapping is `PROT_READ`: no code of this process can write to the peer's memory.

use core::cell::UnsafeCell;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{SealFlags, fcntl_get_seals, fstat, fstatfs};
use rustix::io::Errno;

use crate::mapping::Mapping;
use crate::memfd::{REQUIRED_SEALS, SIZE_GRANULE};

/// A read-only mapping of the peer's memfd.
pub struct PeerMap {
    mapping: Mapping,
}

impl PeerMap {
    /// Checks `fd`, the peer's memory, and maps it. The peer announced the size of the memory as
    /// `announced` bytes; up to `limit` bytes are accepted.
    ///
    /// The caller may close the descriptor after the call.
    ///
    /// # Errors
    ///
    /// Fails for one of the reasons in [`MapError`]; [`MapError::is_violation`] separates the
    /// peer's violations from local failures.
    pub fn map(fd: BorrowedFd<'_>, announced: u64, limit: u64) -> Result<PeerMap, MapError> {
        check_kind(fd)?;
        check_size(fd, announced, limit)?;
        let len = usize::try_from(announced)
            .map_err(|_| MapError::OutOfMemory { size: announced, source: Errno::NOMEM.into() })?;
        let mapping = Mapping::read_only(fd, len).map_err(|errno| match errno {
            Errno::ACCESS | Errno::PERM => MapError::Unreadable { source: errno.into() },
            Errno::NOMEM => MapError::OutOfMemory { size: announced, source: errno.into() },
            _ => MapError::Local { what: "mmap", source: errno.into() },
        })?;
        Ok(PeerMap { mapping })
    }

    /// The mapped bytes of the peer's memory. The peer may change any of them at any time.
    pub fn cells(&self) -> &[UnsafeCell<u8>] {
        self.mapping.cells()
    }

    /// The size of the mapping in bytes, a nonzero multiple of [`SIZE_GRANULE`].
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.mapping.len()
    }
}

impl fmt::Debug for PeerMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerMap").field("len", &self.len()).finish()
    }
}

/// Checks that `fd` has the required seals and is memory on tmpfs.
fn check_kind(fd: BorrowedFd<'_>) -> Result<(), MapError> {
    let present = fcntl_get_seals(fd).map_err(|errno| match errno {
        // The descriptor is open, because this process owns it. So the error EBADF means that it
        // was opened with O_PATH, which gives no access to a file's content.
        Errno::INVAL | Errno::BADF => MapError::NotMemfd { source: errno.into() },
        _ => MapError::Local { what: "F_GET_SEALS", source: errno.into() },
    })?;
    let missing = REQUIRED_SEALS.difference(present);
    if !missing.is_empty() {
        return Err(MapError::MissingSeals { missing: names(missing) });
    }
    let filesystem = filesystem(fd)
        .map_err(|errno| MapError::Local { what: "fstatfs", source: errno.into() })?;
    if filesystem != TMPFS_MAGIC {
        return Err(MapError::NotTmpfs { filesystem });
    }
    Ok(())
}

pub(crate) fn is_tmpfs(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(filesystem(fd)? == TMPFS_MAGIC)
}

fn filesystem(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    let filesystem = fstatfs(fd)?.f_type;
    #[allow(clippy::useless_conversion, reason = "the type differs by architecture")]
    Ok(u64::try_from(filesystem).unwrap_or(u64::MAX))
}

/// Checks that the memory behind `fd`, which the peer sent, has the size that the peer announced,
/// is no larger than `limit`, and is fully allocated.
fn check_size(fd: BorrowedFd<'_>, announced: u64, limit: u64) -> Result<(), MapError> {
    if announced > limit {
        return Err(MapError::TooLarge { announced, limit });
    }
    if announced == 0 || announced % SIZE_GRANULE as u64 != 0 {
        return Err(MapError::BadSize { announced });
    }
    let stat =
        fstat(fd).map_err(|errno| MapError::Local { what: "fstat", source: errno.into() })?;
    let actual = u64::try_from(stat.st_size).unwrap_or(0);
    if actual != announced {
        return Err(MapError::SizeMismatch { announced, actual });
    }
    // Holes are refused: the first access to a hole in the peer's memory would allocate a page for
    // it, charged to this process.
    let allocated = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(STAT_BLOCK_SIZE);
    if allocated < actual {
        return Err(MapError::Sparse { size: actual, allocated });
    }
    Ok(())
}

fn names(seals: SealFlags) -> String {
    let named = [
        (SealFlags::SHRINK, "F_SEAL_SHRINK"),
        (SealFlags::GROW, "F_SEAL_GROW"),
        (SealFlags::FUTURE_WRITE, "F_SEAL_FUTURE_WRITE"),
        (SealFlags::SEAL, "F_SEAL_SEAL"),
    ];
    let present = named.iter().filter(|(seal, _)| seals.contains(*seal));
    present.map(|(_, name)| *name).collect::<Vec<_>>().join("|")
}

/// Why the peer's memory was not mapped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The descriptor that the peer sent is of a kind that has no seals, so it is no memfd.
    #[error("the peer sent a descriptor that is not a memfd ({source})")]
    NotMemfd {
        /// The kernel's error for F_GET_SEALS, the request for the seals of a descriptor.
        source: io::Error,
    },
    /// The memory lacks a required seal, so the peer could still resize it, or let others write it.
    #[error("the peer's memory is not sealed: {missing} missing")]
    MissingSeals {
        /// The names of the missing seals, joined by `|`.
        missing: String,
    },
    /// The memory is not on tmpfs: it may be on hugetlbfs and consist of huge pages, for instance.
    #[error("the peer's memory is on a file system of type {filesystem:#x}, not tmpfs (0x1021994)")]
    NotTmpfs {
        /// The number of the memory's file system type, as statfs returned it.
        filesystem: u64,
    },
    /// The size that the peer announced exceeds the largest size that this process accepts.
    #[error(
        "the peer announced {announced} bytes, the limit here is {limit}: raise it or ask for less"
    )]
    TooLarge {
        /// The size that the peer announced, in bytes.
        announced: u64,
        /// The largest size that this process accepts, in bytes.
        limit: u64,
    },
    /// The size that the peer announced is not a nonzero multiple of [`SIZE_GRANULE`].
    #[error("the peer announced {announced} bytes, which is not a nonzero multiple of 65536")]
    BadSize {
        /// The size that the peer announced, in bytes.
        announced: u64,
    },
    /// The size of the peer's memory differs from the size that the peer announced.
    #[error("the peer announced {announced} bytes, its memory has {actual}")]
    SizeMismatch {
        /// The size that the peer announced, in bytes.
        announced: u64,
        /// Size of the peer's memory in bytes, from fstat.
        actual: u64,
    },
    /// The peer's memory has holes. A read of a hole would allocate memory that is charged to this
    /// process.
    #[error("the peer's memory has {size} bytes, of which only {allocated} are allocated")]
    Sparse {
        /// Size of the peer's memory in bytes.
        size: u64,
        /// Size of the allocated part of the peer's memory, in bytes.
        allocated: u64,
    },
    /// The descriptor of the peer's memory was not opened for reading, so it cannot be mapped.
    #[error("the peer's memory cannot be mapped for reading ({source})")]
    Unreadable {
        /// The kernel's error for mmap, the system call that maps memory.
        source: io::Error,
    },
    /// This process cannot map the peer's memory: its address space or its number of mappings is
    /// exhausted.
    #[error(
        "no room to map {size} bytes of the peer's memory ({source}): look at RLIMIT_AS and \
         vm.max_map_count"
    )]
    OutOfMemory {
        /// Size of the peer's memory in bytes.
        size: u64,
        /// The kernel's error for the system call that failed.
        source: io::Error,
    },
    /// A system call on the peer's memory failed, although it cannot fail on a valid descriptor.
    #[error("{what} failed on the peer's memory: {source}")]
    Local {
        /// The name of the system call that failed.
        what: &'static str,
        /// The kernel's error for the system call that failed.
        source: io::Error,
    },
}

impl MapError {
    /// Whether the error shows that the peer broke the protocol; false if this process lacks a
    /// resource.
    pub fn is_violation(&self) -> bool {
        !matches!(self, MapError::OutOfMemory { .. } | MapError::Local { .. })
    }
}

/// File system number of tmpfs: `TMPFS_MAGIC` of `<linux/magic.h>`.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// The unit, in bytes, in which fstat reports the allocated size of a file (`st_blocks`); it does
/// not depend on the file system's block size.
const STAT_BLOCK_SIZE: u64 = 512;
