// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel: its version, and each feature, tried.

use partywall_sys::limits;
use partywall_sys::probe::{Feature, probe};

use super::finding::{Finding, Severity};

/// Looks at the kernel.
pub fn look() -> Vec<Finding> {
    let mut findings = vec![version()];
    findings.extend(Feature::ALL.into_iter().map(feature));
    findings.push(noexec());
    findings
}

fn version() -> Finding {
    let version = limits::kernel_version();
    let (major, minor) = FLOOR;
    if version.is_at_least(major, minor) {
        return Finding::ok(
            "kernel",
            format!("Linux {} (at least {major}.{minor} needed)", version.release),
        );
    }
    // The features below decide; distributions carry some of them back to older kernels.
    Finding::told(
        Severity::Warn,
        "kernel",
        format!("Linux {} is older than {major}.{minor}", version.release),
        "upgrade the kernel; until then the findings below say what is missing",
    )
}

fn feature(feature: Feature) -> Finding {
    let subject = feature.name();
    let Err(error) = probe(feature) else { return Finding::ok(subject, "works") };
    let severity = if feature.is_required() { Severity::Fail } else { Severity::Note };
    Finding::told(severity, subject, error.to_string(), remedy(feature))
}

fn remedy(feature: Feature) -> &'static str {
    match feature {
        Feature::SealableMemfd => {
            "allow memfd_create and fcntl(F_ADD_SEALS) in the sandbox's filter"
        }
        Feature::NoExecSeal => "nothing: Linux 6.3 has it, and memfds work without",
        Feature::FutureWriteSeal => "upgrade to Linux 5.1 or newer",
        Feature::Region => "see the memory limits below; a half takes 192 KiB of shared memory",
        Feature::PidFd => "upgrade to Linux 5.3, or allow pidfd_open in the sandbox's filter",
        Feature::EventFd => "allow eventfd2 in the sandbox's filter, or raise `ulimit -n`",
        Feature::Credentials => "allow sendmsg with SCM_CREDENTIALS in the sandbox",
        _ => "see the documentation of this feature",
    }
}

fn noexec() -> Finding {
    let subject = "vm.memfd_noexec";
    match limits::memfd_noexec() {
        None => Finding::ok(subject, "not known to this kernel: memfds as ever"),
        Some(level @ 0..=1) => {
            Finding::ok(subject, format!("{level}: our memfds ask for no execution"))
        }
        Some(level) => Finding::ok(
            subject,
            format!("{level}: only memfds that nobody can execute, which is what ours are"),
        ),
    }
}

/// Since then the kernel has all that is needed.
const FLOOR: (u32, u32) = (5, 3);
