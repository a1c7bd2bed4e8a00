// SPDX-License-Identifier: MIT OR Apache-2.0
//! The CPUs of this machine, those that this process may use, and the CPU time that this process
//! has used.
//!
//! This file chooses no idle policy; it only supplies the facts for the choice.

use std::io;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use crate::procfs::read_text;

pub use crate::cgroup::cpu_quota;

/// Lets the calling thread run on CPU number `cpu` only.
///
/// # Errors
///
/// `EINVAL` if there is no such CPU, or the control group of this process may not use that CPU.
pub fn set_affinity(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// The numbers of the CPUs that the calling thread may run on, ascending.
///
/// # Errors
///
/// `EINVAL` on a machine with more CPUs than the kernel interface's set has room for.
pub fn affinity() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

/// The numbers of the CPUs that are switched on, ascending.
///
/// # Errors
///
/// If `/sys` cannot be read, the result is that of [`affinity`], and so are its errors.
pub fn online_cpus() -> io::Result<Vec<usize>> {
    match read_text("/sys/devices/system/cpu/online").ok().and_then(|text| parse_list(&text)) {
        Some(cpus) => Ok(cpus),
        None => affinity(),
    }
}

/// CPU time that all threads of this process used, user and system together.
pub fn process_cpu_time() -> Duration {
    clock(ClockId::ProcessCPUTime)
}

/// CPU time that the calling thread used, user and system together.
pub fn thread_cpu_time() -> Duration {
    clock(ClockId::ThreadCPUTime)
}

fn clock(id: ClockId) -> Duration {
    // The clocks that measure CPU time count up from zero, so the conversion cannot fail.
    Duration::try_from(clock_gettime(id)).unwrap_or_default()
}

/// Parses a list of CPU numbers in the kernel's form, such as `0-3,8`; `None` if `text` is no such
/// list.
fn parse_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last >= CPU_NUMBER_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// Upper bound of the CPU numbers that [`parse_list`] accepts, higher than on any machine. The
/// bound limits the memory that a line of text can make this process allocate.
const CPU_NUMBER_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_list_is_parsed() {
        assert_eq!(parse_list("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(parse_list("0\n"), Some(vec![0]));
        assert_eq!(parse_list("\n"), None);
        assert_eq!(parse_list("0-99999999999\n"), None);
    }

    #[test]
    fn cpu_time_only_grows() {
        let before = thread_cpu_time();
        while thread_cpu_time() == before {}
        assert!(process_cpu_time() >= before);
    }
}
