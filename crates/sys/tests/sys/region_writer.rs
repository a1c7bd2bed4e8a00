// SPDX-License-Identifier: MIT OR Apache-2.0
//! A sealed half refuses every way of writing to it, to whoever holds its descriptor; its maker's mapping
//! goes on writing.
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
    // SAFETY: a new mapping where the kernel likes.
    unsafe { mmap(ptr::null_mut(), SIZE_GRANULE, access, MapFlags::SHARED, fd, 0) }
}

#[test]
fn a_holder_of_the_descriptor_cannot_map_it_writable() {
    let own = OwnMap::create("half", SIZE_GRANULE).unwrap();
    let read_write = ProtFlags::READ | ProtFlags::WRITE;
    assert_eq!(map(&own, read_write), Err(Errno::PERM));

    let readable = map(&own, ProtFlags::READ).unwrap();
    // SAFETY: our own mapping from the line above, to which nothing refers.
    let upgraded = unsafe { mprotect(readable, SIZE_GRANULE, MprotectFlags::WRITE) };
    assert_eq!(upgraded, Err(Errno::ACCESS));
    // SAFETY: likewise.
    unsafe { munmap(readable, SIZE_GRANULE) }.unwrap();

    // Opened anew, it may open, but is as sealed.
    let path = format!("/proc/self/fd/{}", own.fd().as_raw_fd());
    if let Ok(reopened) = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        assert_eq!(map(&reopened, read_write), Err(Errno::PERM));
        assert_eq!(rustix::io::write(&reopened, b"x"), Err(Errno::PERM));
    }
}

#[test]
fn a_holder_of_the_descriptor_cannot_write_resize_or_unseal_it() {
    let own = OwnMap::create("half", SIZE_GRANULE).unwrap();
    let size = SIZE_GRANULE as u64;
    assert_eq!(rustix::io::write(&own, b"x"), Err(Errno::PERM));
    assert_eq!(rustix::fs::ftruncate(&own, 0), Err(Errno::PERM));
    assert_eq!(rustix::fs::ftruncate(&own, 2 * size), Err(Errno::PERM));
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert_eq!(rustix::fs::fallocate(&own, punch, 0, 4096), Err(Errno::PERM));
    assert_eq!(rustix::fs::fcntl_add_seals(&own, SealFlags::WRITE), Err(Errno::PERM));
}

#[test]
fn what_the_maker_writes_the_peer_reads() {
    let mut own = OwnMap::create("half", 2 * SIZE_GRANULE).unwrap();
    let peer = PeerMap::map(own.as_fd(), 2 * SIZE_GRANULE as u64, u64::MAX).unwrap();
    own.as_mut_slice()[2 * SIZE_GRANULE - 1] = 9;
    assert_eq!(peer.len(), own.len());
    let last = peer.cells().last().unwrap().get();
    // SAFETY: mapped as long as `peer` lives, and nobody writes now.
    assert_eq!(unsafe { last.read_volatile() }, 9);
}

#[test]
fn the_descriptor_is_close_on_exec_and_goes_with_the_mapping_on_drop() {
    let name = "goes-on-drop";
    let own = OwnMap::create(name, SIZE_GRANULE).unwrap();
    assert!(rustix::io::fcntl_getfd(&own).unwrap().contains(FdFlags::CLOEXEC));
    assert_eq!(held(name), (1, 1));
    drop(own);
    assert_eq!(held(name), (0, 0));
}

/// How many descriptors and mappings of that name this process has.
fn held(name: &str) -> (usize, usize) {
    let fds = open_descriptors(Process::Own).unwrap();
    let maps = mappings(Process::Own).unwrap();
    (
        fds.iter().filter(|(_, target)| target.to_string_lossy().contains(name)).count(),
        maps.iter().filter(|range| range.name.contains(name)).count(),
    )
}

#[test]
fn sizes_no_half_can_have_are_refused_with_advice() {
    for size in [0, 1, SIZE_GRANULE - 1, SIZE_GRANULE + 4096] {
        let error = OwnMap::create("half", size).unwrap_err();
        assert!(matches!(error, MemfdError::BadSize { size: s } if s == size));
        assert!(error.to_string().contains("multiple of 65536"));
    }
}

#[test]
fn more_memory_than_there_is_is_an_error_not_a_crash() {
    // Must be refused up front: the kernel would go on until the out-of-memory killer comes.
    let available = limits::memory_available().expect("no test without: it could eat the machine");
    let too_large = usize::try_from(2 * available).unwrap().next_multiple_of(SIZE_GRANULE);
    for size in [too_large, 1 << 62] {
        let error = OwnMap::create("half", size).unwrap_err();
        assert!(matches!(error, MemfdError::OutOfMemory { .. }), "{error}");
    }
}
