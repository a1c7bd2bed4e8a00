// SPDX-License-Identifier: MIT OR Apache-2.0
//! The identity of a process in numbers that can be stored, and whether that process is certainly
//! dead.
//!
//! ```text
//!   boot id  ─ another ──────────────────────────────▶ Unknown  (another boot, or another machine)
//!   pid namespace, /proc ─ not ours ─────────────────▶ Unknown
//!   pid ─ no such process ───────────────────────────▶ Dead
//!       ─ its pidfd reports its end ─────────────────▶ Dead     (a zombie)
//!       ─ another start time, in the same time namespace ▶ Dead (the pid was reused)
//!       ─ else ──────────────────────────────────────▶ Alive    (a stopped process, too)
//! ```
//!
//! Elapsed time proves no death: a process that has been stopped for a year is alive.
//!
//! # Invariants
//!
//! - `Dead` is certain and permanent. Any doubt yields `Alive` or `Unknown`.

use std::io;

use rustix::io::Errno;
use rustix::process::test_kill_process;

use crate::peer::{PidFd, one_process};
use crate::procfs;

/// The numbers that identify one process, across restarts of its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Process id of the identified process.
    pub pid: u32,
    /// Start time of the identified process, in clock ticks since boot.
    pub start_ticks: u64,
    /// Boot id of the kernel that runs the identified process.
    pub boot_id: [u8; 16],
    /// The pid namespace in which `pid` counts, by inode number.
    pub pid_namespace: u64,
    /// The time namespace in which `start_ticks` counts, by inode number; 0 if the kernel has none.
    pub time_namespace: u64,
}

/// Result of [`Instance::liveness`]: whether a process is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// The process exists, or nothing that this process observed proves its end.
    Alive,
    /// The process has ended and will not come back.
    Dead,
    /// The calling process cannot observe the process, and so does not know whether it lives.
    Unknown,
}

impl Instance {
    /// The identity of the calling process.
    ///
    /// # Errors
    ///
    /// `/proc` is not mounted, or is that of another pid namespace.
    pub fn of_self() -> io::Result<Instance> {
        if !procfs::is_our_own() {
            return Err(io::Error::other("/proc is not mounted, or is another namespace's"));
        }
        let missing = || io::Error::other("a file of /proc is missing or malformed");
        let pid = std::process::id();
        Ok(Instance {
            pid,
            start_ticks: start_ticks(pid).ok_or_else(missing)?,
            boot_id: boot_id().ok_or_else(missing)?,
            pid_namespace: namespace("pid").ok_or_else(missing)?,
            time_namespace: namespace("time").unwrap_or(0),
        })
    }

    /// Whether the process that these numbers identify lives, as far as the calling process can
    /// observe.
    pub fn liveness(&self) -> Liveness {
        let is_visible = procfs::is_our_own()
            && boot_id() == Some(self.boot_id)
            && namespace("pid") == Some(self.pid_namespace);
        let Some(pid) = i32::try_from(self.pid).ok().filter(|pid| *pid > 0 && is_visible) else {
            return Liveness::Unknown;
        };
        // The pidfd is opened before the start time is read. If the start time is the recorded one,
        // the pidfd refers to the recorded process, and to no process that reused its pid.
        let descriptor = PidFd::of_pid(pid);
        if one_process(pid).is_ok_and(|pid| test_kill_process(pid) == Err(Errno::SRCH)) {
            return Liveness::Dead;
        }
        // The ticks of start times in another time namespace count from another moment, so start
        // times cannot be compared.
        let is_comparable = namespace("time").unwrap_or(0) == self.time_namespace;
        match start_ticks(self.pid) {
            Some(ticks) if is_comparable && ticks != self.start_ticks => Liveness::Dead,
            Some(_) if descriptor.is_ok_and(|descriptor| descriptor.is_dead()) => Liveness::Dead,
            _ => Liveness::Alive,
        }
    }
}

/// The start time of a process in clock ticks: field 22 of `/proc/PID/stat`. Field 2, the command's
/// name, may contain any characters.
fn start_ticks(pid: u32) -> Option<u64> {
    let text = procfs::read_text(format!("/proc/{pid}/stat")).ok()?;
    let (_, behind) = text.rsplit_once(')')?;
    behind.split_whitespace().nth(START_FIELD - 3)?.parse().ok()
}

/// The boot id of the running kernel, parsed from a text such as
/// `01234567-89ab-cdef-0123-456789abcdef`.
fn boot_id() -> Option<[u8; 16]> {
    let text = procfs::read_text("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let number = u128::from_str_radix(&digits, 16).ok()?;
    (digits.len() == 32).then(|| number.to_be_bytes())
}

/// The inode number of this process's namespace of the given kind, parsed from a link target such
/// as `pid:[4026531836]`.
fn namespace(kind: &str) -> Option<u64> {
    let link = std::fs::read_link(format!("/proc/thread-self/ns/{kind}")).ok()?;
    let text = link.to_str()?.strip_prefix(kind)?;
    text.strip_prefix(":[")?.strip_suffix(']')?.parse().ok()
}

/// Position of the start time among the fields of `/proc/PID/stat`. The state, the first field
/// after the name, has position 3.
const START_FIELD: usize = 22;

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn own_process_is_alive_and_equal() {
        let own = Instance::of_self().unwrap();
        assert_eq!(own, Instance::of_self().unwrap());
        assert_eq!(own.liveness(), Liveness::Alive);
        assert_ne!(own.boot_id, [0; 16]);
    }

    #[test]
    fn other_start_time_is_other_process() {
        let own = Instance::of_self().unwrap();
        let before = Instance { start_ticks: own.start_ticks - 1, ..own };
        assert_eq!(before.liveness(), Liveness::Dead);
        let elsewhere = Instance { time_namespace: own.time_namespace + 1, ..before };
        assert_eq!(elsewhere.liveness(), Liveness::Alive, "its ticks count from another moment");
    }

    #[test]
    fn process_of_other_kernel_or_namespace_is_unknown() {
        let own = Instance::of_self().unwrap();
        assert_eq!(Instance { boot_id: [1; 16], ..own }.liveness(), Liveness::Unknown);
        let inner = Instance { pid_namespace: own.pid_namespace + 1, ..own };
        assert_eq!(inner.liveness(), Liveness::Unknown);
        assert_eq!(Instance { pid: 0, ..own }.liveness(), Liveness::Unknown);
        assert_eq!(Instance { pid: u32::MAX, ..own }.liveness(), Liveness::Unknown);
    }

    #[test]
    fn killed_process_is_dead_before_wait() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let own = Instance::of_self().unwrap();
        let start_ticks = start_ticks(child.id()).unwrap();
        let instance = Instance { pid: child.id(), start_ticks, ..own };
        assert_eq!(instance.liveness(), Liveness::Alive);
        let descriptor = PidFd::of_pid(child.id().try_into().unwrap()).unwrap();
        child.kill().unwrap();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let mut ended = [crate::poll::PollFd::new(&descriptor, crate::poll::PollFlags::IN)];
        assert!(crate::poll::wait(&mut ended, Some(until)).unwrap() > 0);
        assert_eq!(instance.liveness(), Liveness::Dead);
        child.wait().unwrap();
        assert_eq!(instance.liveness(), Liveness::Dead);
    }
}
