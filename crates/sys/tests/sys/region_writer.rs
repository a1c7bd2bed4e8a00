// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that a sealed region refuses every kind of write through its descriptor, while its owner's
//! mapping stays writable.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use partywall_sys::limits;
use partywall_sys::process::{Process, mappings, open_descriptors};
use partywall_sys::{MemfdError, OwnMap, PeerMap, SIZE_GRANULE};
use rustix::fs::{FallocateFlags, Mode, OFlags, SealFlags};
use rustix::io::{Errno, FdFlags};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect, munmap};

fn map(fd: impl AsFd, access: ProtFlags) -> rustix::io::Result<*mut core::ffi::c_void> {
    // SAFETY: `mmap` makes a new mapping, at an address that the kernel chooses.
    unsafe { mmap(ptr::null_mut(), SIZE_GRANULE, access, MapFlags::SHARED, fd, 0) }
}

#[test]
fn descriptor_holder_cannot_map_writable() {
    let own = OwnMap::create("region", SIZE_GRANULE).unwrap();
    let read_write = ProtFlags::READ | ProtFlags::WRITE;
    assert_eq!(map(&own, read_write), Err(Errno::PERM));

    let readable = map(&own, ProtFlags::READ).unwrap();
    // SAFETY: this test has just made the mapping, and no reference points into it.
    let upgraded = unsafe { mprotect(readable, SIZE_GRANULE, MprotectFlags::WRITE) };
    assert_eq!(upgraded, Err(Errno::ACCESS));
    // SAFETY: this test has made the mapping, and no reference points into it.
    unsafe { munmap(readable, SIZE_GRANULE) }.unwrap();

    // Opening the region's file again through `/proc` may succeed, but the file's seals still
    // apply.
    let path = format!("/proc/self/fd/{}", own.fd().as_raw_fd());
    if let Ok(reopened) = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        assert_eq!(map(&reopened, read_write), Err(Errno::PERM));
        assert_eq!(rustix::io::write(&reopened, b"x"), Err(Errno::PERM));
    }
}

#[test]
fn descriptor_holder_cannot_write_resize_or_unseal() {
    let own = OwnMap::create("region", SIZE_GRANULE).unwrap();
    let size = SIZE_GRANULE as u64;
    assert_eq!(rustix::io::write(&own, b"x"), Err(Errno::PERM));
    assert_eq!(rustix::fs::ftruncate(&own, 0), Err(Errno::PERM));
    assert_eq!(rustix::fs::ftruncate(&own, 2 * size), Err(Errno::PERM));
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert_eq!(rustix::fs::fallocate(&own, punch, 0, 4096), Err(Errno::PERM));
    assert_eq!(rustix::fs::fcntl_add_seals(&own, SealFlags::WRITE), Err(Errno::PERM));
}

#[test]
fn peer_reads_bytes_of_owner() {
    let mut own = OwnMap::create("region", 2 * SIZE_GRANULE).unwrap();
    let peer = PeerMap::map(own.as_fd(), 2 * SIZE_GRANULE as u64, u64::MAX).unwrap();
    own.as_mut_slice()[2 * SIZE_GRANULE - 1] = 9;
    assert_eq!(peer.len(), own.len());
    let last = peer.cells().last().unwrap().get();
    // SAFETY: the byte is mapped as long as `peer` lives, and no thread writes it now.
    assert_eq!(unsafe { last.read_volatile() }, 9);
}

#[test]
fn descriptor_is_close_on_exec_and_closed_with_mapping() {
    let name = "goes-on-drop";
    let own = OwnMap::create(name, SIZE_GRANULE).unwrap();
    assert!(rustix::io::fcntl_getfd(&own).unwrap().contains(FdFlags::CLOEXEC));
    assert_eq!(held(name), (1, 1));
    drop(own);
    assert_eq!(held(name), (0, 0));
}

/// Number of descriptors, and number of mappings, of this process that have the name `name`.
fn held(name: &str) -> (usize, usize) {
    let fds = open_descriptors(Process::Own).unwrap();
    let maps = mappings(Process::Own).unwrap();
    (
        fds.iter().filter(|(_, target)| target.to_string_lossy().contains(name)).count(),
        maps.iter().filter(|range| range.name.contains(name)).count(),
    )
}

#[test]
fn size_invalid_for_region_is_refused_with_advice() {
    for size in [0, 1, SIZE_GRANULE - 1, SIZE_GRANULE + 4096] {
        let error = OwnMap::create("region", size).unwrap_err();
        assert!(matches!(error, MemfdError::BadSize { size: s } if s == size));
        assert!(error.to_string().contains("multiple of 65536"));
    }
}

#[test]
fn size_beyond_available_memory_is_error() {
    // Input: a size above the free memory. It must be refused before the allocation, because the
    // kernel would allocate until the out-of-memory killer acts.
    let available = limits::memory_available().expect("no test without: it could eat the machine");
    let too_large = usize::try_from(2 * available).unwrap().next_multiple_of(SIZE_GRANULE);
    for size in [too_large, 1 << 62] {
        let error = OwnMap::create("region", size).unwrap_err();
        assert!(matches!(error, MemfdError::OutOfMemory { .. }), "{error}");
    }
}
