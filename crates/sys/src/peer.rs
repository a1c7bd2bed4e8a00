// SPDX-License-Identifier: MIT OR Apache-2.0
//! The identity of the peer: credentials, a descriptor of its process, its namespaces.
//!
//! This file decides nothing: trust and admission are policy of its callers.
//!
//! # Invariants
//!
//! - A [`PidFd`] taken from a peer refers to the very process whose credentials the kernel vouched
//!   for. A peer cannot substitute another process, whose life or death would then be taken for its
//!   own.
//! - Any doubt counts against the peer: the result is `false`, or an error.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::{fork, poll, procfs};

/// The sender of a message, as the kernel verified it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Process id of the sender in the pid namespace of *this* process; 0 if the sender is not
    /// visible in that namespace.
    pub pid: i32,
    /// User id of the sender in the user namespace of *this* process; [`overflow_uid`] if the user
    /// has no number in that namespace.
    pub uid: u32,
    /// Group id of the sender in the user namespace of this process; the overflow gid if the group
    /// has no number in that namespace.
    pub gid: u32,
}

impl Credentials {
    /// The credentials that this process sends: its pid and its effective user and group.
    pub fn of_self() -> Credentials {
        Credentials { pid: own_pid(), uid: own_euid(), gid: own_egid() }
    }

    /// Whether the sender's process has a number in the pid namespace of this process.
    pub fn is_pid_visible(&self) -> bool {
        self.pid > 0
    }
}

/// A descriptor of a process: readable once the process has died, and never refers to another
/// process.
#[derive(Debug)]
pub struct PidFd {
    fd: OwnedFd,
}

impl PidFd {
    /// Opens a descriptor of the calling process, to be sent to the peer.
    ///
    /// # Errors
    ///
    /// `ENOSYS` before Linux 5.3, `EPERM` in some sandboxes, `EMFILE` or `ENFILE` if no descriptor
    /// is left.
    pub fn of_self() -> io::Result<PidFd> {
        PidFd::of_pid(own_pid())
    }

    /// Opens a descriptor of a process by number. The result is reliable only for child processes
    /// that have not been waited for: any other number may be reused at any moment.
    ///
    /// # Errors
    ///
    /// `ENOSYS` before Linux 5.3, `EPERM` in some sandboxes, `EMFILE` or `ENFILE` if no descriptor
    /// is left; `ESRCH` if there is no such process, `EINVAL` if `pid` is not positive.
    pub fn of_pid(pid: i32) -> io::Result<PidFd> {
        Ok(PidFd { fd: pidfd_open(one_process(pid)?, PidfdFlags::empty())? })
    }

    /// Takes over a descriptor that a peer sent as that of its own process, if the descriptor
    /// refers to process `expected_pid`.
    ///
    /// # Errors
    ///
    /// Fails for one of the reasons in [`PidFdError`].
    pub fn from_peer(fd: OwnedFd, expected_pid: i32) -> Result<PidFd, PidFdError> {
        if !procfs::is_our_own() {
            let source = io::Error::other("/proc shows another pid namespace");
            return Err(PidFdError::Unverifiable { source });
        }
        let info = procfs::fdinfo(&fd).map_err(|source| PidFdError::Unverifiable { source })?;
        check_fdinfo(&info, expected_pid)?;
        Ok(PidFd { fd })
    }

    /// Takes over the descriptor that the kernel made of a message's sender (`SCM_PIDFD`).
    pub(crate) fn from_kernel(fd: OwnedFd) -> PidFd {
        PidFd { fd }
    }

    /// Whether the process has died. The call never blocks, and returns false if the kernel cannot
    /// answer at the moment.
    pub fn is_dead(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        poll::wait(&mut fds, Some(Instant::now())).is_ok_and(|ready| ready > 0)
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Checks that `info`, the kernel's description of a descriptor, is that of a pidfd of process
/// `expected`.
fn check_fdinfo(info: &str, expected: i32) -> Result<(), PidFdError> {
    let pid = procfs::field(info, "Pid").ok_or(PidFdError::NotPidFd)?;
    let actual: i32 = pid.parse().map_err(|_| PidFdError::NotPidFd)?;
    if actual == -1 {
        return Err(PidFdError::Dead);
    }
    if actual != expected || expected <= 0 {
        return Err(PidFdError::OtherProcess { expected, actual });
    }
    // The line `NSpid` lists the pids of the pidfd's process, from the namespace of /proc inwards.
    // So its first number is the pid in the line `Pid`.
    let outermost = procfs::field(info, "NSpid").and_then(|all| all.split_whitespace().next());
    if outermost.is_some_and(|first| first != pid) {
        return Err(PidFdError::NotPidFd);
    }
    Ok(())
}

/// Why a descriptor was rejected as that of the peer's process.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PidFdError {
    /// The descriptor that the peer sent is not a pidfd.
    #[error("the peer sent a descriptor that is not a pidfd")]
    NotPidFd,
    /// The pidfd refers to another process than the peer's credentials name.
    #[error("the peer, process {expected}, sent the descriptor of process {actual}")]
    OtherProcess {
        /// The process id in the peer's credentials, which the kernel verified.
        expected: i32,
        /// The pid that the pidfd refers to; 0 if that process is not visible in the pid namespace
        /// of this process.
        actual: i32,
    },
    /// The peer's process has died and been waited for.
    #[error("the process the peer's descriptor refers to is dead")]
    Dead,
    /// The pidfd cannot be checked: `/proc` cannot be read, or is that of another pid namespace.
    #[error(
        "the peer's pidfd cannot be checked through /proc ({source}): is our own /proc mounted?"
    )]
    Unverifiable {
        /// The kernel's error for the attempt to read `/proc`.
        source: io::Error,
    },
}

