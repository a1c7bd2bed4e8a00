// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the resources that this process and thread use (memory, descriptors, context switches), as
//! the system reports them. The tests with many links compare them.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::fs;

#[derive(Clone, Copy, Debug, Default)]
pub struct Holdings {
    pub descriptors: u64,
    pub resident_bytes: u64,
}

impl Holdings {
    pub fn now() -> Self {
        let descriptors = fs::read_dir("/proc/self/fd").unwrap().count() as u64;
        let kilobytes =
            field("/proc/self/status", "VmRSS:") + field("/proc/self/status", "VmSwap:");
        Self { descriptors, resident_bytes: kilobytes * 1024 }
    }

    pub fn since(self, before: Self) -> Self {
        Self {
            descriptors: self.descriptors - before.descriptors,
            resident_bytes: self.resident_bytes.saturating_sub(before.resident_bytes),
        }
    }
}

/// How often this thread blocked (voluntary context switches).
pub fn sleeps() -> u64 {
    field("/proc/thread-self/status", "voluntary_ctxt_switches:")
}

fn field(path: &str, name: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let word = line.and_then(|rest| rest.split_whitespace().next());
    word.map_or(0, |word| word.parse().unwrap())
}

/// Raises this process's soft limit of descriptors to the hard limit; returns the hard limit.
pub fn raise_limit() -> u64 {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    hard
}
