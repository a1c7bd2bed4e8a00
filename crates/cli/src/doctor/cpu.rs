// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processors: how many, how much of them, and whether spinning on them is wise.

use partywall_sys::cpu;

use super::finding::{Finding, Severity};

/// Looks at the processors.
pub fn look() -> Vec<Finding> {
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
    let advice = "give both sides a core each if latency matters (taskset, cpuset)";
    Finding::told(Severity::Note, "cores", state, advice)
}

fn quota_of(quota: Option<f64>) -> Finding {
    match quota {
        None => Finding::ok("CPU quota", "none"),
        Some(cpus) => Finding::told(
            Severity::Note,
            "CPU quota",
            format!("{cpus:.2} CPUs by control group"),
            "whoever uses it up is stopped for tens of milliseconds: do not spin, or lift cpu.max",
        ),
    }
}

/// As the library decides it for `Wait::Adaptive`.
fn spinning(allowed: usize, quota: Option<f64>) -> Finding {
    let subject = "spinning";
    match (allowed, quota) {
        (0 | 1, _) => Finding::told(
            Severity::Note,
            subject,
            "not wise: on one core, whoever spins keeps the other side from running",
            "leave the default (adaptive): it does not spin here; never choose spin",
        ),
        (_, Some(_)) => Finding::told(
            Severity::Note,
            subject,
            "not wise: it would use up the CPU quota",
            "leave the default (adaptive): it does not spin here; never choose spin",
        ),
        (cores, None) => Finding::ok(
            subject,
            format!(
                "wise for up to {} pairs at a time; adaptive does it for 50 µs at most",
                cores / 2
            ),
        ),
    }
}
