// SPDX-License-Identifier: MIT OR Apache-2.0
//! The limits and settings of this machine that affect shared memory, one function each.
//!
//! This file reports values and judges none. `None` means that this system does not report the
//! value. Limits of control groups are in [`cgroup`](crate::cgroup), features in
//! [`probe`](crate::probe).

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};
use rustix::system::uname;

use crate::procfs::{field, read_number, read_text};

/// A resource limit of this process (`getrlimit`): the value that applies now, and the maximum to
/// which this process may raise it; `None` means unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The value of the limit that applies now.
    pub soft: Option<u64>,
    /// The maximum to which this process may raise the limit.
    pub hard: Option<u64>,
}

/// The version of the running kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelVersion {
    /// Major version of the kernel: the 6 of `6.1.0-13-amd64`.
    pub major: u32,
    /// Minor version of the kernel: the 1 of `6.1.0-13-amd64`.
    pub minor: u32,
    /// The whole release string of the kernel, such as `6.1.0-13-amd64`.
    pub release: String,
}

impl KernelVersion {
    /// Whether the kernel's version is `major.minor` or later.
    pub fn is_at_least(&self, major: u32, minor: u32) -> bool {
        (self.major, self.minor) >= (major, minor)
    }
}

/// The version of the running kernel, as `uname` reports it.
pub fn kernel_version() -> KernelVersion {
    parse_release(&uname().release().to_string_lossy())
}

/// Limit on the descriptors that this process may have open.
pub fn descriptors() -> Limit {
    limit(Resource::Nofile)
}

/// Limit on the bytes that this process may lock in memory.
pub fn locked_memory() -> Limit {
    limit(Resource::Memlock)
}

/// Limit on the bytes of address space that this process may map.
pub fn address_space() -> Limit {
    limit(Resource::As)
}

/// Limit on the size of a file that this process creates, memfds included, in bytes.
pub fn file_size() -> Limit {
    limit(Resource::Fsize)
}

/// Memory of this machine that is available without swapping, in bytes.
pub fn memory_available() -> Option<u64> {
    memory_info("MemAvailable")
}

/// All shared memory in use on this machine, tmpfs included, in bytes.
pub fn memory_shared() -> Option<u64> {
    memory_info("Shmem")
}

/// Upper bound of the mappings that a process may have.
pub fn mappings_max() -> Option<u64> {
    read_number("/proc/sys/vm/max_map_count")
}

/// Overcommit policy of the kernel. 0: by heuristics; 1: always overcommit; 2: never.
pub fn overcommit_policy() -> Option<u64> {
    read_number("/proc/sys/vm/overcommit_memory")
}

/// Whether memfds may be executable. 0: yes; 1: only on request; 2: never. `None` before Linux 6.3.
pub fn memfd_noexec() -> Option<u64> {
    read_number("/proc/sys/vm/memfd_noexec")
}

/// The kernel's setting for huge pages in shared memory: `always`, `within_size`, `advise`,
/// `never`, `deny`, `force`.
pub fn huge_shared_memory() -> Option<String> {
    let text = read_text("/sys/kernel/mm/transparent_hugepage/shmem_enabled").ok()?;
    chosen(&text).map(str::to_owned)
}

/// The frequency governor of CPU number `cpu`, such as `performance` or `powersave`.
pub fn cpu_governor(cpu: usize) -> Option<String> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
    Some(read_text(path).ok()?.trim().to_owned())
}

/// The configured value of `RemoveIPC`: whether systemd-logind removes a user's files in `/dev/shm`
/// at logout. The default of systemd is yes. Memfds are not affected.
pub fn remove_ipc() -> Option<bool> {
    let mut files: Vec<PathBuf> = vec![LOGIND.into()];
    let mut drop_ins: Vec<PathBuf> = LOGIND_DROP_INS.iter().flat_map(|dir| drop_ins(dir)).collect();
    // Drop-in files of systemd-logind are sorted by name across all directories. The last file that
    // sets the value applies.
    drop_ins.sort_by(|a, b| a.file_name().cmp(&b.file_name()));
    files.extend(drop_ins);
    files.iter().filter_map(|file| parse_remove_ipc(&read_text(file).ok()?)).next_back()
}

fn drop_ins(directory: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(Path::new(directory)) else { return Vec::new() };
    let paths = entries.take(DROP_INS_MAX).filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter(|path| path.extension().is_some_and(|e| e == "conf")).collect()
}

fn parse_remove_ipc(text: &str) -> Option<bool> {
    let mut values = text.lines().filter_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "RemoveIPC").then_some(value.trim())
    });
    match values.next_back()?.to_ascii_lowercase().as_str() {
        "yes" | "true" | "on" | "1" | "y" | "t" => Some(true),
        "no" | "false" | "off" | "0" | "n" | "f" => Some(false),
        _ => None,
    }
}

fn limit(resource: Resource) -> Limit {
    let limit = getrlimit(resource);
    Limit { soft: limit.current, hard: limit.maximum }
}

fn memory_info(name: &str) -> Option<u64> {
    let text = read_text("/proc/meminfo").ok()?;
    let kibibytes: u64 = field(&text, name)?.split_whitespace().next()?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// The chosen option in the text of a kernel setting: the word in brackets in `always within_size
/// [advise] never`.
fn chosen(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0)
}

/// Parses the release string of a kernel, such as `6.1.0-13-amd64`; missing numbers are 0.
fn parse_release(release: &str) -> KernelVersion {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    KernelVersion { major, minor, release: release.to_owned() }
}

const LOGIND: &str = "/etc/systemd/logind.conf";
const LOGIND_DROP_INS: [&str; 3] =
    ["/usr/lib/systemd/logind.conf.d", "/run/systemd/logind.conf.d", "/etc/systemd/logind.conf.d"];

/// Upper bound of the drop-in files of systemd-logind that are read; administrators have a handful.
const DROP_INS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_release_is_parsed() {
        let version = parse_release("6.1.0-13-amd64");
        assert_eq!((version.major, version.minor), (6, 1));
        assert!(
            version.is_at_least(5, 3) && version.is_at_least(6, 1) && !version.is_at_least(6, 2)
        );
        assert_eq!(parse_release("5.10+").minor, 10);
        assert_eq!(parse_release("odd").major, 0);
    }

    #[test]
    fn last_remove_ipc_setting_wins() {
        assert_eq!(parse_remove_ipc("[Login]\n#RemoveIPC=no\n"), None);
        assert_eq!(parse_remove_ipc("[Login]\nRemoveIPC=no\n"), Some(false));
        assert_eq!(parse_remove_ipc("RemoveIPC = no\nRemoveIPC = Yes\n"), Some(true));
    }

    #[test]
    fn chosen_word_is_in_brackets() {
        assert_eq!(chosen("always within_size [advise] never\n"), Some("advise"));
        assert_eq!(chosen("never"), None);
    }
}
