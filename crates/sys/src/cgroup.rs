// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control groups of this process and their limits, versions 1 and 2.
//!
//! ```text
//!   /proc/self/cgroup      which group:  0::/app/x   4:memory:/app/x
//!   /proc/self/mountinfo   where it is:  /sys/fs/cgroup, or the part of it that a container sees
//!   group/limit, parent/limit, … up to the mount: the lowest limit applies
//! ```
//!
//! This file changes no setting. A limit that cannot be read is `None`, as if there were none.

use std::path::{Path, PathBuf};

use crate::procfs::{read_number, read_text};

/// CPU time that this process may use because of its control groups, in CPUs; `None` if there is no
/// limit.
pub fn cpu_quota() -> Option<f64> {
    let groups = Groups::read()?;
    let unified = groups.levels("").into_iter().filter_map(|group| {
        let text = read_text(group.join("cpu.max")).ok()?;
        parse_cpu_max(&text)
    });
    let legacy = groups.levels("cpu").into_iter().filter_map(|group| {
        let quota: i64 = number(&group.join("cpu.cfs_quota_us"))?;
        let period: i64 = number(&group.join("cpu.cfs_period_us"))?;
        (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
    });
    unified.chain(legacy).min_by(f64::total_cmp)
}

/// Memory that this process may use because of its control groups, in bytes; `None` if there is no
/// limit.
pub fn memory_max() -> Option<u64> {
    let groups = Groups::read()?;
    let unified = groups.levels("").into_iter();
    let unified = unified.filter_map(|group| read_number(group.join("memory.max")));
    let legacy = groups.levels("memory").into_iter();
    let legacy = legacy
        .filter_map(|group| read_number(group.join("memory.limit_in_bytes")))
        .filter(|limit| *limit < LEGACY_UNLIMITED);
    unified.chain(legacy).min()
}

/// Memory that this process's own control group uses, in bytes.
pub fn memory_current() -> Option<u64> {
    let groups = Groups::read()?;
    let of = |controller, file| read_number(groups.levels(controller).first()?.join(file));
    of("", "memory.current").or_else(|| of("memory", "memory.usage_in_bytes"))
}

/// Shared memory that is charged to this process's own control group, in bytes.
pub fn memory_shared() -> Option<u64> {
    let groups = Groups::read()?;
    ["", "memory"].into_iter().find_map(|controller| {
        let text = read_text(groups.levels(controller).first()?.join("memory.stat")).ok()?;
        text.lines().find_map(|line| line.strip_prefix("shmem ")?.trim().parse().ok())
    })
}

/// The texts of `/proc/self/cgroup`, which names the control groups of this process, and of
/// `/proc/self/mountinfo`, which says where their directories are.
struct Groups {
    groups: String,
    mounts: String,
}

impl Groups {
    fn read() -> Option<Self> {
        let groups = read_text("/proc/self/cgroup").ok()?;
        Some(Self { groups, mounts: read_text("/proc/self/mountinfo").ok()? })
    }

    /// The directories of this process's control group and of its parents, innermost first.
    /// `controller`, such as `memory`, selects a hierarchy of cgroup version 1; an empty text
    /// selects version 2.
    fn levels(&self, controller: &str) -> Vec<PathBuf> {
        let Some(group) = group_of(&self.groups, controller) else { return Vec::new() };
        let Some((root, mount)) = mount_of(&self.mounts, controller) else { return Vec::new() };
        // A container may see its own control group as "/", or as a path of the host that begins
        // above the container's mount.
        let below = group.strip_prefix(root.trim_end_matches('/')).unwrap_or("");
        let below = below.trim_start_matches('/');
        let below = if below.starts_with("..") { "" } else { below };
        let innermost = Path::new(mount).join(below);
        let levels = innermost.ancestors().take_while(|level| level.starts_with(mount));
        levels.map(Path::to_owned).take(LEVELS_MAX).collect()
    }
}

/// The path of this process's control group, from the text of `/proc/self/cgroup`.
fn group_of<'a>(groups: &'a str, controller: &str) -> Option<&'a str> {
    groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, names, path) = (parts.next()?, parts.next()?, parts.next()?);
        names.split(',').any(|name| name == controller).then_some(path)
    })
}

/// Root and mount point of a hierarchy of control groups, from the text of `/proc/self/mountinfo`.
fn mount_of<'a>(mounts: &'a str, controller: &str) -> Option<(&'a str, &'a str)> {
    mounts.lines().find_map(|line| {
        let (head, tail) = line.split_once(" - ")?;
        let mut tail = tail.split(' ');
        let (kind, _, options) = (tail.next()?, tail.next()?, tail.next()?);
        let is_it = if controller.is_empty() {
            kind == "cgroup2"
        } else {
            kind == "cgroup" && options.split(',').any(|option| option == controller)
        };
        let mut head = head.split(' ').skip(3);
        is_it.then_some((head.next()?, head.next()?))
    })
}

/// Parses `cpu.max`, in CPUs: `max 100000` means no limit, `150000 100000` one and a half CPUs.
fn parse_cpu_max(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    let quota: f64 = words.next()?.parse().ok()?;
    let period: f64 = words.next()?.parse().ok()?;
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

fn number(path: &Path) -> Option<i64> {
    read_text(path).ok()?.trim().parse().ok()
}

/// A limit of this many bytes or more means no limit: version 1 of control groups writes "no limit"
/// as the largest multiple of the page size.
const LEGACY_UNLIMITED: u64 = 1 << 62;

/// Largest number of directories of control groups that are read, from that of this process
/// upwards. Trees of control groups are not that deep.
const LEVELS_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroups_and_mounts_of_both_versions_are_found() {
        let groups = "4:memory:/app/x\n2:cpu,cpuacct:/app\n0::/user.slice/a:b\n";
        assert_eq!(group_of(groups, "memory"), Some("/app/x"));
        assert_eq!(group_of(groups, "cpu"), Some("/app"));
        assert_eq!(group_of(groups, ""), Some("/user.slice/a:b"));
        assert_eq!(group_of(groups, "pids"), None);

        let mounts = "30 25 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,x\n\
                      31 25 0:27 /app /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        assert_eq!(mount_of(mounts, ""), Some(("/", "/sys/fs/cgroup")));
        assert_eq!(mount_of(mounts, "memory"), Some(("/app", "/sys/fs/cgroup/memory")));
        assert_eq!(mount_of(mounts, "cpu"), None);
    }

    #[test]
    fn cpu_max_is_a_ratio_or_no_limit() {
        assert_eq!(parse_cpu_max("max 100000\n"), None);
        assert_eq!(parse_cpu_max("150000 100000\n"), Some(1.5));
        assert_eq!(parse_cpu_max("garbage"), None);
    }
}
