// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of memory for `partywall doctor`: free memory, and the limits on memory, files and
//! mappings.

use partywall_sys::{cgroup, limits};

use super::finding::{Finding, Severity};
use partywall_bench::figure::quantity::size_name;

/// Checks the free memory, and the limits and settings of the system that affect shared memory.
pub fn check() -> Vec<Finding> {
    vec![
        available(limits::memory_available()),
        group(cgroup::memory_max(), cgroup::memory_current(), cgroup::memory_shared()),
        file_size(limits::file_size().soft),
        address_space(limits::address_space().soft),
        overcommit(limits::overcommit_policy()),
        huge_pages(limits::huge_shared_memory().as_deref()),
        remove_ipc(limits::remove_ipc()),
    ]
}

fn available(bytes: Option<u64>) -> Finding {
    let subject = "memory";
    let shared = limits::memory_shared().map_or(String::new(), |bytes| {
        format!(", {} shared by all processes now", size_name(bytes))
    });
    match bytes {
        None => Finding::new(
            Severity::Note,
            subject,
            "MemAvailable cannot be read",
            "mount /proc, if this is a sandbox",
        ),
        Some(bytes) if bytes < MEMORY_WANTED => Finding::new(
            Severity::Warn,
            subject,
            format!("{} available{shared}", size_name(bytes)),
            "set Config::memory_max (--memory) below its default of 64 MiB, or free memory",
        ),
        Some(bytes) => Finding::ok(subject, format!("{} available{shared}", size_name(bytes))),
    }
}

fn group(max: Option<u64>, current: Option<u64>, shared: Option<u64>) -> Finding {
    let subject = "cgroup memory";
    let Some(max) = max else { return Finding::ok(subject, "no limit") };
    let left = max.saturating_sub(current.unwrap_or(0));
    let shared =
        shared.map_or(String::new(), |bytes| format!(", {} of it shared", size_name(bytes)));
    let state = format!(
        "limit {}, {} used{shared}",
        size_name(max),
        current.map_or("unknown".to_owned(), size_name)
    );
    if left < MEMORY_WANTED {
        return Finding::new(
            Severity::Warn,
            subject,
            state,
            "shared memory counts for the control group of the sender, and beyond the limit the kernel \
             kills: raise memory.max, or lower Config::memory_max",
        );
    }
    Finding::ok(subject, state)
}

fn file_size(soft: Option<u64>) -> Finding {
    let subject = "RLIMIT_FSIZE";
    match soft {
        None => Finding::ok(subject, "unlimited"),
        Some(bytes) if bytes < REGION_BYTES => Finding::new(
            Severity::Fail,
            subject,
            format!("{}: too small for a region", size_name(bytes)),
            "the limit applies to memfds: `ulimit -f unlimited`",
        ),
        Some(bytes) if bytes < MEMORY_DEFAULT => Finding::new(
            Severity::Warn,
            subject,
            size_name(bytes),
            "the limit applies to memfds, and bounds each memory segment: `ulimit -f unlimited`",
        ),
        Some(bytes) => Finding::ok(subject, size_name(bytes)),
    }
}

fn address_space(soft: Option<u64>) -> Finding {
    let subject = "RLIMIT_AS";
    match soft {
        None => Finding::ok(subject, "unlimited"),
        Some(bytes) if bytes < 2 * MEMORY_DEFAULT => Finding::new(
            Severity::Warn,
            subject,
            size_name(bytes),
            "both regions of a channel are mapped: `ulimit -v unlimited`, or lower Config::memory_max",
        ),
        Some(bytes) => Finding::ok(subject, size_name(bytes)),
    }
}

fn overcommit(policy: Option<u64>) -> Finding {
    let subject = "overcommit";
    match policy {
        Some(2) => Finding::new(
            Severity::Note,
            subject,
            "2: the kernel promises no more memory than it has",
            "none needed: a large message gets an error instead of a killed process",
        ),
        Some(policy) => Finding::ok(subject, policy.to_string()),
        None => Finding::ok(subject, "unknown"),
    }
}

fn huge_pages(shmem: Option<&str>) -> Finding {
    let subject = "shmem huge pages";
    match shmem {
        Some(mode @ ("always" | "force")) => Finding::new(
            Severity::Note,
            subject,
            mode.to_owned(),
            "small channels opt out; `advise` in /sys/kernel/mm/transparent_hugepage/shmem_enabled \
             saves memory for other programs too",
        ),
        Some(mode) => Finding::ok(subject, mode.to_owned()),
        None => Finding::ok(subject, "unknown to this kernel"),
    }
}

fn remove_ipc(removes: Option<bool>) -> Finding {
    let subject = "RemoveIPC";
    match removes {
        None => Finding::ok(subject, "not configured; it does not affect memfds"),
        Some(true) => Finding::ok(subject, "yes; it affects files in /dev/shm, and no memfds"),
        Some(false) => Finding::ok(subject, "no"),
    }
}

/// The default of the setting `Config::memory_max`, the maximum size of the shared memory that each
/// side of a channel allocates for large messages, in bytes.
const MEMORY_DEFAULT: u64 = 64 << 20;

/// Memory that both sides of one channel may take together by default, in bytes. If less is free,
/// `doctor` gives advice.
const MEMORY_WANTED: u64 = 2 * MEMORY_DEFAULT;

/// Size of the region that one side of an idle channel creates, in bytes. With a lower limit on the
/// size of files, no channel can use shared memory.
const REGION_BYTES: u64 = 128 << 10;
