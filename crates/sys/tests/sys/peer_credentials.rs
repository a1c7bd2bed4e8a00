// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that a pidfd is accepted only if it belongs to the process whose credentials came with it,
//! and that the death of that process is noticed.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use crate::support;

use std::process::{Child, Command, Stdio};

use partywall_sys::peer::{Namespaces, namespaces};
use partywall_sys::poll::{PollFd, PollFlags, wait};
use partywall_sys::signal::{Signal, kill};
use partywall_sys::{Credentials, Doorbell, PidFd, PidFdError};
use support::deadline;

/// Starts a process that lives until it is killed or its input ends. Returns the process and its
/// id.
fn start_peer() -> (Child, i32) {
    let child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    (child, pid)
}

fn duplicate(fd: impl std::os::fd::AsFd) -> std::os::fd::OwnedFd {
    fd.as_fd().try_clone_to_owned().unwrap()
}

#[test]
fn pidfd_of_other_process_is_refused() {
    let own_pid = Credentials::of_self().pid;
    PidFd::from_peer(duplicate(PidFd::of_self().unwrap()), own_pid).unwrap();

    let (mut child, child_pid) = start_peer();
    let theirs = PidFd::of_pid(child_pid).unwrap();
    let error = PidFd::from_peer(duplicate(&theirs), own_pid).unwrap_err();
    assert!(
        matches!(error, PidFdError::OtherProcess { expected, actual }
            if expected == own_pid && actual == child_pid),
        "{error}"
    );
    assert!(error.is_violation());
    PidFd::from_peer(duplicate(&theirs), child_pid).unwrap();

    kill(child_pid, Signal::KILL).unwrap();
    child.wait().unwrap();
    let error = PidFd::from_peer(duplicate(&theirs), child_pid).unwrap_err();
    assert!(matches!(error, PidFdError::Dead) && !error.is_violation(), "{error}");
}

#[test]
fn descriptor_other_than_pidfd_is_refused() {
    let doorbell = duplicate(Doorbell::new().unwrap());
    let error = PidFd::from_peer(doorbell, Credentials::of_self().pid).unwrap_err();
    assert!(matches!(error, PidFdError::NotPidFd) && error.is_violation(), "{error}");
}

#[test]
fn pidfd_is_readable_after_death() {
    let (mut child, pid) = start_peer();
    let process = PidFd::of_pid(pid).unwrap();
    assert!(!process.is_dead());
    kill(pid, Signal::KILL).unwrap();
    assert_eq!(wait(&mut [PollFd::new(&process, PollFlags::IN)], deadline()).unwrap(), 1);
    assert!(process.is_dead());
    child.wait().unwrap();
    assert!(process.is_dead());
}

#[test]
fn child_shares_namespaces_with_parent() {
    let (mut child, pid) = start_peer();
    assert_eq!(namespaces(pid), Namespaces::Same);
    assert_eq!(namespaces(0), Namespaces::OtherPid);
    assert_eq!([namespaces(-1), namespaces(i32::MAX)], [Namespaces::Unknown; 2]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(namespaces(pid), Namespaces::Unknown);
}

#[test]
fn signal_to_process_group_is_refused() {
    // To kill(2), 0 and negative numbers mean process groups, so `kill` of this crate must refuse
    // them.
    for pid in [0, -1, -7] {
        assert!(kill(pid, Signal::TERM).is_err());
    }
}
