// SPDX-License-Identifier: MIT OR Apache-2.0
//! Describes the machine, the CPUs of the processes and the build of a run. The report shows them,
//! because measured times depend on them.

use std::fs;

use anyhow::{Context, Result, bail};
use partywall_sys::{cpu, limits};
use serde::Serialize;

/// The CPUs on which the two processes of a measurement run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pin {
    /// Neither process is pinned: the scheduler chooses their CPUs, so times of different
    /// transports cannot be compared.
    None,
    /// Both ends of each connection run in one process, on all CPUs.
    OneProcess,
    /// The parent process runs on the first of these CPUs, the child process on the second.
    To(usize, usize),
}

/// The machine, the CPUs of the processes and the build of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The model name of the machine's CPU.
    pub cpu: String,
    /// Number of CPUs that this process may use.
    pub cpus: usize,
    /// The release of the machine's kernel.
    pub kernel: String,
    /// The CPUs of parent and child process, in words.
    pub placement: String,
    /// The governor of the CPU's clock speed, or "not visible" if the kernel does not show it.
    pub governor: String,
    /// Whether the machine is virtual, where wake-ups take longer.
    pub virtual_machine: bool,
    /// Average number of the machine's runnable threads in the minute before the run.
    pub load: String,
    /// The git commit from which this program was built.
    pub commit: &'static str,
    /// The profile with which this program was built: `debug` or `release`.
    pub build: &'static str,
}

impl Pin {
    /// Pins the two processes to the first two CPUs that this process may use. `Pin::None` if it
    /// may use only one.
    pub fn first_two() -> Result<Self> {
        let cpus = cpu::affinity().context("reading which CPUs may be used")?;
        match cpus[..] {
            [first, second, ..] => Ok(Self::To(first, second)),
            [_] => Ok(Self::None),
            [] => bail!("no CPU to run on"),
        }
    }

    /// The CPU to which the child process of a measurement is pinned; `None` if it is not pinned.
    pub const fn child(self) -> Option<usize> {
        match self {
            Self::None | Self::OneProcess => None,
            Self::To(_, child) => Some(child),
        }
    }

    /// Whether the two processes run on two hyperthreads of one core, as far as the kernel shows.
    pub fn is_on_hyperthreads(self) -> bool {
        match self {
            Self::To(parent, child) => parent != child && are_siblings(parent, child),
            Self::None | Self::OneProcess => false,
        }
    }

    /// The CPUs of parent and child process in words, for the report.
    pub fn placement(self) -> String {
        match self {
            Self::To(parent, child) => {
                let relation = relation(parent, child).map(|words| format!(" ({words})"));
                let relation = relation.unwrap_or_default();
                format!("sender on CPU {parent}, receiver on CPU {child}{relation}")
            }
            Self::None => "not pinned (ratios to sockets are not comparable)".to_owned(),
            Self::OneProcess => "both ends in one process, not pinned".to_owned(),
        }
    }
}

/// Parses the CPUs of the two processes, such as 0,1, or `none`.
pub fn parse_pin(text: &str) -> Result<Pin, String> {
    if text == "none" {
        return Ok(Pin::None);
    }
    let cpus = text.split_once(',').map(|(a, b)| (a.trim().parse(), b.trim().parse()));
    let Some((Ok(parent), Ok(child))) = cpus else {
        return Err("write two CPUs, such as 0,1, or none".to_owned());
    };
    Ok(Pin::To(parent, child))
}

impl Machine {
    /// Reads the properties of this machine from `/proc` and `/sys`, and adds the CPUs that `pin`
    /// names and the build.
    pub fn read(pin: Pin) -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let load = read("/proc/loadavg");
        let governed = if let Pin::To(parent, _) = pin { parent } else { 0 };
        Self {
            cpu: cpuinfo_field(&cpuinfo, "model name").unwrap_or("unknown").to_owned(),
            cpus: cpu::affinity().map_or(0, |cpus| cpus.len()),
            kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
            placement: pin.placement(),
            governor: limits::cpu_governor(governed).unwrap_or_else(|| "not visible".to_owned()),
            virtual_machine: cpuinfo_field(&cpuinfo, "flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            load: load.split(' ').next().unwrap_or("unknown").to_owned(),
            commit: COMMIT,
            build: BUILD,
        }
    }

    /// All properties of the machine and the build as one line of text.
    pub fn summary(&self) -> String {
        let Self { cpu, cpus, kernel, placement, governor, commit, build, .. } = self;
        let host = if self.virtual_machine { ", virtual machine" } else { "" };
        format!(
            "{cpu} ({cpus} CPUs{host}), {kernel}, {placement}, governor {governor}, \
             commit {commit} ({build})"
        )
    }
}

/// Returns in words how two CPUs share hardware; `None` if they are separate cores.
fn relation(one: usize, other: usize) -> Option<&'static str> {
    match (one == other, are_siblings(one, other)) {
        (true, _) => Some("one CPU for both"),
        (false, true) => Some("two hyperthreads of one core"),
        (false, false) => None,
    }
}

/// Whether two CPUs are hyperthreads of one core.
fn are_siblings(one: usize, other: usize) -> bool {
    let siblings = read(&format!("/sys/devices/system/cpu/cpu{one}/topology/thread_siblings_list"));
    list_contains(siblings.trim(), other)
}

/// Whether a list of the kernel, such as `0-1,4`, contains `cpu`.
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

/// Reads a file of `/proc` or `/sys`; the text is empty if the file does not exist.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The git commit from which this program was built.
pub const COMMIT: &str = env!("PARTYWALL_COMMIT");

/// The profile with which this program was built.
pub const BUILD: &str = if cfg!(debug_assertions) { "debug" } else { "release" };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_list_contains_its_ranges_and_numbers() {
        assert!(list_contains("0-1,4", 4) && list_contains("0-1,4", 1));
        assert!(!list_contains("0-1,4", 2) && !list_contains("", 0));
    }

    #[test]
    fn pin_parses_two_cpus_or_none() {
        assert_eq!(parse_pin("0, 1"), Ok(Pin::To(0, 1)));
        assert_eq!(parse_pin("none"), Ok(Pin::None));
        assert!(parse_pin("1").is_err());
    }
}
