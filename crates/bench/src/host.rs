// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel says of this machine, and what this program was built from.
//!
//! The benchmark of the rivals (`bench/peers`) includes this file: both describe a machine in the same words.

use std::fs;

use anyhow::{Context, Result, bail};
use partywall_sys::cpu;

/// The machine.
#[derive(Clone, Debug)]
pub struct Host {
    /// As the CPU calls itself.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// Kernel release.
    pub kernel: String,
    /// Whether a hypervisor lies in between: wake-ups are dearer then.
    pub is_virtual: bool,
    /// Runnable threads on average over the last minute.
    pub load: String,
}

impl Host {
    /// Looks around.
    pub fn look() -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let load = read("/proc/loadavg");
        Self {
            cpu: cpuinfo_field(&cpuinfo, "model name").unwrap_or("unknown").to_owned(),
            cpus: cpu::affinity().map_or(0, |cpus| cpus.len()),
            kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
            is_virtual: cpuinfo_field(&cpuinfo, "flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            load: load.split(' ').next().unwrap_or("unknown").to_owned(),
        }
    }
}

/// The first two CPUs that we may use; none if there is only one.
pub fn two_cpus() -> Result<Option<(usize, usize)>> {
    let cpus = cpu::affinity().context("asking which CPUs may be used")?;
    match cpus[..] {
        [first, second, ..] => Ok(Some((first, second))),
        [_] => Ok(None),
        [] => bail!("no CPU to run on"),
    }
}

/// What two CPUs share, in words; none if they are cores apart.
pub fn relation(one: usize, other: usize) -> Option<&'static str> {
    let siblings = read(&format!("/sys/devices/system/cpu/cpu{one}/topology/thread_siblings_list"));
    match (one == other, list_contains(siblings.trim(), other)) {
        (true, _) => Some("one CPU for both"),
        (false, true) => Some("two hyperthreads of one core"),
        (false, false) => None,
    }
}

/// Whether a kernel list such as `0-1,4` contains `cpu`.
fn list_contains(list: &str, cpu: usize) -> bool {
    list.split(',').any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let bounds = (first.parse::<usize>(), last.parse::<usize>());
        matches!(bounds, (Ok(first), Ok(last)) if (first..=last).contains(&cpu))
    })
}

fn cpuinfo_field<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim())
}

/// A file of the kernel, empty where it does not exist.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The commit this program was built from.
pub const COMMIT: &str = env!("PARTYWALL_COMMIT");

/// Optimised or not.
pub const BUILD: &str = if cfg!(debug_assertions) { "debug" } else { "release" };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_lists_are_understood() {
        assert!(list_contains("0-1,4", 4) && list_contains("0-1,4", 1));
        assert!(!list_contains("0-1,4", 2) && !list_contains("", 0));
    }
}
