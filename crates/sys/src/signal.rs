// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals to children that we started, for tests and measurements.
//!
//! It installs no handler and ignores nothing: sockets use `MSG_NOSIGNAL` instead of a global SIGPIPE.

use std::io;

use rustix::io::Errno;
use rustix::process::{PidfdFlags, kill_process, pidfd_open, pidfd_send_signal};

use crate::peer::one_process;

pub use rustix::process::Signal;

/// Sends `signal` to process `pid`: a child of ours that has not been waited for, so that its number
/// cannot have been reused.
///
/// # Errors
///
/// `ESRCH` if there is no such process, `EPERM` if it is not ours to signal, `EINVAL` if `pid` is not
/// positive (which to `kill` would mean a whole group).
pub fn kill(pid: i32, signal: Signal) -> io::Result<()> {
    let pid = one_process(pid)?;
    let sent = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(fd) => pidfd_send_signal(fd, signal),
        // Linux before 5.3, or a sandbox without pidfds, or no descriptor left.
        Err(Errno::NOSYS | Errno::PERM | Errno::MFILE | Errno::NFILE) => kill_process(pid, signal),
        Err(errno) => Err(errno),
    };
    Ok(sent?)
}
