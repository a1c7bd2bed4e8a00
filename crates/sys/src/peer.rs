// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who the neighbour is: credentials, a descriptor of its process, its namespaces.
//!
//! It decides nothing: trust and admission are policy of the layers above.
//!
//! # Invariants
//!
//! - A [`PidFd`] taken from a peer refers to the very process whose credentials the kernel vouched for:
//!   a peer cannot hand us another process whose death (or life) we would then believe in.
//! - Whatever cannot be found out counts against the peer: `false`, or an error.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::{poll, procfs};

/// What the kernel vouches for about the sender of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The process, as numbered in *our* pid namespace; 0 if it is not visible there.
    pub pid: i32,
    /// The user, as numbered in *our* user namespace; [`overflow_uid`] if it has no number there.
    pub uid: u32,
    /// The group, likewise.
    pub gid: u32,
}

impl Credentials {
    /// What we send: our pid and our effective user and group.
    pub fn of_self() -> Credentials {
        let pid = rustix::process::getpid().as_raw_pid();
        Credentials { pid, uid: own_euid(), gid: own_egid() }
    }

    /// True if the sender's process has a number in our pid namespace.
    pub fn is_pid_visible(&self) -> bool {
        self.pid > 0
    }
}

/// A descriptor of a process: becomes readable when the process dies, and never means another one.
#[derive(Debug)]
pub struct PidFd {
    fd: OwnedFd,
}

impl PidFd {
    /// A descriptor of this process, to be sent to the neighbour.
    ///
    /// # Errors
    ///
    /// `ENOSYS` before Linux 5.3, `EPERM` in some sandboxes, `EMFILE`/`ENFILE`.
    pub fn of_self() -> io::Result<PidFd> {
        PidFd::of_pid(rustix::process::getpid().as_raw_pid())
    }

    /// A descriptor of a process by number: sound only for our own children not yet waited for, as a
    /// number may otherwise be reused at any moment.
    ///
    /// # Errors
    ///
    /// As [`PidFd::of_self`]; `ESRCH` if there is no such process, `EINVAL` if `pid` is not positive.
    pub fn of_pid(pid: i32) -> io::Result<PidFd> {
        Ok(PidFd { fd: pidfd_open(one_process(pid)?, PidfdFlags::empty())? })
    }

    /// Takes over a descriptor that a peer sent as its own, if it is that of process `expected_pid`.
    ///
    /// # Errors
    ///
    /// See [`PidFdError`].
    pub fn from_peer(fd: OwnedFd, expected_pid: i32) -> Result<PidFd, PidFdError> {
        if !procfs::is_our_own() {
            let source = io::Error::other("/proc shows another pid namespace");
            return Err(PidFdError::Unverifiable { source });
        }
        let info = procfs::fdinfo(&fd).map_err(|source| PidFdError::Unverifiable { source })?;
        check_fdinfo(&info, expected_pid)?;
        Ok(PidFd { fd })
    }

    /// True if the process has died. Never blocks; false if the kernel cannot say right now.
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

/// Judges the kernel's description of a descriptor that should be the pidfd of `expected`.
fn check_fdinfo(info: &str, expected: i32) -> Result<(), PidFdError> {
    let pid = procfs::field(info, "Pid").ok_or(PidFdError::NotPidFd)?;
    let actual: i32 = pid.parse().map_err(|_| PidFdError::NotPidFd)?;
    if actual == -1 {
        return Err(PidFdError::Dead);
    }
    if actual != expected || expected <= 0 {
        return Err(PidFdError::OtherProcess { expected, actual });
    }
    // NSpid counts from the namespace of /proc inwards, so it starts with the same number.
    let outermost = procfs::field(info, "NSpid").and_then(|all| all.split_whitespace().next());
    if outermost.is_some_and(|first| first != pid) {
        return Err(PidFdError::NotPidFd);
    }
    Ok(())
}

/// Why a descriptor was not accepted as that of the peer's process.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PidFdError {
    /// Some other kind of descriptor.
    #[error("the peer sent a descriptor that is no pidfd")]
    NotPidFd,
    /// A pidfd, but not of the process the kernel says we talk to.
    #[error("the peer, process {expected}, sent the descriptor of process {actual}")]
    OtherProcess {
        /// From the peer's credentials.
        expected: i32,
        /// From the descriptor; 0 if that process is not visible here.
        actual: i32,
    },
    /// The process it refers to has died and been waited for.
    #[error("the process the peer's descriptor refers to is dead")]
    Dead,
    /// We could not look.
    #[error(
        "the peer's pidfd cannot be checked through /proc ({source}): is our own /proc mounted?"
    )]
    Unverifiable {
        /// What the kernel said.
        source: io::Error,
    },
}

impl PidFdError {
    /// True if the peer broke the rules; false if it died or this process lacks something.
    pub fn is_violation(&self) -> bool {
        matches!(self, PidFdError::NotPidFd | PidFdError::OtherProcess { .. })
    }
}

/// True if process `pid` certainly lives in our user namespace and in our pid namespace.
///
/// By number, so hold a [`PidFd`] of that process and look that it still lives *after* asking.
pub fn same_namespaces(pid: i32) -> bool {
    pid > 0
        && procfs::is_our_own()
        && ["user", "pid"].iter().all(|kind| {
            let own = std::fs::read_link(format!("/proc/thread-self/ns/{kind}"));
            let peer = std::fs::read_link(format!("/proc/{pid}/ns/{kind}"));
            matches!((own, peer), (Ok(own), Ok(peer)) if own == peer)
        })
}

/// The number that stands for "a user with no number in our user namespace"; 65534 unless configured.
pub fn overflow_uid() -> u32 {
    let number = procfs::read_number("/proc/sys/kernel/overflowuid");
    number.and_then(|n| u32::try_from(n).ok()).unwrap_or(OVERFLOW_UID_DEFAULT)
}

/// A number that can only mean one process: to some calls 0 and negative ones mean groups, and rustix
/// asserts against the latter in debug builds only.
pub(crate) fn one_process(pid: i32) -> io::Result<Pid> {
    let pid = if pid > 0 { Pid::from_raw(pid) } else { None };
    pid.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Our effective user.
pub fn own_euid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Our effective group.
pub fn own_egid() -> u32 {
    rustix::process::getegid().as_raw()
}

/// `DEFAULT_OVERFLOWUID` of the kernel.
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
        // Invisible process, invisible peer: two zeros are no proof.
        assert!(matches!(check_fdinfo("Pid:\t0\n", 0), Err(PidFdError::OtherProcess { .. })));
        assert!(matches!(check_fdinfo("Pid:\t42\nNSpid:\t9\n", 42), Err(PidFdError::NotPidFd)));
    }
}
