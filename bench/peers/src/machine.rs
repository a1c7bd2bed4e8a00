// SPDX-License-Identifier: MIT OR Apache-2.0
//! On what the numbers were measured: without this they are not numbers.

use std::fs;

use anyhow::{Context, Result, bail};
use partywall_sys::{cpu, limits};

use super::arguments::Pin;

/// Where to put the processes if nobody says: the first two CPUs we may use.
pub fn default_pin() -> Result<Pin> {
    let cpus = cpu::affinity().context("asking which CPUs may be used")?;
    match cpus[..] {
        [first, second, ..] => Ok(Pin::To(first, second)),
        [_] => Ok(Pin::None),
        [] => bail!("no CPU to run on"),
    }
}

/// Machine, kernel, commit and build in one line for people.
pub fn summary() -> String {
    let cpuinfo = read("/proc/cpuinfo");
    let field = |name| cpuinfo_field(&cpuinfo, name).unwrap_or("unknown");
    let is_virtual = field("flags").split(' ').any(|flag| flag == "hypervisor");
    let load = read("/proc/loadavg");
    format!(
        "{} ({} CPUs{}), Linux {}, governor {}, load {}, commit {} ({})",
        field("model name"),
        cpu::affinity().map_or(0, |cpus| cpus.len()),
        if is_virtual { ", virtual machine" } else { "" },
        read("/proc/sys/kernel/osrelease").trim(),
        limits::cpu_governor(0).unwrap_or_else(|| "not visible".to_owned()),
        load.split(' ').next().unwrap_or("unknown"),
        env!("PARTYWALL_COMMIT"),
        if cfg!(debug_assertions) { "debug" } else { "release" },
    )
}

/// Where two processes ran, in words.
pub fn placement(pin: Pin) -> String {
    let Pin::To(parent, child) = pin else {
        return "not pinned (not comparable)".to_owned();
    };
    let siblings =
        read(&format!("/sys/devices/system/cpu/cpu{parent}/topology/thread_siblings_list"));
    let relation = match (parent == child, list_contains(siblings.trim(), child)) {
        (true, _) => ", one CPU for both",
        (false, true) => ", two hyperthreads of one core",
        (false, false) => "",
    };
    format!("on CPUs {parent} and {child}{relation}")
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
