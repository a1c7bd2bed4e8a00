// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that every defect of a peer's memory is found before the memory is mapped, and that the
//! error names the defect.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use crate::support;

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use partywall_sys::{Doorbell, MapError, PeerMap, SIZE_GRANULE, Socket};
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::fs::{fallocate, fcntl_add_seals, ftruncate, memfd_create};

const SIZE: u64 = SIZE_GRANULE as u64;
const LIMIT: u64 = 16 * SIZE;

fn all_seals() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL
}

/// Returns a memfd as a peer would make it. The given flags, sizes and seals let a test give the
/// memfd a defect.
fn memfd(flags: MemfdFlags, size: u64, allocated: u64, seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | flags;
    let fd = memfd_create("hostile", flags).unwrap();
    ftruncate(&fd, size).unwrap();
    if allocated > 0 {
        fallocate(&fd, FallocateFlags::empty(), 0, allocated).unwrap();
    }
    fcntl_add_seals(&fd, seals).unwrap();
    fd
}

fn refusal(fd: impl AsFd, announced: u64) -> MapError {
    let error = PeerMap::map(fd.as_fd(), announced, LIMIT).unwrap_err();
    assert!(error.is_violation(), "{error}");
    error
}

#[test]
fn honest_memfd_is_mapped() {
    let fd = memfd(MemfdFlags::empty(), SIZE, SIZE, all_seals());
    let map = PeerMap::map(fd.as_fd(), SIZE, SIZE).unwrap();
    drop(fd);
    assert_eq!(map.cells().len(), SIZE_GRANULE);
}

#[test]
fn memfd_with_missing_seal_is_refused_by_name() {
    let names = [
        (SealFlags::SHRINK, "F_SEAL_SHRINK"),
        (SealFlags::GROW, "F_SEAL_GROW"),
        (SealFlags::FUTURE_WRITE, "F_SEAL_FUTURE_WRITE"),
        (SealFlags::SEAL, "F_SEAL_SEAL"),
    ];
    for (seal, name) in names {
        let fd = memfd(MemfdFlags::empty(), SIZE, SIZE, all_seals().difference(seal));
        let error = refusal(&fd, SIZE);
        assert!(matches!(&error, MapError::MissingSeals { missing } if missing == name), "{error}");
    }
}

#[test]
fn descriptor_of_other_kind_is_refused() {
    let directory = support::Directory::new();
    let file = File::create(directory.join("file")).unwrap();
    file.set_len(SIZE).unwrap();
    let (pipe, _other_end) = rustix::pipe::pipe().unwrap();
    let path_only =
        rustix::fs::open(directory.path(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let doorbell = Doorbell::new().unwrap();
    for fd in [file.as_fd(), pipe.as_fd(), path_only.as_fd(), doorbell.as_fd()] {
        let error = refusal(fd, SIZE);
        // The temporary directory may be a tmpfs. Files on tmpfs have seals, but the kernel lets no
        // process add seals to them.
        assert!(
            matches!(error, MapError::NotMemfd { .. } | MapError::MissingSeals { .. }),
            "{error}"
        );
    }
    let error = refusal(&pipe, SIZE);
    assert!(matches!(error, MapError::NotMemfd { .. }), "{error}");
}

#[test]
fn memfd_of_huge_pages_is_refused() {
    // `map` checks the file system before it maps, so the machine needs no huge pages for this
    // test.
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
    let fd = match memfd_create("hostile", flags) {
        Ok(fd) => fd,
        Err(errno) => return println!("skipped: no memfd of huge pages here ({errno})"),
    };
    fcntl_add_seals(&fd, all_seals()).unwrap();
    let error = refusal(&fd, SIZE);
    assert!(matches!(error, MapError::NotTmpfs { filesystem: 0x9584_58f6 }), "{error}");
}

#[test]
fn announced_size_beyond_limit_is_refused_first() {
    let fd = memfd(MemfdFlags::empty(), SIZE, SIZE, all_seals());
    let error = refusal(&fd, LIMIT + SIZE);
    assert!(matches!(error, MapError::TooLarge { limit: LIMIT, .. }), "{error}");
    assert!(matches!(refusal(&fd, u64::MAX), MapError::TooLarge { .. }));
}

#[test]
fn size_invalid_for_region_is_refused() {
    for size in [0, 1, 4096, SIZE + 1] {
        let fd = memfd(MemfdFlags::empty(), size, size, all_seals());
        let error = refusal(&fd, size);
        assert!(matches!(error, MapError::BadSize { announced } if announced == size), "{error}");
    }
}

#[test]
fn size_other_than_announced_is_refused() {
    let fd = memfd(MemfdFlags::empty(), 2 * SIZE, 2 * SIZE, all_seals());
    for announced in [SIZE, 3 * SIZE] {
        let error = refusal(&fd, announced);
        assert!(
            matches!(error, MapError::SizeMismatch { announced: a, actual } if a == announced && actual == 2 * SIZE),
            "{error}"
        );
    }
}

#[test]
fn sparse_memfd_is_refused() {
    for allocated in [0, SIZE] {
        let fd = memfd(MemfdFlags::empty(), 2 * SIZE, allocated, all_seals());
        let error = refusal(&fd, 2 * SIZE);
        assert!(
            matches!(error, MapError::Sparse { size, allocated: a } if size == 2 * SIZE && a == allocated),
            "{error}"
        );
    }
}

#[test]
fn unreadable_descriptor_is_refused() {
    use std::os::fd::AsRawFd;
    let fd = memfd(MemfdFlags::empty(), SIZE, SIZE, SealFlags::SHRINK | SealFlags::GROW);
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let write_only =
        rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    fcntl_add_seals(&fd, all_seals()).unwrap();
    let error = refusal(&write_only, SIZE);
    assert!(matches!(error, MapError::Unreadable { .. }), "{error}");
}

#[test]
fn end_of_a_pair_is_a_connected_unix_stream() {
    use rustix::net::{AddressFamily, SocketType, socket};
    let unconnected = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    let error = Socket::adopt_pair(unconnected).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotConnected);
    let (near, far) = Socket::pair().unwrap();
    drop(far);
    let near = near.as_fd().try_clone_to_owned().unwrap();
    assert!(Socket::adopt_pair(near).is_ok(), "a pair whose peer has closed is still one");
}
