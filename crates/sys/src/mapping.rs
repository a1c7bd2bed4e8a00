// SPDX-License-Identifier: MIT OR Apache-2.0
//! One shared mapping of one descriptor, unmapped on drop. This file holds all `unsafe` code of
//! [`memfd`](crate::memfd) and [`map`](crate::map).
//!
//! This file does not check the descriptor: `memfd` maps memory that it created, `map` memory that
//! it has checked.
//!
//! # Invariants
//!
//! - `start..start + len` is mapped while the value lives, in the process that made the value.
//! - A writable mapping (`DONTFORK`) carries a [`ForkGuard`]. In a forked child the range is not
//!   mapped, or holds other memory, so the child neither reads, writes nor unmaps it.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::ptr::{self, NonNull};
use core::slice;
use std::os::fd::BorrowedFd;

use rustix::io;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::fork::ForkGuard;

pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
    /// The fork guard of the process that made the mapping. `Some` for a writable mapping, which a
    /// forked child does not inherit.
    owner: Option<ForkGuard>,
}

impl Mapping {
    /// Maps the first `len` bytes of `fd`, readable and writable. Forked children do not inherit
    /// the mapping.
    pub(crate) fn writable(fd: BorrowedFd<'_>, len: usize) -> io::Result<Mapping> {
        let guard = ForkGuard::current();
        let mut mapping = Mapping::shared(fd, len, ProtFlags::READ | ProtFlags::WRITE)?;
        mapping.advise(Advice::LinuxDontFork)?;
        mapping.owner = Some(guard);
        Ok(mapping)
    }

    pub(crate) fn read_only(fd: BorrowedFd<'_>, len: usize) -> io::Result<Mapping> {
        Mapping::shared(fd, len, ProtFlags::READ)
    }

    fn shared(fd: BorrowedFd<'_>, len: usize, access: ProtFlags) -> io::Result<Mapping> {
        // The flags never include MAP_NORESERVE: a lack of memory must make mmap fail, not the
        // first access. SAFETY: the kernel chooses the address of the new mapping, so the mapping
        // replaces no memory of this process.
        let start = unsafe { mmap(ptr::null_mut(), len, access, MapFlags::SHARED, fd, 0) }?;
        let mapping = Mapping {
            // Without MAP_FIXED mmap never returns address 0.
            start: NonNull::new(start.cast()).ok_or(io::Errno::NOMEM)?,
            len,
            owner: None,
        };
        // Huge pages are switched off, because one of them would charge 2 MiB to this process for a
        // few used bytes. A mapping that is smaller than a huge page gets none. A kernel without
        // huge pages returns EINVAL, which is ignored.
        if len >= HUGE_PAGE_SIZE_MIN {
            let _ = mapping.advise(Advice::LinuxNoHugepage);
        }
        Ok(mapping)
    }

    fn advise(&self, advice: Advice) -> io::Result<()> {
        // SAFETY: the range stays mapped as long as this value lives, and none of the advice values
        // used here changes its content.
        unsafe { madvise(self.address(), self.len, advice) }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_inherited(&self) -> bool {
        self.owner.is_some_and(|guard| guard.is_child())
    }

    /// The bytes of the mapping. Another process may change them at any time, and this process may
    /// change them through the same cells.
    pub(crate) fn cells(&self) -> &[UnsafeCell<u8>] {
        assert!(!self.is_inherited(), "{INHERITED}");
        // SAFETY: the range stays mapped and readable as long as this value lives, so for the
        // borrow; UnsafeCell<u8> promises nothing about its content. Writing through a cell needs
        // an unsafe block of its own in the code that does so.
        unsafe { slice::from_raw_parts(self.start.as_ptr().cast(), self.len) }
    }

    /// The bytes of a writable mapping. Panics on a read-only mapping, and in a forked child.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        assert!(self.owner.is_some(), "the mapping is read-only");
        assert!(!self.is_inherited(), "{INHERITED}");
        // SAFETY: the range is mapped writable for the borrow (asserted). This process is its only
        // writer: it sealed the memory before it sent the descriptor, or it owns the file. The
        // mutable borrow of this value rules out another reference to the bytes.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    fn address(&self) -> *mut c_void {
        self.start.as_ptr().cast()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.is_inherited() {
            return;
        }
        // SAFETY: this value alone owns the range, which has been mapped since the value was made,
        // and every borrow of the value has ended. munmap can only fail for a range that is not
        // page-aligned, and mmap's result is page-aligned.
        let _ = unsafe { munmap(self.address(), self.len) };
    }
}

// SAFETY: mapped memory belongs to the process, not to a thread; any thread may unmap it.
unsafe impl Send for Mapping {}

// SAFETY: through a shared reference, threads only get numbers that never change, and the bytes as
// `UnsafeCell`s, which each accesses in an unsafe block of its own.
unsafe impl Sync for Mapping {}

/// Size in bytes of the smallest huge page that the kernel maps into a process by itself.
const HUGE_PAGE_SIZE_MIN: usize = 2 << 20;

const INHERITED: &str = "a forked child must not touch the shared memory of its parent";
