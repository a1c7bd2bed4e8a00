// SPDX-License-Identifier: MIT OR Apache-2.0
//! On what the numbers were measured: without this they are not numbers.

use std::fs;

use anyhow::{Context, Result, bail};
use partywall_sys::{cpu, limits};
use serde::Serialize;

use super::arguments::Pin;

/// The machine, the placement and the program.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// As the CPU calls itself.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// Kernel release.
    pub kernel: String,
    /// Where the two processes ran.
    pub placement: String,
    /// How the clock speed is chosen, if the kernel shows it.
    pub governor: String,
    /// Whether a hypervisor lies in between: wake-ups are dearer then.
    pub virtual_machine: bool,
    /// Runnable threads on average over the last minute, before the run.
    pub load: String,
    /// The commit this program was built from.
    pub commit: &'static str,
    /// Optimised or not.
    pub build: &'static str,
}

impl Machine {
    /// Looks around.
    pub fn look(pin: Pin) -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let load = read("/proc/loadavg");
        Self {
            cpu: cpuinfo_field(&cpuinfo, "model name").unwrap_or("unknown").to_owned(),
            cpus: cpu::affinity().map_or(0, |cpus| cpus.len()),
            kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
            placement: placement(pin),
            governor: governor(pin),
            virtual_machine: cpuinfo_field(&cpuinfo, "flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            load: load.split(' ').next().unwrap_or("unknown").to_owned(),
            commit: env!("PARTYWALL_COMMIT"),
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
        }
    }

    /// One line for people.
    pub fn summary(&self) -> String {
        let Self { cpu, cpus, kernel, placement, governor, commit, build, .. } = self;
        let host = if self.virtual_machine { ", virtual machine" } else { "" };
        format!(
            "{cpu} ({cpus} CPUs{host}), {kernel}, {placement}, governor {governor}, \
             commit {commit} ({build})"
        )
    }
}

/// Where to put the processes if nobody says: the first two CPUs we may use.
pub fn default_pin() -> Result<Pin> {
    let cpus = cpu::affinity().context("asking which CPUs may be used")?;
    match cpus[..] {
        [first, second, ..] => Ok(Pin::To(first, second)),
        [_] => Ok(Pin::None),
        [] => bail!("no CPU to run on"),
    }
}

fn placement(pin: Pin) -> String {
    let (parent, child) = match pin {
        Pin::To(parent, child) => (parent, child),
        Pin::None => return "not pinned (ratios to sockets are not comparable)".to_owned(),
        Pin::OneProcess => return "both ends in one process, not pinned".to_owned(),
    };
    let siblings =
        read(&format!("/sys/devices/system/cpu/cpu{parent}/topology/thread_siblings_list"));
    let relation = match (parent == child, list_contains(siblings.trim(), child)) {
        (true, _) => " (one CPU for both)",
        (false, true) => " (two hyperthreads of one core)",
        (false, false) => "",
    };
    format!("sender on CPU {parent}, receiver on CPU {child}{relation}")
}

fn governor(pin: Pin) -> String {
    let cpu = if let Pin::To(parent, _) = pin { parent } else { 0 };
    limits::cpu_governor(cpu).unwrap_or_else(|| "not visible".to_owned())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_lists_are_understood() {
        assert!(list_contains("0-1,4", 4) && list_contains("0-1,4", 1));
        assert!(!list_contains("0-1,4", 2) && !list_contains("", 0));
    }
}
