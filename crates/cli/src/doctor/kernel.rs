// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of the kernel for `partywall doctor`: its version, and each feature that Partywall uses,
//! by a trial.

use partywall_sys::limits;
use partywall_sys::probe::{Feature, probe};

use super::finding::{Finding, Severity};

/// Checks the version of the kernel and which of the features that Partywall uses the kernel has.
pub fn check() -> Vec<Finding> {
    let mut findings = vec![version()];
    findings.extend(Feature::ALL.into_iter().map(feature));
    findings.push(noexec());
    findings
}

fn version() -> Finding {
    let version = limits::kernel_version();
    let (major, minor) = VERSION_MIN;
    if version.is_at_least(major, minor) {
        return Finding::ok(
            "kernel",
            format!("Linux {} (at least {major}.{minor} needed)", version.release),
        );
    }
    // A kernel older than the minimum is only a warning. The trials of the single features decide,
    // because distributions backport some features to older kernels.
    Finding::new(
        Severity::Warn,
        "kernel",
        format!("Linux {} is older than {major}.{minor}", version.release),
        "upgrade the kernel; the findings below say which features are missing",
    )
}

fn feature(feature: Feature) -> Finding {
    let subject = feature.name();
    let Err(error) = probe(feature) else { return Finding::ok(subject, "works") };
    let severity = if feature.is_required() { Severity::Fail } else { Severity::Note };
    Finding::new(severity, subject, error.to_string(), remedy(feature))
}

fn remedy(feature: Feature) -> &'static str {
    match feature {
        Feature::SealableMemfd => "allow memfd_create and fcntl(F_ADD_SEALS) in the seccomp filter",
        Feature::NoExecSeal => "none needed: memfds work without it; Linux 6.3 has it",
        Feature::FutureWriteSeal => "upgrade to Linux 5.1 or newer",
        Feature::Region => "see the memory limits below; a region takes 128 KiB of shared memory",
        Feature::PidFd => "upgrade to Linux 5.3, or allow pidfd_open in the seccomp filter",
        Feature::EventFd => "allow eventfd2 in the seccomp filter, or raise `ulimit -n`",
        Feature::Credentials => "allow sendmsg with SCM_CREDENTIALS in the sandbox",
        _ => "see the documentation of this feature",
    }
}

fn noexec() -> Finding {
    let subject = "vm.memfd_noexec";
    match limits::memfd_noexec() {
        None => Finding::ok(subject, "unknown to this kernel: memfds work as before"),
        Some(level @ 0..=1) => {
            Finding::ok(subject, format!("{level}: memfds of Partywall are not executable"))
        }
        Some(level) => Finding::ok(
            subject,
            format!("{level}: only memfds that are not executable, as those of Partywall"),
        ),
    }
}

/// Version (major, minor) of the first Linux kernel with all features that Partywall needs.
const VERSION_MIN: (u32, u32) = (5, 3);
