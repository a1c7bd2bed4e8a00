// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that a guarded mapping survives the truncation of its file, and that every other SIGBUS
//! keeps its effect. Each case runs in a process of its own, because a handler serves the whole
//! process, and some cases end with the death of the process.

use partywall_sys::{Area, CreatedFile, Pieces, SharedMap, shared_file::create_memfd};
use rustix::fs::ftruncate;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const SIZE: usize = 64 << 10;
const SIGBUS: i32 = 7;

/// Runs test `name` of this file in a child process and returns its exit status.
fn run(name: &str) -> ExitStatus {
    let own = std::env::current_exe().unwrap();
    let mut command = Command::new(own);
    let name = format!("truncated_memory::{name}");
    command.args([&name, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command.output().unwrap().status
}

/// A guarded mapping whose file was then truncated to 0 bytes.
fn truncated() -> SharedMap {
    let fd = create_memfd("truncated", SIZE).unwrap();
    let map = SharedMap::map(fd.as_fd(), SIZE).unwrap();
    map.guard().unwrap();
    map.store(SIZE - 4, 7);
    assert!(!map.is_damaged());
    ftruncate(&fd, 0).unwrap();
    map
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn child_touches_guarded_memory() {
    let map = truncated();
    assert_eq!(map.load(SIZE - 4), 0);
    assert!(map.is_damaged());
    // Expected: the damaged mapping stays usable. It is private memory now, so a load returns what
    // was stored before.
    map.store(8, 9);
    assert_eq!(map.load(8), 9);

    // Input: a second truncated mapping, in which a store into a piece causes the first fault. A
    // copy out of the piece follows.
    let map = Arc::new(truncated());
    let area = Area { offset: 0, stride: SIZE, size: SIZE, count: 1 };
    let pieces = Pieces::new(Arc::clone(&map), area).unwrap();
    let mut piece = pieces.claim(0).unwrap();
    pieces.bytes_mut(&mut piece)[5000] = 1;
    assert!(map.is_damaged());
    let mut copy = vec![1; SIZE];
    pieces.copy(&piece, 0, &mut copy);
    assert_eq!(copy.iter().map(|byte| usize::from(*byte)).sum::<usize>(), 1);

    // Dropping a guarded mapping frees its entry in the table of the SIGBUS handler. A new mapping
    // that gets this entry must not count as damaged.
    drop((pieces, map));
    for _ in 0..10_000 {
        let fd = create_memfd("fresh", 4096).unwrap();
        let map = SharedMap::map(fd.as_fd(), 4096).unwrap();
        map.guard().unwrap();
        assert!(!map.is_damaged());
    }
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn child_touches_from_many_threads() {
    let map = truncated();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let map = &map;
            scope.spawn(move || assert_eq!(map.load(thread * 4096), 0));
        }
    });
    assert!(map.is_damaged());
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn child_touches_memory_without_guard() {
    let _guarded = truncated();
    let fd = create_memfd("unguarded", SIZE).unwrap();
    let map = SharedMap::map(fd.as_fd(), SIZE).unwrap();
    ftruncate(&fd, 0).unwrap();
    map.load(0);
    unreachable!("there is no memory");
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn child_is_sent_the_signal() {
    // The SIGBUS handler that Rust's standard library installs would swallow the first SIGBUS, so
    // the test removes it. SAFETY: the call restores the signal's default action.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
    let _guarded = truncated();
    // SAFETY: `raise` takes only a plain number, that of the signal.
    unsafe { libc::raise(libc::SIGBUS) };
    unreachable!("it kills");
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn child_forks() {
    let map = Arc::new(truncated());
    let area = Area { offset: 0, stride: SIZE, size: SIZE, count: 1 };
    let pieces = Pieces::new(Arc::clone(&map), area).unwrap();
    let piece = pieces.claim(0).unwrap();
    let start = pieces.bytes(&piece, 0, 0).as_ptr().cast_mut();
    let other = create_memfd("other", SIZE).unwrap();
    ftruncate(&other, 0).unwrap();
    // SAFETY: the child only makes system calls, and touches only memory that it maps itself.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_SHARED | libc::MAP_FIXED;
        let fd = std::os::fd::AsRawFd::as_raw_fd(&other);
        // SAFETY: a forked child does not inherit the guarded mapping, so in the child no memory is
        // mapped at this address.
        unsafe { libc::mmap(start.cast(), SIZE, access, kind, fd, 0) };
        // SAFETY: the page is mapped. The file has no memory for the page, so the expected result
        // of the read is SIGBUS.
        unsafe { start.read_volatile() };
        // SAFETY: `_exit` ends this process, a forked child, without running destructors.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: `waitpid` waits for a child of this process, and writes to a local variable.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(waited, child);
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == SIGBUS, "{status:#x}");
    assert!(!map.is_damaged());
}

static HANDLED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count(_signal: i32) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn child_has_a_handler_of_its_own() {
    // SAFETY: the handler that this call installs only increments an atomic.
    unsafe { libc::signal(libc::SIGBUS, count as *const () as usize) };
    let map = truncated();
    assert_eq!(map.load(0), 0);
    assert_eq!(HANDLED.load(Ordering::Relaxed), 0);
    // SAFETY: `raise` takes only a plain number, that of the signal.
    unsafe { libc::raise(libc::SIGBUS) };
    assert_eq!(HANDLED.load(Ordering::Relaxed), 1);
}

#[test]
fn truncated_guarded_memory_reads_zeros_and_is_damaged() {
    assert!(run("child_touches_guarded_memory").success());
    assert!(run("child_touches_from_many_threads").success());
}

#[test]
fn truncated_unguarded_memory_kills() {
    assert_eq!(run("child_touches_memory_without_guard").signal(), Some(SIGBUS));
}

#[test]
fn sigbus_sent_by_process_kills() {
    assert_eq!(run("child_is_sent_the_signal").signal(), Some(SIGBUS));
    assert!(run("child_has_a_handler_of_its_own").success());
}

#[test]
fn forked_child_handles_sigbus_of_own_memory() {
    assert!(run("child_forks").success());
}

#[test]
fn file_is_removed_only_by_creator_and_only_if_unreplaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let file = CreatedFile::create(&path, SIZE).unwrap();
    let again = CreatedFile::create(&path, SIZE).unwrap_err();
    assert_eq!(again.kind(), std::io::ErrorKind::AlreadyExists);
    drop(file);
    assert!(!path.exists());

    let file = CreatedFile::create(&path, SIZE).unwrap();
    std::fs::rename(&path, directory.path().join("moved")).unwrap();
    std::fs::write(&path, "another").unwrap();
    drop(file);
    assert_eq!(std::fs::read(&path).unwrap(), b"another");
}
