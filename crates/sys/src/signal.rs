// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals to child processes, for tests and benchmarks.
//!
//! This file installs no handler and ignores no signal: sockets use `MSG_NOSIGNAL` instead of a
//! global SIGPIPE setting.

use std::fs;
use std::io;
use std::thread;
use std::time::Instant;

use rustix::io::Errno;
use rustix::process::{PidfdFlags, kill_process, pidfd_open, pidfd_send_signal};

use crate::peer::one_process;
use crate::procfs;

pub use rustix::process::Signal;

/// Sends `signal` to process `pid`. The process must be a child that has not been waited for, so
/// that no other process can have its number.
///
/// # Errors
///
/// `ESRCH` if there is no such process, `EPERM` without the permission, `EINVAL` if `pid` is not
/// positive (which to `kill` would mean a whole group).
pub fn kill(pid: i32, signal: Signal) -> io::Result<()> {
    let pid = one_process(pid)?;
    let sent = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(fd) => pidfd_send_signal(fd, signal),
        // If no pidfd can be opened, the signal is sent by process id: Linux is older than 5.3, a
        // sandbox forbids pidfds, or no descriptor is left.
        Err(Errno::NOSYS | Errno::PERM | Errno::MFILE | Errno::NFILE) => kill_process(pid, signal),
        Err(errno) => Err(errno),
    };
    Ok(sent?)
}

/// Stops process `pid`, like [`kill`] with [`Signal::STOP`], and returns once all threads of the
/// process have stopped.
///
/// `kill` alone returns as soon as the signal is sent. A thread on another processor runs on until
/// the thread that receives the signal has been scheduled.
///
/// # Errors
///
/// As in [`kill`], `ESRCH` if there is no such process, `EPERM` without the permission, `EINVAL` if
/// `pid` is not positive; `NotFound` if the process ends meanwhile; `TimedOut` if a thread still
/// ran at `deadline`: the signal remains sent.
pub fn stop(pid: i32, deadline: Instant) -> io::Result<()> {
    kill(pid, Signal::STOP)?;
    while !is_stopped(pid)? {
        if Instant::now() >= deadline {
            let text = format!("process {pid} still ran at the deadline");
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        thread::yield_now();
    }
    Ok(())
}

fn is_stopped(pid: i32) -> io::Result<bool> {
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let stat = match procfs::read_text(thread?.path().join("stat")) {
            Ok(stat) => stat,
            // The error ESRCH means that the thread has ended since the list of threads was read,
            // so it counts as stopped.
            Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => continue,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        // The state of a thread follows the command's name, which may contain any characters, even
        // `)`.
        let state = stat.rsplit_once(") ").map_or("", |(_, state)| state);
        if state.starts_with(['Z', 'X']) {
            let text = format!("process {pid} has ended");
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        if !state.starts_with('T') {
            return Ok(false);
        }
    }
    Ok(true)
}
