// SPDX-License-Identifier: MIT OR Apache-2.0
//! The own region of this process: a memfd that no other process can write.
//!
//! ```text
//!   memfd_create → ftruncate → fallocate → mmap rw → seal SHRINK|GROW|FUTURE_WRITE|SEAL → send
//!                                             │        └ no process, not even this one, can
//!                                             │          resize it, map it anew or write() to it
//!                                             └ the mapping made before stays writable
//! ```
//!
//! This file does not interpret the bytes, nor does it send the descriptor.
//!
//! # Invariants
//!
//! - Every byte is backed by memory before the constructor returns. So a later store cannot run out
//!   of memory (no SIGBUS), and a reader is never charged for the pages of this process.
//! - The descriptor is sealed before it leaves this module. The size never changes.
//! - A forked child does not inherit the mapping (`MADV_DONTFORK`): in the child, access panics and
//!   drop does nothing.

use core::cell::UnsafeCell;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::fs::{fallocate, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;

use crate::mapping::Mapping;
use crate::{cgroup, limits};

/// A writable mapping of a sealed memfd: the memory of one region.
///
/// ```
/// use partywall_sys::{OwnMap, PeerMap};
/// use std::os::fd::AsFd;
///
/// let mut own = OwnMap::create("region", 64 * 1024)?;
/// own.as_mut_slice()[0] = 7;
/// let peer = PeerMap::map(own.as_fd(), 64 * 1024, 1 << 20)?;
/// assert_eq!(peer.len(), own.len());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct OwnMap {
    // The mapping is dropped before the descriptor of its memory, because it is declared first. The
    // kernel allows either order.
    mapping: Mapping,
    fd: Arc<OwnedFd>,
}

impl OwnMap {
    /// Creates, allocates, maps and seals memory of `size` zeros; `name` shows in `/proc/PID/maps`.
    ///
    /// # Errors
    ///
    /// Fails for one of the reasons in [`MemfdError`]: an invalid size, an unsupported system, no
    /// memory, no descriptors.
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
        Ok(OwnMap { mapping, fd: Arc::new(fd) })
    }

    /// The bytes of the region, to be initialised before the descriptor is sent to the peer.
    ///
    /// # Panics
    ///
    /// In a forked child.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.mapping.as_mut_slice()
    }

    /// The bytes of the region, for the single writer, which tracks the bytes that the peer may be
    /// reading.
    ///
    /// # Panics
    ///
    /// In a forked child.
    pub fn cells(&self) -> &[UnsafeCell<u8>] {
        self.mapping.cells()
    }

    /// The size of the region in bytes, a nonzero multiple of [`SIZE_GRANULE`].
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// The sealed descriptor of the region, to be sent to the peer.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The sealed descriptor of the region, shared with the code that sends it later.
    pub(crate) fn shared_fd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.fd)
    }

    /// Whether the calling process was forked from the process that created the region: in such a
    /// child the region is not mapped.
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

/// Whether this machine and this process's control group seem to have `bytes` of free memory now.
#[must_use]
pub fn is_available(bytes: u64) -> bool {
    usize::try_from(bytes).is_ok_and(|bytes| check_available(bytes).is_ok())
}

/// Returns an error for a region whose size is beyond the free memory of this machine or of this
/// process's control group.
///
/// Without the check fallocate would take page after page and then, instead of failing, trigger the
/// out-of-memory killer, which may choose any process.
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

/// Returns an error for a size beyond RLIMIT_FSIZE, the limit on the size of files. The kernel
/// would refuse such a size as well, but also send the signal SIGXFSZ, which kills the process by
/// default.
pub(crate) fn check_file_size(size: usize) -> Result<(), Errno> {
    match limits::file_size().soft {
        Some(limit) if size as u64 > limit => Err(Errno::FBIG),
        _ => Ok(()),
    }
}

pub(crate) fn create_sealable(name: &str) -> Result<OwnedFd, MemfdError> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let created = match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // Linux before 6.3 does not know the flag NOEXEC_SEAL, so the memfd is created without it.
        Err(Errno::INVAL) => memfd_create(name, flags),
        other => other,
    };
    created.map_err(|e| explain("memfd_create", 0, e))
}

/// Sets the size of the file `fd` and allocates every page of the file.
pub(crate) fn allocate(fd: &OwnedFd, size: usize) -> Result<(), MemfdError> {
    ftruncate(fd, size as u64).map_err(|e| explain("ftruncate", size, e))?;
    // A fallocate that a signal interrupts frees the pages that it has allocated, and has to start
    // over.
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

/// Why a region could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemfdError {
    /// The requested size is not a nonzero multiple of [`SIZE_GRANULE`].
    #[error("{size} bytes is not a valid size for shared memory: use a nonzero multiple of 65536")]
    BadSize {
        /// The requested size of the region, in bytes.
        size: usize,
    },
    /// The kernel or a sandbox does not allow shared memory that can be sealed.
    #[error(
        "this system refuses sealed shared memory ({what}: {source}); it takes Linux 5.1 and a \
         sandbox that allows memfd_create and file seals. The socket transport works without"
    )]
    Unsupported {
        /// The step in which creating the region failed, such as the name of a system call.
        what: &'static str,
        /// The kernel's error for the step that failed.
        source: io::Error,
    },
    /// The machine has too little free memory, or a limit forbids the requested size.
    #[error(
        "no memory for {size} bytes of shared memory ({source}): make the region smaller, or raise \
         the memory limit of the control group"
    )]
    OutOfMemory {
        /// The requested size of the region, in bytes.
        size: usize,
        /// The kernel's error for the step that failed.
        source: io::Error,
    },
    /// The requested size exceeds RLIMIT_FSIZE, which counts shared memory as a file's size.
    #[error(
        "{size} bytes of shared memory exceed the limit for files: raise RLIMIT_FSIZE (ulimit -f)"
    )]
    FileSizeLimit {
        /// The requested size of the region, in bytes.
        size: usize,
    },
    /// No file descriptor is left, in this process or in the system.
    #[error(
        "no file descriptor left for shared memory ({source}): raise RLIMIT_NOFILE (ulimit -n)"
    )]
    DescriptorLimit {
        /// The kernel's error: EMFILE for the process, ENFILE for the system.
        source: io::Error,
    },
    /// Creating the region failed with an error that no other variant names.
    #[error("{what} failed unexpectedly while making shared memory: {source}")]
    Other {
        /// The step in which creating the region failed.
        what: &'static str,
        /// The kernel's error for the step that failed.
        source: io::Error,
    },
}

/// Sizes of shared memory are nonzero multiples of this many bytes, the largest page size of all
/// supported machines.
pub const SIZE_GRANULE: usize = 64 * 1024;

/// The seals that a region must have before its descriptor leaves its process.
pub(crate) const REQUIRED_SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

/// Smallest size in bytes for which the free memory is checked before the allocation; the check
/// costs some file reads.
const CHECKED_SIZE_MIN: usize = 16 << 20;

/// Number of attempts to allocate, each interrupted by a signal, after which the allocation fails.
const FALLOCATE_ATTEMPTS_MAX: u32 = 100;