impl PidFdError {
    /// Whether the peer broke the protocol; false if the peer died or this process lacks a
    /// resource.
    pub fn is_violation(&self) -> bool {
        matches!(self, PidFdError::NotPidFd | PidFdError::OtherProcess { .. })
    }
}

/// The namespaces of a process, compared with those of the calling process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespaces {
    /// The process lives in the user namespace and in the pid namespace of the calling process,
    /// too.
    Same,
    /// The process lives in another pid namespace. It may also live in another user namespace,
    /// which is unknown if the process is not visible to the calling process.
    OtherPid,
    /// The process lives in another user namespace.
    OtherUser,
    /// The namespaces cannot be read: the process has ended, `/proc` is that of another pid
    /// namespace, or access is denied.
    Unknown,
}

/// The namespaces in which process `pid` lives; a `pid` of 0 means a process that is not visible in
/// the caller's pid namespace.
///
/// The process is found by its number, which another process may reuse. So the caller must hold a
/// [`PidFd`] of that process and check that the process still lives *after* this call.
pub fn namespaces(pid: i32) -> Namespaces {
    if pid == 0 {
        return Namespaces::OtherPid;
    }
    if pid < 0 || !procfs::is_our_own() {
        return Namespaces::Unknown;
    }
    match (procfs::own_namespaces(), procfs::namespaces(&pid.to_string())) {
        (Some(own), Some(theirs)) if own == theirs => Namespaces::Same,
        (Some([own, _]), Some([theirs, _])) if own != theirs => Namespaces::OtherUser,
        (Some(_), Some(_)) => Namespaces::OtherPid,
        _ => Namespaces::Unknown,
    }
}

/// Reads the namespaces of this process and its overflow uid, unless they were read before. A
/// connector calls this function while it waits for its peer anyway, so that checking the peer
/// later takes less time.
pub fn prepare() {
    overflow_uid();
    if procfs::is_our_own() {
        procfs::own_namespaces();
    }
}

/// The uid that stands for a user without a number in this process's user namespace; 65534 unless
/// an administrator changed it. The uid is read once: a change takes effect in processes that start
/// later.
pub fn overflow_uid() -> u32 {
    static READ: OnceLock<u32> = OnceLock::new();
    *READ.get_or_init(|| {
        let number = procfs::read_number("/proc/sys/kernel/overflowuid");
        number.and_then(|n| u32::try_from(n).ok()).unwrap_or(OVERFLOW_UID_DEFAULT)
    })
}

/// Converts a process id for a system call that must affect one process, not a group of processes.
/// Some system calls take 0 and negative numbers for groups, and rustix rejects negative numbers in
/// debug builds only.
pub(crate) fn one_process(pid: i32) -> io::Result<Pid> {
    let pid = if pid > 0 { Pid::from_raw(pid) } else { None };
    pid.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Process id of this process, in the type that system calls take.
pub(crate) fn own_pid() -> i32 {
    // The conversion of the process id cannot fail, because process ids are below 2^22.
    i32::try_from(fork::own_pid()).unwrap_or(i32::MAX)
}

/// Effective user id of this process.
pub fn own_euid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Effective group id of this process.
pub fn own_egid() -> u32 {
    rustix::process::getegid().as_raw()
}

/// The overflow uid of a system whose administrator has not changed it: the kernel's
/// `DEFAULT_OVERFLOWUID`.
const OVERFLOW_UID_DEFAULT: u32 = 65534;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_expected_living_process_is_accepted() {
        assert!(check_fdinfo("pos:\t0\nPid:\t42\nNSpid:\t42\t7\n", 42).is_ok());
        assert!(check_fdinfo("Pid:\t42\n", 42).is_ok());
        assert!(matches!(check_fdinfo("pos:\t0\n", 42), Err(PidFdError::NotPidFd)));
        assert!(matches!(check_fdinfo("Pid:\t-1\n", 42), Err(PidFdError::Dead)));
        let other = check_fdinfo("Pid:\t43\nNSpid:\t43\n", 42);
        assert!(matches!(other, Err(PidFdError::OtherProcess { expected: 42, actual: 43 })));
        // The process of the pidfd and the peer are both invisible, so both have the number 0. Two
        // zeros do not prove that they are one process.
        assert!(matches!(check_fdinfo("Pid:\t0\n", 0), Err(PidFdError::OtherProcess { .. })));
        assert!(matches!(check_fdinfo("Pid:\t42\nNSpid:\t9\n", 42), Err(PidFdError::NotPidFd)));
    }
}
