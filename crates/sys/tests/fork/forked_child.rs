// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that a forked child treats inherited objects as its parent's: it has no writable region,
//! unmaps nothing and removes no socket file. Listeners and regions that the child creates work,
//! and its own children treat them as inherited.
//!
//! Between fork and exit a child neither prints nor panics, because locks that other threads held
//! stay locked in the child.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use crate::support;

use std::ptr;

use partywall_sys::poll::{PollFd, PollFlags, wait};
use partywall_sys::process::{Process, mappings};
use partywall_sys::{ForkGuard, Listener, OwnMap, PidFd, SIZE_GRANULE, connect_unix_path};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::process::{Pid, WaitOptions, waitpid};
use support::{Directory, deadline};

unsafe extern "C" {
    fn fork() -> i32;
    fn _exit(code: i32) -> !;
}

/// Runs `work` in a forked child and returns its result, a number below 100.
fn in_child(work: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child runs only `work`, which takes no lock that another thread may hold, and
    // exits.
    let pid = unsafe { fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let answer = work();
        // SAFETY: `_exit` ends the child without running exit handlers, which the child has copied
        // from its parent.
        unsafe { _exit(answer) };
    }
    let child = PidFd::of_pid(pid).unwrap();
    let ended = wait(&mut [PollFd::new(&child, PollFlags::IN)], deadline()).unwrap();
    if ended == 0 {
        partywall_sys::signal::kill(pid, partywall_sys::signal::Signal::KILL).unwrap();
    }
    let (_, status) = waitpid(Pid::from_raw(pid), WaitOptions::empty()).unwrap().unwrap();
    status.exit_status().expect("the child was killed, or hung and had to be")
}

#[test]
fn fork_guard_distinguishes_child_from_owner_over_two_forks() {
    let parents = ForkGuard::current();
    let answer = in_child(|| {
        if !parents.is_child() {
            return 1;
        }
        let own = ForkGuard::current();
        if own.is_child() || !parents.is_child() || ForkGuard::current().is_child() {
            return 2;
        }
        in_child(|| i32::from(!own.is_child()) * 3 + i32::from(!parents.is_child()) * 4)
    });
    assert_eq!(answer, 0);
    assert!(parents.is_owner());
}

#[test]
fn region_is_absent_in_child_whose_drop_unmaps_nothing() {
    let own = OwnMap::create("not-inherited", SIZE_GRANULE).unwrap();
    let address = own.cells().as_ptr() as usize;
    let mut own = Some(own);
    let answer = in_child(|| {
        let maps = mappings(Process::Own).unwrap_or_default();
        if maps.iter().any(|range| range.name.contains("not-inherited")) {
            return 1;
        }
        if !own.as_ref().is_some_and(OwnMap::is_inherited) {
            return 2;
        }
        // To show that dropping the parent's region unmaps nothing, the child maps memory of its
        // own at the address of that region.
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::FIXED_NOREPLACE);
        let wanted = ptr::without_provenance_mut(address);
        // SAFETY: FIXED_NOREPLACE maps only addresses at which nothing is mapped.
        let moved_in =
            unsafe { mmap_anonymous(wanted, SIZE_GRANULE, access, flags | MapFlags::PRIVATE) };
        let Ok(moved_in) = moved_in else { return 3 };
        let word = moved_in.cast::<u64>();
        // SAFETY: the test has just mapped the page for writing.
        unsafe { word.write_volatile(42) };
        drop(own.take());
        // SAFETY: the test has mapped the page. If the drop of the parent's region had unmapped it,
        // the child would die and the test fail.
        if unsafe { word.read_volatile() } == 42 { 0 } else { 4 }
    });
    assert_eq!(answer, 0);
    own.as_mut().unwrap().as_mut_slice()[0] = 1;
}

#[test]
fn listener_dropped_by_child_leaves_socket_file() {
    let directory = Directory::new();
    let path = directory.join("socket");
    let mut listener = Some(Listener::listen_unix_path(&path, 0o600, 4).unwrap());
    let answer = in_child(|| {
        drop(listener.take());
        0
    });
    assert_eq!(answer, 0);
    connect_unix_path(&path, deadline()).unwrap();
    drop(listener);
    assert!(!path.exists());
}

#[test]
fn child_creates_own_regions() {
    let _parents = OwnMap::create("parents", SIZE_GRANULE).unwrap();
    let answer = in_child(|| match OwnMap::create("childs", SIZE_GRANULE) {
        Ok(mut own) if !own.is_inherited() => {
            own.as_mut_slice()[0] = 1;
            0
        }
        _ => 1,
    });
    assert_eq!(answer, 0);
}
