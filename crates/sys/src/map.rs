// SPDX-License-Identifier: MIT OR Apache-2.0
//! The neighbour's half: a descriptor we were given, checked, then mapped read-only.
//!
//! ```text
//!   F_GET_SEALS ⊇ required → tmpfs → announced ≤ limit → multiple of 64 KiB → st_size → st_blocks → mmap
//!   nobody can shrink it     no      what we accept       as every half        as      no holes    r--
//!   under us: no SIGBUS      hugetlb                                           told
//! ```
//!
//! It does not read a single byte: what is in there is for the layers above to judge.
//!
//! # Invariants
//!
//! - The seals are checked first, so nothing found by the later checks can change afterwards.
//! - The mapping is `PROT_READ`: no code of ours can write to the neighbour's memory.

use core::cell::UnsafeCell;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{SealFlags, fcntl_get_seals, fstat, fstatfs};
use rustix::io::Errno;

use crate::mapping::Mapping;
use crate::memfd::{REQUIRED_SEALS, SIZE_GRANULE};

/// A read-only mapping of the neighbour's memfd.
pub struct PeerMap {
    mapping: Mapping,
}

impl PeerMap {
    /// Checks and maps `fd`, which the neighbour says holds `announced` bytes; we accept up to `limit`.
    ///
    /// The descriptor may be closed afterwards.
    ///
    /// # Errors
    ///
    /// See [`MapError`]; [`MapError::is_violation`] tells a neighbour's fault from a lack on our side.
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

    /// The bytes; the neighbour may change any of them at any time.
    pub fn cells(&self) -> &[UnsafeCell<u8>] {
        self.mapping.cells()
    }

    /// The size in bytes, a nonzero multiple of [`SIZE_GRANULE`].
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

/// Is it sealed memory at all?
fn check_kind(fd: BorrowedFd<'_>) -> Result<(), MapError> {
    let present = fcntl_get_seals(fd).map_err(|errno| match errno {
        // EBADF: the descriptor is ours to have, so it was opened with O_PATH.
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

/// Whether a file is of ordinary shared memory.
pub(crate) fn is_tmpfs(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(filesystem(fd)? == TMPFS_MAGIC)
}

fn filesystem(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    let filesystem = fstatfs(fd)?.f_type;
    #[allow(clippy::useless_conversion, reason = "the type differs by architecture")]
    Ok(u64::try_from(filesystem).unwrap_or(u64::MAX))
}

/// Is it as large as announced, no larger than we allow, and all there?
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
    // A hole would be filled at our first access, and charged to us.
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

/// Why the neighbour's memory was not mapped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The descriptor is of a kind that has no seals.
    #[error("the peer sent a descriptor that is no memfd ({source})")]
    NotMemfd {
        /// What the kernel said to F_GET_SEALS.
        source: io::Error,
    },
    /// The memory could change its size, or be written by others, under us.
    #[error("the peer's memory is not sealed: {missing} missing")]
    MissingSeals {
        /// The names of the missing seals, joined by `|`.
        missing: String,
    },
    /// The memory is not ordinary shared memory, but for instance made of huge pages.
    #[error("the peer's memory is on a file system of type {filesystem:#x}, not tmpfs (0x1021994)")]
    NotTmpfs {
        /// `f_type` as statfs gives it.
        filesystem: u64,
    },
    /// More than we are willing to map.
    #[error(
        "the peer announced {announced} bytes, the limit here is {limit}: raise it or ask for less"
    )]
    TooLarge {
        /// In bytes.
        announced: u64,
        /// In bytes.
        limit: u64,
    },
    /// Not a size that a half can have.
    #[error("the peer announced {announced} bytes, which is not a nonzero multiple of 65536")]
    BadSize {
        /// In bytes.
        announced: u64,
    },
    /// The file has another size than the peer told us.
    #[error("the peer announced {announced} bytes, its memory has {actual}")]
    SizeMismatch {
        /// In bytes.
        announced: u64,
        /// In bytes, from fstat.
        actual: u64,
    },
    /// The memory has holes, which reading would fill at our expense.
    #[error("the peer's memory has {size} bytes, of which only {allocated} are allocated")]
    Sparse {
        /// In bytes.
        size: u64,
        /// In bytes.
        allocated: u64,
    },
    /// The descriptor does not allow reading.
    #[error("the peer's memory cannot be mapped for reading ({source})")]
    Unreadable {
        /// What the kernel said to mmap.
        source: io::Error,
    },
    /// We lack the address space or the mappings.
    #[error(
        "no room to map {size} bytes of the peer's memory ({source}): look at RLIMIT_AS and \
         vm.max_map_count"
    )]
    OutOfMemory {
        /// In bytes.
        size: u64,
        /// What the kernel said.
        source: io::Error,
    },
    /// A call that cannot fail on a good descriptor failed.
    #[error("{what} failed on the peer's memory: {source}")]
    Local {
        /// The call.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl MapError {
    /// True if the peer broke the rules; false if this process lacks something.
    pub fn is_violation(&self) -> bool {
        !matches!(self, MapError::OutOfMemory { .. } | MapError::Local { .. })
    }
}

/// `TMPFS_MAGIC` of `<linux/magic.h>`.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// The unit of `st_blocks`, whatever the file system's own block size.
const STAT_BLOCK_SIZE: u64 = 512;
