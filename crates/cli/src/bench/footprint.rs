// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a process holds: resident memory, shared memory of its own, descriptors; and what a thread did.
//!
//! ```text
//! /proc/self/smaps_rollup     Rss
//! /proc/self/maps             rw-s … /memfd:…     memory this process may write and another may read
//! /proc/self/fd               one entry per descriptor
//! /proc/PID/task/TID/…        status: voluntary_ctxt_switches · schedstat: time on a CPU
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::measure::{SessionCost, ratio};

/// Memory and descriptors at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Footprint {
    resident_bytes: u64,
    own_shared_bytes: u64,
    descriptors: u64,
}

/// What the scheduler knows of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Activity {
    /// How often it went to sleep: at least once per system call that blocks.
    pub sleeps: u64,
    /// Time it spent on a CPU, in nanoseconds: 0 more means that it did nothing at all, no system call either.
    pub cpu_ns: u64,
}

/// Where the kernel tells about one thread.
#[derive(Clone, Debug)]
pub struct ThreadFiles(PathBuf);

impl Footprint {
    /// Looks.
    pub fn now() -> Result<Self> {
        Ok(Self {
            resident_bytes: resident_bytes()?,
            own_shared_bytes: own_shared_bytes(&read("/proc/self/maps")?),
            descriptors: fs::read_dir("/proc/self/fd").context("listing descriptors")?.count() as u64,
        })
    }

    /// The growth since `before`, per session.
    pub fn since(self, before: Self, sessions: usize) -> SessionCost {
        let per_session = |now: u64, before: u64| ratio(now.saturating_sub(before), sessions as u64);
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
    /// Those of the calling thread.
    pub fn of_this_thread() -> Result<Self> {
        let relative = fs::read_link("/proc/thread-self").context("asking which thread this is")?;
        Ok(Self(Path::new("/proc").join(relative)))
    }

    /// What the thread has done so far.
    pub fn activity(&self) -> Result<Activity> {
        let status = read(self.0.join("status"))?;
        let schedule = read(self.0.join("schedstat"))?;
        Ok(Activity {
            sleeps: field(&status, "voluntary_ctxt_switches:")?,
            cpu_ns: first_number(&schedule).context("schedstat begins with no number")?,
        })
    }
}

fn resident_bytes() -> Result<u64> {
    let kib = match read("/proc/self/smaps_rollup") {
        Ok(exact) => field(&exact, "Rss:")?,
        Err(_) => field(&read("/proc/self/status")?, "VmRSS:")?,
    };
    Ok(kib * 1024)
}

/// The size of all writable shared mappings of memfds.
fn own_shared_bytes(maps: &str) -> u64 {
    maps.lines().filter_map(own_mapping_size).sum()
}

/// `7f..00-7f..80 rw-s 00000000 00:01 1234  /memfd:name (deleted)` → 0x80
fn own_mapping_size(line: &str) -> Option<u64> {
    let (range, rest) = line.split_once(' ')?;
    if !rest.starts_with("rw-s") || !rest.contains("/memfd:") {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    Some(u64::from_str_radix(end, 16).ok()? - u64::from_str_radix(start, 16).ok()?)
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
    fn only_own_shared_memory_is_counted() {
        let maps = "7f0000000000-7f0000030000 rw-s 00000000 00:01 7  /memfd:half (deleted)\n\
                    7f0000040000-7f0000070000 r--s 00000000 00:01 8  /memfd:half (deleted)\n\
                    7f0000080000-7f0000090000 rw-p 00000000 00:00 0 \n";
        assert_eq!(own_shared_bytes(maps), 0x3_0000);
    }

    #[test]
    fn this_process_has_a_footprint() {
        let now = Footprint::now().unwrap();
        assert!(now.resident_bytes > 0 && now.descriptors >= 3);
        assert!(ThreadFiles::of_this_thread().unwrap().activity().unwrap().cpu_ns > 0);
    }
}
