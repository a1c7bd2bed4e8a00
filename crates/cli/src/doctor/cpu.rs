// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of the CPUs for `partywall doctor`: their number, the quota of CPU time, and whether
//! spinning for a message pays.

use partywall_sys::cpu;

use super::finding::{Finding, Severity};

/// Checks how many processors this process may use, its quota of CPU time, and whether spinning
/// pays.
pub fn check() -> Vec<Finding> {
    let online = cpu::online_cpus().map_or(0, |cpus| cpus.len());
    let allowed = cpu::affinity().map_or(online, |cpus| cpus.len());
    let quota = cpu::cpu_quota();
    vec![cores(online, allowed), quota_of(quota), spinning(allowed, quota)]
}

fn cores(online: usize, allowed: usize) -> Finding {
    let state = format!("{online} online, {allowed} for this process");
    if allowed >= 2 {
        return Finding::ok("cores", state);
    }
    let advice = "if latency matters, give each side a core of its own (taskset, cpuset)";
    Finding::new(Severity::Note, "cores", state, advice)
}

fn quota_of(quota: Option<f64>) -> Finding {
    match quota {
        None => Finding::ok("CPU quota", "none"),
        Some(cpus) => Finding::new(
            Severity::Note,
            "CPU quota",
            format!("{cpus:.2} CPUs (control group)"),
            "a process that uses up the quota is stopped for tens of milliseconds: do not spin, or raise cpu.max",
        ),
    }
}

/// The finding on whether the library spins under `Wait::Adaptive`. The library does not spin with
/// a single CPU, which the peer needs, nor under a CPU quota, which spinning would use up.
fn spinning(allowed: usize, quota: Option<f64>) -> Finding {
    let subject = "spinning";
    match (allowed, quota) {
        (0 | 1, _) => Finding::new(
            Severity::Note,
            subject,
            "no: on one core, a spinning process keeps its peer from running",
            "keep the default (adaptive), which does not spin here; do not choose spin",
        ),
        (_, Some(_)) => Finding::new(
            Severity::Note,
            subject,
            "no: it would use up the CPU quota",
            "keep the default (adaptive), which does not spin here; do not choose spin",
        ),
        (cores, None) => Finding::ok(
            subject,
            match cores / 2 {
                1 => "pays for one pair; adaptive spins for 50 µs at most".to_owned(),
                pairs => {
                    format!(
                        "pays for up to {pairs} pairs at once; adaptive spins for 50 µs at most"
                    )
                }
            },
        ),
    }
}
