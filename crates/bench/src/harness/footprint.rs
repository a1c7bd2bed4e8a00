// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory and descriptors of a process, and the activity of a thread, as `/proc` shows them.
//!
//! ```text
//! resident          pages of any kind in use, shared ones included
//! own shared        rw-s /memfd:…       memory that only this process may write, in use or not
//! descriptors       the number of open descriptors
//! thread            status: voluntary_ctxt_switches · schedstat: time on a CPU
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use partywall_sys::process::{MappedRange, Process, mappings, open_descriptors, resident_bytes};

use super::round::{SessionCost, ratio};

/// Memory and descriptors of a process at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Footprint {
    resident_bytes: u64,
    own_shared_bytes: u64,
    descriptors: u64,
}

/// The scheduler's counters of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Activity {
    /// Number of times that the thread went to sleep: at least once for each system call that
    /// blocks.
    pub sleeps: u64,
    /// CPU time of the thread in nanoseconds. If this number does not grow, the thread made no
    /// system call.
    pub cpu_ns: u64,
}

/// The directory in `/proc` of one thread.
#[derive(Clone, Debug)]
pub struct ThreadFiles(PathBuf);

impl Footprint {
    /// Reads the memory and the descriptors that this process has now.
    pub fn now() -> Result<Self> {
        Ok(Self {
            resident_bytes: resident_bytes(Process::Own).context("asking for resident memory")?,
            own_shared_bytes: own_shared_bytes(
                &mappings(Process::Own).context("listing mappings")?,
            ),
            descriptors: open_descriptors(Process::Own).context("listing descriptors")?.len()
                as u64,
        })
    }

    /// The memory and descriptors of one session: the growth since the earlier footprint `before`,
    /// divided by the number of sessions.
    pub fn since(self, before: Self, sessions: usize) -> SessionCost {
        let per_session =
            |now: u64, before: u64| ratio(now.saturating_sub(before), sessions as u64);
        SessionCost {
            resident_bytes: per_session(self.resident_bytes, before.resident_bytes),
            own_shared_bytes: per_session(self.own_shared_bytes, before.own_shared_bytes),
            descriptors: per_session(self.descriptors, before.descriptors),
            wakeups: None,
            idle_cpu_ns: None,
        }
    }
}

impl ThreadFiles {
    /// Finds the directory in `/proc` of the calling thread.
    pub fn of_this_thread() -> Result<Self> {
        let relative = fs::read_link("/proc/thread-self").context("asking which thread this is")?;
        Ok(Self(Path::new("/proc").join(relative)))
    }

    /// Whether the observed thread sleeps; false if it was merely preempted.
    pub fn is_asleep(&self) -> Result<bool> {
        let status = read(self.0.join("status"))?;
        Ok(status.lines().any(|line| line.starts_with("State:\tS")))
    }

    /// Reads the present counters of the observed thread from `/proc`.
    pub fn activity(&self) -> Result<Activity> {
        let status = read(self.0.join("status"))?;
        let schedule = read(self.0.join("schedstat"))?;
        Ok(Activity {
            sleeps: field(&status, "voluntary_ctxt_switches:")?,
            cpu_ns: first_number(&schedule).context("schedstat begins with no number")?,
        })
    }
}

/// Returns the total size in bytes of those `maps` that are writable shared mappings of memfds.
fn own_shared_bytes(maps: &[MappedRange]) -> u64 {
    let is_own =
        |map: &&MappedRange| map.permissions.starts_with("rw-s") && map.name.starts_with("/memfd:");
    maps.iter().filter(is_own).map(|map| map.len).sum()
}

fn field(text: &str, name: &str) -> Result<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(first_number).with_context(|| format!("the kernel shows no {name}"))
}

fn first_number(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

fn read(path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn footprint_counts_own_shared_memory_without_the_peers() {
        let before = Footprint::now().unwrap();
        let own = partywall_sys::OwnMap::create("footprint", 1 << 16).unwrap();
        let fd = std::os::fd::AsFd::as_fd(&own);
        let _peer = partywall_sys::PeerMap::map(fd, 1 << 16, 1 << 16).unwrap();
        let cost = Footprint::now().unwrap().since(before, 1);
        assert_eq!(cost.own_shared_bytes, 65536.0);
    }

    #[test]
    fn footprint_of_this_process_is_not_empty() {
        let now = Footprint::now().unwrap();
        assert!(now.resident_bytes > 0 && now.descriptors >= 3);
    }

    #[test]
    fn activity_of_this_thread_shows_cpu_time() {
        // Expected result: the CPU time of this thread becomes more than 0. The kernel updates the
        // time only at a timer tick, so the first values may be 0, and the loop reads again.
        let files = ThreadFiles::of_this_thread().unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while files.activity().unwrap().cpu_ns == 0 {
            assert!(std::time::Instant::now() < deadline, "no time after ten seconds");
        }
    }
}
