// SPDX-License-Identifier: MIT OR Apache-2.0
//! One process beyond doubt, in numbers that can be written down, and whether it is dead for certain.
//!
//! ```text
//!   boot id  ─ another ──────────────────────────────────▶ Unknown   (another run of this kernel, or another machine)
//!   pid namespace, /proc ─ not ours ─────────────────────▶ Unknown
//!   pid ─ no such process ───────────────────────────────▶ Dead
//!       ─ its pidfd says that it has ended ──────────────▶ Dead      (not yet waited for)
//!       ─ another start time, in the same time namespace ▶ Dead      (the number was used again)
//!       ─ else ──────────────────────────────────────────▶ Alive     (stopped, too)
//! ```
//!
//! Time proves nothing here: who is stopped for a year is alive.
//!
//! # Invariants
//!
//! - `Dead` is certain, and for good. Whatever cannot be found out is `Alive` or `Unknown`.

use std::io;

use rustix::io::Errno;
use rustix::process::test_kill_process;

use crate::peer::{PidFd, one_process};
use crate::procfs;

/// What names one process, as long as its machine runs and beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its number.
    pub pid: u32,
    /// When it was started, in clock ticks since the machine was.
    pub start_ticks: u64,
    /// Which run of the kernel.
    pub boot_id: [u8; 16],
    /// The namespace in which the number counts, by its inode.
    pub pid_namespace: u64,
    /// The namespace in which the start time counts, by its inode; 0 if the kernel has none.
    pub time_namespace: u64,
}

/// What is known of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It exists, or nothing says that it does not.
    Alive,
    /// It has ended, and will not come back.
    Dead,
    /// It cannot be seen from here.
    Unknown,
}

impl Instance {
    /// The calling process.
    ///
    /// # Errors
    ///
    /// `/proc` is not mounted, or is that of another pid namespace.
    pub fn of_self() -> io::Result<Instance> {
        if !procfs::is_our_own() {
            return Err(io::Error::other("/proc is not mounted, or is another namespace's"));
        }
        let missing = || io::Error::other("/proc has not what it should");
        let pid = std::process::id();
        Ok(Instance {
            pid,
            start_ticks: start_ticks(pid).ok_or_else(missing)?,
            boot_id: boot_id().ok_or_else(missing)?,
            pid_namespace: namespace("pid").ok_or_else(missing)?,
            time_namespace: namespace("time").unwrap_or(0),
        })
    }

    /// Whether it lives, as far as can be seen from here.
    pub fn liveness(&self) -> Liveness {
        let is_visible = procfs::is_our_own()
            && boot_id() == Some(self.boot_id)
            && namespace("pid") == Some(self.pid_namespace);
        let Some(pid) = i32::try_from(self.pid).ok().filter(|pid| *pid > 0 && is_visible) else {
            return Liveness::Unknown;
        };
        // Before its start time is asked: if that is the recorded one, this is a descriptor of that process.
        let descriptor = PidFd::of_pid(pid);
        if one_process(pid).is_ok_and(|pid| test_kill_process(pid) == Err(Errno::SRCH)) {
            return Liveness::Dead;
        }
        // Ticks of another time namespace count from another moment.
        let is_comparable = namespace("time").unwrap_or(0) == self.time_namespace;
        match start_ticks(self.pid) {
            Some(ticks) if is_comparable && ticks != self.start_ticks => Liveness::Dead,
            Some(_) if descriptor.is_ok_and(|descriptor| descriptor.is_dead()) => Liveness::Dead,
            _ => Liveness::Alive,
        }
    }
}

/// Field 22 of `/proc/PID/stat`; the second, the command's name, may hold anything.
fn start_ticks(pid: u32) -> Option<u64> {
    let text = procfs::read_text(format!("/proc/{pid}/stat")).ok()?;
    let (_, behind) = text.rsplit_once(')')?;
    behind.split_whitespace().nth(START_FIELD - 3)?.parse().ok()
}

/// `01234567-89ab-cdef-0123-456789abcdef`
fn boot_id() -> Option<[u8; 16]> {
    let text = procfs::read_text("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let number = u128::from_str_radix(&digits, 16).ok()?;
    (digits.len() == 32).then(|| number.to_be_bytes())
}

/// `pid:[4026531836]`
fn namespace(kind: &str) -> Option<u64> {
    let link = std::fs::read_link(format!("/proc/thread-self/ns/{kind}")).ok()?;
    let text = link.to_str()?.strip_prefix(kind)?;
    text.strip_prefix(":[")?.strip_suffix(']')?.parse().ok()
}

/// The state, the first field behind the name, is the third.
const START_FIELD: usize = 22;

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn this_process_is_alive_and_one() {
        let own = Instance::of_self().unwrap();
        assert_eq!(own, Instance::of_self().unwrap());
        assert_eq!(own.liveness(), Liveness::Alive);
        assert_ne!(own.boot_id, [0; 16]);
    }

    #[test]
    fn another_start_time_is_another_process() {
        let own = Instance::of_self().unwrap();
        let before = Instance { start_ticks: own.start_ticks - 1, ..own };
        assert_eq!(before.liveness(), Liveness::Dead);
        let elsewhere = Instance { time_namespace: own.time_namespace + 1, ..before };
        assert_eq!(elsewhere.liveness(), Liveness::Alive, "its ticks count from another moment");
    }

    #[test]
    fn what_is_not_of_this_kernel_or_namespace_is_unknown() {
        let own = Instance::of_self().unwrap();
        assert_eq!(Instance { boot_id: [1; 16], ..own }.liveness(), Liveness::Unknown);
        let inner = Instance { pid_namespace: own.pid_namespace + 1, ..own };
        assert_eq!(inner.liveness(), Liveness::Unknown);
        assert_eq!(Instance { pid: 0, ..own }.liveness(), Liveness::Unknown);
        assert_eq!(Instance { pid: u32::MAX, ..own }.liveness(), Liveness::Unknown);
    }

    #[test]
    fn a_killed_process_is_dead_before_anybody_waits_for_it() {
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
